"""Leaves rows out of a data file whose row keys other files have: an upsert has replaced them.

The keys near a chunk of rows are read when the chunk comes: whole pages, and some thousand keys
more, since chunks mostly follow one another. So memory is that of some pages for each of the other
files, whatever their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.processing.known_keys import are_among, keys_between
from sleeper.engine.reading.decoded_rows import GroupRows, decode_rows
from sleeper.engine.reading.verified_pages import first_key_limits, places_between
from sleeper.lookup.parquet.file_end import ReadRanges
from sleeper.lookup.parquet_index import ParquetIndex
from sleeper.lookup.reader import LookupReader
from sleeper.model.keys import key_type, next_value
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Schema

_KEYS_AHEAD: Final = 65_536
"""So many keys of a file are read at a time, unless a chunk needs more."""


class _KeysRead(NamedTuple):
    """The keys of a file from one value of the first row key field on.

    Attributes:
        keys: The keys.
        low, high: All keys with a first value from the one to the other are among them.
        before: As are those with a first value before this one; None if no more is known.
        is_last: Whether the file has no later keys.
    """

    keys: pa.Table
    low: Any
    high: Any
    before: Any
    is_last: bool

    def cover(self, low: Any, high: Any) -> bool:
        """Return whether all keys with a first value between two are among them."""
        if low < self.low:
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

    def stay(self, keys: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
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
                mask = pc.invert(are_among(rows, near))
                stays = mask if stays is None else pc.and_(stays, mask)
        return pa.repeat(pa.scalar(value=True), rows.num_rows) if stays is None else stays

    def staying(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that stay, of rows with their row keys; raises as `stay`."""
        mask = self.stay(rows)
        if isinstance(mask, pa.ChunkedArray):
            mask = mask.combine_chunks()
        return rows.filter(mask)

    def _near(self, filename: str, low: Any, high: Any) -> pa.Table:
        """Return the keys of a file whose first values are from one to another."""
        last = self._last.get(filename)
        if last is None or not last.cover(low, high):
            last = self.lookup.inspect(filename, partial(self._read, low, high))
            self._last[filename] = last
        return keys_between(last.keys, low, high)

    def _key_columns(self) -> pa.Schema:
        """Return the columns of row keys: the files may have no others."""
        return pa.schema([self.arrow_schema.field(name) for name in self.schema.row_key_names])

    def _read(self, low: Any, high: Any, index: ParquetIndex, read: ReadRanges) -> _KeysRead:
        index.check_indexes(read)
        names = self.schema.row_key_names
        columns = self._key_columns()
        bound = index.columns(columns)
        first = bound[names[0]].leaf
        leaves = tuple(leaf for name in names for leaf in bound[name].column.leaves)
        after = next_value(key_type(self.schema.row_keys[0]), high)
        asked = [Region((Range(low, after),))]
        limits = first_key_limits(asked, self.arrow_schema.field(names[0]).type)
        row_counts = index.footer.row_counts
        with_rows = [group for group, count in enumerate(row_counts) if count]
        runs = places_between(index.group_bounds(first), limits)
        groups = [group for begin, end in runs for group in range(begin, end) if row_counts[group]]
        chosen = list[GroupRows]()
        is_last = False
        for group in groups:
            index.load([group], leaves, (first,), read)
            pages = places_between(index.bounds(group, first), limits)
            if not pages:
                continue
            firsts = index.locations(group, first).first_rows
            start, end = int(firsts[pages[0][0]]), int(firsts[pages[-1][1]])
            if group == groups[-1]:
                place = int(firsts.searchsorted(start + _KEYS_AHEAD, "right"))
                end = max(end, int(firsts[min(place, len(firsts) - 1)]))
                is_last = group == with_rows[-1] and end == row_counts[group]
            chosen.append(GroupRows.span(group, start, end))
        batches = decode_rows(index, chosen, names, columns, read) if chosen else []
        keys = pa.Table.from_batches(batches, columns).combine_chunks()
        before = keys.column(0)[keys.num_rows - 1].as_py() if keys.num_rows else None
        return _KeysRead(keys, low, high, before, is_last)


KeysOut = Mapping[str, LeftOutKeys]
"""By file, the keys whose rows are left out of it; only of files that have some."""

NO_KEYS_OUT: Final[KeysOut] = MappingProxyType({})
