"""Sends messages to a FIFO queue of SQS that is named by its URL."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from sleeper.model.jobs.messages import NewMessage
from sleeper.storage.aws.clients import aws_failure, vendor_errors
from sleeper.storage.aws.jobs.sqs_messages import batches, new_entry

logger = logging.getLogger(__name__)

_TRIES: Final = 3
_PAUSE_S: Final = 0.5


class FifoSender:
    """Sends messages, each in a group.

    Args:
        client: Returns boto3's client of SQS.
        url: The queue.
        rest: Waits for so many seconds.
    """

    def __init__(
        self, client: Callable[[], Any], url: str, *, rest: Callable[[float], object]
    ) -> None:
        self._client, self._url, self._rest = client, url, rest

    def send(self, messages: Sequence[NewMessage]) -> set[str]:
        """Send messages, ten in a call; return the groups of those that SQS refused three times.

        Raises:
            StorageFailed: SQS does not answer; some messages may have been sent.
        """
        refused: set[str] = set()
        for batch in batches([new_entry(each, each.deduplication_id or "") for each in messages]):
            left = {str(number): entry for number, entry in enumerate(batch)}
            for attempt in range(_TRIES):
                if attempt:
                    self._rest(_PAUSE_S * 2**attempt)
                failed = self._sent([{"Id": key, **entry} for key, entry in left.items()])
                left = {key: left[key] for key in failed}
                if not left:
                    break
                codes = ", ".join(sorted(set(failed.values())))
                logger.warning("%d messages were not sent to %s: %s", len(left), self._url, codes)
            refused |= {entry["MessageGroupId"] for entry in left.values()}
        return refused

    def _sent(self, entries: list[dict[str, Any]]) -> dict[str, str]:
        """Send a batch; return the codes of entries that were refused."""
        try:
            answer = self._client().send_message_batch(QueueUrl=self._url, Entries=entries)
        except vendor_errors() as error:
            raise aws_failure(
                error,
                "send to",
                f"the queue {self._url}",
                writes=True,
                permission="sqs:SendMessage",
            ) from error
        return {each["Id"]: str(each.get("Code") or "") for each in answer.get("Failed", ())}
