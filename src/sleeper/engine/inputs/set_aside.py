"""A Parquet file for rows of the input that have a null key."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.writing.unfinished_file import UnfinishedFile, taken, write_failure
from sleeper.errors import StorageFailed


class SetAside:
    """Writes rows that are set aside to a hidden temp file, which gets its name at the end.

    Without rows there is no file. `keep` renames the temp file; `drop` deletes the file, also
    after `keep`.

    Args:
        path: The file to make. An existing file is never changed.

    Raises:
        AlreadyExists: `path` exists, such as the input itself, or another job's rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unfinished: UnfinishedFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._kept = False
        if os.path.lexists(path):
            raise taken(path)

    def add(self, rows: pa.Table) -> None:
        """Write more rows.

        Raises:
            StorageFailed: the file cannot be written.
        """
        try:
            if self._writer is None:
                nullable = pa.schema([field.with_nullable(True) for field in rows.schema])
                self._unfinished = UnfinishedFile(self.path)
                self._writer = pq.ParquetWriter(self._unfinished.file, nullable, compression="zstd")
            self._writer.write_table(rows.cast(self._writer.schema))
        except OSError as error:
            raise self._failure(error) from error
        except StorageFailed as error:
            raise StorageFailed(f"{error}; {_ADVICE}") from error

    def keep(self) -> None:
        """Make the file durable and rename it to its name.

        Raises:
            AlreadyExists: a file with this name was created in the meantime.
            StorageFailed: the file cannot be written.
        """
        if self._writer is None or self._unfinished is None:
            return
        try:
            self._writer.close()
        except OSError as error:
            raise self._failure(error) from error
        self._unfinished.appear(replace=False)
        self._kept = True

    def drop(self) -> None:
        """Delete the file."""
        if self._writer is None or self._unfinished is None:
            return
        with suppress(OSError):
            self._writer.close()
        self._unfinished.discard()
        if self._kept:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _failure(self, error: OSError) -> StorageFailed:
        failure = write_failure(self.path, error)
        return type(failure)(f"{failure}; {_ADVICE}")


_ADVICE = "for set_aside, name a file in a folder that exists and is writable"
