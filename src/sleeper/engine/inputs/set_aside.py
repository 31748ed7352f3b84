"""A Parquet file of the user's for rows that could not go into the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.errors import StorageFailed


class SetAside:
    """Rows set aside: written beside the target first, moved there when all is well.

    A file of the same name is replaced. With no rows there is no file. `keep` and `drop` end it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table) -> None:
        """Write more rows.

        Raises:
            StorageFailed: the file cannot be written.
        """
        try:
            if self._writer is None:
                nullable = pa.schema([field.with_nullable(True) for field in rows.schema])
                self._writer = pq.ParquetWriter(self._unfinished, nullable, compression="zstd")
            self._writer.write_table(rows.cast(self._writer.schema))
        except OSError as error:
            raise StorageFailed(
                f"cannot write rows set aside to {str(self.path)!r}: {error.strerror or error}; "
                "name a file in a folder that exists and may be written to"
            ) from error

    def keep(self) -> None:
        """Make the file appear under its name."""
        if self._writer is not None:
            self._writer.close()
            self._unfinished.replace(self.path)

    def drop(self) -> None:
        """Leave nothing."""
        if self._writer is not None:
            self._writer.close()
            self._unfinished.unlink(missing_ok=True)
