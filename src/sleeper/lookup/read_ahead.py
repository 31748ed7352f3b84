"""Reads together what the look-up of a key in a file needs, where each request takes long.

The page index says which pages may hold a key, and which pages of other columns have the same rows.
So all of them are requested at once, before the key is searched in its page; and with them the
Bloom filters that were never read, unless the pages are too large to be read in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from sleeper.lookup.column_reader import request_rows
from sleeper.lookup.columns import BoundColumn, WantedColumns
from sleeper.lookup.key_search import groups_of_keys, may_hold, narrowed_rows
from sleeper.lookup.keys import LookupKeys
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex

Range = tuple[int, int]

PAGES_BYTES_MAX = 256 << 10
"""Bytes of pages that are read before it is known that they have the key; for larger ones, the
key's page is read first. Pages of a file whose filter was not read yet are read with it if all
files of the look-up together have no more."""


class ReadAhead:
    """Reads ranges of one file during one call; what was read ahead is returned from memory.

    Args:
        read: Reads ranges of the file.
        held: Parts of the file, by their offsets.
    """

    def __init__(self, read: ReadRanges, held: Iterable[tuple[int, bytes]] = ()) -> None:
        self._read = read
        self._held = list(held)

    @property
    def held(self) -> Sequence[tuple[int, bytes]]:
        """The parts of the file that are in memory, by their offsets."""
        return self._held

    def keep(self, offset: int, data: bytes) -> None:
        """Keep a part of the file that was read otherwise."""
        self._held.append((offset, data))

    def hold(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read ranges, all at once, and keep them."""
        blobs = self._read(ranges)
        self._held += ((offset, data) for (offset, _), data in zip(ranges, blobs, strict=True))
        return blobs

    def has(self, ranges: Iterable[Range]) -> bool:
        """Return whether all ranges are in memory."""
        return all(self._cut(each) is not None for each in ranges)

    def hold_missing(self, ranges: Iterable[Range]) -> None:
        """Read and keep those ranges that are not held; adjacent ones as one."""
        joined: list[Range] = []
        for offset, length in sorted(each for each in ranges if self._cut(each) is None):
            if joined and offset <= sum(joined[-1]):
                start = joined[-1][0]
                joined[-1] = (start, max(sum(joined[-1]), offset + length) - start)
            else:
                joined.append((offset, length))
        if joined:
            self.hold(joined)

    def __call__(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of ranges; those that are not held are read."""
        found = [self._cut(each) for each in ranges]
        missing = [each for each, data in zip(ranges, found, strict=True) if data is None]
        read = iter(self._read(missing) if missing else ())
        return [next(read) if data is None else data for data in found]

    def _cut(self, wanted: Range) -> bytes | None:
        offset, length = wanted
        for start, data in self._held:
            at = offset - start
            if at >= 0 and at + length <= len(data):
                return data if length == len(data) else data[at : at + length]
        return None


def is_absent(index: ParquetIndex, keys: LookupKeys, wanted: WantedColumns) -> bool:
    """Return whether a file cannot have the one key, if that is known without a read."""
    groups = groups_of_keys(index, keys, wanted)
    leaves = wanted.key_leaves
    if not all(index.has_filters(group, leaves) for group in groups):
        return False
    return not any(may_hold(index, group, keys, leaves) for group in groups)


def read_key_ahead(
    index: ParquetIndex,
    keys: LookupKeys,
    wanted: WantedColumns,
    ahead: ReadAhead,
    pages_bytes_max: int,
) -> None:
    """Read what the search for one key in a file needs; the search then reads from memory.

    Args:
        index: The file's. It may grow.
        keys: The key.
        wanted: The columns that the look-up needs.
        ahead: Reads the file, and keeps what was read for the search.
        pages_bytes_max: Bytes of pages that may be read together with filters that exclude the key.

    Raises:
        ValueError: an index or a filter is damaged.
    """
    groups = groups_of_keys(index, keys, wanted)
    leaves = wanted.key_leaves
    if ahead.held:  # the file was just opened
        every = range(len(index.footer.row_counts))
        read = [group for group in every if ahead.has(index.filter_places((group,), leaves))]
        index.load_filters(read, leaves, ahead)
    if not groups:
        return
    index.load(groups, wanted.leaves, leaves, ahead)
    pages = {group: _pages_of_key(index, group, keys, wanted) for group in groups}
    unread = [group for group in groups if pages[group] and not index.has_filters(group, leaves)]
    if unread:
        more = _with_following(index, unread, leaves)
        together = index.filter_places(more, leaves)
        every_page = [each for group in groups for each in pages[group]]
        if _size(every_page) <= pages_bytes_max:
            together += every_page
        ahead.hold_missing(together)
        index.load_filters(more, leaves, ahead)
    possible = [
        each
        for group in groups
        if pages[group] and may_hold(index, group, keys, leaves)
        for each in pages[group]
    ]
    if _size(possible) <= PAGES_BYTES_MAX:
        ahead.hold_missing(possible)


def _pages_of_key(
    index: ParquetIndex, group: int, keys: LookupKeys, wanted: WantedColumns
) -> list[Range]:
    """Return the pages of wanted columns that may have rows of the one key, by bounds of pages."""
    ranges: list[Range] = []
    rows = (0, index.footer.row_counts[group])
    for number, column in enumerate(wanted.keys):
        narrowed = narrowed_rows(index, group, column, number, keys, rows)
        if narrowed is None:
            return []
        rows = narrowed
        ranges += _pages_of_rows(index, group, column, rows)
    for column in (each for each in wanted.values if each.default is None):
        ranges += _pages_of_rows(index, group, column, rows)
    return ranges


def _pages_of_rows(
    index: ParquetIndex, group: int, column: BoundColumn, rows: tuple[int, int]
) -> tuple[Range, ...]:
    starts, ends = (np.array([row], np.int64) for row in rows)
    return request_rows(index, group, column, starts, ends).ranges


def _with_following(
    index: ParquetIndex, unread: Sequence[int], leaves: tuple[int, ...]
) -> list[int]:
    """Return row groups with some that follow: as many as have filters in memory by now.

    So a file that is asked for all its row groups takes few requests for its filters, and no more
    than half of them are read in vain.
    """
    count = len(index.footer.row_counts)
    following = (
        group for group in range(unread[-1] + 1, count) if not index.has_filters(group, leaves)
    )
    return [*unread, *islice(following, index.filtered_groups)]


def _size(ranges: Iterable[Range]) -> int:
    return sum(length for _, length in ranges)
