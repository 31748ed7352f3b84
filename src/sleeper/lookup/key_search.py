"""Finds the rows of keys in one file: by bounds of pages, by Bloom filters, and then by values in
the pages of the first row key, of the second one, and so on.

The result is row ranges of a row group, each with the index of its key. A row is found only if its
decoded key values equal the key's. So a damaged index can only hide rows, and a seal detects that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.lookup.column_reader import (
    Cover,
    PageRequest,
    as_ranges,
    clip,
    covered,
    pages_of_keys,
    pages_with_any,
    read_requests,
    request_rows,
)
from sleeper.lookup.columns import (
    BoundColumn,
    Ints,
    KeyItem,
    Matches,
    Values,
    WantedColumns,
    as_in_table,
    comparable_array,
    positions,
    stored_columns,
)
from sleeper.lookup.keys import LookupKeys, PossibleKeys
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex

ROUND_BYTES = 8 << 20
"""Compressed bytes that are fetched and decoded in one round. It bounds memory; a larger value is
not faster."""


class KeyRows(NamedTuple):
    """Rows of one row group, as ascending ranges; `places` has the place of each range's key."""

    group: int
    starts: Ints
    ends: Ints
    places: Ints


def find_rows(
    index: ParquetIndex, keys: LookupKeys, wanted: WantedColumns, read: ReadRanges
) -> list[KeyRows]:
    """Find the rows of all keys in a file.

    The indexes of every wanted column are loaded with those of the keys, in one round.
    """
    groups = groups_of_keys(index, keys, wanted)
    if not groups:
        return []
    index.load(groups, wanted.leaves, wanted.key_leaves, read)
    if keys.count == 1:
        return [
            found
            for group in groups
            if (found := _find_one(index, group, keys, wanted, read)) is not None
        ]
    return _find_many(index, groups, keys, wanted, read)


def groups_of_keys(index: ParquetIndex, keys: LookupKeys, wanted: WantedColumns) -> list[int]:
    """Return the row groups that may have some of the keys, by their bounds."""
    bounds = index.group_bounds(wanted.key_leaves[0])
    row_counts = index.footer.row_counts
    groups: Any
    if keys.count == 1:
        low, high = pages_of_keys(bounds, keys.first_bounds[0])
        groups = range(int(low[0]), int(high[0]))
    else:
        low, high = pages_of_keys(bounds, keys.distinct_bounds[0])
        groups = covered(low, high, len(row_counts)).tolist()
    return [group for group in groups if row_counts[group]]


def _find_one(
    index: ParquetIndex,
    group: int,
    keys: LookupKeys,
    columns: WantedColumns,
    read: ReadRanges,
) -> KeyRows | None:
    """Find one key by bisection: first of pages by their bounds, then of values in them."""
    start, end = 0, index.footer.row_counts[group]
    for number, column in enumerate(columns.keys):
        rows = narrowed_rows(index, group, column, number, keys, (start, end))
        if rows is None:
            return None
        if number == 0:
            index.load_filters((group,), columns.key_leaves, read)
            if not may_hold(index, group, keys, columns.key_leaves):
                return None
        start, end = _find_between(index, group, column, keys.first[number], rows, read)
        if start == end:
            return None
    one = np.zeros(1, np.int64)
    return KeyRows(group, one + start, one + end, one)


def narrowed_rows(
    index: ParquetIndex,
    group: int,
    column: BoundColumn,
    number: int,
    keys: LookupKeys,
    rows: tuple[int, int],
) -> tuple[int, int] | None:
    """Return those of some rows that may have the one key's value of a column, by page bounds.

    Args:
        index: The file's, with the bounds of the row group.
        group: The row group.
        column: A key column.
        number: Which key column it is.
        keys: The key.
        rows: Rows with the key's values of the columns before.

    Returns:
        The first row and the end; None if there is no such row.
    """
    first_rows = index.locations(group, column.leaf).first_rows
    bounds = index.bounds(group, column.leaf)
    start, end = rows
    if number == 0:
        low, high = (int(place[0]) for place in pages_of_keys(bounds, keys.first_bounds[0]))
    else:
        pages = pages_with_any(bounds, keys.first_bounds[number])
        pages = pages[(first_rows[pages] < end) & (first_rows[pages + 1] > start)]
        low, high = (int(pages[0]), int(pages[-1]) + 1) if len(pages) else (0, 0)
    if low >= high:
        return None
    return max(start, int(first_rows[low])), min(end, int(first_rows[high]))


