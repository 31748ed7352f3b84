"""Runs the jobs in messages that Lambda has received from a queue, by the one worker loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from sleeper.errors import BadRequest, SleeperError
from sleeper.instance.instance import Instance
from sleeper.interfaces.lambdas.time_limit import LambdaContext, TimeLimit
from sleeper.language.failures import ends_process
from sleeper.model.jobs.messages import QueueName
from sleeper.storage.aws.jobs.delivered_queue import DeliveredQueue
from sleeper.storage.aws.jobs.sqs_queue import SqsQueue
from sleeper.workers.open_worker import open_worker
from sleeper.workers.serve.pause_look import GO_ON_PAUSED
from sleeper.workers.worker import WorkerSettings

_PAUSED_S = 60.0
"""While the instance is paused, messages come again after this time."""

_SETTINGS = WorkerSettings(wait_s=0.0, until_empty=True, is_reported=False)

_log = logging.getLogger(__name__)

Answer = dict[str, list[dict[str, str]]]
"""What Lambda is told of a batch: `batchItemFailures`."""


def run_delivered(
    instance: Instance,
    kind: str,
    name: QueueName,
    event: Mapping[str, Any],
    context: LambdaContext,
) -> Answer:
    """Run the jobs in an event of a queue, and return which messages are not done.

    Those come again: each failed job after the delay that the worker loop asked for, what was not
    begun at once.

    Args:
        instance: Whose jobs they are.
        kind: The kind of worker.
        name: The queue that the messages came from.
        event: What Lambda received.
        context: Says how much time is left.
    """
    limit = TimeLimit(context)
    queue = DeliveredQueue(
        _queue_in_sqs(instance, name),
        records_of(event),
        has_time=limit.may_begin,
        is_over=limit.is_over,
    )
    worker = open_worker(
        instance,
        kind,
        _SETTINGS,
        host=os.uname().nodename,
        pid=os.getpid(),
        stopped=limit.is_over,
        rest=limit.rest,
        delivered={name: queue},
    )
    try:
        worker.run()
    except SleeperError as failure:
        _log.error("%d messages of the %s queue come again: %s", queue.ready(), name, failure)
    except BaseException as failure:
        if ends_process(failure):
            raise
        _log.exception("messages of the %s queue come again", name)
    if queue.ready():
        queue.release_waiting(_PAUSED_S if _is_paused(instance, kind) else 0.0)
    return failures_of(queue.failed())


def records_of(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the records of an event of a queue.

    Raises:
        BadRequest: it is another event.
    """
    records = event.get("Records")
    if not isinstance(records, list):
        raise BadRequest(
            "the event has no Records: this function takes what the event source mapping of a "
            "queue in SQS sends"
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


def _is_paused(instance: Instance, kind: str) -> bool:
    return kind not in GO_ON_PAUSED and instance.pause_switch.paused_since() is not None
