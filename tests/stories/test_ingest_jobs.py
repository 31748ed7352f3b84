"""Parquet is written, a message is sent, a worker ingests it, the tracker tells, rows are found."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import JobInvalid, JobNotFound, StorageFailed
from sleeper.instance.instance import Instance
from sleeper.model.jobs.statuses import JobState
from sleeper.workers.open_worker import open_worker
from sleeper.workers.worker import WorkerSettings
from tests.unit.workers.clocks import SimulatedStop

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """An instance in a folder, with a table."""
    opened = sleeper.connect(tmp_path / "instance", create=True)
    opened.create_table("numbers", SCHEMA, row_keys=["id"])
    return opened


def written(path: Path, *numbers: int) -> Path:
    """Write a Parquet file with a row for each number."""
    ids = [f"{number:04}" for number in numbers]
    pq.write_table(pa.table({"id": ids, "n": list(numbers)}, schema=SCHEMA), path)
    return path


def work(
    instance: Instance,
    kind: str = "ingest",
    *,
    stop_in: str | None = None,
    wait: Callable[[float], object] | None = None,
) -> int:
    """Run a worker until its queue is empty, or asked to end in a job; return how many jobs ran."""

    def is_asked() -> bool:
        if stop_in is not None and instance.jobs.job(stop_in).state is JobState.IN_PROGRESS:
            stop.set()
        return False

    stop = SimulatedStop(is_asked, wait or time.sleep)
    settings = WorkerSettings(wait_s=0, until_empty=True)
    return open_worker(instance, kind, settings, stop).run().jobs


def test_a_job_goes_from_accepted_to_finished_and_its_rows_are_found(
    instance: Instance, tmp_path: Path
) -> None:
    """Given a file, when its job is submitted and a worker runs, then its rows are in the table."""
    job_id = instance.jobs.submit_ingest("numbers", written(tmp_path / "one.parquet", 1, 2))
    assert instance.jobs.job(job_id).state is JobState.ACCEPTED

    assert work(instance) == 1

    status = instance.jobs.job(job_id)
    assert status.state is JobState.FINISHED
    assert status.transaction == instance.table("numbers").refresh()
    assert status.furthest_run is not None
    assert (status.furthest_run.rows_read, status.furthest_run.rows_written) == (2, 2)
    assert instance.table("numbers").query(key="0002").to_pylist() == [{"id": "0002", "n": 2}]


def test_a_job_that_is_done_is_logged(instance, tmp_path, caplog) -> None:
    """Given a job, when a worker has done it, then one line says which it was and what it wrote."""
    job_id = instance.jobs.submit_ingest("numbers", written(tmp_path / "one.parquet", 1, 2))

    with caplog.at_level(logging.INFO, "sleeper.workers.worker"):
        work(instance)

    (line,) = [each.getMessage() for each in caplog.records if each.name.endswith(".worker")]
    assert f"ingest job {job_id} of table {instance.table('numbers').table_id} took" in line
    assert line.endswith("2 rows read, 2 written, transaction 2")


def test_a_worker_that_ends_when_its_queue_is_empty_ends_when_it_cannot_be_read(
    instance, tmp_path
) -> None:
    """Given a file of another program where queues should be, when it runs, then it fails."""
    instance.jobs.submit_ingest("numbers", written(tmp_path / "one.parquet", 1))
    file = tmp_path / "instance" / "services" / "jobs.sqlite"
    for path in file.parent.iterdir():
        path.unlink()
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE of_another_program (x)")

    tries = iter(range(10))

    with pytest.raises(StorageFailed, match="of another program"):
        work(instance, wait=lambda _: next(tries))


def test_a_job_whose_workers_are_asked_to_end_is_run_in_the_end(
    instance: Instance, tmp_path: Path
) -> None:
    """However often it goes back to its queue for that, it becomes no dead letter."""
    job_id = instance.jobs.submit_ingest("numbers", written(tmp_path / "one.parquet", 1, 2))

    for _ in range(5):  # more often than a message may be received
        assert work(instance, stop_in=job_id) == 0
        assert instance.table("numbers").references() == []
    assert work(instance) == 1

    assert instance.jobs.job(job_id).state is JobState.FINISHED
    assert instance.jobs.dead_letters("ingest") == []


def test_a_message_without_an_id_is_done_once_however_often_it_comes(
    instance: Instance, tmp_path: Path
) -> None:
    """Given a message without an id whose acknowledgement is lost, then its rows are not doubled."""
    path = written(tmp_path / "one.parquet", 1)
    instance.jobs.send("ingest", json.dumps({"tableName": "numbers", "files": [str(path)]}))
    queue = instance.jobs.stores.queue(sleeper.model.jobs.messages.QueueName.INGEST)
    (message,) = queue.receive()
    instance.table("numbers").ingest([str(path)], message.message_id)
    queue.release(message.receipt)

    assert work(instance) == 1

    assert instance.table("numbers").query().to_pylist() == [{"id": "0001", "n": 1}]
    assert instance.jobs.job(message.message_id).state is JobState.FINISHED


def test_a_message_that_is_no_job_is_rejected_with_all_reasons_and_its_text(
    instance: Instance,
) -> None:
    """Given a message with three mistakes, then the tracker names all three, and keeps it."""
    text = '{"id": "bad", "tableName": "nobody", "files": [null, "/nowhere/x.parquet"]}'
    instance.jobs.send("ingest", text)

    assert work(instance) == 0

    status = instance.jobs.job("bad")
    assert status.state is JobState.REJECTED
    assert status.table_id == "-"
    assert status.message == text
    assert status.reasons == (
        "One of the files was null",
        "Table not found: nobody",
        "Could not find one or more paths: /nowhere/x.parquet",
    )
    assert instance.jobs.queue_depths()[sleeper.model.jobs.messages.QueueName.INGEST].ready == 0


def test_a_job_that_the_log_has_is_finished_though_the_tracker_lost_it(
    instance: Instance, tmp_path: Path
) -> None:
    """Given a committed job that no event tells of, then the table's log tells."""
    instance.table("numbers").ingest([{"id": "0001", "n": 1}], "by-hand")

    assert instance.jobs.job("by-hand").state is JobState.FINISHED


