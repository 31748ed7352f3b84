"""A job replaces rows by their keys, once, whoever commits beside it (rule ING-18)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, JobInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.model.jobs.submitted_files import FileState
from sleeper.model.known_properties.state_store import STATE_STORES
from sleeper.workers.kinds.batcher import run_batcher
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server
from tests.stories.test_ingest_jobs import SCHEMA, instance, work, written
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

__all__ = ["dynamo_endpoint", "dynamo_environment", "instance", "s3_credentials"]

ASYNC = {"sleeper.table.statestore.commit.async.enabled": "true"}
WAYS = pytest.mark.parametrize("way", ["python", "command line", "server", "message"])


def numbers(instance):
    """The values of the table by their keys; two rows of one key fail."""
    rows = instance.table("numbers").query().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["n"] for row in rows}


def tens(path, *keys):
    """Write a file with ten times the value for each of these keys."""
    rows = {"id": [f"{key:04}" for key in keys], "n": [10 * key for key in keys]}
    pq.write_table(pa.table(rows, schema=SCHEMA), path)
    return path


@WAYS
def test_rows_of_the_same_keys_are_replaced(instance, tmp_path, way):
    """Given rows, when an upsert job is submitted in any way and run, each key has one row."""
    instance.table("numbers").ingest(written(tmp_path / "old.parquet", 1, 2))
    path = tens(tmp_path / "new.parquet", 2, 3)
    if way == "python":
        instance.jobs.submit_ingest("numbers", path, "u", upsert=True)
    elif way == "command line":
        where = ("--instance", instance.url)
        done = command("jobs", "submit", "numbers", path, "--id", "u", "--upsert", *where)
        assert done.exit_code == 0, done.output
    elif way == "server":
        app = make_app(instance, input_folder=tmp_path)
        with running_server(app) as url, sleeper.connect(url, token="unused") as remote:
            remote.jobs.submit_ingest("numbers", str(path), "u", upsert=True)
    else:
        message = {"id": "u", "tableName": "numbers", "files": [str(path)], "upsert": True}
        instance.jobs.send("ingest", json.dumps(message))

    assert work(instance) == 1

    status = instance.jobs.job("u")
    assert (status.state, status.transaction) == (
        JobState.FINISHED,
        instance.table("numbers").refresh(),
    )
    assert numbers(instance) == {"0001": 1, "0002": 20, "0003": 30}


def test_a_job_that_says_false_adds_rows(instance, tmp_path):
    """Given a message with `"upsert": false`, then it is an ingest as any other."""
    path = written(tmp_path / "a.parquet", 1)
    instance.table("numbers").ingest(path)
    message = {"tableName": "numbers", "files": [str(path)], "upsert": False}
    instance.jobs.send("ingest", json.dumps(message))

    work(instance)

    assert instance.table("numbers").count() == 2


@pytest.mark.parametrize("written_out", [False, True], ids=["one entry", "written out"])
def test_a_message_that_comes_twice_replaces_nothing_again(instance, tmp_path, written_out):
    """Given a worker killed between commit and delete of its message, then newer rows stay."""
    table = instance.table("numbers")
    if written_out:
        table.downgrade()
    table.ingest(written(tmp_path / "old.parquet", 1, 2))
    path = tens(tmp_path / "new.parquet", 2)
    instance.jobs.submit_ingest("numbers", path, "u", upsert=True)
    queue = instance.jobs.stores.queue(QueueName.INGEST)
    (message,) = queue.receive()
    first = table.upsert([str(path)], "u").transaction
    table.upsert([{"id": "0002", "n": 7}])
    queue.release(message.receipt)

    assert work(instance) == 1

    assert (instance.jobs.job("u").state, instance.jobs.job("u").transaction) == (
        JobState.FINISHED,
        first,
    )
    assert numbers(instance) == {"0001": 1, "0002": 7}


def test_it_is_committed_at_once_where_others_go_through_the_committer(instance, tmp_path):
    """Given a committer, when both kinds of jobs run, then the upsert is one entry, by its worker.

    What it deletes and writes anew depends on the table at its commit.
    """
    table = instance.table("numbers")
    table.set_properties(ASYNC)
    table.ingest(written(tmp_path / "old.parquet", 1, 2))
    before = table.refresh()
    instance.jobs.submit_ingest("numbers", tens(tmp_path / "u.parquet", 2), "u", upsert=True)
    instance.jobs.submit_ingest("numbers", written(tmp_path / "i.parquet", 3), "i")

    assert work(instance) == 2

    assert instance.jobs.job("u").state is JobState.FINISHED
    assert instance.jobs.job("i").state is JobState.UNCOMMITTED
    assert numbers(instance) == {"0001": 1, "0002": 20}
    changes = [each.number for each in table.history() if each.number > before]
    assert len(changes) <= 2  # files are claimed before they are written anew
    assert work(instance, "commit") == 1
    assert numbers(instance) == {"0001": 1, "0002": 20, "0003": 3}


def test_rows_that_a_committer_adds_later_are_no_part_of_it(instance, tmp_path):
    """Given a request of the same key that waits, then its row comes beside the upserted one."""
    table = instance.table("numbers")
    table.set_properties(ASYNC)
    instance.jobs.submit_ingest("numbers", written(tmp_path / "i.parquet", 2), "i")
    instance.jobs.submit_ingest("numbers", tens(tmp_path / "u.parquet", 2), "u", upsert=True)
    work(instance)

    work(instance, "commit")

    assert sorted(row["n"] for row in table.query().to_pylist()) == [2, 20]


class TestBulkImports:
    """A job of the queue of bulk imports replaces rows as well."""

    @WAYS
    def test_rows_of_the_same_keys_are_replaced(self, instance, tmp_path, way):
        """Given rows, when such a job is submitted in any way and run, each key has one row."""
        instance.table("numbers").ingest(written(tmp_path / "old.parquet", 4, 5))
        path = tens(tmp_path / "new.parquet", 5, 6)
        if way == "python":
            instance.jobs.submit_bulk_import("numbers", path, "u", upsert=True)
        elif way == "command line":  # without a queue: by this process
            where = ("--instance", instance.url)
            done = command("bulk-import", "numbers", path, "--job-id", "u", "--upsert", *where)
            assert done.exit_code == 0, done.output
        elif way == "server":
            app = make_app(instance, input_folder=tmp_path)
            with running_server(app) as url, sleeper.connect(url, token="unused") as remote:
                remote.jobs.submit_bulk_import("numbers", str(path), "u", upsert=True)
        else:
            message = {"id": "u", "tableName": "numbers", "files": [str(path)], "upsert": True}
            instance.jobs.send("bulk-import", json.dumps(message))

        assert work(instance, "bulk-import") == (0 if way == "command line" else 1)

        assert instance.jobs.job("u").state is JobState.FINISHED
        assert numbers(instance) == {"0004": 4, "0005": 50, "0006": 60}

    def test_it_is_committed_at_once_where_others_go_through_the_committer(
        self, instance, tmp_path
    ):
        """Given a committer, when both kinds of jobs run, then the upsert needs none."""
        table = instance.table("numbers")
        table.set_properties(ASYNC)
        table.ingest(written(tmp_path / "old.parquet", 4, 5))
        new, more = tens(tmp_path / "u.parquet", 4), written(tmp_path / "i.parquet", 6)
        instance.jobs.submit_bulk_import("numbers", new, "u", upsert=True)
        instance.jobs.submit_bulk_import("numbers", more, "i")

        work(instance, "bulk-import")

        states = {job.job_id: job.state for job in instance.jobs.list()}
        assert states == {"u": JobState.FINISHED, "i": JobState.UNCOMMITTED}
        assert numbers(instance) == {"0004": 40, "0005": 5}

    def test_a_saved_job_says_so(self, instance, tmp_path):
        """Given --upsert and a cluster, then the job that its driver reads is one."""
        path = tens(tmp_path / "u.parquet", 4)
        done = command(
            *("bulk-import", "numbers", path, "--upsert", "--submit", "spark-submit", "--dry-run"),
            *("--master", "spark://far:7077", "--json", "--instance", instance.url),
        )

        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["job"]["upsert"] is True

    def test_a_plan_replaces_nothing(self, instance, tmp_path):
        """Given --upsert with --explain, then the command is refused."""
        path = tens(tmp_path / "u.parquet", 4)
        where = ("--instance", instance.url)
        done = command("bulk-import", "numbers", path, "--upsert", "--explain", *where)

        assert (done.exit_code, "leave out --explain" in done.output) == (2, True)


def batched(instance, **properties):
    """Take what was submitted, make jobs of it, and return how many went."""
    given = {"ingest.queue": "standard_ingest", "job.min.size": "0"} | properties
    prefix = "sleeper.table.ingest.batcher."
    instance.table("numbers").set_properties({f"{prefix}{name}": v for name, v in given.items()})
    work(instance, "batcher")
    return run_batcher(instance.jobs, datetime.now(UTC))


class TestBatchedFiles:
    """Files that were submitted as upserts become jobs that replace rows (BAT-1, BAT-4)."""

    @WAYS
    @pytest.mark.parametrize(
        ("batcher_queue", "kind"),
        [("standard_ingest", "ingest"), ("bulk_import_eks", "bulk-import")],
    )
    def test_rows_of_the_same_keys_are_replaced(self, instance, tmp_path, way, batcher_queue, kind):
        """Given files that are submitted in any way, for jobs of any queue, each key has one row."""
        instance.table("numbers").ingest(written(tmp_path / "old.parquet", 1, 2, 3))
        paths = [tens(tmp_path / "a.parquet", 2, 4), tens(tmp_path / "b.parquet", 3)]
        if way == "python":
            instance.jobs.submit_files("numbers", paths, upsert=True)
        elif way == "command line":
            where = ("--instance", instance.url)
            done = command("batcher", "submit", "numbers", *paths, "--upsert", *where)
            assert (done.exit_code, "whose rows replace others" in done.output) == (0, True)
        elif way == "server":
            app = make_app(instance, input_folder=tmp_path)
            with running_server(app) as url, sleeper.connect(url, token="unused") as remote:
                remote.jobs.submit_files("numbers", [*map(str, paths)], upsert=True)
                work(instance, "batcher")
                assert {file.upsert for file in remote.jobs.submitted_files()} == {True}
        else:
            message = {"tableName": "numbers", "files": [*map(str, paths)], "upsert": True}
            instance.jobs.send("batcher", json.dumps(message))

        sent = batched(instance, **{"ingest.queue": batcher_queue})

        assert (sent.jobs, sent.files) == (1, 2)
        assert work(instance, kind) == 1
        assert {file.state for file in instance.jobs.submitted_files()} == {FileState.FINISHED}
        assert numbers(instance) == {"0001": 1, "0002": 20, "0003": 30, "0004": 40}

    def test_they_are_in_jobs_of_their_own(self, instance, tmp_path):
        """Given files of both kinds, then one job adds rows, and one replaces them."""
        instance.jobs.submit_files("numbers", written(tmp_path / "add.parquet", 1, 2))
        instance.jobs.submit_files("numbers", tens(tmp_path / "put.parquet", 3), upsert=True)

        assert batched(instance).jobs == 2

        by_job = {file.job_id: file.upsert for file in instance.jobs.submitted_files()}
        assert sorted(by_job.values()) == [False, True]
        report = command("batcher", "report", "--instance", instance.url).output
        lines = [line.split() for line in report.splitlines() if ".parquet" in line]
        assert [("replaced" in line, "added" in line) for line in lines] == [
            *((True, False), (False, True)),
        ]
        queue = instance.jobs.stores.queue(QueueName.INGEST)
        messages = [json.loads(each.body) for each in queue.receive(10)]
        assert {each["id"]: each.get("upsert", False) for each in messages} == by_job

    def test_a_file_that_is_submitted_again_is_what_was_said_last(self, instance, tmp_path):
        """Given a pending file, when it comes as an upsert, then it is one."""
        path = tens(tmp_path / "a.parquet", 1)
        instance.jobs.submit_files("numbers", path)
        instance.jobs.submit_files("numbers", path, upsert=True)

        batched(instance)

        assert [file.upsert for file in instance.jobs.submitted_files()] == [True]

    def test_a_job_that_is_retried_replaces_rows_still(self, instance, tmp_path):
        """Given a job one of whose files was gone, when it is retried, then it is an upsert."""
        instance.table("numbers").ingest(written(tmp_path / "old.parquet", 1, 2))
        paths = [tens(tmp_path / "a.parquet", 1), tens(tmp_path / "b.parquet", 2)]
        instance.jobs.submit_files("numbers", paths, upsert=True)
        batched(instance)
        paths[1].unlink()
        work(instance)
        assert {file.state for file in instance.jobs.submitted_files()} == {FileState.REJECTED}

        instance.jobs.retry_files()
        run_batcher(instance.jobs, datetime.now(UTC))
        work(instance)

        assert numbers(instance) == {"0001": 10, "0002": 2}

    def test_a_key_that_is_in_two_of_its_files(self, instance, tmp_path):
        """The job has failed for good, and the report of its files names the key."""
        paths = [tens(tmp_path / "a.parquet", 7, 8), tens(tmp_path / "b.parquet", 8)]
        instance.jobs.submit_files("numbers", paths, upsert=True)
        batched(instance)

        work(instance)

        files = [*instance.jobs.submitted_files()]
        assert {file.state for file in files} == {FileState.FAILED}
        assert all("'0008'" in file.reasons[0] for file in files)
        assert instance.table("numbers").count() == 0


class TestRefusals:
    """What cannot be replaced is told, and nothing is changed."""

    @pytest.mark.parametrize("value", ["true", "yes", 1, 0, 1.0, [], {}, [True]], ids=repr)
    def test_a_value_that_is_neither_true_nor_false(self, instance, tmp_path, value):
        """A message of others with it is rejected, and says which field it is."""
        path = written(tmp_path / "a.parquet", 1)
        message = {"id": "u", "tableName": "numbers", "files": [str(path)], "upsert": value}
        instance.jobs.send("ingest", json.dumps(message))

        work(instance)

        (rejected,) = instance.jobs.list(state="REJECTED")
        (reason,) = rejected.reasons
        assert "upsert: must be true or false, not " in reason
        assert instance.table("numbers").count() == 0

    @pytest.mark.parametrize("value", ["true", 1, None], ids=repr)
    def test_such_a_value_in_python(self, instance, tmp_path, value):
        """Nothing is sent."""
        path = written(tmp_path / "a.parquet", 1)
        jobs = instance.jobs
        for submit in (jobs.submit_ingest, jobs.submit_bulk_import, jobs.submit_files):
            with pytest.raises(BadRequest, match=r"upsert is .*, but it must be True or False"):
                submit("numbers", path, upsert=value)

        assert [work(instance, kind) for kind in ("ingest", "bulk-import", "batcher")] == [0, 0, 0]

    def test_a_table_that_sums(self, instance, tmp_path):
        """By who submits, and by the worker where a message comes from elsewhere."""
        instance.create_table(
            "sums",
            pa.schema([SCHEMA.field("id"), pa.field("n", pa.int64(), nullable=False)]),
            row_keys=["id"],
            properties={"sleeper.table.aggregations": "SUM(n)"},
        )
        path = written(tmp_path / "a.parquet", 1)
        jobs = instance.jobs
        for submit in (jobs.submit_ingest, jobs.submit_bulk_import, jobs.submit_files):
            with pytest.raises(JobInvalid, match=r"upsert: table 'sums' unites rows of equal keys"):
                submit("sums", path, upsert=True)
        message = {"id": "u", "tableName": "sums", "files": [str(path)], "upsert": True}
        instance.jobs.send("ingest", json.dumps(message))

        work(instance)

        status = instance.jobs.job("u")
        assert (status.state, len(status.reasons)) == (JobState.REJECTED, 1)
        assert "unites rows of equal keys" in status.reasons[0]

    def test_a_key_that_comes_twice(self, instance, tmp_path):
        """The job has failed for good, and names the key; the table is as before."""
        instance.table("numbers").ingest(written(tmp_path / "old.parquet", 1))
        files = [tens(tmp_path / "a.parquet", 1, 2), tens(tmp_path / "b.parquet", 2)]
        instance.jobs.submit_ingest("numbers", files, "u", upsert=True)

        work(instance)

        status = instance.jobs.job("u")
        assert (status.state, status.is_over) == (JobState.FAILED, True)
        assert "'0002'" in status.reasons[0]
        assert numbers(instance) == {"0001": 1}

    def test_a_deletion_by_the_batcher(self, instance, tmp_path):
        """It gathers files, so nothing of a submission that says so is taken (BAT-1)."""
        path = written(tmp_path / "a.parquet", 1)
        asked = {"tableName": "numbers", "files": [str(path)], "delete": {"key": "0001"}}
        instance.jobs.send("batcher", json.dumps(asked))

        work(instance, "batcher")

        (letter,) = instance.jobs.dead_letters("batcher")
        assert "delete: the batcher takes files of rows" in letter.reason
        assert [*instance.jobs.submitted_files()] == []


@on_one_server
@pytest.mark.parametrize("store", STATE_STORES)
def test_whatever_keeps_the_state(tmp_path, dynamo_environment, store):
    """Given each state store, then few keys and a job that comes again are one change each."""
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        table = instance.create_table(
            "numbers",
            SCHEMA,
            row_keys=["id"],
            properties={"sleeper.table.statestore.classname": store},
        )
        table.ingest(written(tmp_path / "old.parquet", 1, 2))
        path = tens(tmp_path / "u.parquet", 2)
        for _ in range(2):
            instance.jobs.submit_ingest("numbers", path, "u", upsert=True)
            work(instance)

        assert numbers(instance) == {"0001": 1, "0002": 20}
        assert table.verify().clean
