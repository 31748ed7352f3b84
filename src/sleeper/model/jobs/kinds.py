"""The kinds of jobs, one row each: queues, properties, stacks, and how they are tracked.

Whatever lists kinds of jobs or their queues reads it here. A new kind needs:

1. a row of `KINDS`, and a member of `QueueName` for each of its queues
2. a member of `JobKind` and a row of `TRACKED`, if trackers show its jobs as a kind of their own
3. the format of its message: a module in `model/formats` with a `read_...` function
4. the module that runs its jobs: `workers/kinds/<name>.py` with `open_reader`, which
   `workers/open_worker.py` calls; two kinds need more there (see `open_worker`)
5. how a job is submitted: `jobs/submission.py`, and a method of `InstanceJobs`
6. how users ask for it: a command in `interfaces/cli`, a route in `interfaces/rest/routes/jobs.py`
7. for AWS: a member of `StackName` (`model/stacks.py`), what its role may do (`deploy/grants.py`),
   its stack in the table `STACKS` of `deploy/stacks/jobs.py`, and where a function gets its
   messages, a handler in `interfaces/lambdas/handlers.py`

Properties are named without their first part, `sleeper.`; `settings.py` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from sleeper.errors import BadRequest
from sleeper.model.stacks import StackName


class JobKind(StrEnum):
    """What a job does. A bulk import is an ingest: one id names the work, however it is done."""

    INGEST = "ingest"
    COMPACTION = "compaction"
    QUERY = "query"
    EXPORT = "export"


class QueueName(StrEnum):
    """The queues of an instance. Each has dead letters of its own."""

    INGEST = "ingest"
    BULK_IMPORT = "bulk-import"
    BULK_IMPORT_EMR = "bulk-import-emr"
    BULK_IMPORT_PERSISTENT_EMR = "bulk-import-persistent-emr"
    BULK_IMPORT_EMR_SERVERLESS = "bulk-import-emr-serverless"
    BULK_IMPORT_EKS = "bulk-import-eks"
    BATCHER = "batcher"
    QUERY = "query"
    EXPORT = "export"
    COMMIT = "commit"


class Senders(StrEnum):
    """Whose messages a queue takes in AWS, beside administrators': the name of their policy."""

    INGEST = "ingest-by-queue"
    QUERY = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A queue.

    Attributes:
        name: The queue.
        in_sqs: Its name in SQS and that of its dead letters, after the instance's prefix;
            upstream's, where it has the queue.
        url: The property with its URL in SQS; None where upstream has none.
        dead_url: The property with that of its dead letters.
        stack: The stack that takes its messages; None where only processes of a user do.
        senders: Who may send messages to it.
        by_batcher: What the batcher calls it; None where the batcher sends it nothing.
        lease: The property that says for how long a message is hidden, in seconds.
        keepalive: The property that says how often a lease is renewed, in seconds.
        retry_first: The property that says how long a message waits after its first failure.
        fifo: Whether the messages of a table stay in order (rule STS-21).
        receives_max: A message that was received so often becomes a dead letter; None for what the
            instance says.
        is_urgent: Whether somebody waits for what becomes of a message: in AWS its sender calls the
            function that takes it.
    """

    name: QueueName
    in_sqs: tuple[str, str]
    url: str | None = None
    dead_url: str | None = None
    stack: StackName | None = None
    senders: Senders | None = None
    by_batcher: str | None = None
    lease: str = "ingest.queue.visibility.timeout.seconds"
    keepalive: str = "ingest.keepalive.period.seconds"
    retry_first: str = "jobs.retry.first.seconds"
    fifo: bool = False
    receives_max: int | None = None
    is_urgent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """Workers that run as tasks on Fargate.

    Attributes:
        start: What the names of their properties begin with, such as `ingest.task`.
        by_processor: Whether there is a size for each processor, such as `.arm.cpu`.
    """

    start: str
    by_processor: bool = True

    @property
    def period(self) -> str:
        """The property that says how often to look whether to start some, in minutes."""
        return f"{self.start}.creation.period.minutes"

    @property
    def architecture(self) -> str:
        """The property that says for which processor they are."""
        return f"{self.start}.cpu.architecture"

    def size(self, architecture: str) -> tuple[str, str]:
        """Return the properties that say how many processor units, and how much memory they have.

        >>> TaskSpec(start="bulk.export.task").size("ARM64")
        ('bulk.export.task.arm.cpu', 'bulk.export.task.arm.memory.mb')
        """
        if not self.by_processor:
            size = ("task.cpu", "task.memory.mb")
        elif architecture == "ARM64":
            size = ("task.arm.cpu", "task.arm.memory.mb")
        else:
            size = ("task.x86.cpu", "task.x86.memory.mb")
        stem = self.start.removesuffix("task")
        return f"{stem}{size[0]}", f"{stem}{size[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSpec:
    """A kind of jobs that workers run.

    Attributes:
        name: What `sleeper worker`, `sleeper serve --job-workers` and the Helm chart call it.
        tracked_as: What trackers call its jobs; None where it commits what others track.
        message: The module that reads its messages; None where it has no queue. A test compares it
            with what the kind's module imports.
        queues: Where its messages come from; none for compactions, whose queue is what tables have
            claimed.
        goes_on_paused: Whether a pause of the instance leaves it alone: questions do not change
            tables, and commits end what is at work.
        one_at_a_time: Whether `sleeper serve` runs one worker of it, unless an option says
            otherwise; else as many as there are processors.
        workers_max: The property that limits its workers in AWS; None for one.
        stack: The stack that runs it in AWS; None where each of its queues has one.
        task: How its workers run on Fargate; None where they do not.
        function: The function that gets its messages, where its stack has one.
    """

    name: str
    tracked_as: JobKind | None
    message: str | None
    queues: tuple[QueueSpec, ...]
    goes_on_paused: bool = False
    one_at_a_time: bool = False
    workers_max: str | None = None
    stack: StackName | None = None
    task: TaskSpec | None = None
    function: str | None = None

    @property
    def module(self) -> str:
        """The name of the module in `workers/kinds` that runs its jobs."""
        return self.name.replace("-", "_")

    @property
    def queue_names(self) -> tuple[QueueName, ...]:
        """The names of its queues."""
        return tuple(each.name for each in self.queues)

    @property
    def own_queues(self) -> tuple[QueueName, ...]:
        """The queues that its workers take where those of platforms have functions of their own."""
        return tuple(each.name for each in self.queues if each.stack in (None, self.stack))

    def variable(self, start: str) -> str:
        """Return the name of an environment variable for it.

        >>> kind_of("bulk-import").variable("SLEEPER_WORKERS_MAX")
        'SLEEPER_WORKERS_MAX_BULK_IMPORT'
        """
        return f"{start}_{self.name.upper().replace('-', '_')}"


_FORMATS: Final = "sleeper.model.formats"

KINDS: Final = (
    KindSpec(
        name="ingest",
        tracked_as=JobKind.INGEST,
        message=f"{_FORMATS}.ingest_job",
        queues=(
            QueueSpec(
                name=QueueName.INGEST,
                in_sqs=("IngestJobQ", "IngestJobDLQ"),
                url="ingest.job.queue.url",
                dead_url="ingest.job.dlq.url",
                stack=StackName.INGEST,
                senders=Senders.INGEST,
                by_batcher="standard_ingest",
            ),
        ),
        workers_max="ingest.max.concurrent.tasks",
        stack=StackName.INGEST,
        task=TaskSpec(start="ingest.task", by_processor=False),
    ),
    KindSpec(
        name="bulk-import",
        tracked_as=JobKind.INGEST,
        message=f"{_FORMATS}.bulk_import_job",
        queues=(
            QueueSpec(
                name=QueueName.BULK_IMPORT,
                in_sqs=("BulkImportQ", "BulkImportDLQ"),
                senders=Senders.INGEST,
                by_batcher="bulk_import",
            ),
            QueueSpec(
                name=QueueName.BULK_IMPORT_EMR,
                in_sqs=("BulkImportNonPersistentEMRQ", "BulkImportNonPersistentEMRDLQ"),
                url="bulk.import.emr.job.queue.url",
                stack=StackName.EMR,
                senders=Senders.INGEST,
                by_batcher="bulk_import_emr",
            ),
            QueueSpec(
                name=QueueName.BULK_IMPORT_PERSISTENT_EMR,
                in_sqs=("BulkImportPersistentEMRQ", "BulkImportPersistentEMRDLQ"),
                url="bulk.import.persistent.emr.job.queue.url",
                stack=StackName.PERSISTENT_EMR,
                senders=Senders.INGEST,
                by_batcher="bulk_import_persistent_emr",
            ),
            QueueSpec(
                name=QueueName.BULK_IMPORT_EMR_SERVERLESS,
                in_sqs=("BulkImportEMRServerlessQ", "BulkImportEMRServerlessDLQ"),
                url="bulk.import.emr.serverless.job.queue.url",
                stack=StackName.EMR_SERVERLESS,
                senders=Senders.INGEST,
                by_batcher="bulk_import_emr_serverless",
            ),
            QueueSpec(
                name=QueueName.BULK_IMPORT_EKS,
                in_sqs=("BulkImportEKSQ", "BulkImportEKSDLQ"),
                url="bulk.import.eks.job.queue.url",
                stack=StackName.EKS,
                senders=Senders.INGEST,
                by_batcher="bulk_import_eks",
            ),
        ),
        one_at_a_time=True,
        workers_max="ingest.max.concurrent.tasks",
    ),
    KindSpec(
        name="batcher",
        tracked_as=JobKind.INGEST,
        message=f"{_FORMATS}.batcher_submission",
        queues=(
            QueueSpec(
                name=QueueName.BATCHER,
                in_sqs=("IngestBatcherSubmitQ", "IngestBatcherSubmitDLQ"),
                url="ingest.batcher.submit.queue.url",
                dead_url="ingest.batcher.submit.dlq.url",
                stack=StackName.BATCHER,
                senders=Senders.INGEST,
                lease="ingest.batcher.submitter.timeout.seconds",
            ),
        ),
        one_at_a_time=True,
        stack=StackName.BATCHER,
        function="batcher-submit",
    ),
    KindSpec(
        name="compaction",
        tracked_as=JobKind.COMPACTION,
        message=None,
        queues=(),
        workers_max="compaction.max.concurrent.tasks",
        stack=StackName.COMPACTION,
        task=TaskSpec(start="compaction.task"),
    ),
    KindSpec(
        name="query",
        tracked_as=JobKind.QUERY,
        message=f"{_FORMATS}.query_json",
        queues=(
            QueueSpec(
                name=QueueName.QUERY,
                in_sqs=("QueryQueue", "QueryDLQ"),
                url="query.queue.url",
                dead_url="query.dlq.url",
                stack=StackName.QUERY,
                senders=Senders.QUERY,
                lease="query.queue.visibility.timeout.seconds",
                is_urgent=True,
            ),
        ),
        goes_on_paused=True,
        stack=StackName.QUERY,
        function="query",
    ),
    KindSpec(
        name="export",
        tracked_as=JobKind.EXPORT,
        message=f"{_FORMATS}.export_job",
        queues=(
            QueueSpec(
                name=QueueName.EXPORT,
                in_sqs=("BulkExport-Q", "BulkExport-DLQ"),
                url="bulk.export.queue.url",
                dead_url="bulk.export.queue.dlq.url",
                stack=StackName.EXPORT,
                senders=Senders.QUERY,
                lease="bulk.export.queue.visibility.timeout.seconds",
                keepalive="bulk.export.keepalive.period.seconds",
                retry_first="bulk.export.job.failed.visibility.timeout.seconds",
            ),
        ),
        goes_on_paused=True,
        one_at_a_time=True,
        workers_max="bulk.export.max.concurrent.tasks",
        stack=StackName.EXPORT,
        task=TaskSpec(start="bulk.export.task"),
    ),
    KindSpec(
        name="commit",
        tracked_as=None,
        message="sleeper.state.commit_request",
        queues=(
            QueueSpec(
                name=QueueName.COMMIT,
                in_sqs=("StateStoreCommitterQ", "StateStoreCommitterDLQ"),
                url="statestore.committer.queue.url",
                dead_url="statestore.committer.dlq.url",
                stack=StackName.COMMITTER,
                lease="statestore.committer.queue.visibility.timeout.seconds",
                fifo=True,
                receives_max=1_000,  # a request is tried until the log takes or refuses it
                is_urgent=True,
            ),
        ),
        goes_on_paused=True,
        one_at_a_time=True,
        stack=StackName.COMMITTER,
        function="committer",
    ),
)
"""All kinds of jobs that workers run."""

KIND_NAMES: Final = tuple(each.name for each in KINDS)
"""Their names, as users type them."""

BATCHER: Final = "batcher"
"""The kind whose messages submit files, which become jobs later."""

COMPACTION: Final = "compaction"
"""The kind that has no queue: what tables have claimed is its queue."""

QUEUES: Final[Mapping[QueueName, QueueSpec]] = {
    each.name: each for kind in KINDS for each in kind.queues
}
"""All queues."""

URGENT: Final[Mapping[QueueName, str]] = {
    queue.name: kind.function
    for kind in KINDS
    for queue in kind.queues
    if queue.is_urgent and kind.function is not None
}
"""The functions that senders call, after the instance's prefix, by their queues."""

