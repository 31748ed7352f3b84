"""Queues in SQS that take the rows of queries. They belong to whoever asks, maybe to others."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final

from sleeper.errors import ObjectNotFound
from sleeper.model.object_stores import without_credentials
from sleeper.storage.aws.failures import aws_failure, error_code, is_missing, vendor_errors

logger = logging.getLogger(__name__)

_AMAZON: Final = re.compile(r"https://sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/")
_NO_QUEUE: Final = ("InvalidAddress", "InvalidParameterValue")


class SqsResultsQueue:
    """Sends messages to queues in SQS. Safe for threads.

    Args:
        client: Returns boto3's client of SQS for a region; for None that of this process.
    """

    def __init__(self, client: Callable[[str | None], Any]) -> None:
        self._client = client

    def send(self, url: str, body: str) -> None:
        """Send a message. boto3 sends it again after a lost reply, so it may arrive twice."""
        amazon = _AMAZON.match(url)
        client = self._client(amazon[1] if amazon else None)
        try:
            client.send_message(QueueUrl=url, MessageBody=body)
        except vendor_errors() as error:
            what = f"the queue of results {without_credentials(url)}"
            if is_missing(error) or error_code(error) in _NO_QUEUE:
                raise ObjectNotFound(
                    f"cannot send to {what}: there is no such queue, or it may not be used. Check "
                    "sqsResultsUrl in resultsPublisherConfig; no results queue is made here."
                ) from error
            raise aws_failure(
                error, "send to", what, writes=True, permission="sqs:SendMessage"
            ) from error
        logger.debug("sent %d characters of results to %s", len(body), without_credentials(url))
