"""Validates the rows of an input: converts columns and types, and checks keys.

A table cannot have a row whose row key or sort key is null. Such input is refused, with a count, or
such rows are written to a separate file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sleeper.engine.arrow_schema import conform, split_null_keys
from sleeper.engine.inputs.sources import Source
from sleeper.engine.writing.user_file import UnfinishedFile, taken, write_failure
from sleeper.errors import NullKeys, StorageFailed
from sleeper.model.schema import Schema

# ---------------------------------------------------------------- rows that are set aside
#
# A Parquet file for rows of the input that have a null key.


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


_NAMED_ROWS = 5


class ValidatedInput:
    """Reads a source once and yields the rows that fit the table.

    Attributes:
        rows_read: Rows of the source so far.
        rows_set_aside: Rows with a null key so far.
    """

    def __init__(
        self,
        source: Source,
        schema: Schema,
        arrow_schema: pa.Schema,
        *,
        ignore_extra_columns: bool = False,
        set_aside: SetAside | None = None,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
    ) -> None:
        self._source = source
        self._schema = schema
        self._arrow_schema = arrow_schema
        self._ignore_extra_columns = ignore_extra_columns
        self._set_aside = set_aside
        self._progress = progress
        self._null_counts = dict.fromkeys(schema.key_names, 0)
        self._named_rows: list[int] = []
        self.rows_read = 0
        self.rows_set_aside = 0

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows that fit, in the table's columns and types.

        After a null key that may not be set aside, no more rows are yielded and the remaining
        ones are only counted, so that the error contains their number.

        Raises:
            InputRefused: the input does not fit the table.
        """
        for batch in self._source.batches():
            table = conform(
                batch,
                self._arrow_schema,
                key_names=self._schema.key_names,
                ignore_extra_columns=self._ignore_extra_columns,
                origin=self._source.name,
            )
            good, bad = split_null_keys(table, self._schema.key_names)
            if bad.num_rows:
                self._note_null_keys(table, bad)
            self.rows_read += table.num_rows
            self._progress(self.rows_read, self._source.row_count)
            refused = self.rows_set_aside and self._set_aside is None
            if good.num_rows and not refused:
                yield good
        if self.rows_set_aside and self._set_aside is None:
            raise NullKeys(self._refusal(), self._null_counts)

    def finish(self) -> None:
        """Keep the rows set aside: the others will be committed next.

        Raises:
            AlreadyExists: a file with the name of their file was created in the meantime.
            StorageFailed: their file cannot be written.
        """
        if self._set_aside is not None:
            self._set_aside.keep()

    def abandon(self) -> None:
        """Delete the file of rows set aside, also after `finish`: the ingest failed."""
        if self._set_aside is not None:
            self._set_aside.drop()

    def _note_null_keys(self, table: pa.Table, bad: pa.Table) -> None:
        for name in self._null_counts:
            self._null_counts[name] += bad[name].null_count
        wanted = _NAMED_ROWS - len(self._named_rows)
        if wanted > 0:
            nulls = [pc.is_null(table[name]) for name in self._schema.key_names]
            either = nulls[0]
            for more in nulls[1:]:
                either = pc.or_(either, more)
            places = pc.indices_nonzero(either.combine_chunks())[:wanted].to_pylist()
            self._named_rows += [self.rows_read + place for place in places]
        self.rows_set_aside += bad.num_rows
        if self._set_aside is not None:
            self._set_aside.add(bad)

    def _refusal(self) -> str:
        counts = ", ".join(f"{n:,} without {name!r}" for name, n in self._null_counts.items() if n)
        named = ", ".join(f"{row:,}" for row in self._named_rows)
        more = ", ..." if self.rows_set_aside > len(self._named_rows) else ""
        return (
            f"{self.rows_set_aside:,} of {self.rows_read:,} rows of {self._source.name} have a "
            f"null in a key field: {counts} (rows {named}{more}, counted from 0). Nothing was "
            "ingested. Fill the keys in, or set such rows aside: set_aside=FILE, --set-aside FILE."
        )
