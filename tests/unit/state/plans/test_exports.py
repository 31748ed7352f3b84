"""Which leaves share a part of an export."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import QueryInvalid
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.ranges import Range, whole_region
from sleeper.state.file_references import FileReferences
from sleeper.state.plans.exports import leaves_to_cut, plan_export
from sleeper.state.plans.queries import plan_leaf_queries
from sleeper.state.table_state import CommittedJobs, TableState
from tests.unit.state.small_tables import NOON, SCHEMA, ref

EVERYTHING = [whole_region(SCHEMA)]


def leaves_of(*row_counts, on_root=0):
    """A state whose leaves meet at 10, 20 and so on, with a file of so many rows in each."""
    numbers = count()
    points = range(10, 10 * len(row_counts), 10)
    tree = tree_from_split_points(SCHEMA, [*points], new_id=lambda: f"p{next(numbers)}")
    added = [
        ref(f"{place}.parquet", leaf.partition_id, rows)
        for place, (leaf, rows) in enumerate(zip(tree.leaves(), row_counts, strict=True))
        if rows
    ]
    added += [ref("root.parquet", tree.root_id, on_root)] if on_root else []
    return TableState(
        7, tree, FileReferences.empty().changed(added=added, at=NOON), CommittedJobs()
    )


def shared(plan):
    """The leaves' files of each part."""
    return [
        "+".join(name for group in part.groups for leaf in group for name in leaf.filenames)
        for part in plan.parts
    ]


def test_a_large_leaf_has_a_part_of_its_own():
    """Neighbours are put together until they have rows enough; no leaf is divided."""
    plan = plan_export(leaves_of(60, 300, 40, 50, 20), SCHEMA, EVERYTHING, part_rows=100)

    assert shared(plan) == ["0.parquet+1.parquet", "2.parquet+3.parquet+4.parquet"]
    assert [part.name for part in plan.parts] == ["part-00000.parquet", "part-00001.parquet"]
    assert (plan.transaction, plan.columns) == (7, ("n",))


def test_a_leaf_with_cuts_has_a_part_for_each_of_its_ranges():
    """Neighbours before it end their part, and those behind begin another: the order stays."""
    state = leaves_of(5, 300, 5)
    (large,) = leaves_to_cut(state, EVERYTHING, cut_rows=90)
    cuts = {large.leaf.partition_id: [13, 17]}

    plan = plan_export(state, SCHEMA, EVERYTHING, part_rows=100, cuts=cuts)
    asked = [whole_region(SCHEMA).with_range(0, Range(14, 25))]
    narrow = plan_export(state, SCHEMA, asked, part_rows=100, cuts=cuts)

    assert (large.leaf.region.ranges[0], large.parts) == (Range(10, 20), 3)
    assert ranges_of(plan)[1:4] == [[(10, 13)], [(13, 17)], [(17, 20)]]
    assert (len(plan.parts), len(shared(plan))) == (5, 5)
    assert ranges_of(narrow) == [[(14, 17)], [(17, 20)], [(20, 25)]]


def ranges_of(plan):
    """The ranges of the first row key that each part reads."""
    return [
        [
            (region.ranges[0].min, region.ranges[0].max)
            for group in part.groups
            for leaf in group
            for region in leaf.regions
        ]
        for part in plan.parts
    ]


def test_a_leaf_of_less_than_two_parts_is_not_cut():
    """So no part is much smaller than the others."""
    state = leaves_of(179, 180, 0)

    found = [*leaves_to_cut(state, EVERYTHING, cut_rows=90)]

    assert [(each.leaf.region.ranges[0].min, each.parts) for each in found] == [(10, 2)]


def test_rows_of_an_ancestor_are_guessed_by_halves():
    """A file on the root counts for each leaf with the share that it likely has there."""
    alone = plan_export(leaves_of(1, 1, 1, 1, on_root=400), SCHEMA, EVERYTHING, part_rows=100)
    together = plan_export(leaves_of(1, 1, 1, 1, on_root=200), SCHEMA, EVERYTHING, part_rows=100)

    assert (len(alone.parts), len(together.parts)) == (4, 2)


def test_without_rows_there_is_one_part_without_leaves():
    """So whoever reads the export finds the columns."""
    plan = plan_export(leaves_of(0, 0), SCHEMA, EVERYTHING)

    assert [(part.name, part.groups) for part in plan.parts] == [("part-00000.parquet", ())]


def test_names_sort_in_key_order_however_many_there_are():
    """They have five digits, or as many as the last of them needs."""
    plan = plan_export(leaves_of(*[1] * 12), SCHEMA, EVERYTHING, part_rows=1)

    names = [part.name for part in plan.parts]
    assert names == sorted(names)
    assert len(names) == 12


def test_columns_are_checked():
    """A plan is for columns that there are."""
    with pytest.raises(QueryInvalid, match="no column 'm'"):
        plan_export(leaves_of(1), SCHEMA, EVERYTHING, columns=["m"])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 100))
def test_parts_are_the_query_cut_in_pieces(row_counts, part_rows):
    """Every leaf that a query would read is in one part, in the same order; all but the last are
    full."""
    state = leaves_of(*row_counts)

    plan = plan_export(state, SCHEMA, EVERYTHING, part_rows=part_rows)

    groups = [group for part in plan.parts for group in part.groups]
    assert groups == plan_leaf_queries(state, EVERYTHING)
    rows = [
        sum(
            row_counts[int(name.removesuffix(".parquet"))]
            for group in part.groups
            for leaf in group
            for name in leaf.filenames
        )
        for part in plan.parts
    ]
    assert all(full >= part_rows for full in rows[:-1])
