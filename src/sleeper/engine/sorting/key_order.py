"""Computes the order of keys with polars, and returns rows in that order.

polars has no map type and treats lists and decimals differently, so only columns of primitive types
pass through it; pyarrow takes the others. The output has exactly the schema of the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sleeper.columns.type_traits import TRAITS_BY_ID
from sleeper.engine.panics import translated_panics

if TYPE_CHECKING:
    import polars as pl

_Numbers = np.ndarray[Any, np.dtype[Any]]

_BYTES_IN_PREFIX = 8
_SKIPS_MAX = 8
_ROW_OVERHEAD_BYTES = 40  # numbers to sort by, indexes, and copies of both meanwhile
_VIEW_BYTES = 16  # of polars' reference to each string

# The bits of a prefix that a string of 0, 1, ... 8 bytes fills.
_FILLED = np.array(
    [~((1 << (64 - 8 * length)) - 1) & (2**64 - 1) for length in range(9)], dtype=np.uint64
)

_doors = translated_panics("polars")  # of every function here that calls it


class OrderedRows:
    """Rows of a table in key order, returned slice by slice.

    Rows with equal keys keep the order they had. Keys have no nulls.

    Attributes:
        row_count: The number of rows.
    """

    @_doors
    def __init__(self, table: pa.Table, key_names: Sequence[str]) -> None:
        import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

        self._schema = table.schema
        table = table.combine_chunks()  # taking from one chunk is ten times faster than from many
        plain = [field.name for field in table.schema if _is_plain(field.type)]
        others = [field.name for field in table.schema if not _is_plain(field.type)]
        self._frame = pl.DataFrame(pl.from_arrow(table.select(plain)))
        self._others = table.select(others) if others else None
        self._index = _index_in_order(self._frame, table.column(key_names[0]), key_names)
        self._size_bytes = int(table.nbytes)
        self.row_count = int(table.num_rows)

    def chunks(self, size_bytes: int) -> Iterator[pa.Table]:
        """Yield all rows in order, about `size_bytes` at once, at most twice that; or one row."""
        step = max(1, size_bytes * self.row_count // max(1, self._size_bytes))
        for start in range(0, self.row_count, step):
            yield from self._chunks_between(start, min(start + step, self.row_count), size_bytes)

    @_doors
    def keys(self, name: str) -> pa.Table:
        """Return the values of one key, in order."""
        import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

        values = self._frame.select(name)[self._index]
        column = values.to_arrow(compat_level=pl.CompatLevel.oldest()).column(0)
        field = self._schema.field(name)
        return pa.Table.from_arrays([column.cast(field.type)], schema=pa.schema([field]))

    def take(self, start: int, stop: int) -> pa.Table:
        """Return rows `start` to `stop` of the order, in the schema they came with."""
        return self._with_others(self._taken(start, stop), start, stop)

    @_doors
    def _taken(self, start: int, stop: int) -> pl.DataFrame:
        return self._frame[self._index[start:stop]]

    def _chunks_between(self, start: int, stop: int, size_bytes: int) -> Iterator[pa.Table]:
        """Halve slices that are too large, which occur if long rows share a key."""
        taken = self._taken(start, stop)
        if stop - start > 1 and _text_bytes(taken) > 2 * size_bytes:
            middle = (start + stop) // 2
            yield from self._chunks_between(start, middle, size_bytes)
            yield from self._chunks_between(middle, stop, size_bytes)
            return
        yield self._with_others(taken, start, stop)

    @_doors
    def _with_others(self, taken: pl.DataFrame, start: int, stop: int) -> pa.Table:
        import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

        plain = taken.to_arrow(compat_level=pl.CompatLevel.oldest())
        columns = dict(zip(plain.column_names, plain.columns, strict=True))
        if self._others is not None:
            others = self._others.take(self._index[start:stop].to_arrow())
            columns.update(zip(others.column_names, others.columns, strict=True))
        return pa.Table.from_arrays(
            [columns[field.name].cast(field.type) for field in self._schema], schema=self._schema
        )


class Groups:
    """Adjacent ranges of the first key; n bounds divide n + 1 of them."""

    @_doors
    def __init__(self, bounds: Sequence[Any], first_key: str, kind: pa.DataType) -> None:
        import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

        self._first_key = first_key
        self._bounds = pl.Series(pl.from_arrow(pa.array(bounds, kind)))

    def __len__(self) -> int:
        return len(self._bounds) + 1

    def parts(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield (group, its rows) of rows in key order, for groups that have some."""
        if not rows.num_rows:
            return
        first, inside = self._starts(rows)
        for group, (start, stop) in enumerate(pairwise([0, *inside, rows.num_rows]), first):
            if stop > start:
                yield group, rows.slice(start, stop - start)

    @_doors
    def _starts(self, rows: pa.Table) -> tuple[int, list[int]]:
        """Return the first group that has rows, and where the groups after it start."""
        import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

        keys = pl.Series(pl.from_arrow(rows.column(self._first_key)))
        ends = pl.concat([keys.head(1), keys.tail(1)])
        first, last = self._bounds.search_sorted(ends, side="right").to_list()
        return first, keys.search_sorted(self._bounds[first:last], side="left").to_list()


