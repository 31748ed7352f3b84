"""The interface for input files that are not on this machine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class InputStore(Protocol):
    """Finds and opens input files by URL. Must be picklable, because Spark tasks get a copy."""

    def find(self, url: str) -> list[str]:
        """Return the URL of a file, or of all `*.parquet` below a folder, sorted.

        Names beginning with `_` or `.` are left out below a folder.

        Raises:
            InputNotFound: the file or folder does not exist, or has no `*.parquet` below it.
            UrlInvalid: URLs of this kind cannot be read.
            StorageFailed: the storage does not answer, or denies access.
        """
        ...

    def open(self, url: str) -> AbstractContextManager[Any]:
        """Open a file that `pyarrow.parquet.ParquetFile` can read.

        Raises:
            InputNotFound: the file no longer exists.
            StorageFailed: the storage does not answer, or denies access.
        """
        ...
