"""Schemas of any types, and values that an engine with another idea of order or text confuses."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from sleeper.model.schema import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    Primitive,
    Schema,
)

KEY_KINDS = [
    Primitive.INT,
    Primitive.LONG,
    Primitive.STRING,
    Primitive.BYTES,
    Primitive.DATE,
    Primitive.TIMESTAMP,
    Primitive.TIMESTAMP_NTZ,
]
PLAIN_KINDS = [
    *KEY_KINDS,
    Primitive.FLOAT,
    Primitive.DOUBLE,
    Primitive.BOOLEAN,
    Primitive.TIME,
    Primitive.DURATION,
]
DECIMALS = [DecimalType(3, 1), DecimalType(9, 0), DecimalType(18, 18), DecimalType(38, 10)]

EPOCH = datetime(1970, 1, 1)
_LARGEST_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_EDGES: dict[Primitive, list[Any]] = {
    Primitive.INT: [-(2**31), -1, 0, 1, 255, 256, 2**31 - 1],
    Primitive.LONG: [-(2**63), -(2**53) - 1, -1, 0, 2**53, 2**53 + 1, 2**63 - 1],
    Primitive.STRING: [
        *("", "\0", "\0\0", "a", "a\0", "A", "\x7f", "\x80", "é", "\ud7ff", "\ue000", "\uffff"),
        *("\U00010000", "😀", "😀\0", "\U0010ffff", "'", '"', "x" * 300, "x" * 299 + "y"),
    ],
    Primitive.BYTES: [
        *(b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\0", b"\xff\xff", b"a", b"a\0"),
        *(b"\xff" * 300, b"\xff" * 299 + b"\xfe"),
    ],
    Primitive.DATE: [date.min, date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date.max],
    Primitive.TIMESTAMP_NTZ: [
        *(datetime.min, EPOCH - timedelta(microseconds=1), EPOCH, datetime(2024, 3, 31, 2, 30)),
        datetime.max,
    ],
    Primitive.FLOAT: [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, 2.0**-149, _LARGEST_FLOAT],
    Primitive.DOUBLE: [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 5e-324, 1.7e308, -1.7e308],
    Primitive.BOOLEAN: [False, True],
    Primitive.TIME: [time.min, time(0, 0, 0, 1), time(11, 59, 59), time(12), time.max],
    Primitive.DURATION: [
        *(timedelta(0), timedelta(microseconds=-1), timedelta(microseconds=1)),
        *(timedelta(days=-100_000), timedelta(days=100_000, microseconds=1)),
    ],
}
_EDGES[Primitive.TIMESTAMP] = [at.replace(tzinfo=UTC) for at in _EDGES[Primitive.TIMESTAMP_NTZ]]
EXACT_NUMBERS = [math.nan, math.inf, -math.inf, 0.0, 1.5, -2.25, 1024.0]
"""Floating-point numbers whose sum is the same in any order."""


def random_schema(pick: Random) -> Schema:
    """Return a schema of one to three row keys, up to two sort keys and up to five values."""
    names = iter(pick.sample([*"abcdefgh", "N", "n", "é x", "order", "0", "a.b"], 14))
    row_keys = [
        Field(next(names), pick.choice(KEY_KINDS)) for _ in range(pick.choice((1, 1, 2, 3)))
    ]
    sort_keys = [
        Field(next(names), pick.choice(KEY_KINDS)) for _ in range(pick.choice((0, 0, 1, 2)))
    ]
    values = [
        Field(next(names), random_type(pick), nullable=pick.random() < 0.6)
        for _ in range(pick.randrange(6))
    ]
    return Schema(row_keys=tuple(row_keys), sort_keys=tuple(sort_keys), values=tuple(values))


def random_type(pick: Random) -> FieldType:
    """Return any type that a value field may have."""
    plain = PLAIN_KINDS + DECIMALS
    match pick.randrange(5):
        case 0:
            return ListType(pick.choice(plain))
        case 1:
            return MapType(pick.choice(KEY_KINDS + DECIMALS[:2]), pick.choice(plain))
        case _:
            return pick.choice(plain)


class ValueSource:
    """Values of some types: few of each, so that rows meet, and the edges of the types.

    Args:
        pick: Where chance comes from.
        exact_numbers: Whether floating-point numbers may be added up in any order.
        small_decimals: Whether sums of decimals stay within their types.
    """

    def __init__(self, pick: Random, *, exact_numbers: bool, small_decimals: bool) -> None:
        self._pick = pick
        self._exact_numbers = exact_numbers
        self._small_decimals = small_decimals
        self._common: dict[FieldType, list[Any]] = {}

    def key(self, kind: FieldType) -> Any:
        """Return a key; every third one is of a handful."""
        common = self._common.setdefault(kind, [])
        if common and self._pick.random() < 0.35:
            return self._pick.choice(common)
        value = self.value(kind)
        if len(common) < 8:
            common.append(value)
        return value

    def value(self, kind: FieldType) -> Any:
        """Return a value of any type; a list or map of up to four."""
        pick = self._pick
        match kind:
            case ListType(element):
                return [self.value(element) for _ in range(pick.choice((0, 1, 4)))]
            case MapType(name, item):
                size = pick.choice((0, 1, 4))
                return {self.value(name): self.value(item) for _ in range(size)}
            case DecimalType(precision, scale):
                most = 10 ** (1 if self._small_decimals else precision) - 1
                digits = pick.choice((0, most, -most, pick.randint(-most, most)))
                return Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -scale))
            case Primitive.FLOAT | Primitive.DOUBLE if self._exact_numbers:
                return pick.choice(EXACT_NUMBERS)
            case _:
                assert isinstance(kind, Primitive)
                return pick.choice(_EDGES[kind]) if pick.random() < 0.5 else self._any(kind)

    def _any(self, kind: Primitive) -> Any:
        pick = self._pick
        match kind:
            case Primitive.INT:
                return pick.randint(-(2**31), 2**31 - 1)
            case Primitive.LONG:
                return pick.choice((pick.randint(-(2**63), 2**63 - 1), pick.randint(-9, 9)))
            case Primitive.STRING:
                return "".join(pick.choices("ab\0\xff\uffff😀", k=pick.randrange(6)))
            case Primitive.BYTES:
                return bytes(pick.choices((0, 1, 0x7F, 0x80, 0xFF), k=pick.randrange(6)))
            case Primitive.FLOAT:
                return struct.unpack("<f", struct.pack("<f", pick.uniform(-9, 9)))[0]
            case Primitive.DOUBLE:
                return pick.uniform(-9, 9)
            case Primitive.BOOLEAN:
                return pick.random() < 0.5
            case _:
                return self._any_time(kind)

    def _any_time(self, kind: Primitive) -> Any:
        pick = self._pick
        match kind:
            case Primitive.DATE:
                return date.fromordinal(pick.randint(1, date.max.toordinal()))
            case Primitive.TIMESTAMP | Primitive.TIMESTAMP_NTZ:
                least, most = ((at - EPOCH) // timedelta(microseconds=1) for at in _ENDS)
                at = EPOCH + timedelta(microseconds=pick.randint(least, most))
                return at.replace(tzinfo=UTC) if kind is Primitive.TIMESTAMP else at
            case Primitive.TIME:
                return (EPOCH + timedelta(microseconds=pick.randrange(86_400_000_000))).time()
            case Primitive.DURATION:
                return timedelta(microseconds=pick.randint(-(10**15), 10**15))


_ENDS = (datetime.min, datetime.max)
