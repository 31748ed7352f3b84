"""Stored objects: bodies of bytes under keys, as S3 has them.

An adapter talks to one outside system, translates its errors into ours and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object, as a listing shows it.

    Attributes:
        key: Its key, relative to the store it was listed from.
        size_bytes: Length of its body.
        modified: When it was last written (aware, UTC).
    """

    key: str
    size_bytes: int
    modified: datetime


class Output(Protocol):
    """A binary stream into one new object, as pyarrow writes to it.

    Nothing is visible under the key before `close` returns; `close` makes the object durable.
    Leaving a `with` block by an exception aborts: no object, no temporary file left.
    """

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""
        ...

    def write(self, data: bytes | memoryview, /) -> int:
        """Write all of `data` and return its length in bytes."""
        ...

    def tell(self) -> int:
        """Return how many bytes were written so far."""
        ...

    def flush(self) -> None:
        """Pass on what is buffered; readers still see nothing."""
        ...

    def close(self) -> None:
        """Make the object durable and visible. A second call does nothing."""
        ...

    def abort(self) -> None:
        """Forget what was written. After `close` this does nothing."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class Objects(Protocol):
    """Bodies of bytes under keys like `a/b/c`, the way S3 has them, in a folder, bucket or memory.

    Raises (every method): StorageFailed or a kind of it; the message names the object.
    """

    def create(self, key: str, body: bytes) -> bool:
        """Store `body` under `key`, durably, only if the key is free. False when it is taken.

        Raises:
            StorageFull, StorageReadOnly: nothing was stored.
            StorageFailed: no answer was to be had; the object may or may not exist.
        """
        ...

    def put(self, key: str, body: bytes) -> None:
        """Store `body` under `key` durably, in place of what was there: old or new, never torn."""
        ...

    def read(self, key: str) -> bytes | None:
        """Return a whole object, or None when there is none."""
        ...

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each (offset, length).

        Raises:
            ObjectNotFound: there is no such object.
            StorageFailed: a range lies past the object's end.
        """
        ...

    def size(self, key: str) -> int:
        """Return an object's length in bytes.

        Raises:
            ObjectNotFound: there is no such object.
        """
        ...

    def stored_at(self, key: str) -> datetime | None:
        """Return a time (aware, UTC) by which an object was stored; None when there is no object.

        By the clock of the storage. It is not before the object appeared under its key, but for
        the time that one request takes; it is later where somebody copied or touched the object.
        """
        ...

    def open_output(self, key: str) -> Output:
        """Open a stream that becomes object `key` when it is closed, replacing what was there."""
        ...

    def url(self, key: str) -> str:
        """Return what a query engine opens the object by: an absolute path, or a URL."""
        ...

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix`, in key order, past key `after`."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. One that does not exist counts as deleted."""
        ...

    def storage_time(self) -> datetime:
        """Return what time it is by the clock of the storage (aware, UTC).

        It is the time at which the storage says that a small object was written just now. Costs
        that write and one look.

        Raises:
            StorageFailed: the storage cannot be written.
        """
        ...

    def writer_lock(self, key: str, pause: Callable[[int], None]) -> AbstractContextManager[None]:
        """Wait, for a while, until nobody else on this machine is in a turn of this key.

        A courtesy and no lock: whoever waited long enough goes ahead, and so does everybody
        where the storage has no means for it. `pause` waits between looks.
        """
        ...

    def under(self, prefix: str) -> Objects:
        """Return the same store seen from folder `prefix`: its keys are relative to it."""
        ...
