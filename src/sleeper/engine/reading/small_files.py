"""Reads small data files whole, very many of them, into memory.

A plan over a file costs DataFusion more than a millisecond, whatever the file has, and so does each
call of pyarrow's reader. So the pages of many files are read and checked file by file, and decoded
together: as the row groups of one file in memory. What was decoded is kept for some time, since the
leaves that share a file are compacted one after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Final

import pyarrow as pa

from sleeper.engine.reading.decoded_rows import GroupRows, decode_rows, pages_of_groups
from sleeper.lookup.column_reader import DECODING_ERRORS
from sleeper.lookup.columns import as_type
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.footer import TopColumn
from sleeper.lookup.parquet.mini_file import GroupPages, decode_columns
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.state.plans.compactions import SMALL_FILE_BYTES, SMALL_JOB_BYTES

KEPT_BYTES: Final = 96 << 20
"""Bytes of decoded rows in memory, at most."""

_TOGETHER_BYTES: Final = 8 << 20
"""Bytes of pages that are decoded by one call, about, when they are decompressed."""


def are_small(size_bytes: int, count: int) -> bool:
    """Return whether files are read at once, by their number and their bytes together."""
    return size_bytes <= min(SMALL_JOB_BYTES, count * SMALL_FILE_BYTES)


class SmallFiles:
    """Reads small files of one table, and keeps what it decoded. Not safe for threads.

    Args:
        lookup: Reads the files.
        arrow_schema: The table's schema.
        kept_bytes: Bytes of decoded rows in memory, at most.
    """

    def __init__(
        self, lookup: LookupReader, arrow_schema: pa.Schema, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._lookup = lookup
        self._arrow_schema = arrow_schema
        self._kept_bytes = kept_bytes
        self._kept = OrderedDict[str, tuple[pa.Table, int]]()  # with their bytes
        self._size_bytes = 0

    def read(
        self, filenames: Sequence[str], check: Callable[[], None] = lambda: None
    ) -> list[pa.Table] | None:
        """Return all rows of each file, in its order; every page was compared with its checksum.

        Args:
            filenames: The files.
            check: Called before each file that is read; what it raises ends the call.

        Returns:
            None if a file has no page sums, or the files are more than may be in memory.

        Raises:
            DataDamaged: a file is missing or damaged; the message names it.
            StorageFailed: a file cannot be read.
        """
        kept = {name: self._kept[name] for name in filenames if name in self._kept}
        found = {name: rows for name, (rows, _) in kept.items()}
        missing = [name for name in filenames if name not in found]
        size = sum(own for _, own in kept.values())
        for name in found:
            self._kept.move_to_end(name)
        for batch in self._batches(missing, check):
            if batch is None:
                return None
            for file, rows in zip(batch, self._decoded(batch), strict=True):
                found[file.filename] = rows
                size += self._keep(file.filename, rows)
            if size > self._kept_bytes:
                return None
        return [found[name] for name in filenames]

    def _batches(
        self, filenames: Sequence[str], check: Callable[[], None]
    ) -> Iterator[list[_CheckedFile] | None]:
        """Yield files that are decoded together; None if they cannot all be read here."""
        batch, size, file_bytes = list[_CheckedFile](), 0, 0
        for start in range(0, len(filenames), _REQUESTED):
            names = filenames[start : start + _REQUESTED]
            for file in self._lookup.at_once([partial(self._read, name, check) for name in names]):
                file_bytes += 0 if file is None else file.file_bytes
                if file is None or file_bytes > SMALL_JOB_BYTES:
                    yield None
                    return
                if batch and (size + file.size_bytes > _TOGETHER_BYTES or not file.fits(batch[0])):
                    yield batch
                    batch, size = [], 0
                batch.append(file)
                size += file.size_bytes
        if batch:
            yield batch

    def _read(self, filename: str, check: Callable[[], None]) -> _CheckedFile | None:
        def read_pages(index: ParquetIndex, read: ReadRanges) -> _CheckedFile | None:
            if not index.has_page_sums or index.file_bytes > SMALL_JOB_BYTES:
                return None
            index.check_indexes(read)
            by_name = index.columns(self._arrow_schema)
            bound = [by_name[name] for name in self._arrow_schema.names]
            groups, size = list[GroupPages](), 0
            if all(each.is_as_stored for each in bound):
                groups = pages_of_groups(index, _groups(index), bound, read)
                size = sum(chunk.uncompressed_size for row in index.footer.chunks for chunk in row)
            return _CheckedFile(
                filename=filename,
                columns=tuple(each.column for each in bound) if groups else None,
                groups=groups,
                size_bytes=size,
                file_bytes=index.file_bytes,
            )

        check()
        return self._lookup.inspect(filename, read_pages, anew=True)

    def _decoded(self, files: Sequence[_CheckedFile]) -> Iterator[pa.Table]:
        """Yield the rows of each file."""
        columns = files[0].columns
        arrays = None
        if columns is not None:
            try:
                arrays = decode_columns(columns, [each for file in files for each in file.groups])
            except DECODING_ERRORS:
                arrays = None  # one of them is damaged: each is decoded by itself
        if arrays is None:
            yield from (self._decoded_alone(file.filename) for file in files)
            return
        fields = [*self._arrow_schema]
        typed = [as_type(each, field.type) for each, field in zip(arrays, fields, strict=True)]
        rows = pa.Table.from_arrays(typed, schema=self._arrow_schema)
        for start, end in pairwise(accumulate((file.row_count for file in files), initial=0)):
            yield rows.slice(start, end - start)

    def _decoded_alone(self, filename: str) -> pa.Table:
        def decode(index: ParquetIndex, read: ReadRanges) -> pa.Table:
            names = self._arrow_schema.names
            groups = _groups(index)
            batches = decode_rows(index, groups, names, self._arrow_schema, read) if groups else []
            return pa.Table.from_batches(batches, self._arrow_schema)

        return self._lookup.inspect(filename, decode)

    def _keep(self, filename: str, rows: pa.Table) -> int:
        """Keep the rows of a file, and return their bytes."""
        size = int(rows.nbytes)
        self._kept[filename] = rows, size
        self._size_bytes += size
        while self._size_bytes > self._kept_bytes:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._size_bytes -= oldest
        return size


_REQUESTED: Final = 64
"""Files whose requests are made at once, where they are remote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedFile:
    """A file whose pages were checked, but not decoded.

    Attributes:
        filename: The file.
        columns: The table's columns as the file has them; None if it has them otherwise than the
            table, so that it is decoded by itself.
        groups: Its pages.
        size_bytes: Bytes of the pages when they are decompressed.
        file_bytes: The file's length.
    """

    filename: str
    columns: tuple[TopColumn, ...] | None
    groups: Sequence[GroupPages]
    size_bytes: int
    file_bytes: int

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(group.row_count for group in self.groups)

    def fits(self, other: _CheckedFile) -> bool:
        """Return whether both have the same columns, so that one call may decode both."""
        return self.columns is not None and self.columns == other.columns


def _groups(index: ParquetIndex) -> list[GroupRows]:
    counts = enumerate(index.footer.row_counts)
    return [GroupRows.span(group, 0, count) for group, count in counts if count]
