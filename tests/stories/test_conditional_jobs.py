"""A job that relies on a version fails for good where its leaves have changed since (DEL-5)."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest
from sleeper.interfaces.rest.app import make_app
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from tests.stories.test_ingest_jobs import work
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema([pa.field("k", pa.string(), nullable=False), ("v", pa.int64())])
ASYNC = {"sleeper.table.statestore.commit.async.enabled": "true"}
KINDS = pytest.mark.parametrize("kind", ["ingest", "upsert", "delete", "bulk-import"])
WAYS = pytest.mark.parametrize("way", ["python", "command line", "server", "message"])


@pytest.fixture
def instance(tmp_path):
    """An instance in a folder with a table of four rows in two leaves."""
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        table = opened.create_table("t", SCHEMA, row_keys=["k"], split_points=["m"])
        table.ingest(rows("adnq", 1))
        yield opened


def rows(keys, value):
    return pa.table({"k": [*keys], "v": [value] * len(keys)}, schema=SCHEMA)


def found(instance):
    """The rows of the table, in order of their keys and values."""
    return sorted((row["k"], row["v"]) for row in instance.table("t").query().to_pylist())


def after(kind):
    """The rows after a job of each kind, which is about the key d."""
    changed = {
        "ingest": [("d", 1), ("d", 7)],
        "bulk-import": [("d", 1), ("d", 7)],
        "upsert": [("d", 7)],
        "delete": [],
    }
    return [("a", 1), *changed[kind], ("n", 1), ("q", 1)]


def submitted(instance, tmp_path, kind, since, way="message"):
    """Have a job about the key d be submitted, which relies on a version."""
    path = tmp_path / "in.parquet"
    pq.write_table(rows("d", 7), path)
    if way == "message":
        what = {"delete": {"key": "d"}} if kind == "delete" else {"files": [str(path)]}
        what |= {"upsert": True} if kind == "upsert" else {}
        message = {"id": "j", "tableName": "t", "ifUnchangedSince": since, **what}
        queue = "bulk-import" if kind == "bulk-import" else "ingest"
        instance.jobs.send(queue, json.dumps(message))
    elif way == "command line":
        if kind == "bulk-import":
            pytest.skip("the command line sends such a job to a cluster")
        asked = {
            "ingest": ("jobs", "submit", "t", path, "--id", "j"),
            "upsert": ("jobs", "submit", "t", path, "--id", "j", "--upsert"),
            "delete": ("delete", "t", "--key", "k=d", "--submit", "--force", "--job-id", "j"),
        }[kind]
        done = command(*asked, "--if-unchanged-since", str(since), "--instance", instance.url)
        assert done.exit_code == 0, done.output
    elif way == "server":
        app = make_app(instance, input_folder=tmp_path)
        with running_server(app) as url, sleeper.connect(url, token="unused") as remote:
            _submit(remote.jobs, kind, str(path), since)
    else:
        _submit(instance.jobs, kind, path, since)


def _submit(jobs, kind, path, since):
    if kind == "delete":
        jobs.submit_delete("t", key="d", job_id="j", if_unchanged_since=since)
    elif kind == "bulk-import":
        jobs.submit_bulk_import("t", path, "j", if_unchanged_since=since)
    else:
        is_upsert = kind == "upsert"
        jobs.submit_ingest("t", path, "j", upsert=is_upsert, if_unchanged_since=since)


def run(instance, kind):
    return work(instance, "bulk-import" if kind == "bulk-import" else "ingest")


@KINDS
@WAYS
def test_it_fails_for_good_where_its_leaf_has_changed(instance, tmp_path, kind, way):
    """Given a commit to its leaf, a job that is submitted in any way changes nothing, and says why."""
    read = instance.table("t").refresh()
    instance.table("t").upsert(rows("a", 5))
    submitted(instance, tmp_path, kind, read, way)

    run(instance, kind)

    status = instance.jobs.job("j")
    assert (status.state, status.is_over) == (JobState.FAILED, True)
    assert f"has changed since transaction {read}" in status.reasons[0]
    queue = QueueName.BULK_IMPORT if kind == "bulk-import" else QueueName.INGEST
    (letter,) = instance.jobs.dead_letters(queue)
    assert "trying it again cannot help" in letter.reason
    assert found(instance) == [("a", 5), ("d", 1), ("n", 1), ("q", 1)]


@KINDS
@pytest.mark.parametrize("commits", ["worker", "committer"])
def test_it_is_done_where_others_have_changed(instance, tmp_path, kind, commits):
    """Given a commit to the other leaf, it is done, by its worker also where there is a committer."""
    table = instance.table("t")
    if commits == "committer":
        table.set_properties(ASYNC)
    read = table.refresh()
    table.upsert(rows("nq", 1))
    submitted(instance, tmp_path, kind, read)

    run(instance, kind)

    assert instance.jobs.job("j").state is JobState.FINISHED
    assert found(instance) == after(kind)


@KINDS
def test_a_message_that_comes_again_after_its_commit_is_done(instance, tmp_path, kind):
    """Given a worker killed after its commit, the second run is told so, and not refused."""
    read = instance.table("t").refresh()
    submitted(instance, tmp_path, kind, read)
    name = QueueName.BULK_IMPORT if kind == "bulk-import" else QueueName.INGEST
    (message,) = instance.jobs.stores.queue(name).receive()
    path = tmp_path / "in.parquet"
    verb = {
        "ingest": lambda table, **how: table.ingest(path, "j", **how),
        "upsert": lambda table, **how: table.upsert(path, "j", **how),
        "bulk-import": lambda table, **how: table.bulk_import(path, "j", **how),
        "delete": lambda table, **how: table.delete(key="d", job_id="j", **how),
    }[kind]
    verb(instance.table("t"), if_unchanged_since=read)
    instance.jobs.stores.queue(name).release(message.receipt)

    run(instance, kind)

    assert instance.jobs.job("j").state is JobState.FINISHED
    assert found(instance) == after(kind)


def test_of_two_jobs_that_read_the_same_version_one_is_done(instance, tmp_path):
    """Given both in the queue, whichever runs second has failed."""
    read = instance.table("t").refresh()
    for name, value in (("one", 10), ("two", 20)):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(rows("d", value), path)
        instance.jobs.submit_ingest("t", path, name, upsert=True, if_unchanged_since=read)

    assert work(instance) == 2

    states = {job.job_id: job.state for job in instance.jobs.list()}
    assert sorted(states.values()) == [JobState.FAILED, JobState.FINISHED]
    winner = next(name for name, state in states.items() if state is JobState.FINISHED)
    assert ("d", {"one": 10, "two": 20}[winner]) in found(instance)


class TestRefusals:
    """What is no version is told, and nothing is changed."""

    @KINDS
    @pytest.mark.parametrize("value", [-1, True, "3", 1.0, [2]], ids=repr)
    def test_a_value_that_is_no_number_of_a_transaction(self, instance, tmp_path, kind, value):
        """By who submits, and by the worker where a message comes from elsewhere."""
        with pytest.raises(BadRequest, match="must be the number of a transaction"):
            submitted(instance, tmp_path, kind, value, "python")
        submitted(instance, tmp_path, kind, value)

        run(instance, kind)

        (rejected,) = instance.jobs.list(state="REJECTED")
        assert "ifUnchangedSince: must be a whole number" in rejected.reasons[0]
        assert len(found(instance)) == 4

    @KINDS
    def test_one_that_is_yet_to_come(self, instance, tmp_path, kind):
        """The job has failed for good."""
        submitted(instance, tmp_path, kind, 40)

        run(instance, kind)

        status = instance.jobs.job("j")
        assert (status.state, status.is_over) == (JobState.FAILED, True)
        assert "has had 2 transactions so far" in status.reasons[0]

    def test_null_is_none(self, instance, tmp_path):
        """As for every other field."""
        submitted(instance, tmp_path, "upsert", None)

        work(instance)

        assert found(instance) == after("upsert")

    def test_a_submission_to_the_batcher(self, instance, tmp_path):
        """What is batched with its files is not known, so nothing of it is taken."""
        pq.write_table(rows("d", 7), tmp_path / "in.parquet")
        message = {"tableName": "t", "files": [str(tmp_path / "in.parquet")], "ifUnchangedSince": 2}
        instance.jobs.send("batcher", json.dumps(message))

        work(instance, "batcher")

        (letter,) = instance.jobs.dead_letters("batcher")
        assert letter.reason.startswith("ifUnchangedSince: ")
        assert [*instance.jobs.submitted_files()] == []


def test_the_job_of_a_cluster_has_it(instance, tmp_path):
    """Given --submit, then the saved job names the version."""
    pq.write_table(rows("d", 7), tmp_path / "in.parquet")
    done = command(
        *("bulk-import", "t", tmp_path / "in.parquet", "--if-unchanged-since", "2", "--dry-run"),
        *("--submit", "spark-submit", "--master", "spark://far:7077"),
        *("--json", "--instance", instance.url),
    )

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["job"]["ifUnchangedSince"] == 2
