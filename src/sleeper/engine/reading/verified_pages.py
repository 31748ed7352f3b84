"""Records which pages of data files were compared with their checksums, and checks others.

DataFusion does not check pages, so each page is checked before DataFusion reads it, once in a
process; one flag a page is kept. Pages are chosen by the bounds of the first row key: those that
DataFusion reads, or some more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from sleeper.columns.type_traits import key_traits_of
from sleeper.engine.reading.page_checksums import verify_some_pages
from sleeper.engine.reading.page_runs import PageRun
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.page_index import BOUND_WIDTH_MAX, PageBounds
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.column_types import KeyTraits, Primitive, key_traits
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import Range, Region, whole_region
from sleeper.model.schema import Schema

Limits = Sequence[tuple[Any, Any]]
"""Ranges of the first row key, comparable with bounds of pages, ordered by their least values."""


@dataclass(frozen=True, slots=True)
class UncheckedPages:
    """Pages of a file that a read needs and that are not checked yet.

    Attributes:
        filename: The file.
        runs: The pages.
        group_bytes: Their bytes in each row group, in the order of the file.
        group_minimums: The lower bounds of the first row key of these row groups; None for a
            missing one.
    """

    filename: str
    runs: tuple[PageRun, ...]
    group_bytes: tuple[int, ...]
    group_minimums: tuple[Any, ...]


class VerifiedPages:
    """The pages that this process has checked, in data files of one table. Safe for threads.

    Args:
        lookup: Has the files' indexes.
        arrow_schema: The table's schema.
        bytes_max: Approximate maximum size of all flags. The least recently used files are dropped
            first, and then checked again.
    """

    def __init__(
        self,
        lookup: LookupReader,
        arrow_schema: pa.Schema,
        *,
        bytes_max: int = 32 << 20,
    ) -> None:
        self._lookup = lookup
        self._arrow_schema = arrow_schema
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._files: OrderedDict[str, _CheckedFile] = OrderedDict()
        self._bytes = 0

    def unchecked(
        self, filename: str, regions: Sequence[Region], columns: Sequence[str]
    ) -> UncheckedPages | None:
        """Return the pages of a file that must be checked before a read; None if all were checked.

        Args:
            filename: The file, whose footer and indexes were checked.
            regions: The regions to read; all rows if there are none.
            columns: The columns that are read, row keys included.

        Raises:
            DataDamaged: the file is missing or damaged.
            StorageFailed: the file cannot be read.
        """
        with self._lock:
            checked = self._files.get(filename, _CheckedFile())
        look = partial(self._choose, checked, tuple(regions), tuple(columns))
        return self._lookup.inspect(filename, look)

    def forget(self, filenames: Iterable[str]) -> None:
        """Drop the flags of files."""
        with self._lock:
            for filename in filenames:
                if (dropped := self._files.pop(filename, None)) is not None:
                    self._bytes -= dropped.size_bytes

    def check(self, wanted: Sequence[UncheckedPages]) -> None:
        """Compare pages of several files with their checksums, and record them as checked.

        Raises: as `check_file`.
        """
        self._lookup.at_once([partial(self.check_file, each) for each in wanted])

    def check_file(self, wanted: UncheckedPages) -> None:
        """Compare pages with their checksums, and record them as checked.

        Raises:
            DataDamaged: a page is damaged; the message names file, row group and column.
            StorageFailed: the file cannot be read.
        """

        def verify(index: ParquetIndex, read: ReadRanges) -> dict[tuple[int, int], int]:
            verify_some_pages(index, wanted.runs, read)
            return {
                (run.group, run.leaf): len(index.locations(run.group, run.leaf).offsets)
                for run in wanted.runs
            }

        page_counts = self._lookup.inspect(wanted.filename, verify)
        self._remember(wanted, page_counts)

    def _remember(self, wanted: UncheckedPages, page_counts: dict[tuple[int, int], int]) -> None:
        with self._lock:
            checked = self._files.pop(wanted.filename, None)
            if checked is None:
                checked = _CheckedFile()
                self._bytes += _ENTRY_BYTES
            self._files[wanted.filename] = checked
            for group, leaf, first, end in wanted.runs:
                flags = checked.flags.get((group, leaf))
                if flags is None:
                    flags = checked.flags[group, leaf] = bytearray(page_counts[group, leaf])
                    self._bytes += _ENTRY_BYTES + len(flags)
                flags[first:end] = b"\1" * (end - first)
            while self._bytes > self._bytes_max and len(self._files) > 1:
                _, dropped = self._files.popitem(last=False)
                self._bytes -= dropped.size_bytes

    def _choose(
        self,
        checked: _CheckedFile,
        regions: tuple[Region, ...],
        columns: tuple[str, ...],
        index: ParquetIndex,
        read: ReadRanges,
    ) -> UncheckedPages | None:
        bound = index.columns(self._arrow_schema)
        key_leaf = bound[self._arrow_schema.names[0]].leaf
        leaves = tuple(leaf for name in columns for leaf in bound[name].column.leaves)
        limits = first_key_limits(regions, self._arrow_schema.field(0).type) if regions else None
        bounds = index.group_bounds(key_leaf)
        row_counts = index.footer.row_counts
        groups = [
            group
            for low, high in places_between(bounds, limits)
            for group in range(low, high)
            if row_counts[group] and not checked.has_all(group, leaves)
        ]
        if not groups:
            return None
        index.load(groups, leaves, (key_leaf,), read)
        runs: list[PageRun] = []
        sizes, minimums = [], []
        for group in groups:
            before = len(runs)
            runs += checked.left_of(_runs_of_rows(index, group, leaves, key_leaf, limits))
            if len(runs) > before:
                sizes.append(sum(_size_of(index, run) for run in runs[before:]))
                minimums.append(bounds.minimums[group])
        if not runs:
            return None
        return UncheckedPages(index.filename, tuple(runs), tuple(sizes), tuple(minimums))


def verify_region(
    lookup: LookupReader, filename: str, region: Region, arrow_schema: pa.Schema
) -> None:
    """Compare the pages of a file that may have rows of a region with their checksums.

    Pages that were checked before are checked again.

    Raises:
        DataDamaged: the file is missing or damaged; names the file, row group and column.
        StorageFailed: the file cannot be read.
    """
    pages = VerifiedPages(lookup, arrow_schema)
    wanted = pages.unchecked(filename, [region], arrow_schema.names)
    if wanted is not None:
        pages.check_file(wanted)


_ENTRY_BYTES = 250  # overhead of the flags of a column chunk


class _CheckedFile:
    """The checked pages of one file: a byte for each, by row group and leaf."""

    __slots__ = ("flags",)

    def __init__(self) -> None:
        self.flags: dict[tuple[int, int], bytearray] = {}

    @property
    def size_bytes(self) -> int:
        return _ENTRY_BYTES + sum(_ENTRY_BYTES + len(flags) for flags in self.flags.values())

    def has_all(self, group: int, leaves: Sequence[int]) -> bool:
        """Return whether all pages of a row group's leaves were checked."""
        known = self.flags
        return all((flags := known.get((group, leaf))) and 0 not in flags for leaf in leaves)

    def left_of(self, runs: Iterable[PageRun]) -> Iterator[PageRun]:
        """Yield the unchecked part of some runs, each from its first unchecked page to its last."""
        for run in runs:
            flags = self.flags.get(run[:2])
            if flags is None:
                yield run
            elif (first := flags.find(0, run.first, run.end)) >= 0:
                yield PageRun(run.group, run.leaf, first, flags.rfind(0, first, run.end) + 1)


