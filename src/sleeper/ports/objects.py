"""The interface of object storage: byte bodies under keys, as in S3, and which keys are valid.

An adapter calls one external system and translates its errors into ours. It decides no policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from sleeper.errors import BadRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object, as a listing shows it.

    Attributes:
        key: Its key, relative to the store that was listed.
        size_bytes: Length of its body.
        modified: When it was last written (aware, UTC).
    """

    key: str
    size_bytes: int
    modified: datetime


class Output(Protocol):
    """A binary stream into one new object, with the methods that pyarrow calls.

    The object is not visible before `close`, which makes it durable. An exception inside a `with`
    block aborts: no object and no temp file is left.
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
        """Write buffered data to the system; the object stays invisible."""
        ...

    def close(self) -> None:
        """Make the object durable and visible. A second call does nothing."""
        ...

    def abort(self) -> None:
        """Discard what was written. After `close` this does nothing."""
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
    """Byte bodies under keys like `a/b/c`, as in S3: in a folder, a bucket or memory.

    Raises (every method): StorageFailed or a subclass; the message names the object.
    """

    @property
    def is_remote(self) -> bool:
        """Whether a request takes so long that independent ones are worth sending at once."""
        ...

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """Begin `work`, such as a read; return what waits for its result or raises its error.

        A remote storage does it in a thread, beside what the caller does meanwhile. Another one
        does it when its result is first asked for. It is not done again once it succeeded, and may
        not be done at all if nobody asks. `work` may itself call `beside`.
        """
        ...

    def create(self, key: str, body: bytes) -> bool:
        """Store `body` under `key`, durably, only if the key is free. Return False if it is taken.

        Raises:
            StorageFull, StorageReadOnly: nothing was stored.
            StorageFailed: there was no answer; the object may or may not exist.
        """
        ...

    def put(self, key: str, body: bytes) -> None:
        """Store `body` under `key` durably, atomically replacing an existing object."""
        ...

    def read(self, key: str) -> bytes | None:
        """Return the body of an object, or None if it does not exist."""
        ...

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each (offset, length).

        Raises:
            ObjectNotFound: there is no such object.
            ObjectTooShort: a range is beyond the object's end.
        """
        ...

    def size(self, key: str) -> int:
        """Return an object's length in bytes.

        Raises:
            ObjectNotFound: there is no such object.
        """
        ...

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """Return the last `length` bytes of an object, or all if it has fewer, and its length.

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
        """Open a stream that creates or replaces object `key` when it is closed."""
        ...

    def url(self, key: str) -> str:
        """Return the absolute path or the URL by which a query engine opens the object."""
        ...

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix`, in key order, after key `after`."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. One that does not exist counts as deleted."""
        ...

    def storage_time(self) -> datetime:
        """Return the current time by the clock of the storage (aware, UTC).

        This is the modification time of a small object that is written for it, so it costs one
        write and one read of metadata.

        Raises:
            StorageFailed: the storage cannot be written.
        """
        ...

    def writer_lock(
        self, key: str, meanwhile: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """Hold an advisory lock among writers of this machine, by key; wait for it for a while.

        It does not exclude other writers: after waiting long enough the caller continues
        without it, and so does every caller of a storage without locks. `meanwhile` is called
        after each look while others have the lock, and waits a little.
        """
        ...

    def under(self, prefix: str) -> Objects:
        """Return the store of folder `prefix`: its keys are relative to that folder."""
        ...


# ---------------------------------------------------------------- input store
#
# The interface for input files that are not on this machine.


class InputStore(Protocol):
    """Finds and opens input files by URL. Must be picklable, because Spark tasks get a copy."""

    def find(self, url: str) -> list[str]:
        """Return the URL of a file, or of the files below a folder or of a pattern, sorted.

        `model/input_names.py` says which they are.

        Raises:
            InputNotFound: the file or folder does not exist, or there is no file to read.
            UrlInvalid: URLs of this kind cannot be read.
            StorageFailed: the storage does not answer, or denies access.
        """
        ...

    def sizes(self, url: str) -> Mapping[str, int]:
        """Return the files that `find` returns, with the bytes of each, by listing alone.

        Raises:
            InputNotFound, UrlInvalid, StorageFailed: as for `find`.
        """
        ...

    def open(self, url: str) -> AbstractContextManager[Any]:
        """Open a file that `pyarrow.parquet.ParquetFile` can read.

        Raises:
            InputNotFound: the file no longer exists.
            StorageFailed: the storage does not answer, or denies access.
        """
        ...


# ---------------------------------------------------------------- belongings
#
# What belongs to an instance, and how it is removed.


@dataclass(frozen=True, slots=True)
class Belonging:
    """One thing that belongs to an instance: a table, a bucket, a queue.

    Attributes:
        kind: What it is.
        name: Its name where it is.
        count: How much it holds.
        unit: Of what: objects, items or messages.
        remove: Removes it. What is gone already counts as removed.
    """

    kind: str
    name: str
    count: int
    unit: str
    remove: Callable[[], object] = field(repr=False, compare=False)


# ---------------------------------------------------------------- keys
#
# Checks keys of objects: the same keys are valid in a folder, in a bucket and in memory.


TEMPORARY = ".tmp-"
"""Prefix of the names of temp files. No part of a key may start with it."""

# An empty name, ".", "..", a name reserved for temp files, NUL, or half of a surrogate
# pair (which UTF-8 cannot encode).
_FORBIDDEN = re.compile(r"(?:^|/)(?:\.{0,2}(?:/|\Z)|\.tmp-)|[\0\ud800-\udfff]")

forbidden_in: Final = _FORBIDDEN.search
"""Finds what a key may not contain; returns None for a valid key."""


def is_key(text: str) -> bool:
    """Return whether `text` is a valid key."""
    return forbidden_in(text) is None


def check_key(key: str) -> None:
    """Check that `key` is valid, so that it stays inside the store.

    Raises:
        BadRequest: it is not valid.
    """
    if forbidden_in(key):
        raise BadRequest(
            f"{key!r} cannot be an object's key. A key is names joined by '/'; none of them may be "
            f"empty, '.', '..', start with {TEMPORARY!r}, contain NUL, or be invalid in UTF-8."
        )


def check_prefix(prefix: str) -> None:
    """Check that `prefix` is a valid folder, followed by the start of a name or nothing.

    Raises:
        BadRequest: its folder is not a valid key.
    """
    folder, slash, _ = prefix.rpartition("/")
    if slash:
        check_key(folder)


def folder_prefix(folder: str) -> str:
    """Return the prefix of every key in `folder`: `a/b/` for `a/b` and for `a/b/`.

    Raises:
        BadRequest: `folder` is not a valid key.
    """
    name = folder.removesuffix("/")
    if not name:
        return ""
    check_key(name)
    return f"{name}/"


def check_ranges(key: str, ranges: Sequence[tuple[int, int]]) -> None:
    """Check that no offset or length is negative.

    Raises:
        BadRequest: one is.
    """
    for offset, length in ranges:
        if offset < 0 or length < 0:
            raise BadRequest(
                f"cannot read {length} bytes at offset {offset} of {key!r}: neither may be negative"
            )
