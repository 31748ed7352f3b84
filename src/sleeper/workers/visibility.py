"""Keeps a message hidden from other workers while its job runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sleeper.errors import StorageFailed
from sleeper.ports.jobs import JobQueue

_log = logging.getLogger(__name__)


@contextmanager
def kept_hidden(
    queue: JobQueue, receipt: str, *, every_s: float, visibility_s: float
) -> Iterator[None]:
    """Extend a message's visibility from a thread until the block ends.

    When the receipt is stale another worker has the message. The job continues: whichever commits
    second is recognised by its id.

    Args:
        queue: The queue.
        receipt: The delivery.
        every_s: Seconds between two extensions.
        visibility_s: For how long each hides the message.
    """
    ended = threading.Event()
    thread = threading.Thread(
        target=_extend_until,
        args=(ended, queue, receipt, every_s, visibility_s),
        name="visibility",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _extend_until(
    ended: threading.Event, queue: JobQueue, receipt: str, every_s: float, visibility_s: float
) -> None:
    while not ended.wait(every_s):
        try:
            if not queue.extend(receipt, visibility_s):
                _log.warning("the message was delivered to another worker while its job runs here")
                return
        except StorageFailed as failure:
            _log.warning("a message's visibility cannot be extended now: %s", failure)