def sorting_bytes(schema: pa.Schema, row_count: int, size_bytes: int) -> int:
    """Return the approximate memory for so many rows and for sorting them."""
    per_row = _ROW_OVERHEAD_BYTES
    for field in schema:
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            per_row += _VIEW_BYTES
    return 2 * size_bytes + row_count * per_row


def _text_bytes(frame: pl.DataFrame) -> int:
    """Return the total length of the strings of a frame, which polars does not count."""
    import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

    total = 0
    for series in frame:
        if series.dtype == pl.String:
            total += int(series.str.len_bytes().sum())
        elif series.dtype == pl.Binary:
            total += int(series.bin.size().sum())
    return total


def key_at(table: pa.Table, row: int, key_names: Sequence[str]) -> tuple[Any, ...]:
    """Return a row's key as values with the order of keys; times are numbers."""
    return tuple(_comparable(table.column(name)[row]) for name in key_names)


def _comparable(scalar: Any) -> Any:
    """Return an item, or the text of a key; `as_py` has not every time."""
    traits = TRAITS_BY_ID.get(scalar.type.id)
    has_ticks = traits is not None and traits.limits is not None
    return scalar.value if has_ticks else scalar.as_py()


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether polars returns values of a type unchanged."""
    return kind.id in TRAITS_BY_ID or bool(pa.types.is_integer(kind))


def _index_in_order(
    frame: pl.DataFrame, first_key: pa.ChunkedArray, key_names: Sequence[str]
) -> pl.Series:
    """Return the numbers of the rows in key order.

    Comparing strings needs random memory access, so rows are sorted by a number that is the
    prefix of the first key. Only rows with equal numbers are compared by their keys.
    """
    import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

    numbers = _leading_numbers(first_key)
    order = np.argsort(numbers)
    ordered = numbers[order]
    as_before = ordered[1:] == ordered[:-1]
    if as_before.any():
        tied = np.append(as_before, False)
        tied[1:] |= as_before
        order[tied] = _compared(frame, numbers, np.sort(order[tied]), key_names)
    return pl.Series(order.astype(np.uint32))


def _compared(
    frame: pl.DataFrame, numbers: _Numbers, rows: _Numbers, key_names: Sequence[str]
) -> _Numbers:
    """Return some rows, given in input order, by number, then by all keys."""
    import polars as pl  # noqa: PLC0415 - slow to import, and look-ups need none

    by = [pl.Series(numbers[rows]), *(frame[name].gather(rows) for name in key_names)]
    columns = pl.DataFrame({f"{place}": series for place, series in enumerate(by)})
    order = columns.select(pl.arg_sort_by(*columns.columns, maintain_order=True)).to_series()
    compared: _Numbers = rows[order.to_numpy()]
    return compared


def _leading_numbers(column: pa.ChunkedArray) -> _Numbers:
    """Return numbers in the order of keys; keys with equal numbers may differ."""
    as_numbers = TRAITS_BY_ID[column.type.id].numbers
    if as_numbers is None:
        return _prefixes(column)
    numbers: _Numbers = column.cast(as_numbers).to_numpy()
    return numbers


def _prefixes(column: pa.ChunkedArray) -> _Numbers:
    """Return eight bytes of each string as numbers of the same order.

    They start after the prefix that all strings share.
    """
    skipped = 0
    for _ in range(_SKIPS_MAX):
        parts = [_chunk_prefixes(chunk, skipped) for chunk in column.chunks if len(chunk)]
        prefixes = np.concatenate([prefix for prefix, _ in parts])
        shortest = min(length for _, length in parts)
        differing = int(prefixes.min()) ^ int(prefixes.max())
        shared = min(shortest, _BYTES_IN_PREFIX - (differing.bit_length() + 7) // 8)
        if not shared:
            break
        skipped += shared
    return prefixes


def _chunk_prefixes(chunk: pa.Array, skipped: int) -> tuple[_Numbers, int]:
    """Return the numbers, and the least length after the skipped bytes."""
    _, offset_buffer, data_buffer = chunk.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _BYTES_IN_PREFIX, np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data_buffer, np.uint8)[first:last]
    # Every eight adjacent bytes, as a big-endian number.
    windows = np.ndarray((last - first + 1,), ">u8", buffer=padded, strides=(1,))
    lengths = np.diff(offsets)
    shortest = int(lengths.min()) - skipped
    prefixes: _Numbers = windows[offsets[:-1] + (skipped - first)].astype(np.uint64)
    if shortest < _BYTES_IN_PREFIX:
        prefixes &= _FILLED[np.minimum(lengths - skipped, _BYTES_IN_PREFIX)]
    return prefixes, shortest
