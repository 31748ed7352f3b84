"""Zeros lose their sign and NaN its bits, in arrays of any shape."""

from __future__ import annotations

import math
import struct

import pyarrow as pa
import pytest

from sleeper.engine.sql.comparable_floats import comparable

SIGNED_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
NUMBERS = [-0.0, SIGNED_NAN, None, 0.0, math.inf, -math.inf, 5e-324, -1.5]
WANTED = [0.0, math.nan, None, 0.0, math.inf, -math.inf, 5e-324, -1.5]
LISTS = [[-0.0, SIGNED_NAN], None, [], [1.5, -0.0, None], [SIGNED_NAN], None]


def bits(value):
    """Numbers as their bits, in lists and maps."""
    match value:
        case float():
            return struct.pack("<d", value)
        case list() | tuple():
            return [bits(each) for each in value]
        case _:
            return value


def plain(value):
    """The value that is wanted."""
    match value:
        case float():
            return math.nan if math.isnan(value) else value + 0.0
        case list():
            return [plain(each) for each in value]
        case tuple():
            return value[0], plain(value[1])
        case _:
            return value


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_numbers_have_one_zero_and_one_nan(kind):
    """Nulls, infinities and the smallest number stay."""
    given = pa.array(NUMBERS, kind)

    found = comparable(given)

    assert found.type == kind
    assert bits(found.to_pylist()) == bits(pa.array(WANTED, kind).to_pylist())


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.field("element", pa.float64())),
        pa.map_(pa.int32(), pa.field("value", pa.float32(), True)),
        pa.list_(pa.list_(pa.float64())),
    ],
)
@pytest.mark.parametrize("start", [0, 1, 3, 5, 6])
@pytest.mark.parametrize("count", [0, 1, 2, 6])
def test_numbers_in_slices_of_lists_and_maps_are_changed_too(kind, start, count):
    """The type, empty values and nulls stay."""
    values = LISTS
    if pa.types.is_map(kind):
        values = [row and [*enumerate(row)] for row in LISTS]
    elif pa.types.is_list(kind.value_type):
        values = [row and [row, None, row] for row in LISTS]
    given = pa.array(values, kind).slice(start, count)

    found = comparable(given)

    found.validate(full=True)
    assert found.type == kind
    assert bits(found.to_pylist()) == bits(plain(given.to_pylist()))


@pytest.mark.parametrize(
    "given", [pa.array([1, None]), pa.array(["-0.0"]), pa.array([[1], None]), pa.array([None])]
)
def test_arrays_without_such_numbers_are_returned_as_they_are(given):
    """They are not copied."""
    assert comparable(given) is given
