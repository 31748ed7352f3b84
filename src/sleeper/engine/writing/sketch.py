"""Sketches: quantiles of a data file's row keys, one Apache DataSketches sketch per field.

A file's rows are in key order, so rows at equal distances represent it better than random ones. At
most `SKETCHED_ROWS_MAX` are sketched; a file with at most so many rows is sketched exactly. Each
sketched row represents an equal number of rows of its file, so sketches of files of any size can be
merged.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

import pyarrow as pa
from datasketches import PyLongsSerDe, PyObjectSerDe, quantiles_items_sketch

from sleeper.engine.sorting.key_order import OrderedRows
from sleeper.engine.sorting.systematic_sample import SystematicSample
from sleeper.errors import DataDamaged, FormatTooNew, SplitPointsInvalid
from sleeper.model.keys import key_type, smallest_value
from sleeper.model.ranges import Range
from sleeper.model.schema import Field, Primitive, Schema

_K = 2048
SKETCHED_ROWS_MAX = 2 * _K - 1  # a sketch is exact up to 2 K items; one item is the last row
_SKETCHED_BYTES_MAX = 16 << 20

_ESTIMATE_ROWS_MAX = 4_000_000
_ESTIMATE_BYTES_MAX = 256 << 20

_MAGIC = b"SLPRSKT"
_VERSION = 1
# Magic, version, number of fields, rows of the file, how far apart its sketched rows are.
_HEADER = struct.Struct("<7sBHQQ")
_FIELD = struct.Struct("<20sQ")  # name of the type, bytes of the deflated sketch that follows
_INFLATED_BYTES_MAX = 64 << 20  # of one field: four times the limit of a builder
_LEVEL = 1  # of the compression: adjacent keys are similar
_LENGTH = struct.Struct("<I")
_CHECKSUM = struct.Struct("<I")  # CRC-32 of all before it


class SketchBuilder:
    """Builds the sketch of a data file while its rows are written, in key order.

    At most `SKETCHED_ROWS_MAX` row keys, and about 16 MiB of them, are in memory.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._sample = SystematicSample(SKETCHED_ROWS_MAX, _SKETCHED_BYTES_MAX)

    def add(self, rows: pa.Table) -> None:
        """Add more rows, which follow those before."""
        self._sample.add(rows.select(self._schema.row_key_names))

    def to_bytes(self) -> bytes:
        """Return the bytes of the sketch."""
        rows = self._sample.rows_with_last()
        sample, count = self._sample, len(self._schema.row_keys)
        parts = [_HEADER.pack(_MAGIC, _VERSION, count, sample.rows_seen, sample.stride)]
        for field in self._schema.row_keys:
            kind = key_type(field)
            sketch = quantiles_items_sketch(_K)
            for item in [] if rows is None else _items(rows.column(field.name)):
                sketch.update(item)
            body = zlib.compress(sketch.serialize(_SERDES[kind]()), _LEVEL)
            parts += [_FIELD.pack(kind.value.encode(), len(body)), body]
        whole = b"".join(parts)
        return whole + _CHECKSUM.pack(zlib.crc32(whole))


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Values of one field in order, with the cumulative number of rows of each."""

    kind: Primitive
    values: Sequence[Any]
    rows_until: Sequence[int]


@dataclass(frozen=True, slots=True)
class Sketches:
    """The distribution of row keys in one file or several; a dimension is a row key field.

    Attributes:
        row_count: Number of described rows.
    """

    row_count: int
    _distributions: tuple[_Distribution, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every row is sketched, so that nothing is an estimate."""
        return all(len(each.values) == self.row_count for each in self._distributions)

    def quantile(self, dimension: int, fraction: float) -> Any:
        """Return the key value below which `fraction` of the rows are; 0 and 1 give the ends.

        If every row is sketched, it is the item at index min(n - 1, floor(fraction * n)) of
        the n values in order (rule SPL-4).

        Raises:
            ValueError: there are no rows.
        """
        known = self._distributions[dimension]
        if not known.values:
            raise ValueError("a sketch of no rows has no quantiles")
        place = bisect_right(known.rows_until, fraction * self.row_count)
        return _value(known.kind, known.values[min(place, len(known.values) - 1)])

    def rank(self, dimension: int, value: Any) -> float:
        """Return the fraction of rows whose key value is below `value`, from 0 to 1."""
        known = self._distributions[dimension]
        place = bisect_left(known.values, _number(known.kind, value))
        return known.rows_until[place - 1] / self.row_count if place else 0.0

    def least_median_most(self, dimension: int, inside: Range) -> tuple[Any, Any, Any] | None:
        """Return the least, median and greatest value of a row key field of rows in a range.

        If every row is sketched, the median of n values in order is the one at index n // 2
        (rule SPL-4). None if no row is there.
        """
        known = self._distributions[dimension]
        first = bisect_left(known.values, _number(known.kind, inside.min))
        last = len(known.values)
        if inside.max is not None:
            last = bisect_left(known.values, _number(known.kind, inside.max))
        if first >= last:
            return None
        before = known.rows_until[first - 1] if first else 0
        half = before + (known.rows_until[last - 1] - before) // 2
        middle = min(bisect_right(known.rows_until, half), last - 1)
        least, median, most = (
            _value(known.kind, known.values[n]) for n in (first, middle, last - 1)
        )
        return least, median, most

    def next_above(self, dimension: int, inside: Range, value: Any) -> Any | None:
        """Return the least sketched value of a row key field above `value`; None without one."""
        known = self._distributions[dimension]
        place = bisect_right(known.values, _number(known.kind, value))
        if place == len(known.values):
            return None
        above = _value(known.kind, known.values[place])
        return above if above in inside else None


