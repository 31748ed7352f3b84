"""Runs what is in messages of queues in one call of a function, as workers elsewhere do.

`run_jobs` runs jobs by the one worker loop, whose stop signal is the time limit of the call. Their
messages are those that Lambda has received, or those that wait: then the call receives and deletes
them itself, as Lambda would.
`run_operations` runs operations on tables, and prints their figures for CloudWatch.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sleeper.errors import BadRequest, SleeperError, ends_process
from sleeper.instance.instance import Instance
from sleeper.interfaces.lambdas.warm_instance import LambdaContext, TimeLimit, needed
from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.aws.clients import aws_client
from sleeper.storage.aws.jobs.delivered_queue import DeliveredQueue, delivered
from sleeper.storage.aws.jobs.fifo_sender import FifoSender
from sleeper.storage.aws.jobs.queue_functions import WAITING
from sleeper.storage.aws.jobs.sqs_messages import Delivery
from sleeper.storage.aws.jobs.sqs_queue import SqsQueue
from sleeper.tables.report import FilesReport
from sleeper.workers.instance_changes import is_paused
from sleeper.workers.open_worker import open_worker
from sleeper.workers.scheduled_operations import TableOperation, run_operation
from sleeper.workers.worker import WorkerSettings

_PAUSED_S = 60.0
"""While the instance is paused, messages come again after this time."""

_TABLES_QUEUE: Final = "SLEEPER_TABLES_QUEUE_URL"
_FIRST_WAIT_S: Final = 1.0
"""A receive that does not wait may miss messages of SQS."""

_SETTINGS = WorkerSettings(wait_s=0.0, until_empty=True, is_reported=False)

_log = logging.getLogger(__name__)

Answer = dict[str, list[dict[str, str]]]
"""What a function answers of a batch: `batchItemFailures`."""


def run_jobs(
    instance: Instance,
    kind: str,
    name: QueueName,
    event: Mapping[str, Any],
    context: LambdaContext,
) -> Answer:
    """Run the jobs in an event of a queue, and return which messages are not done.

    Those come again: each failed job after the delay that the worker loop asked for, what was not
    begun at once. An event without messages that names the queue as `waiting` asks for those that
    wait: batch after batch is run while there are some, and half of the time is left for another.

    Args:
        instance: Whose jobs they are.
        kind: The kind of worker.
        name: The queue that the messages came from.
        event: What Lambda received, or `{"waiting": name}`.
        context: Says how much time is left.

    Raises:
        BadRequest: it is another event.
        StorageFailed: what waits cannot be received or deleted.
    """
    limit, in_sqs = TimeLimit(context), _queue_in_sqs(instance, name)
    if event.get(WAITING) != name:
        deliveries = [*map(delivered, records_of(event))]
        return failures_of(_run(instance, kind, name, in_sqs, deliveries, limit).failed())
    count_max = _batch_max(instance, name)
    wait_s = _FIRST_WAIT_S
    while limit.may_begin():
        deliveries = in_sqs.deliveries(count_max, wait_s=wait_s)
        if not deliveries:
            break
        wait_s = 0.0
        batch = _run(instance, kind, name, in_sqs, deliveries, limit)
        failed = set(batch.failed())
        in_sqs.delete([each.message.receipt for each in deliveries if each.sqs_id not in failed])
        if not batch.handled():
            break  # nothing can be done now: the next call tries again
    return failures_of([])


def _batch_max(instance: Instance, name: QueueName) -> int:
    """Return how many messages are received at once: requests to one table have one commit."""
    return instance.properties.committer.batch_size if name is QueueName.COMMIT else 1


def _run(
    instance: Instance,
    kind: str,
    name: QueueName,
    in_sqs: SqsQueue,
    deliveries: Sequence[Delivery],
    limit: TimeLimit,
) -> DeliveredQueue:
    """Run the jobs in messages; return the queue of these, which knows what is not done."""
    queue = DeliveredQueue(
        in_sqs,
        deliveries,
        has_time=limit.may_begin,
        is_over=limit.is_set,
    )
    worker = open_worker(instance, kind, _SETTINGS, limit, delivered={name: queue})
    try:
        worker.run()
    except SleeperError as failure:
        _log.error("%d messages of the %s queue come again: %s", queue.ready(), name, failure)
    except BaseException as failure:
        if ends_process(failure):
            raise
        _log.exception("messages of the %s queue come again", name)
    if queue.ready():
        queue.release_waiting(_PAUSED_S if is_paused(instance, kind) else 0.0)
    return queue


def records_of(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the records of an event of a queue.

    Raises:
        BadRequest: it is another event.
    """
    records = event.get("Records")
    if not isinstance(records, list):
        raise BadRequest(
            "the event has no Records: this function takes what the event source mapping of a "
            f"queue in SQS sends, or the name of the queue as {WAITING!r}"
        )
    return records