def may_hold(
    index: ParquetIndex, group: int, keys: LookupKeys, key_leaves: tuple[int, ...]
) -> bool:
    """Return whether a row group may have the one key, by its Bloom filters, which are loaded."""
    filters = index.filters(group, key_leaves)
    return not filters or all(
        bloom_filter is None or bloom_filter.may_hold(key)
        for bloom_filter, key in zip(filters, keys.first_filter_keys, strict=True)
    )


def _find_between(
    index: ParquetIndex,
    group: int,
    column: BoundColumn,
    key: KeyItem,
    rows: tuple[int, int],
    read: ReadRanges,
) -> tuple[int, int]:
    """Find the rows that equal `key` among rows in which the column ascends."""
    starts, ends = (np.array([row], np.int64) for row in rows)
    request = request_rows(index, group, column, starts, ends)
    if len(request.cover.pages) > 2:
        middle = _all_but_ends(index, request, key, rows, read)
        if middle is not None:
            return middle
    (values,) = read_requests(index, [request], read)
    at, shift = int(request.cover.starts[0]), rows[0]
    low, high = values.find(key, at, int(request.cover.ends[0]))
    return low - at + shift, high - at + shift


def _all_but_ends(
    index: ParquetIndex,
    whole: PageRequest,
    key: KeyItem,
    rows: tuple[int, int],
    read: ReadRanges,
) -> tuple[int, int] | None:
    """Find a key that fills whole pages by reading only the first page and the last.

    If the key ends the first and starts the last, all pages between contain only this key. None if
    that is not the case.
    """
    first_rows = index.locations(whole.group, whole.column.leaf).first_rows
    first, last = int(whole.cover.pages[0]), int(whole.cover.pages[-1])
    cuts = np.array([[rows[0], first_rows[first + 1]], [first_rows[last], rows[1]]], np.int64)
    requests = [request_rows(index, whole.group, whole.column, cut[:1], cut[1:]) for cut in cuts]
    head, tail = read_requests(index, requests, read)
    start, end = (int(row) for row in (requests[0].cover.starts[0], requests[0].cover.ends[0]))
    low, high = head.find(key, start, end)
    if low == high or high != end:
        return None
    tail_start = int(requests[1].cover.starts[0])
    tail_low, tail_high = tail.find(key, tail_start, int(requests[1].cover.ends[0]))
    if tail_low == tail_high or tail_low != tail_start:
        return None
    return rows[0] + low - start, int(cuts[1][0]) + tail_high - tail_start


def _find_many(
    index: ParquetIndex,
    groups: Sequence[int],
    keys: LookupKeys,
    wanted: WantedColumns,
    read: ReadRanges,
) -> list[KeyRows]:
    """Find all keys, column by column: read pages that may contain some, and keep matches."""
    index.load_filters(groups, wanted.key_leaves, read)
    possible = {group: _possible(index, group, keys, wanted) for group in groups}
    columns = wanted.keys
    candidates = [
        _candidate(index, group, possible[group], columns[0])
        for group in groups
        if len(possible[group].rows)
    ]
    for number, column in enumerate(columns):
        if number:
            candidates = [
                _narrowed(index, each, keys, possible[each.group], number, column)
                for each in candidates
            ]
        matched = []
        for part, ((cover, values),) in _read_values(index, candidates, [column], read):
            some = possible[part.group]
            quick = None
            if keys.column_count == 1:
                quick = values.find_many(some, 0, len(some.firsts))
            if quick is not None:
                matched.append(_selected(part, cover, quick, some.firsts))
            else:
                array = values.rows(cover.starts, cover.ends)
                matched.append(_matched(part, array, keys, number, some.distinct(number)))
        candidates = [found for found in matched if len(found.starts)]
    return candidates


