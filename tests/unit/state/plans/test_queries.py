"""Which leaves answer a question, and from which files."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.files import FileReference
from sleeper.model.partitions import PartitionTree, split_partition, tree_from_split_points
from sleeper.model.queries import key_region, region_from_request
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.file_references import FileReferences
from sleeper.state.plans import queries
from sleeper.state.plans.queries import plan_leaf_queries, plan_lookup, plan_lookups
from sleeper.state.table_state import CommittedJobs, TableState
from tests.unit.model.grown_trees import split_tree

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ONE_KEY = Schema(row_keys=(Field("k", Primitive.LONG),))
TWO_KEYS = Schema(row_keys=(Field("a", Primitive.LONG), Field("b", Primitive.STRING)))


def numbered() -> object:
    numbers = count()
    return lambda: f"p{next(numbers)}"


def tree(schema: Schema, *points: int) -> PartitionTree:
    return tree_from_split_points(schema, points, new_id=numbered())


def state(partitions: PartitionTree, *references: tuple[str, str]) -> TableState:
    added = [
        FileReference(filename=name, partition_id=partition_id, row_count=1)
        for name, partition_id in references
    ]
    files = FileReferences.empty().changed(added=added, at=NOON)
    return TableState(1, partitions, files, CommittedJobs())


class TestLeafQueries:
    """Planning the read of regions (rule QRY-1)."""

    def test_a_leaf_is_answered_from_its_own_files_and_its_ancestors(self):
        """Files on the root may hold rows of every leaf, so each leaf reads them too (PRT-13)."""
        partitions = tree(ONE_KEY, 10)
        low, high = partitions.leaves()
        table = state(partitions, ("low", low.partition_id), ("all", partitions.root_id))

        plan = plan_leaf_queries(table, [region_from_request(ONE_KEY, {})])

        assert [[query.leaf_id for query in group] for group in plan] == [
            [low.partition_id],
            [high.partition_id],
        ]
        assert [query.filenames for group in plan for query in group] == [("low", "all"), ("all",)]
        names = [each.filename for each in table.references_of(low.partition_id)]
        assert names == ["low", "all"]

    def test_what_is_asked_is_cut_to_the_leaf(self):
        """A file of an ancestor is read for the leaf's own keys only, or rows would come twice."""
        partitions = tree(ONE_KEY, 10)
        table = state(partitions, ("all", partitions.root_id))

        plan = plan_leaf_queries(table, [region_from_request(ONE_KEY, {"k": (5, 15)})])

        ranges = [query.regions[0].ranges[0] for group in plan for query in group]
        assert [(r.min, r.max) for r in ranges] == [(5, 10), (10, 15)]

    def test_leaves_without_files_or_without_asked_keys_are_left_out(self):
        """A leaf costs nothing when it cannot answer."""
        partitions = tree(ONE_KEY, 10, 20)
        leaves = list(partitions.leaves())
        table = state(
            partitions, ("first", leaves[0].partition_id), ("last", leaves[2].partition_id)
        )

        plan = plan_leaf_queries(table, [region_from_request(ONE_KEY, {"k": (5, 15)})])

        assert [query.filenames for group in plan for query in group] == [("first",)]

    def test_leaves_that_were_split_on_a_later_key_are_read_together(self):
        """Their rows interleave in key order, so they make one group to be merged."""
        partitions = tree(TWO_KEYS, 10)
        low, high = partitions.leaves()
        parent, *children = split_partition(high, "m", dimension=1, new_id=lambda: f"c{next(ids)}")
        partitions = split_tree(partitions, parent, children)
        table = state(
            partitions,
            ("low", low.partition_id),
            ("upper", children[1].partition_id),
            ("lower", children[0].partition_id),
        )

        plan = plan_leaf_queries(table, [region_from_request(TWO_KEYS, {})])

        names = [[query.filenames for query in group] for group in plan]
        assert names == [[("low",)], [("lower",), ("upper",)]]

    def test_leaves_are_planned_as_they_are_asked_for(self, monkeypatch):
        """Given 1,000 leaves, when two groups are taken, then no third is planned; all are equal to
        a plan of everything.
        """
        partitions = tree(ONE_KEY, *range(1, 1_000))
        table = state(
            partitions,
            *((f"f{n}", leaf.partition_id) for n, leaf in enumerate(partitions.leaves())),
        )
        everything = [region_from_request(ONE_KEY, {})]
        planned = []
        plan_one = queries._leaf_query
        monkeypatch.setattr(queries, "_leaf_query", lambda *a: planned.append(a) or plan_one(*a))

        found = [*islice(queries.leaf_queries(table, everything), 2)]

        assert len(planned) == 2
        assert found == plan_leaf_queries(table, everything)[:2]


