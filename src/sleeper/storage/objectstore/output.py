"""A stream into one new object: sent in parts while it is written, joined when it is closed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from threading import Condition, Thread
from typing import Any

from sleeper.errors import StorageFailed
from sleeper.ports.objects import Output
from sleeper.storage.objectstore.client import Client, obstore
from sleeper.storage.objectstore.failures import vendor_errors

_PART_BYTES = 8 << 20
"""Ten thousand parts are the most that S3 takes, so an object may have 80 GiB."""

_PARTS_AT_ONCE = 3
"""A stream holds about seven parts: on their way, in obstore's buffer, waiting, being filled."""


class BucketOutput(Output):
    """A stream into one new object. The smaller ones go in a single request, when closed.

    Args:
        client: The bucket.
        name: The object's name in the bucket.
        failure: Makes an error of ours from one of obstore's.
    """

    def __init__(
        self, client: Client, name: str, failure: Callable[[Exception], StorageFailed]
    ) -> None:
        self._client, self._name, self._failure = client, name, failure
        self._filling = bytearray()
        self._position = 0
        self._closed = False
        self._upload: _Upload | None = None

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._closed

    def write(self, data: bytes | memoryview, /) -> int:
        """Take all of `data` and return its length in bytes; wait while too much is on its way."""
        if self._closed:
            raise ValueError("write to a closed stream")
        length = memoryview(data).nbytes
        self._filling += data
        self._position += length
        if len(self._filling) >= _PART_BYTES:
            try:
                self._send()
            except vendor_errors() as error:
                self.abort()
                raise self._failure(error) from error
        return length

    def tell(self) -> int:
        """Return how many bytes were written so far."""
        return self._position

    def flush(self) -> None:
        """Do nothing: a part is sent when it is full."""

    def close(self) -> None:
        """Send the rest and let the store join the parts. Where that fails, nothing is visible."""
        if self._closed:
            return
        self._closed = True
        store = self._client.patient_store()
        try:
            if self._upload is None:
                obstore().put(store, self._name, self._take())
            else:
                if self._filling:
                    self._send()
                self._upload.finish()
        except vendor_errors() as error:
            raise self._failure(error) from error
        finally:
            self._forget()

    def abort(self) -> None:
        """Tell the store to forget the parts that it has."""
        self._closed = True
        self._forget()

    def _send(self) -> None:
        if self._upload is None:
            self._upload = _Upload(self._client.patient_store(), self._name)
            weakref.finalize(self, self._upload.cancel)
        self._upload.send(self._take())

    def _take(self) -> bytes:
        taken, self._filling = bytes(self._filling), bytearray()
        return taken

    def _forget(self) -> None:
        self._filling = bytearray()
        if self._upload is not None:
            self._upload.cancel()


class _Cancelled(Exception):
    """Tells obstore that no more parts come, and that those it has sent are to be dropped."""


class _Upload:
    """A thread in which obstore fetches parts, one by one, and sends them.

    obstore aborts an upload whose source of parts fails, and only that way.
    """

    def __init__(self, store: Any, name: str) -> None:
        self._changed = Condition()
        self._waiting: bytes | None = None
        self._ended = self._cancelled = self._done = False
        self._error: BaseException | None = None
        # A daemon, because an exception in its process must not leave it waiting for ever.
        self._thread = Thread(target=self._run, args=(store, name), daemon=True)
        self._thread.start()

    def send(self, part: bytes) -> None:
        """Hand over a part, once the one before was taken; raise what ended the upload."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is None or self._done)
            if self._done and self._error is not None:
                raise self._error
            self._waiting = part
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait until the object is there; raise what kept it from that."""
        self._end(cancelled=False)
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Wait until the store has forgotten the parts. After `finish` this does nothing."""
        self._end(cancelled=True)

    def _end(self, *, cancelled: bool) -> None:
        with self._changed:
            self._ended = True
            self._cancelled = self._cancelled or cancelled
            self._changed.notify_all()
        self._thread.join()

    def _run(self, store: Any, name: str) -> None:
        error: BaseException | None = None
        try:
            obstore().put(
                store,
                name,
                self._parts(),
                use_multipart=True,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        except BaseException as raised:  # noqa: BLE001 - raised again where the stream is used
            error = raised
        with self._changed:
            self._error, self._done, self._waiting = error, True, None
            self._changed.notify_all()

    def _parts(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._ended)
                if self._cancelled:
                    raise _Cancelled
                if self._waiting is None:
                    return
                part, self._waiting = self._waiting, None
                self._changed.notify_all()
            yield part
