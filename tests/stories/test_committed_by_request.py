"""Where many write, a committer commits for them, many requests in one entry of the log."""

from __future__ import annotations

import json

import pytest

from sleeper.model.jobs.events import JobEventType
from sleeper.model.jobs.kinds import JobKind, QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.jobs.statuses import JobState
from tests.stories.test_ingest_jobs import instance, work, written

__all__ = ["instance"]


@pytest.fixture(autouse=True)
def through_the_committer(instance):
    """The table's commits go through the committer."""
    instance.table("numbers").set_properties(
        {"sleeper.table.statestore.commit.async.enabled": "true"}
    )


def test_a_job_is_uncommitted_until_the_committer_has_committed_it(instance, tmp_path):
    """Given a worker that is done, then its rows are seen when the committer is too (ING-13)."""
    job_id = instance.jobs.submit_ingest("numbers", written(tmp_path / "1.parquet", 1))
    work(instance)
    assert instance.jobs.job(job_id).state is JobState.UNCOMMITTED
    assert instance.table("numbers").query().to_pylist() == []

    assert work(instance, "commit") == 1

    assert instance.jobs.job(job_id).state is JobState.FINISHED
    assert instance.table("numbers").query().to_pylist() == [{"id": "0001", "n": 1}]


def test_a_bulk_import_goes_through_the_committer_too(instance, tmp_path):
    """Given a bulk import job, then its worker sends the commit, the committer does it (ING-13)."""
    path = written(tmp_path / "1.parquet", 1, 2)
    job_id = instance.jobs.submit_bulk_import("numbers", path)
    assert work(instance, "bulk-import") == 1
    assert instance.jobs.job(job_id).state is JobState.UNCOMMITTED
    assert instance.table("numbers").query().to_pylist() == []

    assert work(instance, "commit") == 1

    status = instance.jobs.job(job_id)
    assert status.state is JobState.FINISHED
    assert status.transaction == instance.table("numbers").refresh()
    assert instance.table("numbers").query().to_arrow().num_rows == 2


def test_a_table_may_have_its_bulk_imports_commit_by_themselves(instance, tmp_path):
    """Given the property of bulk imports off, then the worker commits, and nobody else is needed."""
    instance.table("numbers").set_properties(
        {"sleeper.table.bulk.import.job.files.commit.async": False}
    )
    path = written(tmp_path / "1.parquet", 1)
    job_id = instance.jobs.submit_bulk_import("numbers", path)

    assert work(instance, "bulk-import") == 1

    assert instance.jobs.job(job_id).state is JobState.FINISHED
    assert work(instance, "commit") == 0


@pytest.mark.parametrize(
    "name",
    [
        "compaction.job.commit.async",
        "compaction.job.id.assignment.commit.async",
        "partition.splitting.commit.async",
        "gc.commit.async",
    ],
)
def test_what_never_goes_through_the_committer_is_told(instance, caplog, name):
    """Given a property of another kind of commit, then a warning says that it has no effect."""
    instance.table("numbers").set_properties({f"sleeper.table.{name}": "true"})

    assert f"sleeper.table.{name} is stored, but nothing here uses it." in caplog.text


def test_many_requests_are_one_entry_of_the_log(instance, tmp_path):
    """Given twelve jobs, when the committer runs, then the table has one transaction more."""
    for number in range(12):
        path = written(tmp_path / f"{number}.parquet", number)
        instance.jobs.submit_ingest("numbers", path)
    work(instance)
    before = instance.table("numbers").refresh()

    assert work(instance, "commit") == 12

    assert instance.table("numbers").refresh() == before + 1
    assert instance.table("numbers").query().to_arrow().num_rows == 12