def test_an_unknown_job_is_not_found(instance: Instance) -> None:
    """Given no job of that id, then that is said."""
    with pytest.raises(JobNotFound, match="nothing is known of ingest job 'nope'"):
        instance.jobs.job("nope")


def test_what_cannot_run_is_refused_before_it_is_sent(instance: Instance) -> None:
    """Given a table and a file that do not exist, then nothing is sent and both are named."""
    with pytest.raises(JobInvalid, match="Table not found: nobody"):
        instance.jobs.submit_ingest("nobody", "/nowhere/x.parquet")


def test_an_id_that_is_used_again_for_other_files_is_told(
    instance: Instance, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a job that was done, when its id names another file, then a warning says so."""
    one, two = written(tmp_path / "one.parquet", 1), written(tmp_path / "two.parquet", 2)
    for path in (one, two):
        message = {"id": "again", "tableName": "numbers", "files": [str(path)]}
        instance.jobs.send("ingest", json.dumps(message))
        work(instance)

    assert "job id again was used before for other files" in caplog.text
    assert instance.table("numbers").query().to_pylist() == [{"id": "0001", "n": 1}]


def test_the_same_files_again_are_no_cause_for_a_warning(
    instance: Instance, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a job that was done, when the very same comes again, then nothing is warned of."""
    path = written(tmp_path / "one.parquet", 1)
    for _ in range(2):
        instance.jobs.submit_ingest("numbers", path, "again")
        work(instance)

    assert "used before" not in caplog.text


@pytest.mark.parametrize("kind", ["ingest", "bulk-import"])
def test_a_column_that_the_table_does_not_have_is_left_out(instance, tmp_path, kind):
    """As upstream's readers do; the job is no dead letter, and its rows are there."""
    rows = pa.table({"colour": ["red"], "id": ["x"], "n": [7]})
    pq.write_table(rows, tmp_path / "wide.parquet")
    jobs = instance.jobs
    submit = jobs.submit_ingest if kind == "ingest" else jobs.submit_bulk_import

    given = submit("numbers", tmp_path / "wide.parquet")
    work(instance, kind)

    assert instance.jobs.job(given).state is JobState.FINISHED
    assert instance.table("numbers").query().to_pylist() == [{"id": "x", "n": 7}]


def test_a_misspelt_column_of_a_job_is_not_left_out(instance, tmp_path):
    """Its values would be null."""
    pq.write_table(pa.table({"id": ["x"], "N_": [7]}), tmp_path / "wide.parquet")

    given = instance.jobs.submit_ingest("numbers", tmp_path / "wide.parquet")
    work(instance)

    assert "is 'n' misspelt?" in str(instance.jobs.job(given))
