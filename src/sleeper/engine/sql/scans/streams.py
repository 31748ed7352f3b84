"""Streams of a statement's scans, which DataFusion's threads read and the caller closes."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Self
from weakref import WeakSet

import pyarrow as pa

from sleeper.engine.ahead import taken_ahead
from sleeper.engine.rows import Rows

_BATCHES_AHEAD = 2


class ScanStream:
    """The batches of one scan. A thread of DataFusion takes them; any thread may close it.

    A batch is read by a thread of its own: our reader may use DataFusion, which cannot be called
    from its own threads.

    Args:
        read: Returns the rows; called when the first batch is taken.
        failed: Gets the error that reading raised: DataFusion keeps only its text.
    """

    def __init__(self, read: Callable[[], Rows], failed: Callable[[BaseException], None]) -> None:
        self._batches = _batches(read)
        self._failed = failed
        self._closed = False
        self._lock = Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            if self._closed:
                raise StopIteration
            try:
                return next(self._batches)
            except StopIteration:
                raise
            except BaseException as error:
                self._failed(error)
                raise

    def close(self) -> None:
        """Stop reading; waits for the batch that is being read."""
        with self._lock:
            self._closed = True
            close = getattr(self._batches, "close", None)
            if close is not None:
                close()


def _batches(read: Callable[[], Rows]) -> Iterator[pa.RecordBatch]:
    def begun() -> Iterator[pa.RecordBatch]:
        with read() as rows:
            yield from rows

    yield from taken_ahead(begun(), _BATCHES_AHEAD, thread="sleeper-sql")


class OpenScans:
    """The scans of one statement: which error ended one, and how to end all."""

    def __init__(self) -> None:
        self._streams: list[ScanStream] = []
        self._lock = Lock()
        self.failure: BaseException | None = None
        _every_open.add(self)

    def open(self, read: Callable[[], Rows]) -> ScanStream:
        """Return the stream of a scan."""
        stream = ScanStream(read, self._note)
        with self._lock:
            self._streams.append(stream)
        return stream

    def _note(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    def close(self) -> None:
        """Stop all scans; waits for the batches that are being read."""
        with self._lock:
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.close()


_every_open: WeakSet[OpenScans] = WeakSet()
"""A thread of DataFusion that runs Python while the process ends would abort it."""


@atexit.register
def _close_every() -> None:
    for scans in [*_every_open]:
        scans.close()