def failures_of(ids: list[str]) -> Answer:
    """Return the answer that lets Lambda keep the messages with these ids, and delete others."""
    return {"batchItemFailures": [{"itemIdentifier": each} for each in ids]}


def _queue_in_sqs(instance: Instance, name: QueueName) -> SqsQueue:
    queue = instance.jobs.stores.queue(name)
    if not isinstance(queue, SqsQueue):
        raise BadRequest(
            f"the jobs of {instance.url} are not in SQS: set sleeper.jobs.url to sqs, or run "
            "sleeper serve"
        )
    return queue


def tables_sender(environment: Mapping[str, str], limit: TimeLimit) -> FifoSender:
    """Return what sends to the queue of operations that the environment names.

    Raises:
        BadRequest: it names none.
    """
    url = needed(environment, _TABLES_QUEUE)
    return FifoSender(lambda: aws_client("sqs"), url, rest=limit.wait)


def run_operations(instance: Instance, event: Mapping[str, Any], limit: TimeLimit) -> Answer:
    """Run the operations in an event, in order; return the messages that are not done.

    After one that failed nothing more is run of its table, so that its messages stay in order. A
    message that asks for no operation is logged, and does not come again.
    """
    failed: list[str] = []
    groups: set[str | None] = set()
    for delivery in map(delivered, records_of(event)):
        message = delivery.message
        is_done = False
        if message.group not in groups and not limit.is_set():
            is_done = _is_done(instance, message.body, limit)
        if not is_done:
            groups.add(message.group)
            failed.append(delivery.sqs_id)
    return failures_of(failed)


def _is_done(instance: Instance, body: str, limit: TimeLimit) -> bool:
    try:
        wanted = TableOperation.read(body)
    except BadRequest as none:
        _log.error("a message is left out: %s", none)
        return True
    try:
        failures = run_operation(
            instance,
            wanted,
            limit,
            report=lambda name, files: print_figures(instance, name, files, instance.now()),
        )
    except SleeperError as failure:
        _log.error("%s of table %s failed: %s", wanted.operation, wanted.table_id, failure)
        return False
    except BaseException as failure:
        if ends_process(failure):
            raise
        _log.exception("%s of table %s failed", wanted.operation, wanted.table_id)
        return False
    return not failures


def print_figures(instance: Instance, table: str, files: FilesReport, at: datetime) -> None:
    """Print the figures of a table as CloudWatch reads them in a function's log (rule ADM-11)."""
    figures: dict[str, float] = {
        "NumberOfFilesWithReferences": files.files - files.files_unreferenced,
        "RowCount": files.rows,
        "PartitionCount": files.leaf_partitions + files.non_leaf_partitions,
        "LeafPartitionCount": files.leaf_partitions,
        "AverageFileReferencesPerPartition": files.references_per_leaf["mean"],
    }
    metrics = {
        "Namespace": instance.properties.cloud.metrics_namespace,
        "Dimensions": [["instanceId", "tableName"]],
        "Metrics": [{"Name": name, "Unit": "Count"} for name in figures],
    }
    document = {
        "_aws": {"Timestamp": int(at.timestamp() * 1000), "CloudWatchMetrics": [metrics]},
        "instanceId": instance.instance_id,
        "tableName": table,
        **figures,
    }
    sys.stdout.write(json.dumps(document) + "\n")
