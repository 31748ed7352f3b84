"""Which pages of data files were compared with their checksums, and those that still must be.

DataFusion checks none, so each page is checked before DataFusion reads it, once in a process: what
is remembered is a flag a page. Pages are chosen by the limits of the first row key, as DataFusion
chooses them, or some more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.engine.scan.page_checksums import verify_some_pages
from sleeper.lookup.page_ranges import as_ranges, cover_rows, covered
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet.page_index import BOUND_WIDTH_MAX, PageBounds
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.ranges import Region

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class UncheckedPages:
    """Pages of a file that a read needs and that were not checked yet.

    Attributes:
        filename: The file.
        pages: Row group, leaf, and ascending numbers of its pages.
        group_bytes: What each row group has of them, in the order of the file.
        group_minimums: The least first row key of these row groups, as their limits say; None
            where they do not.
    """

    filename: str
    pages: tuple[tuple[int, int, list[int]], ...]
    group_bytes: tuple[int, ...]
    group_minimums: tuple[Any, ...]

    @property
    def size_bytes(self) -> int:
        """How large they are together."""
        return sum(self.group_bytes)


class VerifiedPages:
    """The pages that this process has checked, in data files of one table. Safe for threads.

    Args:
        lookup: Knows the files' indexes.
        arrow_schema: The table's schema.
        bytes_max: Bound for what is remembered, about. Files used longest ago are forgotten first,
            and then checked again.
        files_at_once: Files that are read side by side; 1 where a read takes microseconds.
    """

    def __init__(
        self,
        lookup: LookupReader,
        arrow_schema: pa.Schema,
        *,
        bytes_max: int = 32 << 20,
        files_at_once: int = 1,
    ) -> None:
        self._lookup = lookup
        self._files_at_once = files_at_once
        self._arrow_schema = arrow_schema
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._files: OrderedDict[str, _CheckedFile] = OrderedDict()
        self._bytes = 0

    def unchecked(
        self, filename: str, regions: Sequence[Region], columns: Sequence[str]
    ) -> UncheckedPages | None:
        """Return the pages of a file that must be checked before a read; None where all were.

        Args:
            filename: The file, whose footer and indexes were checked.
            regions: What is read of it; everything where there are none.
            columns: The columns that are read, row keys included.

        Raises:
            DataDamaged: the file is missing or damaged.
            StorageFailed: the file cannot be read.
        """
        with self._lock:
            checked = self._files.get(filename, _CheckedFile())
        look = partial(self._choose, checked, tuple(regions), tuple(columns))
        return self._lookup.inspect(filename, look)

    def check(self, wanted: Sequence[UncheckedPages]) -> None:
        """Compare pages of several files with their checksums, and remember them.

        Raises: as `check_file`.
        """
        if self._files_at_once == 1 or len(wanted) < 2:
            for each in wanted:
                self.check_file(each)
            return
        with ThreadPoolExecutor(min(self._files_at_once, len(wanted))) as pool:
            list(pool.map(self.check_file, wanted))

    def check_file(self, wanted: UncheckedPages) -> None:
        """Compare pages with their checksums, and remember them.

        Raises:
            DataDamaged: a page is damaged; the message names file, row group and column.
            StorageFailed: the file cannot be read.
        """

        def verify(index: ParquetIndex, read: ReadRanges) -> dict[tuple[int, int], int]:
            verify_some_pages(index, wanted.pages, read)
            counts = {}
            for group, leaf, _ in wanted.pages:
                counts[group, leaf] = len(index.locations(group, leaf).offsets)
            return counts

        page_counts = self._lookup.inspect(wanted.filename, verify)
        self._remember(wanted, page_counts)

    def _remember(self, wanted: UncheckedPages, page_counts: dict[tuple[int, int], int]) -> None:
        with self._lock:
            checked = self._files.pop(wanted.filename, None)
            if checked is None:
                checked = _CheckedFile()
                self._bytes += _ENTRY_BYTES
            self._files[wanted.filename] = checked
            for group, leaf, pages in wanted.pages:
                flags = checked.flags.get((group, leaf))
                if flags is None:
                    flags = np.zeros(page_counts[group, leaf], np.bool_)
                    checked.flags[group, leaf] = flags
                    self._bytes += _ENTRY_BYTES + flags.nbytes
                flags[pages] = True
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
        limits = _first_key_limits(regions) if regions else None
        bounds = index.group_bounds(key_leaf)
        groups = [
            group
            for group in _places_between(bounds, limits)
            if index.footer.row_counts[group] and not checked.has_all(group, leaves)
        ]
        if not groups:
            return None
        index.load(groups, leaves, (key_leaf,), read)
        chosen: list[tuple[int, int, list[int]]] = []
        sizes, minimums = [], []
        for group in groups:
            before = len(chosen)
            size = 0
            for leaf, pages in _pages_of_rows(index, group, leaves, key_leaf, limits):
                left = checked.left_of(group, leaf, pages)
                if len(left):
                    chosen.append((group, leaf, left.tolist()))
                    size += int(index.locations(group, leaf).sizes[left].sum())
            if len(chosen) > before:
                sizes.append(size)
                minimums.append(bounds.minimums[group])
        if not chosen:
            return None
        return UncheckedPages(index.filename, tuple(chosen), tuple(sizes), tuple(minimums))


_ENTRY_BYTES = 250  # of a flag array and its place in a dict, beside the flags


class _CheckedFile:
    """The pages of one file that were checked: a flag for each, by row group and leaf."""

    __slots__ = ("flags",)

    def __init__(self) -> None:
        self.flags: dict[tuple[int, int], Flags] = {}

    @property
    def size_bytes(self) -> int:
        return _ENTRY_BYTES + sum(_ENTRY_BYTES + flags.nbytes for flags in self.flags.values())

    def has_all(self, group: int, leaves: Sequence[int]) -> bool:
        """True when all pages of a row group's leaves were checked."""
        return all(
            (flags := self.flags.get((group, leaf))) is not None and flags.all() for leaf in leaves
        )

    def left_of(self, group: int, leaf: int, pages: Any) -> Any:
        """Return those of some pages that were not checked."""
        flags = self.flags.get((group, leaf))
        return pages if flags is None else pages[~flags[pages]]


