"""What CloudFormation asks of a function for a resource of ours, and the answer that it waits for.

CloudFormation waits for an answer, and not for the end of the call: without one the stack stands
still until the time of the resource is over. So each request is answered, also when it failed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.request import Request, urlopen

from sleeper.errors import BadRequest, StorageFailed

logger = logging.getLogger(__name__)

_PROPERTIES: Final = "Properties"
_ATTEMPTS: Final = 5
_ANSWER_MAX_S: Final = 10
_REASON_CHARACTERS_MAX: Final = 2_000
"""An answer has at most 4,096 bytes, whatever letters it is written in."""


@dataclass(frozen=True, slots=True)
class StackRequest:
    """A request for a resource whose properties are those of an instance.

    Attributes:
        kind: `Create`, `Update` or `Delete`.
        before: The properties in the template before; none if it is new.
        after: The properties in the template now.
        event: The whole request.
    """

    kind: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    event: Mapping[str, Any]

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> StackRequest:
        """Read a request.

        Raises:
            BadRequest: it is none of CloudFormation's, so nobody waits for an answer.
        """
        if not isinstance(event.get("ResponseURL"), str):
            raise BadRequest(
                "this function is called by CloudFormation alone, when a stack with properties "
                "of an instance is made or changed"
            )
        return cls(
            str(event.get("RequestType")),
            _properties(event.get("OldResourceProperties")),
            _properties(event.get("ResourceProperties")),
            event,
        )

    def answer(self, failure: str | None, *, pause: Callable[[int], None]) -> None:
        """Tell CloudFormation that it is done, or why not.

        Args:
            failure: Why it failed; None if it is done.
            pause: Waits before another attempt.

        Raises:
            StorageFailed: CloudFormation did not take it: Lambda calls the function again.
        """
        event = self.event
        logical = str(event.get("LogicalResourceId", ""))
        body = {
            "Status": "SUCCESS" if failure is None else "FAILED",
            "Reason": (failure or "done")
            .encode("ascii", "replace")[:_REASON_CHARACTERS_MAX]
            .decode(),
            # Always the same, so that the resource is never replaced by another.
            "PhysicalResourceId": str(event.get("PhysicalResourceId") or logical or "properties"),
            "StackId": event.get("StackId"),
            "RequestId": event.get("RequestId"),
            "LogicalResourceId": logical,
        }
        _send(str(event["ResponseURL"]), json.dumps(body).encode(), pause)


def _properties(resource: Any) -> dict[str, str]:
    found = resource.get(_PROPERTIES) if isinstance(resource, Mapping) else None
    return {str(name): str(text) for name, text in (found or {}).items()}


def _send(url: str, body: bytes, pause: Callable[[int], None]) -> None:
    """Put an answer where CloudFormation waits for it: an object in a bucket of its own."""
    if not url.startswith(("https://", "http://")):
        raise BadRequest("CloudFormation waits for an answer at no address of HTTP")
    # The URL is signed for a request without a type of content.
    request = Request(url, body, {"Content-Type": ""}, method="PUT")  # noqa: S310 - HTTP alone
    for attempt in range(_ATTEMPTS):
        try:
            with urlopen(request, timeout=_ANSWER_MAX_S):  # noqa: S310 - HTTP alone
                return
        except OSError as error:
            if attempt + 1 == _ATTEMPTS:
                raise StorageFailed(f"CloudFormation did not take the answer: {error}") from error
            logger.warning("the answer to CloudFormation is sent again: %s", error)
            pause(attempt)
