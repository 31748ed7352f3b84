"""Files are submitted one by one, and become jobs of a sensible size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.errors import BadRequest, DataDamaged, StorageFailed
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.model.jobs.submitted_files import FileState
from sleeper.workers.job import RunContext
from sleeper.workers.kinds import batcher
from sleeper.workers.kinds.batcher import run_batcher
from sleeper.workers.kinds.ingest import IngestWork
from tests.stories.test_ingest_jobs import instance, work, written
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["instance"]

PREFIX = "sleeper.table.ingest.batcher."


def limited(instance, **values):
    """Set the batcher's properties of the table."""
    properties = {f"{PREFIX}ingest.queue": "standard_ingest", f"{PREFIX}job.min.size": "0"}
    instance.table("numbers").set_properties(
        properties | {PREFIX + name.replace("_", "."): str(value) for name, value in values.items()}
    )


def test_files_wait_until_there_are_enough_and_then_make_a_job(instance, tmp_path):
    """Given a job of three files at least, when the third comes, then all are one job (BAT-6)."""
    limited(instance, job_min_files=3)
    for number in (1, 2):
        instance.jobs.submit_files("numbers", written(tmp_path / f"{number}.parquet", number))
    work(instance, "batcher")
    assert run_batcher(instance.jobs, datetime.now(UTC)).jobs == 0

    instance.jobs.submit_files("numbers", written(tmp_path / "3.parquet", 3))
    work(instance, "batcher")
    done = run_batcher(instance.jobs, datetime.now(UTC))

    assert (done.jobs, done.files) == (1, 3)
    assert work(instance) == 1
    (job_id,) = {file.job_id for file in instance.jobs.submitted_files()}
    assert instance.jobs.job(job_id).state is JobState.FINISHED
    assert instance.table("numbers").query().to_arrow().num_rows == 3


def test_limits_that_are_changed_count_from_the_next_round_on(instance, tmp_path):
    """Given a batcher that runs, when files of a job are set to two, then it makes jobs of two."""
    limited(instance, job_min_files=9)
    paths = [written(tmp_path / f"{number}.parquet", number) for number in (4, 5, 6, 7)]
    instance.jobs.submit_files("numbers", paths)
    work(instance, "batcher")
    assert run_batcher(instance.jobs, datetime.now(UTC)).jobs == 0

    limited(instance, job_min_files=1, job_max_files=2)

    assert run_batcher(instance.jobs, datetime.now(UTC)).jobs == 2


def test_no_file_waits_longer_than_it_may(instance, tmp_path):
    """Given one old file where three make a job, then it goes alone."""
    limited(instance, job_min_files=3, file_max_age_seconds=60)
    instance.jobs.submit_files("numbers", written(tmp_path / "1.parquet", 1))
    work(instance, "batcher")

    done = run_batcher(instance.jobs, datetime.now(UTC) + timedelta(seconds=61))

    assert (done.jobs, done.files) == (1, 1)


def test_a_job_that_was_made_and_not_sent_is_sent_by_the_next_round(instance, tmp_path):
    """Given a batcher that was killed between the two, then its job is not lost (BAT-5)."""
    limited(instance)
    instance.jobs.submit_files("numbers", written(tmp_path / "1.parquet", 1))
    work(instance, "batcher")
    store = instance.jobs.stores.batcher
    store.assign("made-by-the-killed", store.pending(), QueueName.INGEST)

    assert run_batcher(instance.jobs, datetime.now(UTC)).jobs == 1

    assert work(instance) == 1
    assert instance.jobs.job("made-by-the-killed").state is JobState.FINISHED


def test_one_missing_path_sends_the_whole_message_to_the_dead_letters(instance, tmp_path):
    """Given a submission of a file and of nothing, then neither is taken, and both are named."""
    path = written(tmp_path / "1.parquet", 1)
    message = f'{{"tableName": "numbers", "files": ["{path}", "/nowhere.parquet"]}}'
    instance.jobs.send("batcher", message)

    work(instance, "batcher")

    (letter,) = instance.jobs.dead_letters("batcher")
    assert letter.body == message
    assert letter.reason == "Could not find one or more paths: /nowhere.parquet"
    assert list(instance.jobs.submitted_files()) == []


def test_files_of_a_deleted_table_are_dropped(instance, tmp_path):
    """Given files that wait for a table that is deleted, then they wait no longer."""
    limited(instance, job_min_files=3)
    instance.jobs.submit_files("numbers", written(tmp_path / "1.parquet", 1))
    work(instance, "batcher")
    instance.delete_table("numbers")

    assert run_batcher(instance.jobs, datetime.now(UTC)).dropped == 1

    assert list(instance.jobs.submitted_files()) == []


