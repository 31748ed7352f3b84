"""Opens the jobs of an instance on the stores that its place and properties name."""

from __future__ import annotations

from collections.abc import Callable

from sleeper.jobs.event_recorder import EventRecorder, events_kept
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.jobs.job_results import JobResults
from sleeper.jobs.job_tables import JobTables
from sleeper.model.jobs.messages import QueueName
from sleeper.model.jobs.queue_settings import queue_settings
from sleeper.storage.places import job_stores_of, jobs_url_of, results_queue
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.state_stores import last_numbers
from sleeper.tables.table import Table


def open_jobs(context: InstanceContext, *, sleep: Callable[[float], None]) -> InstanceJobs:
    """Return the jobs of an instance.

    Args:
        context: What the instance's tables share.
        sleep: Waits for so many seconds.

    Raises:
        PropertiesInvalid: the instance is in a bucket, and `sleeper.jobs.url` is not set; or what
            it names has the jobs of another instance.
    """
    properties = context.properties
    url = jobs_url_of(context.objects, properties.jobs.url)
    stores = job_stores_of(
        context.objects,
        properties.id,
        context.url,
        url,
        {name: queue_settings(properties, name) for name in QueueName},
        region=context.inputs.settings.region,
        now=context.now,
        sleep=sleep,
        pause=context.pause,
        new_id=context.new_id,
    )
    recorder = EventRecorder(stores.tracker, kept=events_kept(properties), now=context.now)
    tables = JobTables(
        context.index,
        context.inputs,
        lambda record: Table(record, context),
        names_buckets=url == "sqs",
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
            queue=results_queue(context.inputs.settings.region),
        ),
        new_id=context.new_id,
        url=context.url,
    )
