"""The types of columns: what Arrow, Parquet and conversions need, one row each.

`model/column_types.py` has the other half of each row. A row is found by its type, or by the id of
an Arrow type: a dictionary look-up, because readers ask for it at each key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.model.column_types import (
    TYPE_TRAITS,
    DecimalType,
    KeyTraits,
    Primitive,
    plain_clock,
    plain_instant,
)
from sleeper.model.schema import FieldType, ListType, MapType, StructType

FromPython = Callable[[Sequence[Any], Collection[type], pa.DataType], pa.Array]


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How the pages of one column are written.

    Attributes:
        codec: Compression, by pyarrow's name: "zstd", "lz4" (raw blocks), "none" ...
        level: Level of the codec; None is the codec's default.
        encoding: Parquet's name of an encoding; None for PLAIN, or for a dictionary.
        dictionary: Whether it has a dictionary in each row group.
    """

    codec: str
    level: int | None = None
    encoding: str | None = None
    dictionary: bool = False


KEY_LAYOUT: Final = ColumnLayout("zstd", 1)  # found by bisection of PLAIN values
_NUMBERS = ColumnLayout("lz4")  # plain: differences take longer to look up (docs/decisions)
_TEXTS = ColumnLayout("zstd", 3, "DELTA_LENGTH_BYTE_ARRAY")
OTHER_LAYOUT: Final = ColumnLayout("zstd", 3)


@dataclass(frozen=True, slots=True)
class TimeMark:
    """How Parquet marks integers that are times, with their unit.

    Attributes:
        logical: The number of the logical type.
        converted: The older converted types, and the unit of each.
    """

    logical: int
    converted: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Limits:
    """The least and the greatest value, as integers; `text` and `unit` say in messages what."""

    least: int
    most: int
    text: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowTraits:
    """One row of the table of types, about Arrow.

    Attributes:
        arrow: The Arrow type of a column.
        kind: The type of the other half of the row.
        key: What keys need, from there; None if it is not for keys.
        takes: Whether another Arrow type has values that can be cast to this one exactly.
        is_of: Whether a column of an Arrow type gets this type, if no earlier row says so.
        renamed_from: Whether values that pyarrow read as an Arrow type are of this type, and only
            their annotation differs.
        physical: Parquet's number of the physical type of its columns.
        mark: How Parquet marks it, for times.
        numbers: The Arrow type of NumPy's numbers that it can be cast to, in the same order.
        items: The Arrow type that its bytes are viewed as, to compare them as items of keys: None
            if they are items as they are, or if it is not for keys.
        layout: How columns of values are written.
        limits: What values must lie between so that Python has them; None if Arrow has no others.
        needs_validation: Whether an array may have what is no value of the type, such as bytes that
            are no UTF-8: Arrow looks for that only where it is asked to.
        from_python: Converts plain Python objects and None; their classes were checked.
        from_text: Reads texts of CSV and JSON; None if Arrow's cast does. It raises ArrowInvalid.
    """

    arrow: pa.DataType
    kind: Primitive
    key: KeyTraits | None
    takes: Callable[[pa.DataType], bool]
    is_of: Callable[[pa.DataType], bool]
    renamed_from: Callable[[pa.DataType], bool]
    physical: int
    mark: TimeMark | None
    numbers: pa.DataType | None
    items: pa.DataType | None
    layout: ColumnLayout
    limits: Limits | None
    needs_validation: bool
    from_python: FromPython
    from_text: Callable[[pa.Array], pa.Array] | None


# Which Arrow types are alike.