ids = count()


class TestLookups:
    """Planning the look-up of exact keys."""

    def test_one_key_goes_to_its_leaf(self):
        """The split point belongs to the leaf above it."""
        partitions = tree(ONE_KEY, 10)
        low, high = partitions.leaves()
        table = state(partitions, ("low", low.partition_id), ("high", high.partition_id))

        assert plan_lookup(table, (9,)).filenames == ("low",)
        assert plan_lookup(table, (10,)).filenames == ("high",)

    @given(
        keys=st.sets(st.integers(-50, 50), max_size=30),
        points=st.sets(st.integers(-40, 40), max_size=8),
    )
    def test_each_key_is_asked_of_the_one_leaf_it_belongs_to(self, keys, points):
        """Cut into slices or picked one by one, no key is lost, doubled or misplaced."""
        partitions = tree(ONE_KEY, *sorted(points))
        leaves = list(partitions.leaves())
        table = state(partitions, *((leaf.partition_id, leaf.partition_id) for leaf in leaves))
        ordered = [(key,) for key in sorted(keys)]

        plan = plan_lookups(table, ordered)

        asked = [
            (key, lookup.leaf_id)
            for group in plan
            for lookup in group
            for key in ordered[lookup.key_indices]
        ]
        assert asked == [(key, partitions.leaf_of(key).partition_id) for key in ordered]

    @given(
        keys=st.sets(st.integers(-50, 50), max_size=30),
        points=st.sets(st.integers(-40, 40), max_size=8),
        own=st.sets(st.integers(0, 8)),
        together=st.integers(1, 30),
    )
    def test_neighbours_with_the_same_files_are_one_look_up(self, keys, points, own, together):
        """Given leaves that share a file, some with one more, then each key is asked of its files."""
        partitions = tree(ONE_KEY, *sorted(points))
        leaves = list(partitions.leaves())
        with_own = [leaf.partition_id for number, leaf in enumerate(leaves) if number in own]
        table = state(
            partitions,
            *(("shared", leaf.partition_id) for leaf in leaves),
            *((f"of {leaf_id}", leaf_id) for leaf_id in with_own),
        )
        ordered = [(key,) for key in sorted(keys)]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queries, "KEYS_TOGETHER", together)
            plan = [lookup for group in plan_lookups(table, ordered) for lookup in group]

        asked = [(key, lookup.filenames) for lookup in plan for key in ordered[lookup.key_indices]]
        assert asked == [(key, plan_lookup(table, key).filenames) for key in ordered]
        for one, other in pairwise(plan):
            count = other.key_indices.stop - one.key_indices.start
            assert one.filenames != other.filenames or count > together

    @given(st.sets(st.tuples(st.integers(0, 20), st.sampled_from("amz")), max_size=30))
    def test_keys_of_leaves_that_interleave_are_picked_one_by_one(self, keys):
        """Where a leaf was split on the second key, its keys are not neighbours in order."""
        partitions = tree(TWO_KEYS, 10)
        for leaf in list(partitions.leaves()):
            parent, *children = split_partition(
                leaf, "m", dimension=1, new_id=lambda: f"s{next(ids)}"
            )
            partitions = split_tree(partitions, parent, children)
        leaves = list(partitions.leaves())
        table = state(partitions, *((leaf.partition_id, leaf.partition_id) for leaf in leaves))
        ordered = sorted(keys)

        plan = plan_lookups(table, ordered)

        asked = {
            (ordered[place], lookup.leaf_id)
            for group in plan
            for lookup in group
            for place in lookup.key_indices
        }
        assert asked == {(key, partitions.leaf_of(key).partition_id) for key in ordered}


class TestPrefixes:
    """A part of a composite key is a region."""

    def test_a_prefix_reads_only_the_leaves_it_can_lie_in(self):
        """Rows of a=5 lie in the leaf that holds 5, whatever their second key."""
        partitions = tree(TWO_KEYS, 10)
        low, high = partitions.leaves()
        table = state(partitions, ("low", low.partition_id), ("high", high.partition_id))

        plan = plan_leaf_queries(table, [key_region(TWO_KEYS, 5)])

        assert [query.filenames for group in plan for query in group] == [("low",)]
