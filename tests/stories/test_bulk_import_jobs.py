"""A bulk import is asked for by a message, and runs where its queue and the properties say."""

from __future__ import annotations

from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.states import JobState
from tests.stories.test_ingest_jobs import instance, work, written

__all__ = ["instance"]


def test_a_job_runs_on_the_worker_s_machine(instance, tmp_path):
    """Given a job of the plain queue, when a worker runs, then the rows are in the table."""
    path = written(tmp_path / "one.parquet", 1, 2, 3)
    job_id = instance.jobs.submit_bulk_import("numbers", path)

    assert work(instance, "bulk-import") == 1

    status = instance.jobs.job(job_id)
    assert status.state is JobState.FINISHED
    assert status.platform == "local, local"
    assert instance.table("numbers").query().to_arrow().num_rows == 3


def test_a_platform_that_is_not_set_up_is_the_worker_s_machine(instance, tmp_path):
    """Given the queue of EMR Serverless and no application, then the job runs here."""
    path = written(tmp_path / "one.parquet", 1)
    instance.jobs.submit_bulk_import("numbers", path, "june", queue="bulk-import-emr-serverless")

    assert work(instance, "bulk-import") == 1

    assert instance.jobs.job("june").state is JobState.FINISHED


def test_all_reasons_are_named_at_once(instance):
    """Given an id that upstream would not take, no table and no files, then all are named."""
    instance.jobs.send(QueueName.BULK_IMPORT, '{"id": "No_Good", "tableName": "x", "files": []}')

    assert work(instance, "bulk-import") == 0

    status = instance.jobs.job("No_Good")
    assert status.state is JobState.REJECTED
    assert status.reasons == (
        "Table not found: x",
        "Job Ids must only contain lowercase alphanumerics and dashes.",
        "The input files must be set to a non-null and non-empty value.",
    )
