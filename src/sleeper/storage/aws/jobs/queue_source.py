"""The event source mapping of a queue, enabled only while there is something in the queue.

While it is enabled Lambda asks the queue for messages all the time, and each request is paid for,
also where the queue is empty. A function that a schedule calls anyway looks at the queue instead:

1. It enables the mapping when it has sent messages, or sees some.
2. It disables the mapping when it has sent none, sees none, and the mapping has been as it is for
   ten minutes: the counts of SQS may be a minute old.

Where two calls disagree, or Lambda is still at work on an earlier change, the next call mends it:
what waits in the queue is late by one period of the schedule, and not lost.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sleeper.errors import StorageFailed
from sleeper.storage.aws.clients import error_code, vendor_errors

_COUNTS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
)
_KEPT: Final = timedelta(minutes=10)
_AT_WORK: Final = ("ResourceInUseException", "ResourceConflictException")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueSource:
    """An event source mapping and its queue.

    Attributes:
        queue_url: The URL of the queue.
        mapping: The id of the mapping.
    """

    queue_url: str
    mapping: str

    def follow(self, sqs: Any, functions: Any, now: datetime, *, sent: bool) -> bool | None:
        """Enable or disable the mapping as the queue wants it.

        Args:
            sqs: A client of SQS.
            functions: A client of Lambda.
            now: The time.
            sent: Whether messages were sent just now, which counts may not show yet.

        Returns:
            Whether it was enabled or disabled; None where it stays as it is.

        Raises:
            StorageFailed: AWS does not answer, or refuses.
        """
        try:
            wanted = sent or self._has_messages(sqs)
            found = functions.get_event_source_mapping(UUID=self.mapping)
            is_enabled = found["State"] in ("Enabled", "Enabling", "Creating")
            if wanted == is_enabled:
                return None
            if not wanted and now - found["LastModified"] < _KEPT:
                return None
            functions.update_event_source_mapping(UUID=self.mapping, Enabled=wanted)
        except vendor_errors() as error:
            if error_code(error) in _AT_WORK:
                logger.info("the event source %s is changed by the next look", self.mapping)
                return None
            raise StorageFailed(
                f"cannot see whether {self.queue_url} is to be asked for messages: {error}"
            ) from error
        logger.info("%s is %s", self.queue_url, "asked" if wanted else "empty, and asked no more")
        return wanted

    def _has_messages(self, sqs: Any) -> bool:
        answer = sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=list(_COUNTS))
        return any(int(answer["Attributes"].get(each, 0)) for each in _COUNTS)
