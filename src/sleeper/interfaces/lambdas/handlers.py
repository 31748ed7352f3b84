"""The functions of an instance in AWS, as Lambda calls them.

All read `SLEEPER_INSTANCE` from the environment, such as `aws://demo`, and open the instance once
in a process. Between two calls nothing runs and nothing is asked.

Those that run jobs take two events. One is a batch that Lambda has received from their queue; they
answer `batchItemFailures`, so an event source mapping needs `ReportBatchItemFailures`. The other is
`{"waiting": QUEUE}`, with the queue's name, by which senders and `start_workers` call them: then
they receive messages themselves until there are none.

| function | called by | environment |
|---|---|---|
| `commit` | senders, `start_workers`, or the queue of the committer, FIFO | |
| `query` | senders, `start_workers`, or the query queue, one message a call | |
| `start_bulk_imports` | `start_workers`, or its queue, one message a call | `SLEEPER_QUEUE` |
| `submit_to_batcher` | the batcher's queue | |
| `create_batches` | each `sleeper.ingest.batcher.job.creation.period.minutes` | |
| `trigger_tables` | a schedule for each operation | `SLEEPER_TABLES_QUEUE_URL` |
| `run_tables` | the FIFO queue of operations, one message a call | |
| `start_workers` | a schedule, each minute | below |
| `write_properties` | CloudFormation, for stacks with properties of the instance | |
| `watch_queues` | each `sleeper.alarms.look.period.minutes` | `SLEEPER_QUEUES_URL` and others |

`start_workers` needs `SLEEPER_CLUSTER`, `SLEEPER_SUBNETS` (with commas between them) and for each
kind `SLEEPER_TASK_<KIND>`, the family of its task definition, such as `SLEEPER_TASK_BULK_IMPORT`.
It may have:

- `SLEEPER_SECURITY_GROUP`: several with commas between them; without it, that of the VPC
- `SLEEPER_WORKERS_MAX_<KIND>`: a limit below `sleeper.ingest.max.concurrent.tasks` and its like
- `SLEEPER_CAPACITY`: `FARGATE` (the default), `FARGATE_SPOT`, or `FARGATE_SPOT,FARGATE` for the
  second where the first has no room
- `SLEEPER_PUBLIC_IP`: `ENABLED` (the default: without a NAT a task reaches nothing otherwise) or
  `DISABLED`
- `SLEEPER_PLATFORM_VERSION`: the version of Fargate, such as `1.4.0`; without it, the newest

Beside what its jobs need a role must allow: to open the instance, and to read the tables of states
(`dynamodb:BatchGetItem`, `Query`) and to write `services/notes/*` in the bucket of properties, for
`trigger_tables` and `start_workers`; `sqs:SendMessage` for `trigger_tables`; `s3:PutObject` on
`instance.properties` and `properties/*` of the bucket of properties for `write_properties`;
`ecs:ListTasks`, `ecs:DescribeTasks`, `ecs:RunTask`, `iam:PassRole` and `lambda:InvokeFunction` for
`start_workers`;
`sqs:SendMessage` to the queue and its dead letters, `sqs:ChangeMessageVisibility`,
`sqs:GetQueueUrl` and `sqs:ListQueueTags` for those that get messages of jobs.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sleeper.errors import BadRequest, CommitUnknown, SleeperError, StorageFailed
from sleeper.instance.instance import (
    between_attempts,
    current_time,
    process_environment,
    write_deployed_properties,
)
from sleeper.interfaces.lambdas.called_functions import call_for_waiting, queue_functions
from sleeper.interfaces.lambdas.messages import (
    Answer,
    run_jobs,
    run_operations,
    tables_sender,
)
from sleeper.interfaces.lambdas.warm_instance import (
    URL,
    LambdaContext,
    TimeLimit,
    needed,
    warm_instance,
)
from sleeper.interfaces.lambdas.worker_tasks import warm_starts, worker_limits
from sleeper.model.jobs.kinds import BULK_IMPORT_QUEUES, QueueName
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.deployment.stack_requests import StackRequest
from sleeper.storage.aws.jobs.queue_source import QueueSource
from sleeper.storage.aws.jobs.queue_watch import QueueWatch, count_tasks, raise_failures
from sleeper.workers.kinds.batcher import run_batcher
from sleeper.workers.scheduled_operations import ask_for_operation, checked_operation

_QUEUE: Final = "SLEEPER_QUEUE"
_AGAIN_S: Final = 5.0

_log = logging.getLogger(__name__)

Event = Mapping[str, Any]


def commit(event: Event, context: LambdaContext) -> Answer:
    """Commit what workers ask for: the requests of each table in one entry of its log.

    Those of a table stay in order; `sleeper pause` does not stop them.
    """
    return run_jobs(warm_instance(), "commit", QueueName.COMMIT, event, context)


def query(event: Event, context: LambdaContext) -> Answer:
    """Run queries; their rows go where each says. `sleeper pause` does not stop them."""
    return run_jobs(warm_instance(), "query", QueueName.QUERY, event, context)


def start_bulk_imports(event: Event, context: LambdaContext) -> Answer:
    """Start the driver of each bulk import on the platform that the queue is for.

    SLEEPER_QUEUE names the queue: `bulk-import-emr-serverless` and the like.

    Raises:
        BadRequest: it names no queue of bulk imports on a platform.
    """
    name = needed(process_environment(), _QUEUE)
    if name not in BULK_IMPORT_QUEUES:
        queues = ", ".join(BULK_IMPORT_QUEUES)
        raise BadRequest(f"{_QUEUE} is {name!r}, but it must be one of {queues}")
    return run_jobs(warm_instance(), "bulk-import", QueueName(name), event, context)


def submit_to_batcher(event: Event, context: LambdaContext) -> Answer:
    """Take note of files that were submitted to the ingest batcher."""
    return run_jobs(warm_instance(), "batcher", QueueName.BATCHER, event, context)


def create_batches(event: Event, context: LambdaContext) -> dict[str, int]:
    """Make jobs of submitted files that are due, and send them; return how many.

    While no file waits that costs two reads of DynamoDB, and a look at the queue of submissions,
    which Lambda asks for messages only while there are some (`SLEEPER_SOURCE`).
    """
    instance = warm_instance()
    _follow_queue(sent=False)
    jobs = instance.jobs
    batcher = jobs.stores.batcher
    if not (batcher.pending() or batcher.unsent()):
        return {"jobs": 0, "files": 0}
    if instance.pause_switch.paused_since() is not None:
        _log.info("no jobs are made of submitted files: the instance is paused")
        return {"jobs": 0, "files": 0}
    made = run_batcher(jobs, jobs.recorder.now())
    return {"jobs": made.jobs, "files": made.files}


def trigger_tables(event: Event, context: LambdaContext) -> dict[str, list[str]]:
    """Ask for an operation on each online table that may need it; return their names (rule INS-13).

    The event is `{"operation": ...}`: `split` (and merge) leaves, `collect` garbage (and once a
    day orphans), `measure`, or `compact` where no worker does. The message of each table is in a
    group of its own. A table is asked for when it has changed, for a while after where garbage may
    be left, and once a day. An instance whose tables do not change costs a scan of the table
    index, a read of notes in S3, and a read of DynamoDB for each hundred tables; and a look at the
    queue, which Lambda asks for messages only while there are some (`SLEEPER_SOURCE`).

    Raises:
        BadRequest: the event or SLEEPER_TABLES_QUEUE_URL is wrong.
        StorageFailed: the storage or SQS does not answer.
    """
    operation = checked_operation(event)
    sender = tables_sender(process_environment(), TimeLimit(context))
    tables = ask_for_operation(warm_instance(), operation, sender.send)
    _follow_queue(sent=bool(tables))
    return {"tables": tables}


def _follow_queue(*, sent: bool) -> None:
    """Have Lambda ask a queue for messages while there are some, if the environment names one."""
    environment = process_environment()
    mapping = environment.get("SLEEPER_SOURCE", "").strip()
    if mapping:
        source = QueueSource(needed(environment, "SLEEPER_SOURCE_QUEUE_URL"), mapping)
        source.follow(aws_client("sqs"), aws_client("lambda"), current_time(), sent=sent)


def run_tables(event: Event, context: LambdaContext) -> Answer:
    """Run the operations in messages of `trigger_tables`; their tables wait for nothing else.

    Figures are printed in CloudWatch's embedded metric format. A failed operation comes again.
    """
    return run_operations(warm_instance(), event, TimeLimit(context))


def start_workers(event: Event, context: LambdaContext) -> dict[str, int]:
    """Start tasks of ECS for the jobs that wait, within the limits; return how many (rule ING-15).

    The event is `{"kinds": [...], "functions": {...}}`. A kind that nothing waits for costs a
    request to SQS. Compactions have no queue: they cost what `trigger_tables` costs, and are
    planned for tables that have changed. The functions are those that take messages of queues, by
    the names of the queues: each is called, up to ten times, where messages wait. That costs a
    request to SQS too.

    Raises:
        BadRequest: the event or the environment is wrong.
        StorageFailed: workers of a kind could not be started, or a function could not be called;
            the others were.
    """
    functions = queue_functions(event)
    limits = worker_limits(event, process_environment(), warm_instance().properties)
    called, failures = call_for_waiting(warm_instance(), functions, aws_client("lambda"))
    started = warm_starts(warm_instance, process_environment()).look(limits) if limits else {}
    if failures:
        raise StorageFailed(
            f"functions were not called: {'; '.join(map(str, failures))}. The next look tries "
            "again."
        ) from failures[0]
    return {**started, **called}


def write_properties(event: Event, context: LambdaContext) -> None:
    """Write the properties that a template has for the instance, and answer CloudFormation.

    When a stack is made, the properties of its template make the instance, or are set; when it is
    changed, those are set that the template has changed. When it is deleted, properties stay: they
    are with the data. What goes wrong is the stack's failure, with the reason.

    Raises:
        BadRequest: somebody else has called, who waits for no answer.
        StorageFailed: CloudFormation did not take the answer.
    """
    request = StackRequest.of(event)
    request.answer(_write_properties(request, TimeLimit(context)), pause=between_attempts)


def _write_properties(request: StackRequest, limit: TimeLimit) -> str | None:
    """Do what CloudFormation asks for; return why it failed, or None."""
    try:
        if request.kind != "Delete":
            _write_in_time(request, limit)
    except Exception as error:  # noqa: BLE001 - a stack without an answer would stand still
        _log.error("the properties of the template are not written", exc_info=True)
        return str(error) if isinstance(error, SleeperError) else f"{type(error).__name__}: {error}"
    return None


def _write_in_time(request: StackRequest, limit: TimeLimit) -> None:
    """Write the properties; again if that fails, for S3 may not know a new role yet."""
    url = needed(process_environment(), URL)
    while True:
        try:
            write_deployed_properties(url, request.before, request.after)
        except (StorageFailed, CommitUnknown) as error:
            if not limit.may_begin():
                raise
            _log.warning("the properties are not written yet: %s", error)
            limit.wait(_AGAIN_S)
        else:
            return


def watch_queues(event: Event, context: LambdaContext) -> dict[str, dict[str, float]]:
    """Look for dead letters and for messages that wait; print them as metrics, which alarms see.

    The instance is not opened. SLEEPER_QUEUES and SLEEPER_DEAD_LETTERS are names of queues with
    commas between them, SLEEPER_QUEUES_URL is what their URLs begin with, and
    SLEEPER_ALARMS_NAMESPACE is the namespace of the metrics. With SLEEPER_CLUSTER the tasks that
    run there are counted too.

    Raises:
        BadRequest: a variable is missing.
        StorageFailed: a queue cannot be looked at; the others were.
    """
    environment, now = process_environment(), current_time()
    watch = QueueWatch(
        url=needed(environment, "SLEEPER_QUEUES_URL"),
        queues=tuple(needed(environment, "SLEEPER_QUEUES").split(",")),
        dead=tuple(needed(environment, "SLEEPER_DEAD_LETTERS").split(",")),
        namespace=needed(environment, "SLEEPER_ALARMS_NAMESPACE"),
    )
    found = watch.look(aws_client("sqs"), aws_client("cloudwatch"), now)
    cluster = environment.get("SLEEPER_CLUSTER")
    if cluster:
        found = replace(found, tasks=count_tasks(aws_client("ecs"), cluster))
    metrics = watch.metrics(found, now)
    if metrics is not None:
        sys.stdout.write(json.dumps(metrics) + "\n")
    raise_failures(found)
    return {"deadLetters": {**found.dead}, "oldestSeconds": {**found.oldest_s}}
