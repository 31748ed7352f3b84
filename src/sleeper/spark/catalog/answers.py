"""The protocol of the catalog's jar and its Python process: a line of JSON, and one in answer.

A request is {"call": NAME, ...}. The answer is {"answer": VALUE} or {"error": {"kind", "message"}},
where kind is the name of the error's class. The process ends when its input does, and when there
was no request for long: a server of Spark Connect has a process for each of its sessions.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from select import select
from typing import IO, Any, Final

from sleeper.errors import SleeperError

_log = logging.getLogger(__name__)

Request = Mapping[str, Any]

PROTOCOL: Final = 1
"""The number of this protocol, which the jar's first request has: another number is refused."""


IDLE_S: Final = 600.0
"""Seconds without a request after which the process ends; the jar starts another if need be."""


def answer_requests(
    requests: IO[bytes],
    answers: IO[bytes],
    answer: Callable[[Request], object],
    idle_s: float = IDLE_S,
) -> None:
    """Answer each line of `requests` by a line, until they end or there is none for long.

    Args:
        requests: Lines of JSON; the next is sent when the one before is answered.
        answers: Where answers go; flushed after each.
        answer: Returns what a request asks for, as values of JSON.
        idle_s: How long to wait for a request, in seconds.
    """
    while select([requests], [], [], idle_s)[0] and (line := requests.readline()):
        answers.write(json.dumps(_outcome(json.loads(line), answer)).encode() + b"\n")
        answers.flush()


def _outcome(request: Request, answer: Callable[[Request], object]) -> Mapping[str, object]:
    try:
        return {"answer": answer(request)}
    except SleeperError as error:
        return {"error": {"kind": type(error).__name__, "message": str(error)}}
    except Exception as error:  # noqa: BLE001 - it is reported to whoever asked
        _log.exception("the request %r failed", request.get("call"))
        message = f"{type(error).__name__}: {error} (a fault of Sleeper's catalog)"
        return {"error": {"kind": "Fault", "message": message}}