def is_text(kind: pa.DataType) -> bool:
    """True for strings of any layout."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(kind: pa.DataType) -> bool:
    """True for bytes of any layout."""
    fixed: bool = pa.types.is_fixed_size_binary(kind)
    return fixed or kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind)


def _is_byte_array(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_signed_64(kind: pa.DataType) -> bool:
    """Return whether all integers of a type fit 64 bits with a sign."""
    return bool(pa.types.is_integer(kind)) and kind != pa.uint64()


def _is_signed_32(kind: pa.DataType) -> bool:
    limit = 16 if pa.types.is_unsigned_integer(kind) else 32
    return _is_signed_64(kind) and kind.bit_width <= limit


def _is_short_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind)) and kind.bit_width < 64


def _is_time_with(kind: pa.DataType, *, zone: bool) -> bool:
    return bool(pa.types.is_timestamp(kind)) and (kind.tz is not None) == zone


def _is_stored_duration(kind: pa.DataType) -> bool:
    return bool(pa.types.is_duration(kind)) or kind == pa.int64()  # Parquet has no mark for them


def _none(kind: pa.DataType) -> bool:
    return False


# Python objects.


def _converted(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    return pa.array(values, want, from_pandas=False)


def _texts(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    if any(issubclass(cls, UUID) for cls in classes):
        values = [str(value) if isinstance(value, UUID) else value for value in values]
    return pa.array(values, want, from_pandas=False)


def _bytes(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    if memoryview in classes:
        values = [None if value is None else bytes(value) for value in values]
    return pa.array(values, want, from_pandas=False)


def _floats(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    found = pa.array(values, want, from_pandas=False)
    given = pa.array(values, pa.float64(), from_pandas=False)
    too_large = pc.and_(pc.is_inf(found), pc.invert(pc.is_inf(given)))
    too_small = pc.and_(pc.equal(found, 0), pc.not_equal(given, 0))
    if pc.any(pc.or_(too_large, too_small)).as_py():
        raise ValueError("it is out of the range of a 32-bit float; declare DoubleType")
    return found


def _timestamps(
    with_zone: bool,  # noqa: FBT001 - given by `partial`
    values: Sequence[Any],
    classes: Collection[type],
    want: pa.DataType,
) -> pa.Array:
    """Convert datetimes; those that pyarrow may misread are normalised by Python first."""
    present = [value for value in values if value is not None]
    offsets = set(map(methodcaller("utcoffset"), present))
    plain = all(cls is datetime for cls in classes) and not any(
        offset is not None and offset.microseconds for offset in offsets
    )
    if with_zone:
        if None in offsets:
            raise ValueError(_NOT_AWARE)
    elif any(zone is not None for zone in map(attrgetter("tzinfo"), present)):
        raise ValueError(_AWARE)
    if not plain:
        make = plain_instant if with_zone else plain_clock
        values = [None if value is None else make(value) for value in values]
    found = pa.array(values, want, from_pandas=False)
    outside = outside_limits(pa.chunked_array([found]))
    if outside is not None:
        raise ValueError(f"it has {outside}")
    return found


def _times_of_text(texts: pa.Array) -> pa.Array:
    """Read times of day, which Arrow reads only as a part of timestamps."""
    stamps = pc.binary_join_element_wise("1970-01-01", texts, "T")
    return stamps.cast(pa.timestamp("us")).cast(pa.time64("us"))


def _times(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    if any(value is not None and value.tzinfo is not None for value in values):
        raise ValueError("it has a time zone, and a time of day has none")
    return pa.array(values, want, from_pandas=False)


def _durations(values: Sequence[Any], classes: Collection[type], want: pa.DataType) -> pa.Array:
    # pandas has nanoseconds, which pyarrow drops
    if any(getattr(value, "nanoseconds", 0) for value in values):
        raise ValueError("it has nanoseconds, and durations count microseconds")
    return pa.array(values, want, from_pandas=False)


_ISO_DURATION: Final = (
    r"^(?P<sign>[-+]?)P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?"
    r"(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?$"
)
_DAYS_AND_TIME: Final = (
    r"^(?:(?P<sign_of_days>[-+]?)(?P<days>\d+) days?,? )?(?P<sign>[-+]?)(?P<hours>\d+):"
    r"(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)(?:\.(?P<fraction>\d+))?$"
)
"""As Python, pandas and DuckDB show a length of time: its days and its hours have signs apart."""

_WITHOUT_NUMBER: Final = "[PT]$"
_SECONDS_OF: Final = {"weeks": 604_800, "hours": 3_600, "minutes": 60, "seconds": 1}
_SECONDS_A_DAY: Final = 86_400
_MICROSECONDS_A_SECOND: Final = 1_000_000
_DIGITS: Final = 6


def _durations_of_text(texts: pa.Array) -> pa.Array:
    """Read lengths of time, which Arrow does not; a year and a month have no one length."""
    found = pc.coalesce(
        _microseconds_of(pc.extract_regex(texts, _ISO_DURATION)),
        _microseconds_of(pc.extract_regex(texts, _DAYS_AND_TIME)),
    )
    is_empty = pc.any(pc.match_substring_regex(texts, _WITHOUT_NUMBER)).as_py()
    if is_empty or found.null_count != texts.null_count:
        raise pa.ArrowInvalid("it is no length of time")
    return found.cast(pa.duration("us"))


def _microseconds_of(parts: pa.StructArray) -> pa.Array:
    """Return the numbers of texts by their parts; null where a text has none of this form.

    Raises:
        pa.ArrowInvalid: one is too long, or has nanoseconds.
    """
    given = dict(zip(parts.type.names, parts.flatten(), strict=True))
    digits = pc.utf8_rtrim(given["fraction"], "0")
    if pc.any(pc.greater(pc.utf8_length(digits), _DIGITS)).as_py():
        raise pa.ArrowInvalid("it has nanoseconds")
    total = pc.utf8_rpad(digits, _DIGITS, "0").cast(pa.int64())
    for name in _SECONDS_OF.keys() & given.keys():
        total = pc.add_checked(total, _number(given[name], _SECONDS_OF[name]))
    days = _number(given["days"], _SECONDS_A_DAY)
    if "sign_of_days" in given:
        days = _signed(days, given["sign_of_days"])
        return pc.add_checked(_signed(total, given["sign"]), days)
    return _signed(pc.add_checked(total, days), given["sign"])


def _number(digits: pa.Array, seconds: int) -> pa.Array:
    numbers = pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64())
    return pc.multiply_checked(numbers, seconds * _MICROSECONDS_A_SECOND)


def _signed(numbers: pa.Array, signs: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(signs, "-"), pc.negate_checked(numbers), numbers)


_NOT_AWARE = (
    "it has no time zone, but TimestampType needs one; add it, for example by "
    "value.replace(tzinfo=datetime.UTC)"
)
_AWARE = (
    "it has a time zone, but TimestampNtzType has none; remove it by value.replace(tzinfo=None), "
    "or declare TimestampType"
)

# The rows.

_YEARS = "the years 1 to 9999"
_DAYS = Limits(-719_162, 2_932_896, _YEARS, "days from 1970")
_MICROSECONDS = Limits(
    -62_135_596_800_000_000,
    253_402_300_799_999_999,
    _YEARS,
    "microseconds from 1970",
)
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY = 0, 1, 2, 4, 5, 6
_TIMESTAMP = TimeMark(8, {9: "ms", 10: "us"})
_TIME = TimeMark(7, {7: "ms", 8: "us"})


def _row(
    kind: Primitive,
    arrow: pa.DataType,
    *,
    takes: Callable[[pa.DataType], bool],
    is_of: Callable[[pa.DataType], bool],
    physical: int,
    renamed_from: Callable[[pa.DataType], bool] = _none,
    mark: TimeMark | None = None,
    numbers: pa.DataType | None = None,
    items: pa.DataType | None = None,
    layout: ColumnLayout = _NUMBERS,
    limits: Limits | None = None,
    needs_validation: bool = False,
    from_python: FromPython = _converted,
    from_text: Callable[[pa.Array], pa.Array] | None = None,
) -> ArrowTraits:
    return ArrowTraits(
        arrow=arrow,
        kind=kind,
        key=TYPE_TRAITS[kind].key,
        takes=takes,
        is_of=is_of,
        renamed_from=renamed_from,
        physical=physical,
        mark=mark,
        numbers=numbers,
        items=items,
        layout=layout,
        limits=limits,
        needs_validation=needs_validation,
        from_python=from_python,
        from_text=from_text,
    )


_ROWS: Final = (
    _row(
        Primitive.INT,
        pa.int32(),
        takes=_is_number,
        is_of=_is_signed_32,
        physical=_INT32,
        numbers=pa.int32(),
    ),
    _row(
        Primitive.LONG,
        pa.int64(),
        takes=_is_number,
        is_of=_is_signed_64,
        physical=_INT64,
        numbers=pa.int64(),
    ),
    _row(
        Primitive.STRING,
        pa.string(),
        takes=_is_text_or_bytes,
        is_of=is_text,
        physical=_BYTE_ARRAY,
        renamed_from=_is_byte_array,
        items=pa.binary(),
        layout=_TEXTS,
        needs_validation=True,
        from_python=_texts,
    ),
    _row(
        Primitive.BYTES,
        pa.binary(),
        takes=_is_text_or_bytes,
        is_of=is_bytes,
        physical=_BYTE_ARRAY,
        renamed_from=_is_byte_array,
        layout=_TEXTS,
        from_python=_bytes,
    ),
    _row(
        Primitive.DATE,
        pa.date32(),
        takes=pa.types.is_date,
        is_of=pa.types.is_date,
        physical=_INT32,
        numbers=pa.int32(),
        items=pa.int32(),
        limits=_DAYS,
    ),
    _row(
        Primitive.TIMESTAMP,
        pa.timestamp("us", "UTC"),
        takes=partial(_is_time_with, zone=True),
        is_of=partial(_is_time_with, zone=True),
        physical=_INT64,
        renamed_from=pa.types.is_timestamp,
        mark=_TIMESTAMP,
        numbers=pa.int64(),
        items=pa.int64(),
        limits=_MICROSECONDS,
        from_python=partial(_timestamps, True),
    ),
    _row(
        Primitive.TIMESTAMP_NTZ,
        pa.timestamp("us"),
        takes=partial(_is_time_with, zone=False),
        is_of=partial(_is_time_with, zone=False),
        physical=_INT64,
        renamed_from=pa.types.is_timestamp,
        mark=_TIMESTAMP,
        numbers=pa.int64(),
        items=pa.int64(),
        limits=_MICROSECONDS,
        from_python=partial(_timestamps, False),
    ),
    _row(
        Primitive.FLOAT,
        pa.float32(),
        takes=_is_number,
        is_of=_is_short_float,
        physical=_FLOAT,
        numbers=pa.float32(),
        layout=OTHER_LAYOUT,
        from_python=_floats,
    ),
    _row(
        Primitive.DOUBLE,
        pa.float64(),
        takes=_is_number,
        is_of=pa.types.is_floating,
        physical=_DOUBLE,
        numbers=pa.float64(),
        layout=OTHER_LAYOUT,
    ),
    _row(
        Primitive.BOOLEAN,
        pa.bool_(),
        takes=pa.types.is_boolean,
        is_of=pa.types.is_boolean,
        physical=_BOOLEAN,
        layout=OTHER_LAYOUT,
    ),
    _row(
        Primitive.TIME,
        pa.time64("us"),
        takes=pa.types.is_time,
        is_of=pa.types.is_time,
        physical=_INT64,
        renamed_from=pa.types.is_time,
        mark=_TIME,
        numbers=pa.int64(),
        needs_validation=True,
        from_python=_times,
        from_text=_times_of_text,
    ),
    _row(
        Primitive.DURATION,
        pa.duration("us"),
        takes=pa.types.is_duration,
        is_of=pa.types.is_duration,
        physical=_INT64,
        renamed_from=_is_stored_duration,
        numbers=pa.int64(),
        from_python=_durations,
        from_text=_durations_of_text,
    ),
)

ARROW_TRAITS: Final[Mapping[Primitive, ArrowTraits]] = {row.kind: row for row in _ROWS}
"""The row of each type without parameters."""

TRAITS_BY_ID: Final[Mapping[int, ArrowTraits]] = {row.arrow.id: row for row in reversed(_ROWS)}
"""The row of each id of an Arrow type. Types with one id, such as timestamps with and without a
zone, differ in names and in which values they take; use `arrow_traits` where that matters."""

KEY_ITEMS: Final = {
    row.arrow.id: row.items for row in _ROWS if row.key is not None and row.items is not None
}
"""What the arrays of keys of some Arrow types, by id, are viewed as to compare them as items."""

NARROWER_BY_ID: Final = {
    ARROW_TRAITS[wider].arrow.id: ARROW_TRAITS[kind]
    for kind, row in TYPE_TRAITS.items()
    if (wider := row.wider) is not None
}
"""The row of the type that a column may have had before it became that of an Arrow type, by id."""

_KINDS = {row.arrow: row.kind for row in _ROWS}


def arrow_traits(arrow: pa.DataType) -> ArrowTraits | None:
    """Return the row of a column's Arrow type; None for decimals, lists and maps.

    A timestamp of another unit has the row of ours.
    """
    found = TRAITS_BY_ID.get(arrow.id)
    if found is None or found.arrow == arrow:
        return found
    kind = _KINDS.get(arrow) or next((row.kind for row in _ROWS if row.is_of(arrow)), found.kind)
    return ARROW_TRAITS[kind]


def key_traits_of(arrow: pa.DataType) -> KeyTraits:
    """Return what keys of an Arrow type need; it must be the type of a key column.

    Timestamps with and without a zone have one row here: their items are alike, and no more.
    """
    found = TRAITS_BY_ID[arrow.id].key
    assert found is not None
    return found


def arrow_type(kind: FieldType) -> pa.DataType:
    """Return the Arrow type of a field type; parts of structs may always be null."""
    match kind:
        case Primitive():
            return ARROW_TRAITS[kind].arrow
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ListType(element, nullable):
            return pa.list_(pa.field("element", arrow_type(element), nullable))
        case MapType(key, value, nullable):
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value), nullable))
        case StructType(parts):
            return pa.struct([pa.field(name, arrow_type(part)) for name, part in parts])


def plain_kind(arrow: pa.DataType) -> Primitive | DecimalType:
    """Return the field type of an Arrow type of ours that is not a list or a map."""
    if pa.types.is_decimal(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    return _KINDS[arrow]


def fitting_kind(arrow: pa.DataType) -> Primitive | DecimalType | None:
    """Return the narrowest field type for values of any Arrow type; None if there is none."""
    if pa.types.is_decimal(arrow):
        fits = arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision
        return DecimalType(arrow.precision, arrow.scale) if fits else None
    return next((row.kind for row in _ROWS if row.is_of(arrow)), None)


def outside_limits(column: pa.ChunkedArray) -> str | None:
    """Describe values that Python has not, such as dates after the year 9999; None if all fit."""
    row = TRAITS_BY_ID.get(column.type.id)
    if row is None or row.limits is None or len(column) == column.null_count:
        return None
    limits = row.limits
    least, most = pc.min_max(column.cast(row.numbers)).as_py().values()
    if limits.least <= least and most <= limits.most:
        return None
    return f"values outside {limits.text}: from {least} to {most}, counted in {limits.unit}"
