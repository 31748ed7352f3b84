"""A Parquet file of the user's for rows that could not go into the table."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.engine.writing.unfinished_file import UnfinishedFile, taken, write_failure
from sleeper.errors import StorageFailed


class SetAside:
    """Rows set aside: written under a hidden name, and there under their own when all is well.

    With no rows there is no file. `keep` makes it appear; `drop` leaves nothing, even after that.

    Args:
        path: The file to make. A file that is there is never touched.

    Raises:
        AlreadyExists: something is at `path`, such as the input itself, or another job's rows.
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
        """Make the file durable and appear under its name.

        Raises:
            AlreadyExists: something took the name meanwhile.
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
        """Leave nothing."""
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


_ADVICE = "name a file for rows set aside in a folder that exists and may be written to"