QUEUES_OF_BATCHER: Final[Mapping[str, QueueName]] = {
    each.by_batcher: name for name, each in QUEUES.items() if each.by_batcher is not None
}
"""The queues that the batcher sends jobs to, by what a table's properties call them."""

TASK_KINDS: Final = tuple(each for each in KINDS if each.task is not None)
"""The kinds whose workers run on Fargate."""


def kind_of(name: str) -> KindSpec:
    """Return a kind of jobs by its name.

    Raises:
        BadRequest: there is none of this name.
    """
    found = next((each for each in KINDS if each.name == name), None)
    if found is None:
        raise BadRequest(
            f"there is no kind of jobs {name!r:.100}; there are {', '.join(KIND_NAMES)}"
        )
    return found


def queues_of(kind: JobKind) -> tuple[QueueName, ...]:
    """Return the queues whose messages ask for jobs that trackers show as a kind.

    A submission to the batcher is no job yet.
    """
    return tuple(
        name
        for each in KINDS
        if each.tracked_as is kind and each.name != BATCHER
        for name in each.queue_names
    )


BULK_IMPORT_QUEUES: Final = kind_of("bulk-import").queue_names
"""The queues of bulk imports: one for each platform, and one for the worker's own machine."""


def queues_from(senders: Senders) -> tuple[QueueName, ...]:
    """Return the queues to which some users may send."""
    return tuple(name for name in QueueName if QUEUES[name].senders is senders)


