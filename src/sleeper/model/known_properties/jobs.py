"""The properties of an instance that jobs read: queues, workers, trackers, batcher, committer."""

from __future__ import annotations

from dataclasses import dataclass

from sleeper.model.known_properties.value_kinds import (
    BOOLEAN,
    BYTE_SIZE,
    JOBS_URL,
    LAMBDA_TIMEOUT,
    LIST,
    NOT_NEGATIVE,
    POSITIVE,
    QUEUE_BATCH,
    QUEUE_WAIT,
    TEXT,
    setting,
    whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProperties:
    """Where jobs are kept, and how often one is tried."""

    url: str | None = setting(
        "jobs.url",
        None,
        JOBS_URL,
        "Where queues, tracker and batcher are kept: sqlite:///and/an/absolute/path, on a local "
        "disk of the machine that runs jobs; or sqs, for queues in SQS and tables in DynamoDB. "
        "Without it, services/jobs.sqlite in the instance's folder; an instance in a bucket needs "
        "it to run jobs.",
        since="ours",
    )
    environment: str | None = setting(
        "bulk.import.environment",
        None,
        TEXT,
        "Folder or URL of packages made by `sleeper spark-environment`, for bulk imports that "
        "come from a queue and run on a cluster; `{architecture}` in it stands for the cluster's "
        "processors. `sleeper deploy aws` makes some if it is not set.",
        since="ours",
    )
    spark_master: str | None = setting(
        "bulk.import.local.spark.master",
        None,
        TEXT,
        "Where workers have Spark run bulk imports of the plain queue, and of platforms that are "
        "not set up: local[4], spark://HOST:PORT, yarn. Each job gets a driver, a process beside "
        "the worker. Without it the worker imports by itself, by whichever engine costs less.",
        since="ours",
    )
    input_places: tuple[str, ...] | None = setting(
        "jobs.input.places",
        None,
        LIST,
        "From where jobs may read files: URLs such as s3://bucket/folder, and folders, with all "
        "below them. A job or a submitted file of another place is refused where it is submitted "
        "and by the worker, which reads this when it starts; nothing there is looked at. Without "
        "it jobs may read all that workers can read; those that come through `sleeper server` only "
        "the instance's own place and sleeper.ingest.source.bucket.",
        since="ours",
    )
    called_queues: tuple[str, ...] | None = setting(
        "jobs.called.queues",
        None,
        LIST,
        "Queues in AWS whose function is called by who sends a message, so that nothing asks an "
        "empty queue. `sleeper deploy aws` sets it, as its stacks are: do not change it.",
        since="ours",
    )
    receives_max: int = setting(
        "jobs.receives.max",
        "3",
        POSITIVE,
        "How often a job is tried: one that was received so often becomes a dead letter.",
        since="ours",
    )
    retry_first_s: int = setting(
        "jobs.retry.first.seconds",
        "10",
        NOT_NEGATIVE,
        "How long a job waits after its first failure; twice as long after each further one.",
        since="ours",
    )
    retry_max_s: int = setting(
        "jobs.retry.max.seconds",
        "900",
        whole(0, 43_200, "a number of seconds from 0 to 43200"),
        "How long a job waits after a failure, at most.",
        since="ours",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestQueueProperties:
    """Workers of ingest and bulk import jobs, and their queues."""

    workers_max: int = setting(
        "ingest.max.concurrent.tasks", "10", POSITIVE, "Tasks at once, at most."
    )
    keepalive_s: int = setting(
        "ingest.keepalive.period.seconds",
        "300",
        POSITIVE,
        "How often a message's lease is renewed.",
    )
    visibility_s: int = setting(
        "ingest.queue.visibility.timeout.seconds", "900", POSITIVE, "Lease of a message."
    )
    wait_s: int = setting(
        "ingest.job.queue.wait.time",
        "20",
        QUEUE_WAIT,
        "Seconds to wait for a job before the task ends.",
    )
    submitter_timeout_s: int = setting(
        "ingest.batcher.submitter.timeout.seconds",
        "20",
        LAMBDA_TIMEOUT,
        "Time for taking a submission: the lease of its message.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherRunProperties:
    """Runs of the ingest batcher."""

    period_minutes: int = setting(
        "ingest.batcher.job.creation.period.minutes",
        "1",
        POSITIVE,
        "How often batches are made.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionWorkerProperties:
    """Workers of compactions."""

    period_minutes: int = setting(
        "compaction.job.creation.period.minutes",
        "1",
        POSITIVE,
        "How often an idle worker looks for jobs; more and more rarely while there are none.",
    )
    workers_max: int = setting(
        "compaction.max.concurrent.tasks", "10", POSITIVE, "Tasks at once, at most."
    )
    failures_max: int = setting(
        "compaction.task.max.consecutive.failures",
        "3",
        POSITIVE,
        "A task that fails so often ends.",
        used=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryQueueProperties:
    """Workers of queries, and what they return."""

    visibility_s: int = setting(
        "query.queue.visibility.timeout.seconds",
        "900",
        POSITIVE,
        "Lease of a message: a query whose worker was killed is tried again after it.",
        since="ours",
    )
    batch_rows: int = setting(
        "query.processor.results.batch.size",
        "2000",
        POSITIVE,
        "Rows in a message of results, where a query that asks for messages does not say it.",
    )
    results_days: int = setting(
        "query.results.bucket.expiry.days",
        "7",
        POSITIVE,
        "How long files with results of queries are kept. sleeper serve deletes older ones.",
    )
    row_group_bytes: int = setting(
        "default.query.results.rowgroup.size",
        "8388608",
        BYTE_SIZE,
        "Row groups of results.",
    )
    page_bytes: int = setting(
        "default.query.results.page.size", "131072", BYTE_SIZE, "Pages of results."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportQueueProperties:
    """Workers of exports, and their queue."""

    workers_max: int = setting(
        "bulk.export.max.concurrent.tasks", "10", POSITIVE, "Tasks at once, at most."
    )
    results_days: int = setting(
        "bulk.export.results.bucket.expiry.days",
        "7",
        POSITIVE,
        "How long exports that workers made are kept. sleeper serve deletes older ones; exports to "
        "places that you name stay.",
    )
    failed_visibility_s: int = setting(
        "bulk.export.job.failed.visibility.timeout.seconds",
        "60",
        NOT_NEGATIVE,
        "Wait after a failure.",
    )
    keepalive_s: int = setting(
        "bulk.export.keepalive.period.seconds",
        "300",
        POSITIVE,
        "How often a message's lease is renewed.",
    )
    visibility_s: int = setting(
        "bulk.export.queue.visibility.timeout.seconds", "900", POSITIVE, "Lease of a message."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerProperties:
    """Which jobs are tracked, and for how long (rule TRK-8)."""

    ingest: bool = setting("ingest.tracker.enabled", "true", BOOLEAN, "Jobs are tracked.")
    ingest_job_ttl_s: int = setting(
        "ingest.job.status.ttl", "604800", POSITIVE, "Seconds that job events are kept."
    )
    ingest_task_ttl_s: int = setting(
        "ingest.task.status.ttl", "604800", POSITIVE, "Seconds that task events are kept."
    )
    compaction: bool = setting("compaction.tracker.enabled", "true", BOOLEAN, "Jobs are tracked.")
    compaction_job_ttl_s: int = setting(
        "compaction.job.status.ttl", "604800", POSITIVE, "Seconds that job events are kept."
    )
    compaction_task_ttl_s: int = setting(
        "compaction.task.status.ttl", "604800", POSITIVE, "Seconds that task events are kept."
    )
    query_ttl_days: int = setting(
        "query.tracker.ttl.days", "1", POSITIVE, "How long queries and exports are tracked."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterProperties:
    """The committer."""

    visibility_s: int = setting(
        "statestore.committer.queue.visibility.timeout.seconds",
        "60",
        POSITIVE,
        "Lease of a message: a committer that was killed holds up its tables for so long.",
        since="ours",
    )
    batch_size: int = setting(
        "statestore.committer.batch.size",
        "10",
        QUEUE_BATCH,
        "Requests the committer takes at once.",
    )
