"""Input that is not on this machine: what its reader must be able to do."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class InputStore(Protocol):
    """Finds and opens input files by URL. Spark tasks get a copy, so it may be pickled."""

    def find(self, url: str) -> list[str]:
        """Return the URL of a file, or of all `*.parquet` below a folder, sorted.

        Names beginning with `_` or `.` are left out below a folder.

        Raises:
            InputNotFound: there is nothing of this name, or no `*.parquet` below it.
            UrlInvalid: URLs of this kind cannot be read.
            StorageFailed: the storage does not answer, or denies it.
        """
        ...

    def open(self, url: str) -> AbstractContextManager[Any]:
        """Open a file that `pyarrow.parquet.ParquetFile` can read.

        Raises:
            InputNotFound: there is no such file any longer.
            StorageFailed: the storage does not answer, or denies it.
        """
        ...