def read_sketches(data: bytes, schema: Schema, name: str) -> Sketches:
    """Decode the bytes of `SketchBuilder.to_bytes`; `name` names the file in errors.

    Raises:
        DataDamaged: the bytes are not a sketch, are incomplete, or have another schema.
        FormatTooNew: a newer Sleeper wrote them.
    """
    try:
        return _read(memoryview(data), schema, name)
    except (
        ValueError,
        struct.error,
        UnicodeDecodeError,
        RuntimeError,
        IndexError,
        TypeError,
        OverflowError,
        MemoryError,
        zlib.error,
    ) as error:
        raise DataDamaged(
            f"the sketch {name!r} is damaged: {error}. Splits ignore it; compacting its "
            "data file writes a new one"
        ) from None


def union(sketches: Iterable[Sketches]) -> Sketches:
    """Return the distribution of the rows of several files, with equal weight for each row.

    Raises:
        ValueError: there are no rows.
    """
    parts = [part for part in sketches if part.row_count]
    if not parts:
        raise ValueError("there are no rows in these sketches")
    dimensions = zip(*(part._distributions for part in parts), strict=True)  # noqa: SLF001
    return Sketches(sum(part.row_count for part in parts), tuple(map(_merged, dimensions)))


def estimate_split_points(
    columns: Iterable[pa.ChunkedArray], field: Field, partitions: int
) -> list[Any]:
    """Return values of the first row key that divide its rows into about equal partitions.

    Sorts a sample of at most 4 million values. The points are strictly ascending; there are
    fewer than requested if values repeat (rule TBL-10).

    Args:
        columns: The values, in parts. Nulls are ignored.
        field: The first row key.
        partitions: The wanted number of partitions, at least 2.

    Raises:
        SplitPointsInvalid: fewer than 2 partitions are requested.
    """
    if partitions < 2:
        raise SplitPointsInvalid(f"there must be at least 2 partitions, not {partitions}")
    sample = SystematicSample(_ESTIMATE_ROWS_MAX, _ESTIMATE_BYTES_MAX)
    for column in columns:
        sample.add(pa.table({field.name: column.drop_null()}))
    rows = sample.rows()
    if rows is None:
        return []
    ordered = OrderedRows(rows, [field.name])
    places = [part * rows.num_rows // partitions for part in range(1, partitions)]
    values = [ordered.take(place, place + 1).column(0)[0].as_py() for place in places]
    return [value for value in dict.fromkeys(values) if value != smallest_value(key_type(field))]


def _merged(parts: tuple[_Distribution, ...]) -> _Distribution:
    weighted = [
        (value, until - before)
        for part in parts
        for value, (before, until) in zip(part.values, pairwise([0, *part.rows_until]), strict=True)
    ]
    weighted.sort(key=itemgetter(0))
    values, weights = zip(*weighted, strict=True)
    return _Distribution(parts[0].kind, values, list(accumulate(weights)))


def _read(data: memoryview, schema: Schema, name: str) -> Sketches:
    whole, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if bytes(whole[: len(_MAGIC)]) != _MAGIC:
        raise ValueError("it does not begin like a sketch")
    if _CHECKSUM.unpack(checksum)[0] != zlib.crc32(whole):
        raise ValueError("its checksum does not match its bytes")
    _, version, field_count, row_count, stride = _HEADER.unpack_from(whole)
    if version > _VERSION:
        raise FormatTooNew(
            f"the sketch {name!r} has format {version}, this Sleeper knows {_VERSION}: upgrade it"
        )
    if field_count != len(schema.row_keys):
        raise ValueError(f"it has {field_count} fields, the table {len(schema.row_keys)} row keys")
    distributions = []
    offset = _HEADER.size
    for field in schema.row_keys:
        kind_name, size = _FIELD.unpack_from(whole, offset)
        kind = Primitive(kind_name.rstrip(b"\0").decode())
        if kind is not field.type:
            raise ValueError(f"row key {field.name!r} is of {field.type}, its sketch of {kind}")
        start = offset + _FIELD.size
        offset = start + size
        sketch = quantiles_items_sketch.deserialize(_inflated(whole[start:offset]), _SERDES[kind]())
        distributions.append(_distribution(kind, sketch, row_count, stride))
    return Sketches(row_count, tuple(distributions))


def _inflated(deflated: memoryview) -> bytes:
    """Decompress a sketch, up to the maximum size that a builder writes."""
    inflater = zlib.decompressobj()
    body = inflater.decompress(deflated, _INFLATED_BYTES_MAX)
    if not inflater.eof:
        raise ValueError(f"it is truncated, or has more than {_INFLATED_BYTES_MAX:,} bytes")
    return body


def _distribution(kind: Primitive, sketch: Any, row_count: int, stride: int) -> _Distribution:
    """Return the rows of each item: itself and the rows up to the next; the last row is one."""
    count = sketch.n
    if count > SKETCHED_ROWS_MAX or count > row_count or bool(count) != bool(row_count):
        raise ValueError(f"it has {count} items for {row_count} rows")
    if count and not 1 <= stride <= row_count:
        raise ValueError(f"its items represent {stride} rows each, of {row_count}")
    values = sketch.get_quantiles([(place + 0.5) / count for place in range(count)])
    for value in values:
        _value(kind, value)  # raises for what is no value of the kind
    if any(before > after for before, after in pairwise(values)):
        raise ValueError("its items are not in order")
    until = [min(stride * (place + 1), row_count) for place in range(count)]
    return _Distribution(kind, values, until)


class _BytesSerDe(PyObjectSerDe):  # type: ignore[misc]
    """Encodes the byte strings of a sketch: their length, then their bytes.

    Strings are sketched as UTF-8, which has the same order, because the library's encoding of
    strings supports only ASCII.
    """

    def get_size(self, item: bytes) -> int:
        """Return the number of bytes of an item."""
        return 4 + len(item)

    def to_bytes(self, item: bytes) -> bytes:
        """Encode an item."""
        return _LENGTH.pack(len(item)) + item

    def from_bytes(self, data: bytes, offset: int) -> tuple[bytes, int]:
        """Decode an item, and return its number of bytes too."""
        start = offset + _LENGTH.size
        size = int.from_bytes(data[offset:start], "little")
        return data[start : start + size], _LENGTH.size + size


_SERDES: dict[Primitive, Callable[[], Any]] = {
    Primitive.INT: PyLongsSerDe,
    Primitive.LONG: PyLongsSerDe,
    Primitive.STRING: _BytesSerDe,
    Primitive.BYTES: _BytesSerDe,
    Primitive.DATE: PyLongsSerDe,
    Primitive.TIMESTAMP: PyLongsSerDe,
    Primitive.TIMESTAMP_NTZ: PyLongsSerDe,
}

_EPOCHS = {
    Primitive.TIMESTAMP: datetime(1970, 1, 1, tzinfo=UTC),
    Primitive.TIMESTAMP_NTZ: datetime(1970, 1, 1),  # noqa: DTZ001
}
_EPOCH_DAY = date(1970, 1, 1)


def _items(column: pa.ChunkedArray) -> list[Any]:
    """Convert values to the form of a sketch: times are numbers, strings UTF-8."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    items: list[Any] = column.to_pylist()
    return items


def _number(kind: Primitive, value: Any) -> Any:
    if kind is Primitive.DATE:
        return (value - _EPOCH_DAY).days
    if kind in _EPOCHS:
        return (value - _EPOCHS[kind]) // timedelta(microseconds=1)
    return value.encode() if kind is Primitive.STRING else value


def _value(kind: Primitive, item: Any) -> Any:
    if kind is Primitive.DATE:
        return _EPOCH_DAY + timedelta(days=item)
    if kind in _EPOCHS:
        return _EPOCHS[kind] + timedelta(microseconds=item)
    return item.decode() if kind is Primitive.STRING else item
