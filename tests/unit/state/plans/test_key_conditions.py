"""Conditions on columns as regions of row keys."""

from __future__ import annotations

import operator

from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.plans.key_conditions import (
    UNKNOWN,
    AllOf,
    AnyOf,
    Implication,
    KeyCondition,
    Negation,
    narrow,
    single_keys,
)

SCHEMA = Schema(
    row_keys=[Field("a", Primitive.STRING), Field("b", Primitive.LONG)],
    values=[Field("v", Primitive.LONG)],
)
EVERYTHING = [Region((Range("", None), Range(-(2**63), None)))]


def narrowed(*conditions):
    """The regions that some (column, operator, value) leave of everything."""
    wanted = AllOf(tuple(KeyCondition(*each) for each in conditions))
    return [*narrow(EVERYTHING, wanted, SCHEMA).regions]


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


def found_by(condition):
    """What a tree of conditions leaves of everything."""
    return narrow(EVERYTHING, condition, SCHEMA)


def test_any_of_several_conditions_reads_what_each_of_them_needs():
    """OR joins regions; one that is not on a row key needs all."""
    a, b = KeyCondition("a", "=", "x"), KeyCondition("b", "<", 0)

    found = found_by(AnyOf((a, b)))

    assert found.is_exact
    assert [*found.regions] == [
        Region((Range("x", "x\0"), Range(-(2**63), None))),
        Region((Range("", None), Range(-(2**63), 0))),
    ]
    for unknown in (UNKNOWN, KeyCondition("v", "=", 1)):
        found = found_by(AnyOf((a, unknown)))
        assert [*found.regions] == EVERYTHING
        assert not found.is_exact
        both = found_by(AllOf((a, unknown)))
        assert [*both.regions] == [Region((Range("x", "x\0"), Range(-(2**63), None)))]
        assert not both.is_exact


def test_a_negation_reads_all_other_keys():
    """NOT of comparisons, lists and prefixes, and of AND and OR of them."""
    for positive, negative in (
        (("b", "<", 5), ("b", ">=", 5)),
        (("b", "=", 5), ("b", "!=", 5)),
        (("b", "in", (5, 7)), ("b", "not in", (5, 7))),
        (("a", "prefix", "x"), ("a", "not prefix", "x")),
    ):
        assert found_by(Negation(KeyCondition(*positive))) == found_by(KeyCondition(*negative))
    within = Negation(AnyOf((KeyCondition("b", "<", 1), KeyCondition("b", ">", 2))))
    assert [*found_by(within).regions] == [Region((Range("", None), Range(1, 3)))]
    assert [each.ranges[1] for each in found_by(KeyCondition("b", "not in", (5, 6))).regions] == [
        Range(-(2**63), 5),
        Range(7, None),
    ]


def test_a_negation_of_what_is_half_known_narrows_nothing():
    """What follows from a condition does not follow from its negation; nor does a null exclude."""
    implied = Implication(KeyCondition("a", "prefix", "x"))

    assert [*found_by(implied).regions] == [Region((Range("x", "y"), Range(-(2**63), None)))]
    for condition in (
        Negation(implied),
        Negation(UNKNOWN),
        Negation(KeyCondition("v", "=", 1)),
        KeyCondition("b", "not in", (5, None)),
        Negation(AllOf((KeyCondition("b", "=", 5), UNKNOWN))),
    ):
        found = found_by(condition)
        assert [*found.regions] == EVERYTHING, condition
        assert not found.is_exact


def test_complete_keys_are_recognised():
    """Regions of one key each are its keys; a region of more keys makes them unknown."""
    both = (KeyCondition("a", "in", ("x", "y")), KeyCondition("b", "=", 7))

    assert single_keys(found_by(AllOf(both)).regions, SCHEMA) == [("x", 7), ("y", 7)]
    assert single_keys(found_by(both[1]).regions, SCHEMA) is None
    assert single_keys([], SCHEMA) == []


VALUES = st.integers(-3, 3)
LEAVES = st.one_of(
    st.builds(
        KeyCondition, st.just("b"), st.sampled_from(("=", "!=", "<", "<=", ">", ">=")), VALUES
    ),
    st.builds(
        KeyCondition, st.just("b"), st.sampled_from(("in", "not in")), st.tuples(VALUES, VALUES)
    ),
    st.builds(KeyCondition, st.just("v"), st.sampled_from(("=", "<")), VALUES),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(AllOf, st.tuples(inner, inner)),
        st.builds(AnyOf, st.tuples(inner, inner)),
        st.builds(Negation, inner),
    ),
    max_leaves=8,
)
COMPARE = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def truth(condition, row):
    """A condition of a row in the logic of SQL: True, False or None."""
    match condition:
        case AllOf(parts):
            found = [truth(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case AnyOf(parts):
            found = [truth(part, row) for part in parts]
            return True if True in found else None if None in found else False
        case Negation(part):
            found = truth(part, row)
            return None if found is None else not found
        case KeyCondition(column, word, value):
            given = row[column]
            if given is None:
                return None
            if word in ("in", "not in"):
                return (given in value) == (word == "in")
            return COMPARE[word](given, value)


@given(TREES)
def test_no_row_that_meets_a_condition_is_outside_its_regions(condition):
    """And no row inside fails it, if the regions are said to be exact."""
    found = found_by(condition)

    for b in range(-5, 6):
        for v in (None, -1, 0, 1):
            meets = truth(condition, {"b": b, "v": v}) is True
            inside = any(("x", b) in region for region in found.regions)
            assert inside or not meets
            assert meets or not inside or not found.is_exact
