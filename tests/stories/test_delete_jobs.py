"""A job deletes rows, once by its id, whatever is delivered twice (rule DEL-6)."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, JobInvalid, QueryInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.model.authors import committing
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.model.known_properties.state_store import STATE_STORES
from sleeper.state.table_state import CommittedJobs
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server
from tests.stories.test_ingest_jobs import work
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
WAYS = pytest.mark.parametrize("way", ["python", "command line", "server", "message"])
ASKED = pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({"key": "b"}, "acd"),
        ({"keys": ["a", "d", "x"]}, "bc"),
        ({"range": {"k": ("b", "d")}}, "ad"),
        ({"regions": [{"k": ("a", "b")}, {"k": ("c", None)}]}, "b"),
        ({"prefix": {"k": "c"}}, "abd"),
        ({"where": "v > 2"}, "ab"),
        ({"where": "v > 99"}, "abcd"),
    ],
    ids=["key", "keys", "range", "regions", "prefix", "where", "no row"],
)
FEW_OR_WHERE = pytest.mark.parametrize(
    "asked", [{"keys": ["a"]}, {"where": "v = 1"}], ids=["one entry", "written out"]
)


def rows(keys="abcd"):
    return pa.table({"k": [*keys], "v": [1 + "abcd".find(key) for key in keys]}, schema=SCHEMA)


@pytest.fixture
def instance(tmp_path):
    """An instance in a folder with a table of four rows in two leaves."""
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        table = opened.create_table("t", SCHEMA, row_keys=["k"], split_points=["c"])
        table.ingest(rows())
        yield opened


def left(instance):
    """The keys that are left."""
    return "".join(row["k"] for row in instance.table("t").query().to_pylist())


def send(instance, **message):
    """Send a message as a client of another language does."""
    instance.jobs.send("ingest", json.dumps(message))


class TestJobs:
    """Rows go when a worker runs the job."""

    @ASKED
    def test_delete_what_the_verb_deletes(self, instance, asked, left):
        """Given each way to name rows, then a job deletes them as `Table.delete` does."""
        job_id = instance.jobs.submit_delete("t", **asked)
        assert instance.jobs.job(job_id).state is JobState.ACCEPTED

        assert work(instance) == 1

        status = instance.jobs.job(job_id)
        assert (status.state, status.transaction) == (
            JobState.FINISHED,
            instance.table("t").refresh(),
        )
        assert "".join(row["k"] for row in instance.table("t").query().to_pylist()) == left

    @WAYS
    def test_are_submitted_in_any_way(self, instance, way):
        """Given an id and a reason, then the history has the reason."""
        if way == "python":
            instance.jobs.submit_delete("t", keys=["a", "c"], job_id="d", reason="ticket 4711")
        elif way == "command line":
            where = ("--instance", instance.url, "--submit", "--job-id", "d", "--force")
            keys = ("--key", "k=a", "--key", "k=c")
            done = command("--reason", "ticket 4711", "delete", "t", *keys, *where)
            assert done.exit_code == 0, done.output
            assert "submitted job d" in done.output
        elif way == "server":
            with running_server(make_app(instance)) as url, sleeper.connect(url, token="x") as far:
                far.jobs.submit_delete("t", keys=["a", "c"], job_id="d", reason="ticket 4711")
                assert far.jobs.job("d").state is JobState.ACCEPTED
        else:
            asked = {"keys": ["a", "c"], "reason": "ticket 4711"}
            send(instance, id="d", tableName="t", delete=asked)

        assert work(instance) == 1

        assert instance.jobs.job("d").state is JobState.FINISHED
        assert left(instance) == "bd"
        assert instance.table("t").history(1)[0].reasons == ("ticket 4711",)

    def test_say_why_as_the_block_does_in_which_they_are_submitted(self, instance):
        """As every commit does."""
        with committing(reason="ticket 12"):
            instance.jobs.submit_delete("t", key="a")

        work(instance)

        assert instance.table("t").history(1)[0].reasons == ("ticket 12",)

    def test_of_many_keys_write_a_file_of_them(self, instance):
        """Given more keys than an entry names, older files lose those of a file."""
        table = instance.table("t")
        table.ingest({"k": [f"e{n:04}" for n in range(1_500)], "v": [0] * 1_500})
        instance.jobs.submit_delete("t", keys=[f"e{n:04}" for n in range(1_200)])

        work(instance)

        assert (table.count(), len(table.state().key_files())) == (304, 1)

    def test_without_an_id_have_that_of_their_message(self, instance):
        """So that a message which comes twice is one job."""
        send(instance, tableName="t", delete={"key": "a"})
        queue = instance.jobs.stores.queue(QueueName.INGEST)
        (message,) = queue.receive()
        queue.release(message.receipt)

        work(instance)

        assert instance.jobs.job(message.message_id).state is JobState.FINISHED
        assert left(instance) == "bcd"


class TestOnce:
    """A deletion that is repeated by its id spares rows that were added since."""

    @FEW_OR_WHERE
    def test_a_message_that_comes_twice(self, instance, asked):
        """Given a worker killed between commit and delete of its message, then newer rows stay."""
        table = instance.table("t")
        instance.jobs.submit_delete("t", **asked, job_id="d")
        queue = instance.jobs.stores.queue(QueueName.INGEST)
        (message,) = queue.receive()
        first = table.delete(**asked, job_id="d").transaction
        table.ingest(rows("a"))
        queue.release(message.receipt)

        assert work(instance) == 1

        status = instance.jobs.job("d")
        assert (status.state, status.transaction) == (JobState.FINISHED, first)
        assert left(instance) == "abcd"

    @FEW_OR_WHERE
    @pytest.mark.parametrize("door", ["python", "server", "command line"])
    def test_a_call_that_is_repeated(self, instance, asked, door):
        """It says that the id was committed before, and deletes nothing."""
        table = instance.table("t")
        first = table.delete(**asked, job_id="d")
        assert (first.job_id, first.already_committed) == ("d", False)
        table.ingest(rows("a"))

        if door == "python":
            again = table.delete(**asked, job_id="d")
            assert (again.transaction, again.already_committed) == (first.transaction, True)
        elif door == "server":
            with running_server(make_app(instance)) as url, sleeper.connect(url, token="x") as far:
                again = far.table("t").delete(**asked, job_id="d")
            assert (again.transaction, again.already_committed) == (first.transaction, True)
        else:
            options = ("--where", "v = 1", "--job-id", "d", "--force", "--instance", instance.url)
            done = command("delete", "t", *options)
            assert "nothing to do" in done.output

        assert left(instance) == "abcd"

    @FEW_OR_WHERE
    def test_another_process_commits_the_same_job_first(self, instance, asked, monkeypatch):
        """Given two workers with the same message, then the later one deletes nothing."""
        table, other = instance.table("t"), sleeper.connect(instance.url).table("t")
        find, raced = CommittedJobs.find, []

        def find_then_race(jobs, job_id):
            found = find(jobs, job_id)
            if not raced:
                raced.append(job_id)
                other.delete(**asked, job_id="d")
                other.ingest(rows("a"))
            return found

        monkeypatch.setattr(CommittedJobs, "find", find_then_race)

        done = table.delete(**asked, job_id="d")

        assert (raced, done.already_committed) == (["d"], True)
        assert left(instance) == "abcd"

    def test_an_id_names_one_work_of_a_table(self, instance):
        """Given an ingest of this id, then the deletion was done before: the id is used."""
        instance.table("t").ingest(rows("a"), job_id="x")

        assert instance.table("t").delete(key="b", job_id="x").already_committed
        assert instance.table("t").count() == 5

    def test_nothing_to_delete_is_remembered_too(self, instance):
        """Given a key that no row has, when it is added later, then the same id spares it."""
        table = instance.table("t")
        table.delete(where="k = 'z'", job_id="d")
        table.ingest(rows("z"))

        assert table.delete(where="k = 'z'", job_id="d").already_committed
        assert left(instance) == "abcdz"

    @pytest.mark.parametrize("blank", ["", " "])
    def test_a_blank_id_is_refused(self, instance, blank):
        """It would name each work of a script whose variable is empty."""
        with pytest.raises(BadRequest, match="job_id"):
            instance.table("t").delete(key="a", job_id=blank)
        with pytest.raises(BadRequest, match="job_id"):
            instance.jobs.submit_delete("t", key="a", job_id=blank)


class TestRefusals:
    """What makes no sense is told, and nothing is deleted."""

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            ({"delete": {}}, "delete: say which rows, by one of key, keys"),
            ({"delete": {"key": None}}, "delete: say which rows, by one of key, keys"),
            ({"delete": {"keyz": ["a"], "key": "a"}}, "delete: 'keyz' is none of key, keys"),
            ({"delete": {"key": "a"}, "files": ["a"]}, "delete: such a job adds no rows"),
            ({"delete": {"key": "a"}, "upsert": True}, "delete: such a job adds no rows"),
            ({"delete": {"key": 7}}, "delete: "),
            ({"delete": {"keys": "abc"}}, "delete: "),
            ({"delete": {"range": {"k": [None, None]}}}, "delete: delete needs a key"),
            ({"delete": {"range": {"x": ["a", "b"]}}}, "delete: "),
            ({"delete": {"prefix": {"v": "a"}}}, "delete: "),
            ({"delete": {"where": 7}}, "delete: where is a condition in SQL, not 7"),
            ({"delete": {"where": "v = 1", "key": "a"}}, "delete: where stands alone"),
            ({"delete": {"key": "a", "reason": ""}}, "delete: reason is a text"),
            ({"delete": {"key": "a"}, "tableName": "u"}, "Table not found: u"),
        ],
        ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
    )
    def test_of_messages(self, instance, message, reason):
        """Given a message of others, then its job is rejected with the reason."""
        send(instance, **{"id": "d", "tableName": "t", **message})

        work(instance)

        status = instance.jobs.job("d")
        assert status.state is JobState.REJECTED
        assert any(each.startswith(reason) for each in status.reasons), status.reasons
        assert left(instance) == "abcd"

    @pytest.mark.parametrize("value", ["all", 1, True, ["a"]], ids=repr)
    def test_a_value_that_is_no_object(self, instance, value):
        """The reason names the field."""
        send(instance, tableName="t", delete=value)

        work(instance)

        (rejected,) = instance.jobs.list(state="REJECTED")
        assert "delete: must be an object, not " in rejected.reasons[0]

    @pytest.mark.parametrize("where", ["nothing = 1", "v >", "random() < 0.5", "v = v; drop"])
    def test_a_condition_that_does_not_fit_fails_the_job(self, instance, where):
        """It has failed for good, and the table is as before."""
        instance.jobs.submit_delete("t", where=where, job_id="d")

        work(instance)

        status = instance.jobs.job("d")
        assert (status.state, status.is_over) == (JobState.FAILED, True)
        assert left(instance) == "abcd"

    @pytest.mark.parametrize(
        "asked",
        [{}, {"key": 7}, {"range": {"k": (None, None)}}, {"where": "v = 1", "key": "a"}],
        ids=repr,
    )
    def test_of_who_submits(self, instance, asked):
        """Nothing is sent."""
        with pytest.raises((JobInvalid, QueryInvalid)):
            instance.jobs.submit_delete("t", **asked)

        assert work(instance) == 0

    def test_a_bulk_import(self, instance):
        """A message to its queue is rejected."""
        message = {"id": "d", "tableName": "t", "files": [], "delete": {"key": "a"}}
        instance.jobs.send("bulk-import", json.dumps(message))

        work(instance, "bulk-import")

        assert "delete: a bulk import adds rows" in "; ".join(instance.jobs.job("d").reasons)
        assert left(instance) == "abcd"


@on_one_server
@pytest.mark.parametrize("store", STATE_STORES)
def test_whatever_keeps_the_state(tmp_path, dynamo_environment, store):
    """Given each state store, then jobs by keys and by a condition are done once."""
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        table = instance.create_table(
            "t",
            SCHEMA,
            row_keys=["k"],
            split_points=["c"],
            properties={"sleeper.table.statestore.classname": store},
        )
        table.ingest(rows())
        for _ in range(2):
            instance.jobs.submit_delete("t", keys=["a"], job_id="keys")
            instance.jobs.submit_delete("t", where="v = 3", job_id="where")
            work(instance)
            table.ingest(rows("ac"))
            assert table.verify().clean

        assert left(instance) == "aabccd"
