"""Reads rows of single data files, in the order of each file: several parts at once, in threads."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.reading.decoded_rows import GroupRows, decode_rows, join_ranges
from sleeper.engine.reading.left_out_keys import NO_KEYS_OUT, KeysOut
from sleeper.engine.reading.regions import disjoint_regions
from sleeper.engine.reading.verified_pages import Limits, first_key_limits, places_between
from sleeper.lookup.columns import Ints
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.page_index import BOUND_WIDTH_MAX, PageBounds
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Schema

# ---------------------------------------------------------------- row choice
#
# Chooses the rows of a sorted file that are inside regions of keys, exactly.
#
# Bounds of row groups and pages of the first row key say which rows are surely inside. Only pages
# at the borders of regions are read, and only their row keys.


def choose_rows(
    index: ParquetIndex,
    regions: Sequence[Region],
    schema: Schema,
    arrow_schema: pa.Schema,
    read: ReadRanges,
) -> list[GroupRows]:
    """Return the rows of a file that are inside any of `regions`, by row group, in file order.

    Args:
        index: The file's, which has page sums.
        regions: The regions; all rows if there are none.
        schema: The table's schema.
        arrow_schema: The table's Arrow schema.
        read: Reads the file.

    Raises:
        ValueError: the file is damaged.
    """
    row_counts = index.footer.row_counts
    if not regions:
        return [GroupRows.span(group, 0, count) for group, count in enumerate(row_counts) if count]
    wanted = _WantedRegions.of(disjoint_regions(regions), schema, arrow_schema)
    if not wanted.regions:
        return []
    key_leaf = index.columns(arrow_schema)[arrow_schema.names[0]].leaf
    bounds = index.group_bounds(key_leaf)
    chosen, borders = list[GroupRows](), []
    for low, high in places_between(bounds, wanted.limits):
        for group in range(low, high):
            if not row_counts[group]:
                continue
            if wanted.surely_contain(bounds, group):
                chosen.append(GroupRows.span(group, 0, row_counts[group]))
            else:
                borders.append(group)
    if borders:
        index.load(borders, (key_leaf,), (key_leaf,), read)
        rows = (_rows_of_group(index, group, key_leaf, wanted, read) for group in borders)
        chosen += [each for each in rows if len(each.starts)]
        chosen.sort(key=lambda each: each.group)
    return chosen


_COMPARED_MAX: Final = 64
"""Up to so many regions are compared with all keys of a row group."""


@dataclass(frozen=True, slots=True)
class _WantedRegions:
    """Disjoint regions, prepared for comparisons with bounds and with keys.

    Attributes:
        regions: The regions.
        limits: Their ranges of the first row key.
        containers: Those of the limits, in order, whose regions have no limit on other row keys;
            for each also whether its lower limit has all bytes of the value.
        schema: The table's.
        arrow_schema: The table's.
    """

    regions: tuple[Region, ...]
    limits: Limits
    containers: Sequence[tuple[Any, Any, bool]]
    schema: Schema
    arrow_schema: pa.Schema

    @classmethod
    def of(
        cls, regions: tuple[Region, ...], schema: Schema, arrow_schema: pa.Schema
    ) -> _WantedRegions:
        whole = [Range(smallest_value(key_type(field)), None) for field in schema.row_keys]
        free = [region for region in regions if [*region.ranges[1:]] == whole[1:]]
        first_key = arrow_schema.field(0).type
        containers = [
            (*first_key_limits([region], first_key)[0], _is_exact(region.ranges[0].min))
            for region in free
        ]
        containers.sort(key=itemgetter(0, 2, 1))  # of equal lower limits the exact ones come last
        limits = first_key_limits(regions, first_key) if regions else ()
        return cls(regions, limits, containers, schema, arrow_schema)

    def surely_contain(self, bounds: PageBounds, place: int) -> bool:
        """Return whether all keys between some bounds are inside a region.

        Bounds may be truncated, so one that equals an upper limit proves nothing, and one that
        equals a lower limit only if that is not truncated itself.
        """
        low = bounds.minimums[place]
        number = bisect_right(self.containers, low, key=itemgetter(0)) - 1
        while number >= 0 and self.containers[number][::2] == (low, False):
            number -= 1
        return number >= 0 and bool(bounds.maximums[place] < self.containers[number][1])

    def mask(self, keys: pa.RecordBatch) -> Any:
        """Return which of some row keys are inside a region."""
        first = keys.column(0)
        low, high = first[0].as_py(), first[len(first) - 1].as_py()
        found = np.zeros(keys.num_rows, dtype=bool)
        near = [
            region
            for region in self.regions
            if region.ranges[0].min <= high
            and (region.ranges[0].max is None or low < region.ranges[0].max)
        ]
        # To compare each region with all keys takes their product; to bisect needs Python values.
        values = first.to_pylist() if len(near) > _COMPARED_MAX else None
        for region in near:
            if values is None:
                found |= self._inside(region, keys)
                continue
            side = region.ranges[0]
            start = bisect_left(values, side.min)
            end = len(values) if side.max is None else bisect_left(values, side.max, lo=start)
            if start < end:
                found[start:end] |= self._inside(region, keys.slice(start, end - start))
        return found

    def _inside(self, region: Region, keys: pa.RecordBatch) -> Any:
        conditions = []
        for field, side, column in zip(
            self.schema.row_keys, region.ranges, keys.columns, strict=True
        ):
            if side.min != smallest_value(key_type(field)):
                conditions.append(pc.greater_equal(column, pa.scalar(side.min, column.type)))
            if side.max is not None:
                conditions.append(pc.less(column, pa.scalar(side.max, column.type)))
        if not conditions:
            return np.ones(keys.num_rows, dtype=bool)
        return reduce(pc.and_, conditions).to_numpy(zero_copy_only=False)


def _is_exact(value: Any) -> bool:
    """Return whether a value as a bound of pages has all its bytes."""
    data = value.encode() if isinstance(value, str) else value
    return not isinstance(data, bytes) or (len(data) <= BOUND_WIDTH_MAX and data[-1:] != b"\0")


def _rows_of_group(
    index: ParquetIndex,
    group: int,
    key_leaf: int,
    wanted: _WantedRegions,
    read: ReadRanges,
) -> GroupRows:
    """Choose rows of a row group by its pages, and by the keys of pages at borders."""
    bounds = index.bounds(group, key_leaf)
    first_rows = index.locations(group, key_leaf).first_rows
    starts, ends = list[int](), list[int]()
    for low, high in places_between(bounds, wanted.limits):
        for first, end, inside in _runs_of_pages(bounds, low, high, wanted):
            row, row_end = int(first_rows[first]), int(first_rows[end])
            if inside:
                starts.append(row)
                ends.append(row_end)
            else:
                run = GroupRows.span(group, row, row_end)
                names = wanted.schema.row_key_names
                (keys,) = decode_rows(index, [run], names, wanted.arrow_schema, read)
                own_starts, own_ends = _ranges_of(wanted.mask(keys))
                starts += (own_starts + row).tolist()
                ends += (own_ends + row).tolist()
    return GroupRows(group, *join_ranges(np.array(starts, np.int64), np.array(ends, np.int64)))


def _runs_of_pages(
    bounds: PageBounds, low: int, high: int, wanted: _WantedRegions
) -> Iterator[tuple[int, int, bool]]:
    """Yield runs of adjacent pages, and whether all their rows are surely inside."""
    first, inside = low, wanted.surely_contain(bounds, low)
    for page in range(low + 1, high):
        now = wanted.surely_contain(bounds, page)
        if now != inside:
            yield first, page, inside
            first, inside = page, now
    yield first, high, inside


def _ranges_of(mask: Any) -> tuple[Ints, Ints]:
    """Return where a mask is true, as ranges."""
    steps = np.diff(np.concatenate(([0], mask.view(np.int8), [0])))
    return np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)


T = TypeVar("T")
U = TypeVar("U")

FIRST_BYTES: Final = 1 << 20
LAST_BYTES: Final = 2 << 20
"""Bytes of columns in a part, before compression: the first number in a file's first part, and
twice as many in each next one, up to the second number. A part is one row group at least."""

PART_ROWS: Final = 1 << 18
"""Rows of a part, unless one row group has more: values of a dictionary take more memory later."""

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
        self,
        regions_by_file: Mapping[str, Sequence[Region]],
        left_out: list[str],
        keys_out: KeysOut = NO_KEYS_OUT,
    ) -> int:
        """Return how many rows of files are inside their regions; only keys at borders are read.

        Args:
            regions_by_file: For each file its regions.
            left_out: Files without page sums, which are not counted, are added to it.
            keys_out: The keys whose rows are left out of files: all keys of these are read.

        Raises: as `read_files`.
        """
        names = self._schema.row_key_names

        def count(file: tuple[str, Sequence[Region]]) -> int:
            if file[0] not in keys_out:
                return sum(rows.row_count for rows in self._choose(*file, left_out))
            parts = self._parts(names, left_out, file)
            rows = (self._read_part(names, keys_out, part) for part in parts)
            return sum(batch.num_rows for batches in rows for batch in batches)

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
        keys_out: KeysOut = NO_KEYS_OUT,
    ) -> Iterator[pa.RecordBatch]:
        """Return rows of files, in the order of each file, one file after the other.

        Args:
            regions_by_file: For each file the regions whose rows are read; all rows if there are
                none.
            columns: The columns to return, in this order.
            left_out: Files without page sums, which are not read, are added to it. It is complete
                after the last row.
            keys_out: The keys whose rows are left out of files.

        Raises:
            DataDamaged: a file is missing or damaged; it may be raised in the middle.
            StorageFailed: a file cannot be read.
        """
        files = regions_by_file.items()
        if len(files) > 1:
            divide = partial(self._parts, columns, left_out)
            return self._read_parts(
                columns,
                keys_out,
                lambda pool: chain.from_iterable(_ahead(pool, divide, files, self._threads)),
            )
        parts = (part for file in files for part in self._parts(columns, left_out, file))
        first = [*islice(parts, 2)]
        if len(first) < 2:
            return (batch for part in first for batch in self._read_part(columns, keys_out, part))
        return self._read_parts(columns, keys_out, lambda _: chain(first, parts))

    def _read_parts(
        self,
        columns: Sequence[str],
        keys_out: KeysOut,
        parts: Callable[[ThreadPoolExecutor], Iterable[Part]],
    ) -> Iterator[pa.RecordBatch]:
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="sleeper-scan")
        try:
            work = partial(self._read_part, columns, keys_out)
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
        size, count, wanted = 0, 0, FIRST_BYTES
        for rows, group_bytes in zip(chosen, self._lookup.inspect(filename, sizes), strict=True):
            is_few = count + rows.row_count <= PART_ROWS
            if parts and size + group_bytes <= wanted and is_few:
                parts[-1][1].append(rows)
                size, count = size + group_bytes, count + rows.row_count
            else:
                wanted = min(2 * wanted, LAST_BYTES) if parts else wanted
                parts.append((filename, [rows]))
                size, count = group_bytes, rows.row_count
        return parts

    def _read_part(
        self, columns: Sequence[str], keys_out: KeysOut, part: Part
    ) -> list[pa.RecordBatch]:
        filename, chosen = part
        keys = keys_out.get(filename)
        names = [*columns]
        if keys is not None:
            names += [name for name in self._schema.row_key_names if name not in names]

        def decode(index: ParquetIndex, read: ReadRanges) -> list[pa.RecordBatch]:
            return decode_rows(index, chosen, names, self._arrow_schema, read)

        batches = self._lookup.inspect(filename, decode)
        if keys is None:
            return batches
        return [keys.staying(batch).select([*columns]) for batch in batches]


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
