"""What a user may ask, made canonical at the door."""

from __future__ import annotations

import pytest

from sleeper.errors import QueryInvalid
from sleeper.model.queries import checked_columns, exact_key, key_region, region_from_request
from sleeper.model.ranges import Range
from sleeper.model.schema import Field, Primitive, Schema

SCHEMA = Schema(
    row_keys=(Field("id", Primitive.STRING), Field("n", Primitive.LONG)),
    values=(Field("v", Primitive.STRING),),
)
SMALLEST = -(2**63)


class TestExactKeys:
    """One row key, whole or a prefix of it."""

    @pytest.mark.parametrize("key", [("a", 1), ["a", 1], {"n": 1, "id": "a"}])
    def test_a_whole_key_may_be_said_in_three_ways(self, key):
        """A tuple, a list or a mapping of field to value mean the same row key."""
        assert exact_key(SCHEMA, key) == ("a", 1)

    @pytest.mark.parametrize("key", ["a", ("a",), {"id": "a"}, {"n": 1}])
    def test_a_part_of_a_key_is_no_exact_key(self, key):
        """It is asked as a region instead."""
        assert exact_key(SCHEMA, key) is None

    def test_a_prefix_is_a_region_of_every_value_after_it(self):
        """The fields that are left out may have any value (rule PRT-4)."""
        assert key_region(SCHEMA, "a").ranges == (Range("a", "a\0"), Range(SMALLEST, None))

    @pytest.mark.parametrize(
        ("key", "says"),
        [
            (("a", 1, 2), "a row key has 2 values"),
            (("a", "1"), "integer of 64 bits"),
            ({"v": "x"}, 'Key "v" was not a row key field'),
            ((None, 1), "must be a string"),
        ],
    )
    def test_a_wrong_key_is_refused_with_what_would_be_right(self, key, says):
        """The message names the field, the value and what is wanted."""
        with pytest.raises(QueryInvalid, match=says):
            exact_key(SCHEMA, key)


class TestRegions:
    """Ranges of row key fields (rules PRT-1, INT-5)."""

    def test_two_values_are_min_inclusive_and_max_exclusive(self):
        """That is the default at both ends."""
        region = region_from_request(SCHEMA, {"n": (1, 5)})

        assert region.ranges == (Range("", None), Range(1, 5))

    def test_four_values_say_whether_each_end_belongs(self):
        """They are made canonical by the next value (rule PRT-2)."""
        region = region_from_request(
            SCHEMA, {"id": ("a", False, "b", True), "n": (1, False, 5, True)}
        )

        assert region.ranges == (Range("a\0", "b\0"), Range(2, 6))

    def test_none_is_no_limit(self):
        """At either end."""
        assert region_from_request(SCHEMA, {"id": (None, "b")}).ranges[0] == Range("", "b")
        assert region_from_request(SCHEMA, {"id": ("b", None)}).ranges[0] == Range("b", None)

    @pytest.mark.parametrize(
        ("request_", "says"),
        [
            ({"v": ("a", "b")}, "value or sort key field"),
            ({"id": ("b", "a")}, "minimum 'b' above its maximum 'a'"),
            ({"id": "a"}, r"must be \(min, max\)"),
            ({"n": ("1", 2)}, "integer of 64 bits"),
            (["id"], "a region is a mapping"),
        ],
    )
    def test_a_wrong_region_is_refused_with_what_would_be_right(self, request_, says):
        """Nothing is guessed."""
        with pytest.raises(QueryInvalid, match=says):
            region_from_request(SCHEMA, request_)


class TestColumns:
    """What an answer shows (rule QRY-6)."""

    def test_columns_come_in_the_order_asked(self):
        """Exactly those asked for, none added."""
        assert checked_columns(SCHEMA, ["v", "id"]) == ("v", "id")
        assert checked_columns(SCHEMA, None) == ("id", "n", "v")

    @pytest.mark.parametrize("columns", [["x"], [], ["id", "id"], "id"])
    def test_unknown_repeated_or_no_columns_are_refused(self, columns):
        """A typing error must not silently give another answer."""
        with pytest.raises(QueryInvalid):
            checked_columns(SCHEMA, columns)