def test_a_request_that_comes_twice_is_committed_once(instance, tmp_path):
    """Given a committer killed between commit and delete, then the next one adds nothing."""
    job_id = instance.jobs.submit_ingest("numbers", written(tmp_path / "1.parquet", 1))
    work(instance)
    queue = instance.jobs.stores.queue(QueueName.COMMIT)
    (message,) = queue.receive()
    queue.release(message.receipt)
    assert work(instance, "commit") == 1
    queue.send([NewMessage(body=message.body, group=message.group)])

    assert work(instance, "commit") == 1

    assert instance.jobs.job(job_id).state is JobState.FINISHED
    assert instance.table("numbers").query().to_pylist() == [{"id": "0001", "n": 1}]


def test_a_refused_request_fails_its_job_and_no_other(instance, tmp_path):
    """Given one request that the table forbids among others, then the others are committed."""
    good = instance.jobs.submit_ingest("numbers", written(tmp_path / "1.parquet", 1))
    bad = instance.jobs.submit_ingest("numbers", written(tmp_path / "2.parquet", 2))
    work(instance)
    queue = instance.jobs.stores.queue(QueueName.COMMIT)
    messages = queue.receive(10)
    queue.delete([message.receipt for message in messages])
    for message in messages:
        body = message.body
        if bad in body:
            body = body.replace('"partitionId":"', '"partitionId":"nowhere')
        queue.send([NewMessage(body=body, group=message.group)])

    assert work(instance, "commit") == 2

    assert instance.jobs.job(good).state is JobState.FINISHED
    failed = instance.jobs.job(bad)
    assert failed.state is JobState.FAILED
    assert failed.is_over
    assert "nowhere" in failed.reasons[0]


@pytest.mark.parametrize(
    "name", ["NaN", "x.parquet", "data/partition_root/x", "data/partition_root/x.sketches"]
)
@pytest.mark.parametrize("kind", ["ADD_FILES", "UPSERT_FILES", "DELETE_KEYS"])
def test_a_file_that_no_writer_names_so_is_not_added(instance, tmp_path, name, kind):
    """Given a request with a damaged name of a file, then its job fails, and rows are read as before."""
    queue = instance.jobs.stores.queue(QueueName.COMMIT)
    for job_id in ("bad", "good"):
        instance.jobs.submit_ingest("numbers", written(tmp_path / f"{job_id}.parquet", 1), job_id)
        work(instance)
    bad, good = queue.receive(2)
    request = json.loads(bad.body)
    request["transactionType"] = kind
    request["transaction"]["references"][0]["filename"] = name
    queue.delete([bad.receipt, good.receipt])
    for body in (json.dumps(request), good.body):
        queue.send([NewMessage(body=body, group="g")])

    assert work(instance, "commit") == 2

    status = instance.jobs.job("bad")
    assert status.state is JobState.FAILED
    assert f"adds file {name!r}, which is no name of a data file" in status.reasons[0]
    assert instance.jobs.job("good").state is JobState.FINISHED
    assert instance.table("numbers").query().to_pylist() == [{"id": "0001", "n": 1}]


def test_how_long_a_commit_took_is_known(instance, tmp_path):
    """Of the committer from the request on; of a worker that commits, of a compaction as well."""
    asked = instance.jobs.submit_ingest("numbers", written(tmp_path / "0.parquet", 0))
    work(instance)
    work(instance, "commit")
    table = instance.table("numbers")
    table.set_properties({"sleeper.table.statestore.commit.async.enabled": "false"})
    alone = [
        instance.jobs.submit_ingest("numbers", written(tmp_path / f"{number}.parquet", number))
        for number in range(1, 4)
    ]
    work(instance)
    work(instance, "compaction")
    (compacted,) = instance.jobs.list(kind="compaction")

    def commits(kind, job_id):
        events = instance.jobs.stores.tracker.events_of_job(JobKind(kind), job_id)
        return {event.type: event.commit_s for event in events if event.commit_s is not None}

    asked_s = commits("ingest", asked)
    assert asked_s.keys() == {JobEventType.ADDED_FILES}
    for job_id in alone:
        assert commits("ingest", job_id)[JobEventType.FINISHED] > 0
    assert commits("compaction", compacted.job_id)[JobEventType.FINISHED] > 0