def _possible(
    index: ParquetIndex, group: int, keys: LookupKeys, wanted: WantedColumns
) -> PossibleKeys:
    """Return the keys that a row group may contain, by its bounds and its filters."""
    leaf = wanted.key_leaves[0]
    bounds = index.group_bounds(leaf)
    first = keys.distinct_bounds[0].searchsorted(bounds.minimums[group], "left")
    end = keys.distinct_bounds[0].searchsorted(bounds.maximums[group], "right")
    return PossibleKeys(keys, int(first), int(end), index.filters(group, wanted.key_leaves))


def _selected(part: KeyRows, cover: Cover, matches: Matches, places: Ints) -> KeyRows:
    """Keep the matches inside the rows of a part; convert positions to rows.

    `places` has the place of each key that was looked for.
    """
    run = cover.ends.searchsorted(matches.starts, "right")
    some = np.flatnonzero(run < len(cover.ends))
    run = run[some]
    starts = np.maximum(matches.starts[some], cover.starts[run])
    ends = matches.ends[some]
    following = np.minimum(run + 1, len(cover.starts) - 1)
    if ((run < following) & (ends > cover.starts[following])).any():
        raise ValueError("its rows are not in key order")
    ends = np.minimum(ends, cover.ends[run])
    kept = np.flatnonzero(starts < ends)
    shift = (part.starts - cover.starts)[run[kept]]
    found = places[matches.places[some[kept]]]
    return KeyRows(part.group, starts[kept] + shift, ends[kept] + shift, found)


def _candidate(index: ParquetIndex, group: int, some: PossibleKeys, column: BoundColumn) -> KeyRows:
    """Return the rows of all pages that may hold a first key value."""
    first_rows = index.locations(group, column.leaf).first_rows
    low, high = pages_of_keys(index.bounds(group, column.leaf), some.distinct_bounds[0])
    pages = covered(low, high, len(first_rows) - 1)
    starts, ends, places = as_ranges(pages, np.zeros(len(pages), np.int64))
    return KeyRows(group, first_rows[starts], first_rows[ends], places)


def _narrowed(
    index: ParquetIndex,
    found: KeyRows,
    keys: LookupKeys,
    some: PossibleKeys,
    number: int,
    column: BoundColumn,
) -> KeyRows:
    """Keep only rows in pages that may hold some value of this key column."""
    bounds = index.bounds(found.group, column.leaf)
    pages = pages_with_any(bounds, keys.distinct_bounds[number][some.distinct(number)])
    first_rows = index.locations(found.group, column.leaf).first_rows
    starts, ends, which = clip(found.starts, found.ends, first_rows, pages)
    return KeyRows(found.group, starts, ends, found.places[which])


def _matched(
    part: KeyRows, values: pa.Array, keys: LookupKeys, number: int, among: Ints
) -> KeyRows:
    """Keep the rows whose prefix of key columns, with this one, is the prefix of some key.

    Args:
        part: The rows, with the places of their prefixes so far.
        values: Their values of key column `number`.
        keys: What to find.
        number: Which key column it is.
        among: Places of the distinct values that can occur. Looking among few is quicker.
    """
    distinct = keys.distinct[number]
    place = pc.index_in(comparable_array(values), value_set=distinct.take(pa.array(among)))
    hit = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
    value_places = among[place.take(pa.array(hit)).to_numpy(zero_copy_only=False)]
    before = np.repeat(part.places, part.ends - part.starts)[hit]
    codes = before * len(distinct) + value_places
    prefixes = keys.prefixes[number]
    places = prefixes.searchsorted(codes)
    exact = np.flatnonzero(prefixes[np.minimum(places, len(prefixes) - 1)] == codes)
    rows = positions(part.starts, part.ends)[hit[exact]]
    return KeyRows(part.group, *as_ranges(rows, places[exact]))


