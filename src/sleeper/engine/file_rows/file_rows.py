"""Reads rows of single data files, in the order of each file: several parts at once, in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import Final, TypeVar

import pyarrow as pa

from sleeper.engine.file_rows.decoded_rows import GroupRows, decode_rows
from sleeper.engine.file_rows.row_choice import choose_rows
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema

T = TypeVar("T")
U = TypeVar("U")

FIRST_BYTES: Final = 1 << 20
LAST_BYTES: Final = 2 << 20
"""Bytes of columns in a part, before compression: the first number in a file's first part, and
twice as many in each next one, up to the second number. A part is one row group at least."""

_FILES_IN_THREADS = 4
"""From so many files on they are counted in threads."""

Part = tuple[str, list[GroupRows]]
"""A file, and rows of some of its row groups that are read together."""


class FileRows:
    """Reads rows of single files of one table. Safe for threads.

    It reads files that have page sums, which is what our writer makes. Each page is read once,
    compared with its sum, and then decoded. Memory is a few parts of 8 MiB for each thread, or of
    one row group if that is larger.

    Args:
        lookup: Has the files' indexes.
        schema: The table's schema.
        arrow_schema: The table's Arrow schema.
        threads: Number of parts that one call reads in parallel.
    """

    def __init__(
        self, lookup: LookupReader, schema: Schema, arrow_schema: pa.Schema, *, threads: int
    ) -> None:
        self._lookup = lookup
        self._schema = schema
        self._arrow_schema = arrow_schema
        self._threads = threads

    def count_files(
        self, regions_by_file: Mapping[str, Sequence[Region]], left_out: list[str]
    ) -> int:
        """Return how many rows of files are inside their regions; only keys at borders are read.

        Args:
            regions_by_file: For each file its regions.
            left_out: Files without page sums, which are not counted, are added to it.

        Raises: as `read_files`.
        """

        def count(file: tuple[str, Sequence[Region]]) -> int:
            return sum(rows.row_count for rows in self._choose(*file, left_out))

        files = regions_by_file.items()
        if len(files) < _FILES_IN_THREADS:
            return sum(map(count, files))
        with ThreadPoolExecutor(self._threads, thread_name_prefix="sleeper-count") as pool:
            return sum(_ahead(pool, count, files, self._threads))

    def read_files(
        self,
        regions_by_file: Mapping[str, Sequence[Region]],
        columns: Sequence[str],
        left_out: list[str],
    ) -> Iterator[pa.RecordBatch]:
        """Return rows of files, in the order of each file, one file after the other.

        Args:
            regions_by_file: For each file the regions whose rows are read; all rows if there are
                none.
            columns: The columns to return, in this order.
            left_out: Files without page sums, which are not read, are added to it. It is complete
                after the last row.

        Raises:
            DataDamaged: a file is missing or damaged; it may be raised in the middle.
            StorageFailed: a file cannot be read.
        """
        files = regions_by_file.items()
        if len(files) > 1:
            divide = partial(self._parts, columns, left_out)
            return self._read_parts(
                columns,
                lambda pool: chain.from_iterable(_ahead(pool, divide, files, self._threads)),
            )
        parts = (part for file in files for part in self._parts(columns, left_out, file))
        first = [*islice(parts, 2)]
        if len(first) < 2:
            return (batch for part in first for batch in self._read_part(columns, part))
        return self._read_parts(columns, lambda _: chain(first, parts))

    def _read_parts(
        self,
        columns: Sequence[str],
        parts: Callable[[ThreadPoolExecutor], Iterable[Part]],
    ) -> Iterator[pa.RecordBatch]:
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="sleeper-scan")
        try:
            work = partial(self._read_part, columns)
            for batches in _ahead(pool, work, parts(pool), self._threads):
                yield from batches
        finally:
            pool.shutdown(cancel_futures=True)

    def _choose(
        self, filename: str, regions: Sequence[Region], left_out: list[str]
    ) -> list[GroupRows]:
        def choose(index: ParquetIndex, read: ReadRanges) -> list[GroupRows]:
            if not index.has_page_sums:
                left_out.append(filename)
                return []
            index.check_indexes(read)
            return choose_rows(index, regions, self._schema, self._arrow_schema, read)

        return self._lookup.inspect(filename, choose)

    def _parts(
        self, columns: Sequence[str], left_out: list[str], file: tuple[str, Sequence[Region]]
    ) -> list[Part]:
        """Divide the rows to read of one file."""
        filename, regions = file
        chosen = self._choose(filename, regions, left_out)

        def sizes(index: ParquetIndex, _: ReadRanges) -> list[int]:
            bound = index.columns(self._arrow_schema)
            leaves = [leaf for name in columns for leaf in bound[name].column.leaves]
            return [
                sum(index.chunk(rows.group, leaf).uncompressed_size for leaf in leaves)
                for rows in chosen
            ]

        parts = list[Part]()
        size, wanted = 0, FIRST_BYTES
        for rows, group_bytes in zip(chosen, self._lookup.inspect(filename, sizes), strict=True):
            if parts and size + group_bytes <= wanted:
                parts[-1][1].append(rows)
                size += group_bytes
            else:
                wanted = min(2 * wanted, LAST_BYTES) if parts else wanted
                parts.append((filename, [rows]))
                size = group_bytes
        return parts

    def _read_part(self, columns: Sequence[str], part: Part) -> list[pa.RecordBatch]:
        filename, chosen = part

        def decode(index: ParquetIndex, read: ReadRanges) -> list[pa.RecordBatch]:
            return decode_rows(index, chosen, columns, self._arrow_schema, read)

        return self._lookup.inspect(filename, decode)


def _ahead(
    pool: ThreadPoolExecutor, work: Callable[[T], U], items: Iterable[T], count: int
) -> Iterator[U]:
    """Yield `work(item)` of each item, in order; up to `count` more are begun ahead."""
    waiting: deque[Future[U]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) > count:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