def first_key_limits(regions: Sequence[Region], first_key: pa.DataType) -> Limits:
    """Return the ranges of the first row key of some regions, comparable with bounds of pages."""
    traits = key_traits_of(first_key)
    sides = [region.ranges[0] for region in regions]
    limits = [
        (_as_bound(traits, side.min), None if side.max is None else _as_bound(traits, side.max))
        for side in sides
    ]
    open_end = _HIGHEST_BYTES if isinstance(limits[0][0], bytes) else np.iinfo(np.int64).max
    return sorted((low, open_end if high is None else high) for low, high in limits)


_HIGHEST_BYTES = b"\xff" * BOUND_WIDTH_MAX


def _as_bound(traits: KeyTraits, value: Any) -> int | bytes:
    """Return a key value in the form of bounds: bytes of limited width without trailing zeros."""
    item = traits.to_item(value)
    if isinstance(item, bytes):
        return item[:BOUND_WIDTH_MAX].rstrip(b"\0")
    return item


def places_between(bounds: PageBounds, limits: Limits | None) -> list[tuple[int, int]]:
    """Return which row groups or pages may contain first row keys of ranges, as disjoint runs."""
    if limits is None:
        return [(0, len(bounds.minimums))]
    found: list[tuple[int, int]] = []
    for low, high in limits:
        first = bisect_left(bounds.maximums, low)
        _join(found, first, bisect_right(bounds.minimums, high, first))
    return found


