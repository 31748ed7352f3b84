"""Files are submitted one by one, and become jobs of a sensible size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sleeper.errors import DataDamaged
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.workers.kinds import batcher
from sleeper.workers.kinds.batcher import run_batcher
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