# ---------------------------------------------------------------- how jobs are tracked
#
# What trackers keep of each kind (rule TRK-8).


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingSpec:
    """How jobs of a kind are tracked.

    Attributes:
        kind: What they do.
        enabled: The property that says whether they are; None where they always are.
        job_ttl: The property that says how long an event of a job is kept.
        task_ttl: The property that says how long an event of a task is kept.
        ttl_unit: In what these two count.
        is_answer: Whether somebody waits for its rows: then its state is that of a query.
    """

    kind: JobKind
    job_ttl: str
    task_ttl: str
    ttl_unit: timedelta = timedelta(seconds=1)
    enabled: str | None = None
    is_answer: bool = False


_DAYS_OF_QUERIES: Final = "query.tracker.ttl.days"

TRACKED: Final[Mapping[JobKind, TrackingSpec]] = {
    each.kind: each
    for each in (
        TrackingSpec(
            kind=JobKind.INGEST,
            enabled="ingest.tracker.enabled",
            job_ttl="ingest.job.status.ttl",
            task_ttl="ingest.task.status.ttl",
        ),
        TrackingSpec(
            kind=JobKind.COMPACTION,
            enabled="compaction.tracker.enabled",
            job_ttl="compaction.job.status.ttl",
            task_ttl="compaction.task.status.ttl",
        ),
        TrackingSpec(
            kind=JobKind.QUERY,
            job_ttl=_DAYS_OF_QUERIES,
            task_ttl=_DAYS_OF_QUERIES,
            ttl_unit=timedelta(days=1),
            is_answer=True,
        ),
        TrackingSpec(
            kind=JobKind.EXPORT,
            job_ttl=_DAYS_OF_QUERIES,
            task_ttl=_DAYS_OF_QUERIES,
            ttl_unit=timedelta(days=1),
            is_answer=True,
        ),
    )
}
"""How jobs of each kind are tracked."""

ANSWERS: Final = tuple(kind for kind in JobKind if TRACKED[kind].is_answer)
"""Kinds whose jobs answer a question, and have the states of a query."""
