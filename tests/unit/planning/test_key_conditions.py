"""Conditions on columns as regions of row keys."""

from __future__ import annotations

from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.planning.key_conditions import KeyCondition, narrowed_regions

SCHEMA = Schema(
    row_keys=[Field("a", Primitive.STRING), Field("b", Primitive.LONG)],
    values=[Field("v", Primitive.LONG)],
)
EVERYTHING = [Region((Range("", None), Range(-(2**63), None)))]


def narrowed(*conditions):
    """The regions that some (column, operator, value) leave of everything."""
    return narrowed_regions(EVERYTHING, [KeyCondition(*each) for each in conditions], SCHEMA)


def test_conditions_on_one_field_are_intersected():
    """Several INs, and limits on either side, leave what all of them let through."""
    found = narrowed(
        ("b", "in", (1, 5, 7, None)), ("b", "in", (5, 7, 9)), ("b", "<", 7), ("a", "=", "x")
    )

    assert found == [Region((Range("x", "x\0"), Range(5, 6)))]


def test_limits_say_whether_they_belong():
    """Greater and less, with and without the limit itself, are half-open ranges."""
    assert narrowed(("a", ">", "c"), ("a", "<=", "d"), ("b", ">=", 3)) == [
        Region((Range("c\0", "d\0"), Range(3, None)))
    ]
    assert narrowed(("a", "=", "c"), ("a", "=", "d")) == []


def test_what_is_no_condition_on_a_row_key_changes_nothing():
    """Values, unknown columns, nulls and constants of another type narrow nothing."""
    for other in (("v", "=", 1), ("x", "=", 1), ("a", "=", None), ("b", "=", "text")):
        assert narrowed(other) == EVERYTHING


def test_too_many_regions_are_not_made():
    """Long lists on two fields would multiply: the second one narrows nothing."""
    many = range(200)

    assert len(narrowed(("a", "in", map(str, many)), ("b", "in", many))) == 200