def test_files_of_a_rejected_job_are_told_and_come_again(instance, tmp_path):
    """Given a job with a file that vanished, then the report says it; retried, the others go (BAT-7)."""
    limited(instance, job_min_files=3)
    paths = [written(tmp_path / f"{number}.parquet", number) for number in (1, 2, 3)]
    instance.jobs.submit_files("numbers", paths)
    work(instance, "batcher")
    assert {file.state for file in instance.jobs.submitted_files()} == {FileState.PENDING}
    run_batcher(instance.jobs, datetime.now(UTC))
    assert {file.state for file in instance.jobs.submitted_files()} == {FileState.BATCHED}
    assert instance.jobs.retry_files().jobs == 0  # it may still run
    paths[1].unlink()
    work(instance)

    files = [*instance.jobs.submitted_files()]
    assert {file.state for file in files} == {FileState.REJECTED}
    assert all(str(paths[1]) in file.reasons[0] for file in files)
    report = command("batcher", "report", "--instance", instance.url)
    assert "REJECTED" in report.output
    assert "Could not find one or more paths" in report.output

    again = command("batcher", "retry", "--instance", instance.url)
    assert "1 job of 2 files will be sent again" in again.output
    assert f"left out, as it is not there: {paths[1]}" in again.output
    assert instance.jobs.retry_files().jobs == 0
    assert run_batcher(instance.jobs, datetime.now(UTC)).jobs == 1
    work(instance)

    assert {file.state for file in instance.jobs.submitted_files()} == {FileState.FINISHED}
    assert instance.table("numbers").count() == 2
    with pytest.raises(BadRequest, match="no job of submitted files 'unknown'"):
        instance.jobs.retry_files(["unknown"])


def test_a_job_that_is_retried_and_put_back_adds_its_rows_once(instance, tmp_path, monkeypatch):
    """Given a failed job, when it is sent again and its dead letter too, then one adds rows (BAT-7)."""
    instance.set_properties({"sleeper.jobs.receives.max": 1})
    limited(instance)
    instance.jobs.submit_files("numbers", written(tmp_path / "1.parquet", 1))
    work(instance, "batcher")
    run_batcher(instance.jobs, datetime.now(UTC))
    with monkeypatch.context() as patch:
        patch.setattr(IngestWork, "run", _fail)
        work(instance)
    (file,) = instance.jobs.submitted_files()
    assert (file.state, file.reasons) == (FileState.FAILED, ("no answer",))

    assert instance.jobs.retry_files([file.job_id]).files == 1
    run_batcher(instance.jobs, datetime.now(UTC))
    assert instance.jobs.redrive("ingest") == 1
    assert work(instance) == 2

    assert instance.table("numbers").count() == 1
    (file,) = instance.jobs.submitted_files()
    assert file.state is FileState.FINISHED


def _fail(self: IngestWork, context: RunContext) -> None:
    raise StorageFailed("no answer")


def test_files_of_an_offline_table_become_jobs(instance, tmp_path):
    """Given an offline table, then its files are ingested: ingest goes on there (BAT-4, TBL-6)."""
    limited(instance)
    instance.table("numbers").set_online(online=False)
    instance.jobs.submit_files("numbers", written(tmp_path / "1.parquet", 1))
    work(instance, "batcher")

    assert run_batcher(instance.jobs, datetime.now(UTC)).jobs == 1

    assert work(instance) == 1
    assert instance.table("numbers").count() == 1


def test_the_report_says_where_jobs_will_run(instance, tmp_path):
    """Given upstream's queue, EMR Serverless, and no application, then the worker runs them."""
    instance.jobs.submit_files("numbers", written(tmp_path / "1.parquet", 1))
    work(instance, "batcher")

    report = command("batcher", "report", "--instance", instance.url)

    assert report.exit_code == 0, report.output
    assert (
        "jobs of numbers go to the bulk-import-emr-serverless queue and run in a worker of bulk "
        "imports, as emr-serverless is not set up: " in report.output
    )
    limited(instance)
    report = command("batcher", "report", "--instance", instance.url)
    assert "jobs of numbers go to the ingest queue and run in a worker of ingest" in report.output


@pytest.mark.parametrize("error", [DataDamaged("x"), KeyError("k")], ids=repr)
def test_a_table_that_fails_keeps_no_others_files_waiting(
    instance, tmp_path, error, monkeypatch, caplog
):
    """Given a table that cannot be read, then jobs are made for the others, and it is logged."""
    instance.create_table("broken", instance.table("numbers").arrow_schema, row_keys=["id"])
    limited(instance)
    for table in ("broken", "numbers"):
        instance.jobs.submit_files(table, written(tmp_path / f"{table}.parquet", 1))
    work(instance, "batcher")
    limits, errors = batcher.batch_limits, [error]

    def fail_once(properties):
        if errors:
            raise errors.pop()
        return limits(properties)

    monkeypatch.setattr(batcher, "batch_limits", fail_once)

    done = run_batcher(instance.jobs, datetime.now(UTC) + timedelta(days=1))

    assert (done.jobs, done.files) == (1, 1)
    assert "no jobs are made of 1 files" in caplog.text
