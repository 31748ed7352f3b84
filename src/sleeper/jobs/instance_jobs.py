"""`instance.jobs`: one class that joins what the modules of this package do."""

from __future__ import annotations

from sleeper.jobs import batched_files, reports, submission
from sleeper.jobs import reports as queues
from sleeper.jobs.event_recorder import EventRecorder, events_kept
from sleeper.jobs.input_places import places_of
from sleeper.jobs.job_results import JobResults
from sleeper.jobs.job_tables import JobTables
from sleeper.jobs.jobs_handle import JobsHandle
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.settings import queue_settings
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.state_stores import last_numbers
from sleeper.tables.table import Table


class InstanceJobs(JobsHandle):
    """The jobs of an instance: submit them, follow them to their end, find them again.

    Workers run them: `sleeper worker KIND` and `sleeper serve`.
    """

    # Jobs are asked for.
    submit_ingest = submission.submit_ingest
    submit_delete = submission.submit_delete
    submit_bulk_import = submission.submit_bulk_import
    submit_files = submission.submit_files
    submitted_files = batched_files.submitted_files
    retry_files = batched_files.retry_files
    submit_query = submission.submit_query
    submit_export = submission.submit_export
    send = submission.send
    send_commit = submission.send_commit

    # What became of them.
    job = reports.job
    list = reports.list_jobs
    query = reports.query
    query_rows = reports.query_rows
    queries = reports.queries
    file_of_query = reports.file_of_query
    tasks = reports.tasks
    wait = reports.wait

    # Where they wait.
    queue_depths = queues.queue_depths
    dead_letters = queues.dead_letters
    redrive = queues.redrive
    delete_dead_letters = queues.delete_dead_letters
    note_dead_letters = queues.note_dead_letters


# ---------------------------------------------------------------- open jobs
#
# Opens the jobs of an instance on the stores that its place and properties name.


def open_jobs(context: InstanceContext) -> InstanceJobs:
    """Return the jobs of an instance.

    Args:
        context: What the instance's tables share.

    Raises:
        PropertiesInvalid: the instance is in a bucket, and `sleeper.jobs.url` is not set; or what
            it names has the jobs of another instance.
    """
    properties = context.properties
    place, url = context.place, properties.jobs.url
    stores = place.job_stores(
        properties.id,
        url,
        {name: queue_settings(properties, name) for name in QueueName},
        now=context.clock.now,
        sleep=context.clock.sleep,
        pause=context.clock.back_off,
        new_id=context.new_id,
    )
    recorder = EventRecorder(stores.tracker, kept=events_kept(properties), now=context.clock.now)
    tables = JobTables(
        context.index,
        context.inputs,
        lambda record: Table(record, context),
        names_buckets=place.jobs_url(url) == "sqs",
        places=places_of(properties.jobs.input_places),
        last_numbers=lambda records, known: last_numbers(records, known, context),
    )
    return InstanceJobs(
        stores,
        tables,
        recorder,
        JobResults(
            context.objects,
            properties,
            context.storage_time,
            queue=place.results_queue(),
        ),
        new_id=context.new_id,
        url=context.url,
    )
