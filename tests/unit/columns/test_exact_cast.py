"""Casts of Arrow arrays that change no value."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from sleeper.columns.exact_cast import castable, exact_cast

NUMBERS = pa.list_(pa.field("element", pa.int64(), nullable=False))
MAP = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
VALUES = [[4, 5], None, [6], []]


class TestLists:
    """Lists of every layout, also where a list is null over elements that are there."""

    @pytest.mark.parametrize("layout", ["list_", "large_list", "list_view", "large_list_view"])
    @pytest.mark.parametrize("start", [0, 1, 2])
    def test_of_any_layout(self, layout, start):
        """Also a part of an array; Arrow's own cast of large views ends the process."""
        given = pa.array(VALUES, getattr(pa, layout)(pa.int32())).slice(start)

        assert castable(given.type, NUMBERS)
        found = exact_cast(given, NUMBERS)

        found.validate(full=True)
        assert found.to_pylist() == VALUES[start:]

    def test_that_are_null_over_nulls(self):
        """Such elements are in no list, and are gone afterwards."""
        hidden = pa.ListArray.from_arrays(
            pa.array([0, 1, 3, 4], pa.int32()),
            pa.array([8, None, None, 9], pa.int64()),
            mask=pa.array([False, True, False]),
        )

        found = exact_cast(hidden, NUMBERS)

        assert found.to_pylist() == [[8], None, [9]]
        assert found.values.null_count == 0

    def test_of_one_length_that_are_null_over_nulls(self):
        """As tensors of other libraries are."""
        hidden = pa.FixedSizeListArray.from_arrays(
            pa.array([1, 2, None, None]), 2, mask=pa.array([False, True])
        )

        assert exact_cast(hidden, NUMBERS).to_pylist() == [[1, 2], None]

    def test_maps_that_are_null_over_nulls(self):
        """The same for the values of a map."""
        hidden = pa.MapArray.from_arrays(
            pa.array([0, 2, 3], pa.int32()),
            pa.array(["a", "b", "c"]),
            pa.array([1, None, 3]),
            mask=pa.array([True, False]),
        )

        found = exact_cast(hidden, MAP)

        assert found.to_pylist() == [None, [("c", 3)]]
        assert found.items.null_count == 0


class TestIntegersAsDecimals:
    """A decimal is wide enough if the values are, whatever their type may hold."""

    @pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint64()])
    @pytest.mark.parametrize(("digits", "scale"), [(5, 2), (3, 0), (38, 20)])
    def test_that_fit(self, kind, digits, scale):
        """Null stays null."""
        found = exact_cast(pa.array([99, None, 0], kind), pa.decimal128(digits, scale))

        assert found.to_pylist() == [Decimal(99), None, Decimal(0)]
        assert found.type == pa.decimal128(digits, scale)

    @pytest.mark.parametrize(("value", "digits", "scale"), [(1000, 5, 2), (-100, 2, 0), (1, 2, 2)])
    def test_that_do_not_fit(self, value, digits, scale):
        """A value too many is refused."""
        with pytest.raises(pa.ArrowInvalid, match="does not fit in precision"):
            exact_cast(pa.array([1, value], pa.int64()), pa.decimal128(digits, scale))

    def test_with_all_their_digits(self):
        """The largest that there are."""
        found = exact_cast(pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0))

        assert found.to_pylist() == [Decimal(2**64 - 1)]
