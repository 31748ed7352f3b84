"""Ranges and regions: canonical form, overlap, what is inside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import QueryInvalid
from sleeper.model.ranges import (
    Range,
    Region,
    canonical_range,
    exact_range,
    region_of,
    split_range,
    whole_region,
)
from sleeper.model.schema import Field, Primitive, Schema

N = Field("n", Primitive.LONG)
S = Field("s", Primitive.STRING)
SMALL = Field("i", Primitive.INT)
TWO = Schema(row_keys=[N, S])
INT_MAX = 2**31 - 1

small = st.integers(-5, 5)
limits = st.none() | small
near_the_end = st.integers(INT_MAX - 5, INT_MAX)
ranges = st.tuples(small, limits).map(lambda ends: Range(*ends))
words = st.text("ab\0", max_size=3)


class TestCanonicalRange:
    """Whatever a user says becomes `[min, max)`."""

    def test_takes_min_and_leaves_max_by_default(self):
        """Min inclusive, max exclusive (PRT-1)."""
        assert canonical_range(N, 1, 5) == Range(1, 5)

    def test_none_is_no_limit(self):
        """Below, the type's least value; above, none (PRT-1, SCH-7)."""
        assert canonical_range(S) == Range("", None)
        assert canonical_range(N, max_inclusive=True) == Range(-(2**63), None)

    @given(low=small, high=small, value=small, low_in=st.booleans(), high_in=st.booleans())
    def test_holds_exactly_what_was_said(self, low, high, value, low_in, high_in):
        """Each end belongs to the range or not, as asked (PRT-1, PRT-2)."""
        low, high = sorted((low, high))
        said = (low <= value if low_in else low < value) and (
            value <= high if high_in else value < high
        )

        canonical = canonical_range(N, low, high, min_inclusive=low_in, max_inclusive=high_in)

        assert (value in canonical) == said
        assert canonical.min <= canonical.max

    @given(low=words, high=words, value=words, low_in=st.booleans(), high_in=st.booleans())
    def test_strings_too(self, low, high, value, low_in, high_in):
        """The next string is the string and a zero (PRT-2)."""
        low, high = sorted((low, high))
        said = (low <= value if low_in else low < value) and (
            value <= high if high_in else value < high
        )

        canonical = canonical_range(S, low, high, min_inclusive=low_in, max_inclusive=high_in)

        assert (value in canonical) == said

    @given(low=near_the_end, value=near_the_end, low_in=st.booleans())
    def test_the_largest_value_can_be_the_end(self, low, value, low_in):
        """Up to and with it is without limit; above it is nothing (PRT-2)."""
        canonical = canonical_range(SMALL, low, INT_MAX, min_inclusive=low_in, max_inclusive=True)

        assert (value in canonical) == (low <= value if low_in else low < value)

    def test_min_above_max_is_refused(self):
        """With the field and both limits (PRT-1)."""
        with pytest.raises(QueryInvalid, match=r"'n' has its minimum 6 above its maximum 5"):
            canonical_range(N, 6, 5)

    def test_a_limit_of_another_type_is_refused(self):
        """With the field's name."""
        with pytest.raises(QueryInvalid, match="'n'"):
            canonical_range(N, "a", 5)

    @given(small)
    def test_an_exact_range_holds_one_value(self, value):
        """A look-up by key is a range too."""
        only = exact_range(N, value)

        assert [each for each in range(-10, 10) if each in only] == [value]


class TestOverlap:
    """Two ranges overlap when a value can be in both."""

    def test_is_decided_on_canonical_ranges(self):
        """No integer lies between 4 and 5, but many strings do (PRT-3)."""
        ints = [
            canonical_range(N, low, high, min_inclusive=False) for low, high in ((1, 5), (4, 6))
        ]
        texts = [
            canonical_range(S, low, high, min_inclusive=False)
            for low, high in (("1", "5"), ("4", "6"))
        ]

        assert ints[0].intersection(ints[1]) is None
        assert texts[0].intersection(texts[1]) == Range("4\0", "5")

    @given(ranges, ranges, small)
    def test_the_intersection_holds_what_both_hold(self, a, b, value):
        """None stands for nothing at all (PRT-3)."""
        both = a.intersection(b)

        assert (both is not None and value in both) == (value in a and value in b)
        assert both == b.intersection(a)

    @given(ranges)
    def test_an_empty_range_overlaps_nothing(self, other):
        """Not even itself."""
        empty = Range(3, 3)

        assert empty.is_empty
        assert empty.intersection(other) is None
        assert empty.intersection(empty) is None


class TestSplitRange:
    """A range cut in two."""

    @given(ranges, small, small)
    def test_loses_no_key_and_doubles_none(self, whole, at, value):
        """The split point itself belongs to the right half (SPL-5)."""
        if at not in whole or at == whole.min:
            with pytest.raises(QueryInvalid, match=f"split point {at} must lie inside"):
                split_range(whole, at)
            return

        left, right = split_range(whole, at)

        assert (value in left) + (value in right) == (value in whole)
        assert at in right


class TestRegion:
    """One range per row key field."""

    def test_a_field_left_out_may_have_any_value(self):
        """Only the ranges given count (PRT-4)."""
        region = region_of(TWO, {"s": Range("a", "b")})

        assert (-(2**63), "a") in region
        assert (2**63 - 1, "ab") in region
        assert (0, "b") not in region

    def test_the_whole_holds_every_key(self):
        """From the least values up, without limit (PRT-6)."""
        assert whole_region(TWO) == Region((Range(-(2**63), None), Range("", None)))

    def test_other_fields_are_refused(self):
        """With upstream's words, and the names that may be used (rule QRY-8)."""
        with pytest.raises(QueryInvalid, match=r'Key "x" was not a row key field.*n, s'):
            region_of(TWO, {"x": Range(1, 2)})

    def test_a_key_has_one_value_for_each_row_key(self):
        """Neither fewer nor more (PRT-8)."""
        with pytest.raises(QueryInvalid, match="needs 2 values, not 1"):
            assert (1,) in whole_region(TWO)

    @given(st.lists(st.tuples(ranges, ranges), min_size=2, max_size=2), small, small)
    def test_regions_overlap_in_every_dimension_or_not_at_all(self, sides, x, y):
        """A key is in the intersection when it is in both (PRT-4)."""
        a, b = (Region(side) for side in sides)

        both = a.intersection(b)

        assert a.overlaps(b) == (both is not None)
        assert (both is not None and (x, y) in both) == ((x, y) in a and (x, y) in b)

    def test_one_dimension_can_be_replaced(self):
        """The others stay."""
        region = whole_region(TWO).with_range(1, Range("a", "b"))

        assert region.ranges == (Range(-(2**63), None), Range("a", "b"))
