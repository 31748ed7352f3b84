"""The interface of queues that take the rows of queries: those of whoever asks."""

from __future__ import annotations

from typing import Protocol


class ResultsQueue(Protocol):
    """Sends messages to queues that are named by their URLs. Safe for threads."""

    def send(self, url: str, body: str) -> None:
        """Send a message of at most 256 KiB. It may arrive twice.

        Raises:
            StorageFailed: the queue is missing or denied, or does not answer: the message may or
                may not have been sent.
        """
        ...