def read_rows(
    index: ParquetIndex, found: Sequence[KeyRows], columns: Sequence[BoundColumn], read: ReadRanges
) -> Iterator[tuple[KeyRows, list[pa.Array]]]:
    """Read columns of rows, in as few rounds as `ROUND_BYTES` allows.

    Yields:
        Parts of what was found, in order, each with one array a column, of the table's type.
    """
    if not all(column.is_as_stored for column in columns):
        yield from _read_changed(index, found, columns, read)
        return
    for part, columns_read in _read_values(index, found, columns, read):
        arrays = [values.rows(cover.starts, cover.ends) for cover, values in columns_read]
        if not index.has_checksums:
            # A checksum does not guarantee that text is UTF-8, or that offsets ascend.
            for array in arrays:
                array.validate(full=True)
        yield part, arrays


def _read_changed(
    index: ParquetIndex, found: Sequence[KeyRows], columns: Sequence[BoundColumn], read: ReadRanges
) -> Iterator[tuple[KeyRows, list[pa.Array]]]:
    """Read columns of a file that has some of them otherwise than the table, or not at all."""
    stored = stored_columns(columns)
    parts = read_rows(index, found, stored, read) if stored else ((each, []) for each in found)
    for part, arrays in parts:
        yield part, as_in_table(columns, arrays, int((part.ends - part.starts).sum()))


def _read_values(
    index: ParquetIndex, found: Sequence[KeyRows], columns: Sequence[BoundColumn], read: ReadRanges
) -> Iterator[tuple[KeyRows, list[tuple[Cover, Values]]]]:
    """Read the pages of rows; yield each part with one cover and its values for each column."""
    parts: list[KeyRows] = []
    requests: list[PageRequest] = []
    size = 0
    for part in (part for each in found for part in _cut_by_size(index, each, columns)):
        parts.append(part)
        covers: dict[int, Cover] = {}
        for column in columns:
            requests.append(request_rows(index, part.group, column, part.starts, part.ends, covers))
            size += requests[-1].size_bytes
        if size >= ROUND_BYTES:
            yield from _read_round(index, parts, requests, read)
            parts, requests, size = [], [], 0
    if parts:
        yield from _read_round(index, parts, requests, read)


def _read_round(
    index: ParquetIndex, parts: Sequence[KeyRows], requests: Sequence[PageRequest], read: ReadRanges
) -> Iterator[tuple[KeyRows, list[tuple[Cover, Values]]]]:
    decoded = read_requests(index, requests, read)
    pairs = [(request.cover, values) for request, values in zip(requests, decoded, strict=True)]
    width = len(requests) // len(parts)
    for number, part in enumerate(parts):
        yield part, pairs[number * width : (number + 1) * width]


def _cut_by_size(
    index: ParquetIndex, found: KeyRows, columns: Sequence[BoundColumn]
) -> Iterator[KeyRows]:
    """Divide rows so that the pages of each part have about `ROUND_BYTES` or less."""
    if len(found.starts) == 0:
        return
    leaves = [leaf for column in columns for leaf in column.column.leaves]
    size = sum(index.chunk(found.group, leaf).size for leaf in leaves)
    if size <= ROUND_BYTES:
        yield found
        return
    row_count = index.footer.row_counts[found.group]
    step = max(1, row_count * ROUND_BYTES // size)
    cuts = np.append(np.arange(0, row_count, step, dtype=np.int64), row_count)
    windows = np.arange(len(cuts) - 1)
    starts, ends, which = clip(found.starts, found.ends, cuts, windows)
    window = cuts.searchsorted(starts, "right") - 1
    breaks = [0, *(np.flatnonzero(window[1:] != window[:-1]) + 1).tolist(), len(starts)]
    for first, end in pairwise(breaks):
        places = found.places[which[first:end]]
        yield KeyRows(found.group, starts[first:end], ends[first:end], places)
