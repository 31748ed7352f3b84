"""Limits that may not stay are taken out of partition trees, and all else stays as it is."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.partitions import split_points_of, tree_from_split_points
from sleeper.state.plans.purged_limits import partitions_split_at, splits_at, without_limits
from sleeper.state.table_state import TableState
from sleeper.state.transactions.partitions import InitialisePartitions
from tests.unit.state.small_tables import SCHEMA

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def state_with(points):
    ids = count()
    tree = tree_from_split_points(SCHEMA, points, new_id=lambda: f"p{next(ids)}")
    partitions = InitialisePartitions(partitions=(*tree.partitions.values(),))
    return partitions.apply(TableState.empty(), NOON)


def purged(points, gone, rows):
    """The split points after some are gone, given the keys of the rows that stay."""
    state, ids = state_with(points), count(1_000)

    def is_gone(dimension, value):
        return value in gone

    def instead(region, dimension, value):
        return min((row for row in rows if row >= value and (row,) in region), default=None)

    while tops := partitions_split_at(state.tree, is_gone):
        assert splits_at(state.tree, tops[0], is_gone) >= 1
        for change in without_limits(
            state.tree, tops[0], is_gone, instead, lambda: f"n{next(ids)}"
        ):
            state = change.apply(state, NOON)
    state.tree.of(state.tree.partitions.values())  # raises if it is no tree
    return split_points_of(state.tree)


def test_a_limit_is_replaced_by_the_least_key_above_it():
    """Given rows above it, the other limits are as they were."""
    assert purged([10, 20, 30, 40], {20}, rows=[5, 22, 25, 33]) == [10, 22, 30, 40]


def test_a_limit_without_a_key_above_it_is_left_out():
    """Given no row above it, there is one leaf less."""
    assert purged([10, 20, 30], {30}, rows=[5, 12]) == [10, 20]
    assert purged([10], {10}, rows=[]) == []


def test_a_key_beyond_the_next_limit_takes_the_place_of_both():
    """Given an empty leaf above it, that leaf goes."""
    assert purged([10, 20, 30], {20}, rows=[35]) == [10, 35]


@given(
    st.sets(st.integers(1, 60), min_size=1, max_size=20),
    st.sets(st.integers(1, 60), max_size=20),
    st.sets(st.integers(0, 70), max_size=30),
)
def test_no_limit_stays_that_is_gone_and_others_are_limits_or_keys(points, gone, rows):
    """Given any limits, none is a gone one, and each is an old one or the key of a row."""
    left = purged(sorted(points), gone, sorted(rows - gone))

    assert gone.isdisjoint(left)
    assert {*left} <= points | rows
    assert {point for point in left if point in points} <= points - gone
