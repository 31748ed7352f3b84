"""A stream into one new object: uploaded in parts, which the store joins when it is closed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from threading import Condition, Thread
from typing import Any

from sleeper.errors import StorageFailed
from sleeper.ports.objects import Output
from sleeper.storage.objectstore.client import Client, obstore, panics_as_errors, vendor_errors

_PART_BYTES = 8 << 20
"""Size of a part. S3 allows ten thousand parts, so an object may have 80 GiB."""

_PARTS_AT_ONCE = 3
"""Parts sent in parallel. About seven parts are in memory: sent, buffered, being filled."""


class BucketOutput(Output):
    """A stream into one new object. Small objects are sent in a single request by `close`.

    Args:
        client: The bucket.
        name: The object's name in the bucket.
        failure: Translates an error of obstore into one of ours.
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
        """Write all of `data` and return its length; wait while too many parts are being sent."""
        if self._closed:
            raise ValueError("write to a closed stream")
        length = memoryview(data).nbytes
        self._filling += data
        self._position += length
        if len(self._filling) >= _PART_BYTES:
            try:
                with panics_as_errors():
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
        """Send the rest and let the store join the parts. On failure the object is not visible."""
        if self._closed:
            return
        self._closed = True
        store = self._client.patient_store()
        try:
            with panics_as_errors():
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
        """Abort the upload: the store deletes the parts."""
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
    """Raised inside obstore's source of parts to abort the upload."""


class _Upload:
    """A thread in which obstore takes parts, one by one, and sends them.

    obstore aborts an upload only if the source of its parts raises an error.
    """

    def __init__(self, store: Any, name: str) -> None:
        self._changed = Condition()
        self._waiting: bytes | None = None
        self._ended = self._cancelled = self._done = False
        self._error: BaseException | None = None
        # A daemon thread, so that it does not keep the process alive after an exception.
        self._thread = Thread(target=self._run, args=(store, name), daemon=True)
        self._thread.start()

    def send(self, part: bytes) -> None:
        """Pass on a part after the one before was taken; raise the error that ended the upload."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is None or self._done)
            if self._done and self._error is not None:
                raise self._error
            self._waiting = part
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait until the object is complete; raise the error that prevented it."""
        self._end(cancelled=False)
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Abort the upload and wait for the abort. After `finish` this does nothing."""
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