@dataclass(frozen=True, slots=True)
class _Limits:
    """Ranges of the first row key, comparable with the limits of pages: `lows[i]` to `highs[i]`."""

    lows: Any
    highs: Any


def _first_key_limits(regions: Sequence[Region]) -> _Limits:
    sides = [region.ranges[0] for region in regions]
    lows = [_as_bound(side.min) for side in sides]
    open_end = _HIGHEST_BYTES if isinstance(lows[0], bytes) else np.iinfo(np.int64).max
    highs = [open_end if side.max is None else _as_bound(side.max) for side in sides]
    kind: Any = np.bytes_ if isinstance(lows[0], bytes) else np.int64
    return _Limits(np.array(lows, kind), np.array(highs, kind))


_HIGHEST_BYTES = b"\xff" * BOUND_WIDTH_MAX


def _as_bound(value: Any) -> int | bytes:
    """Return a key value as files store it, cut to the width in which limits are compared."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return value[:BOUND_WIDTH_MAX]
    if isinstance(value, datetime):
        return (value - _EPOCH.replace(tzinfo=value.tzinfo)) // _MICROSECOND
    return (value - _EPOCH.date()).days if isinstance(value, date) else int(value)


def _places_between(bounds: PageBounds, limits: _Limits | None) -> list[int]:
    """Return which row groups or pages may hold first row keys of some range."""
    count = len(bounds.minimums)
    if limits is None:
        return [*range(count)]
    low = bounds.maximums.searchsorted(limits.lows, "left")
    high = bounds.minimums.searchsorted(limits.highs, "right")
    places: list[int] = covered(low, high, count).tolist()
    return places


def _pages_of_rows(
    index: ParquetIndex,
    group: int,
    leaves: Sequence[int],
    key_leaf: int,
    limits: _Limits | None,
) -> Iterator[tuple[int, Any]]:
    """Yield the pages of each leaf that hold rows between the limits."""
    if limits is None:
        for leaf in leaves:
            yield leaf, np.arange(len(index.locations(group, leaf).offsets))
        return
    pages = np.array(_places_between(index.bounds(group, key_leaf), limits), np.int64)
    first, end, _ = as_ranges(pages, np.zeros(len(pages), np.int64))
    first_rows = index.locations(group, key_leaf).first_rows
    if len(pages):
        for leaf in leaves:
            own_first_rows = index.locations(group, leaf).first_rows
            yield leaf, cover_rows(own_first_rows, first_rows[first], first_rows[end]).pages
