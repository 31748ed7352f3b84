"""`instance.jobs`: one class that joins what the modules of this package do."""

from __future__ import annotations

from sleeper.jobs import queues, reports, submission
from sleeper.jobs.jobs_handle import JobsHandle


class InstanceJobs(JobsHandle):
    """The jobs of an instance: submit them, follow them to their end, find them again.

    Workers run them: `sleeper worker KIND` and `sleeper serve`.
    """

    # Jobs are asked for.
    submit_ingest = submission.submit_ingest
    submit_bulk_import = submission.submit_bulk_import
    submit_files = submission.submit_files
    submitted_files = submission.submitted_files
    submit_query = submission.submit_query
    submit_export = submission.submit_export
    send = submission.send
    send_commit = submission.send_commit

    # What became of them.
    job = reports.job
    list = reports.list_jobs
    query = reports.query
    queries = reports.queries
    file_of_query = reports.file_of_query
    tasks = reports.tasks
    wait = reports.wait

    # Where they wait.
    queue_depths = queues.queue_depths
    dead_letters = queues.dead_letters
    redrive = queues.redrive
    delete_dead_letters = queues.delete_dead_letters
