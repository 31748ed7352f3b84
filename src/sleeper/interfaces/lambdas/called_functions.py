"""Calls the functions of queues for the messages that wait there, as an event says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from sleeper.errors import BadRequest, SleeperError
from sleeper.instance.instance import Instance
from sleeper.model.jobs.kinds import QUEUES, QueueName
from sleeper.storage.aws.jobs.queue_functions import call_function, calls_for

FUNCTIONS: Final = "functions"
"""What an event has the functions in."""

_log = logging.getLogger(__name__)


def queue_functions(event: Mapping[str, Any]) -> dict[QueueName, str]:
    """Return the full names of the functions that an event names, by their queues.

    Raises:
        BadRequest: one is for no queue.
    """
    given = event.get(FUNCTIONS, {})
    if not isinstance(given, dict) or not given.keys() <= QUEUES.keys():
        raise BadRequest(
            f"{FUNCTIONS} is {given!r:.200}, but it must have names of functions by queues: "
            f"{', '.join(QUEUES)}"
        )
    return {QueueName(queue): str(function) for queue, function in given.items()}


def call_for_waiting(
    instance: Instance, functions: Mapping[QueueName, str], client: Any
) -> tuple[dict[str, int], list[SleeperError]]:
    """Call functions, as many times as their queue has work for.

    Args:
        instance: Whose queues they are.
        functions: The functions, by their queues.
        client: A client of Lambda.

    Returns:
        How many calls there were for each queue that had work; and why others could not be
        looked at, or their function not be called.
    """
    called: dict[str, int] = {}
    failures: list[SleeperError] = []
    for name, function in functions.items():
        try:
            waiting = instance.jobs.stores.queue(name).ready()
            calls = calls_for(waiting, in_order=QUEUES[name].fifo)
            for _ in range(calls):
                call_function(client, function, name)
        except SleeperError as failure:
            _log.error("%s cannot be called now: %s", function, failure)
            failures.append(failure)
        else:
            if calls:
                _log.info("%d messages of the %s queue wait: %d calls", waiting, name, calls)
                called[name] = calls
    return called, failures