def _join(runs: list[tuple[int, int]], first: int, end: int) -> None:
    """Append a run to others that begin before it; merge it with the last if they are adjacent."""
    if runs and first <= runs[-1][1]:
        runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
    elif first < end:
        runs.append((first, end))


def _runs_of_rows(
    index: ParquetIndex,
    group: int,
    leaves: Sequence[int],
    key_leaf: int,
    limits: Limits | None,
) -> Iterator[PageRun]:
    """Yield the pages of each leaf that contain rows between the limits."""
    if limits is None:
        for leaf in leaves:
            yield PageRun(group, leaf, 0, len(index.locations(group, leaf).offsets))
        return
    places = places_between(index.bounds(group, key_leaf), limits)
    key_rows = index.locations(group, key_leaf).first_rows
    rows = [(int(key_rows[first]), int(key_rows[end])) for first, end in places]
    for leaf in leaves:
        own_rows, runs = index.locations(group, leaf).first_rows, list[tuple[int, int]]()
        for start, end in rows:
            first = bisect_right(own_rows, start) - 1
            _join(runs, first, bisect_left(own_rows, end, first))
        for first, last in runs:
            yield PageRun(group, leaf, first, last)


def _size_of(index: ParquetIndex, run: PageRun) -> int:
    locations = index.locations(run.group, run.leaf)
    last = run.end - 1
    return int(locations.offsets[last] + locations.sizes[last] - locations.offsets[run.first])


# ---------------------------------------------------------------- read windows
#
# Divides a long read by key, so that its pages are checked shortly before they are read.
#
# All pages of a window are checked before it is read. The first windows are small, so that the
# first rows are returned soon; later ones are large, because each window needs a plan.

FIRST_BYTES = 16 << 20
LAST_BYTES = 512 << 20
"""Bytes of unchecked pages in a window: the first number in the first one, and twice as many in
each next one, up to the second number."""


def read_windows(unchecked: Sequence[UncheckedPages], schema: Schema) -> list[Range]:
    """Return ranges of the first row key, in order, that together contain every key.

    Args:
        unchecked: The unchecked pages of the whole read, file by file.
        schema: The table's schema.
    """
    kind = key_type(schema.row_keys[0])
    row_groups = [
        (minimum, size)
        for each in unchecked
        for minimum, size in zip(each.group_minimums, each.group_bytes, strict=True)
    ]
    low, windows = smallest_value(kind), []
    wanted, size = FIRST_BYTES, 0
    for minimum, group_bytes in sorted(row_groups):
        if size and size + group_bytes > wanted:
            border = key_value(kind, minimum)
            if border is not None and low < border:
                windows.append(Range(low, border))
                low, size, wanted = border, 0, min(2 * wanted, LAST_BYTES)
        size += group_bytes
    return [*windows, Range(low, None)]


def cut_regions(regions: Sequence[Region], window: Range, schema: Schema) -> tuple[Region, ...]:
    """Return the parts of some regions, or of all rows if there are none, inside a window."""
    cut = []
    for region in regions or (whole_region(schema),):
        both = region.ranges[0].intersection(window)
        if both is not None:
            cut.append(region.with_range(0, both))
    return tuple(cut)


def key_value(kind: Primitive, bound: Any) -> Any | None:
    """Return a bound of pages as a value of the first row key; None if there is no such value.

    A bound may be truncated, so the value may be a little less.
    """
    traits = key_traits(kind)
    if isinstance(bound, bytes):
        cut = bound.decode(errors="ignore").encode() if traits.is_text else bytes(bound)
        return traits.from_item(cut)
    try:
        return traits.from_item(int(bound))
    except OverflowError:
        return None
