"""Leaves rows out of a data file whose row keys other files have: an upsert has replaced them.

The keys near a chunk of rows are read when the chunk comes: whole pages, and up to 262,144 keys
more, since chunks mostly follow one another. So memory is that of so many keys for each of the
other files, whatever their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.arrow_schema import row_key_columns
from sleeper.engine.processing.known_keys import are_among_sorted, keys_between
from sleeper.engine.reading.decoded_rows import GroupRows, decode_rows
from sleeper.engine.reading.verified_pages import first_key_limits, places_between
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.keys import key_type, next_value
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Schema

_KEYS_AHEAD: Final = 262_144
"""So many keys of a file are read at a time, unless a chunk needs more. Those of a smaller file are
read once for all older files."""


class _KeysRead(NamedTuple):
    """The keys of a file from one value of the first row key field on.

    Attributes:
        keys: The keys.
        low, high: All keys with a first value from the one to the other are among them.
        before: As are those with a first value before this one; None if no more is known.
        is_first, is_last: Whether the file has no earlier keys, and no later ones.
    """

    keys: pa.Table
    low: Any
    high: Any
    before: Any
    is_first: bool
    is_last: bool

    def cover(self, low: Any, high: Any) -> bool:
        """Return whether all keys with a first value between two are among them."""
        if low < self.low and not self.is_first:
            return False
        is_before = self.before is not None and high < self.before
        return bool(self.is_last or high <= self.high or is_before)


@dataclass(frozen=True, slots=True)
class LeftOutKeys:
    """The row keys of some files, whose rows are left out of another one. Safe for threads.

    Attributes:
        lookup: Reads the files.
        schema: The table's schema.
        arrow_schema: The same as Arrow's.
        filenames: The files.
    """

    lookup: LookupReader
    schema: Schema
    arrow_schema: pa.Schema
    filenames: tuple[str, ...]
    _last: dict[str, _KeysRead] = field(default_factory=dict, init=False, compare=False)

    def stay(self, keys: pa.RecordBatch | pa.Table) -> pa.Array:
        """Return which rows stay.

        Args:
            keys: The row keys of the rows, in key order, by the names of their columns; others are
                ignored.

        Raises:
            DataDamaged: a file is missing or damaged.
            StorageFailed: a file cannot be read.
        """
        names = self.schema.row_key_names
        rows = pa.Table.from_batches([keys]) if isinstance(keys, pa.RecordBatch) else keys
        rows = rows.select(names)
        if not rows.num_rows:
            return pa.array([], pa.bool_())
        low, high = (rows.column(0)[place].as_py() for place in (0, rows.num_rows - 1))
        stays: Any = None
        for name in self.filenames:
            near = self._near(name, low, high)
            if near.num_rows:
                mask = pc.invert(are_among_sorted(rows, near))
                stays = mask if stays is None else pc.and_(stays, mask)
        if stays is None:
            return pa.repeat(pa.scalar(value=True), rows.num_rows)
        return stays.combine_chunks() if isinstance(stays, pa.ChunkedArray) else stays

    def staying(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that stay, of rows with their row keys; raises as `stay`."""
        return rows.filter(self.stay(rows))

    def _near(self, filename: str, low: Any, high: Any) -> pa.Table:
        """Return the keys of a file whose first values are from one to another."""
        last = self._last.get(filename)
        if last is None or not last.cover(low, high):
            last = self.lookup.inspect(filename, partial(self._read, low, high))
            self._last[filename] = last
        return keys_between(last.keys, low, high)

    def _read(self, low: Any, high: Any, index: ParquetIndex, read: ReadRanges) -> _KeysRead:
        index.check_indexes(read)
        columns = row_key_columns(self.schema, self.arrow_schema)
        chosen = self._choose(low, high, index, read)
        batches = decode_rows(index, chosen, columns.names, columns, read) if chosen else []
        keys = pa.Table.from_batches(batches, columns).combine_chunks()
        counts = index.footer.row_counts
        with_rows = [group for group, count in enumerate(counts) if count]
        ends = [(rows.group, int(rows.starts[0]), int(rows.ends[-1])) for rows in chosen]
        return _KeysRead(
            keys=keys,
            low=low,
            high=high,
            before=keys.column(0)[keys.num_rows - 1].as_py() if keys.num_rows else None,
            is_first=bool(ends) and ends[0][:2] == (with_rows[0], 0),
            is_last=bool(ends) and ends[-1][::2] == (with_rows[-1], counts[with_rows[-1]]),
        )

    def _choose(
        self, low: Any, high: Any, index: ParquetIndex, read: ReadRanges
    ) -> list[GroupRows]:
        """Choose the rows of pages that may have keys between two values, and rows that follow."""
        columns = row_key_columns(self.schema, self.arrow_schema)
        bound = index.columns(columns)
        leaves = tuple(leaf for name in columns.names for leaf in bound[name].column.leaves)
        first = bound[columns.names[0]].leaf
        asked = Region((Range(low, next_value(key_type(self.schema.row_keys[0]), high)),))
        limits = first_key_limits([asked], columns.field(0).type)
        runs = places_between(index.group_bounds(first), limits)
        if not runs:
            return []
        (begin, end_asked), counts = runs[0], index.footer.row_counts
        chosen, rows = list[GroupRows](), 0
        for group in range(begin, len(counts)):
            is_asked = group < end_asked
            if not counts[group] or not (is_asked or 0 < rows < _KEYS_AHEAD):
                continue
            index.load([group], leaves, (first,), read)
            firsts = index.locations(group, first).first_rows
            pages = places_between(index.bounds(group, first), limits)
            if not pages and not chosen:
                continue
            start = 0 if chosen else int(firsts[pages[0][0]])
            end = int(firsts[pages[-1][1]]) if pages else 0
            if group >= end_asked - 1:
                place = int(firsts.searchsorted(start + max(0, _KEYS_AHEAD - rows), "left"))
                end = max(end, int(firsts[min(place, len(firsts) - 1)]))
            chosen.append(GroupRows.span(group, start, end))
            rows += end - start
        return chosen


KeysOut = Mapping[str, LeftOutKeys]
"""By file, the keys whose rows are left out of it; only of files that have some."""

NO_KEYS_OUT: Final[KeysOut] = MappingProxyType({})
