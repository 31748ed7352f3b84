"""The interface of a cache of what was read of remote files, which never change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sleeper.ports.objects import Objects


class CachedFiles(Protocol):
    """Reads files of one folder, and keeps what it read for later reads by any process.

    The cache may lose what it keeps at any time, and then reads the files again. It raises what
    reads of the files raise, and nothing of its own.
    """

    def read_ranges(
        self, key: str, size_bytes: int, ranges: Sequence[tuple[int, int]]
    ) -> list[bytes]:
        """Return the bytes of each (offset, length) of a file of known size.

        Raises:
            ObjectNotFound: something is not in the cache, and there is no such file.
            ObjectTooShort: a range is beyond the file's end.
            StorageFailed: the file cannot be read.
        """
        ...

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """Return the end of a file, of `length` bytes or somewhat fewer, and the file's length.

        Raises:
            ObjectNotFound: nothing is in the cache, and there is no such file.
            StorageFailed: the file cannot be read.
        """
        ...

    def drop(self, key: str) -> bool:
        """Delete what is kept of a file; return whether there was anything."""
        ...

    def drop_all(self) -> int:
        """Delete what is kept of the folder's files; return how many bytes of the disk it took.

        What other processes write of them meanwhile is deleted too. What they read afterwards is
        kept again.

        Raises:
            StorageFailed: something cannot be deleted.
        """
        ...


class ReadCache(Protocol):
    """A cache that many processes share."""

    def over(self, files: Objects) -> CachedFiles:
        """Return what reads the files of a folder. Nothing is read yet."""
        ...
