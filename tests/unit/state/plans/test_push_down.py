"""References of split partitions go down to the leaves (rules FRF-4, CMP-2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.model.files import FileReference
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.plans.push_down import plan_push_down
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles, SplitFileReferences
from sleeper.state.transactions.partitions import InitialisePartitions

SCHEMA = Schema(row_keys=(Field("k", Primitive.LONG),))
AT = datetime(2026, 6, 1, tzinfo=UTC)


class Exact:
    """A file's keys, all of them."""

    is_exact = True

    def __init__(self, keys):
        self.keys = list(keys)

    def rank(self, dimension, value):
        return sum(key < value for key in self.keys) / len(self.keys)


def table(points, *row_counts):
    """A tree with files f0, f1, ... on its root."""
    ids = map("p{}".format, count())
    tree = tree_from_split_points(SCHEMA, points, new_id=lambda: next(ids))
    partitions = tuple(tree.partitions.values())
    state = InitialisePartitions(partitions=partitions).apply(TableState.empty(), AT)
    references = tuple(
        FileReference(filename=f"f{number}", partition_id=tree.root_id, row_count=rows)
        for number, rows in enumerate(row_counts)
    )
    return AddFiles(references=references).apply(state, AT)


def pushed(state, ranks_of=lambda name: None, references_max=1000):
    plan = plan_push_down(state, ranks_of, references_max=references_max)
    return SplitFileReferences(pushes=plan.pushes).apply(state, AT), plan


def counts(state):
    """Rows of each leaf, in key order."""
    return [
        sum(ref.row_count for ref in state.files.references_on(leaf.partition_id))
        for leaf in state.leaf_partitions()
    ]


def test_one_run_goes_all_the_way_to_the_leaves():
    """Upstream takes a run for each level; here no reference is above a leaf afterwards."""
    after, plan = pushed(table(range(1, 8), 800))

    assert counts(after) == [100] * 8
    assert {ref.partition_id for ref in after.references()} == {
        leaf.partition_id for leaf in after.leaf_partitions()
    }
    assert not plan.more


def test_counts_are_estimated_from_the_sketch():
    """Each leaf gets its share of the file's keys."""
    state = table([10, 20, 30], 100)
    estimate = Exact([5] * 10 + [15] * 60 + [35] * 30)
    estimate.is_exact = False

    after, _ = pushed(state, lambda name: estimate)

    assert counts(after) == [10, 60, 0, 30]
    assert all(ref.row_count_estimated and not ref.whole_file for ref in after.references())


@given(rows=st.integers(0, 1000), points=st.sets(st.integers(1, 50), max_size=9))
def test_what_the_leaves_get_adds_up(rows, points):
    """No row is lost to rounding, as one is upstream for odd counts."""
    after, _ = pushed(table(sorted(points), rows), lambda name: Exact(range(0, 60, 7)))

    assert sum(counts(after)) == rows


def test_claimed_references_stay():
    """FRF-4: a job is about to replace them."""
    state = table([10], 5, 7)
    claim = Claim(job_id="job", partition_id=state.tree.root_id, filenames=("f0",))
    state = ClaimFiles(assignments=(claim,)).apply(state, AT)

    after, _ = pushed(state)

    assert [ref.filename for ref in after.files.references_on(state.tree.root_id)] == ["f0"]
    assert sum(counts(after)) == 7


@pytest.mark.parametrize(("most", "moved"), [(1, 1), (2, 1), (3, 2), (100, 3)])
def test_one_transaction_takes_so_many(most, moved):
    """The rest waits for the next run, and the plan says so."""
    _, plan = pushed(table([10], 1, 1, 1), references_max=most)

    assert len(plan.pushes) == moved
    assert plan.more == (moved < 3)


def test_leaves_have_nothing_to_push():
    """A table that was never split is left alone."""
    assert plan_push_down(table([], 5), lambda name: None, references_max=9).pushes == ()


class TestLeavesWithoutRows:
    """A leaf in which a file has no row gets no reference to it."""

    def test_an_exact_sketch_tells(self):
        """Two of four leaves have rows; the counts add up."""
        state, _ = pushed(table([10, 20, 30], 4), lambda name: Exact([1, 2, 25, 26]))

        assert [
            [ref.row_count for ref in state.files.references_on(leaf.partition_id)]
            for leaf in state.leaf_partitions()
        ] == [[2], [], [2], []]

    def test_an_exact_sketch_counts(self):
        """FRF-4: with one row key, counts that come from all keys are no estimates."""
        state, _ = pushed(table([10, 20, 30], 7), lambda _: Exact([1, 2, 3, 15, 25, 26, 39]))

        references = state.references()
        assert counts(state) == [3, 1, 2, 1]
        assert not any(reference.row_count_estimated for reference in references)

    def test_a_count_that_was_an_estimate_stays_one(self):
        """All keys of a file do not tell how many of its rows the reference selects."""
        state = table([10, 20, 30], 7)
        (reference,) = state.references()
        guessed = replace(reference, row_count_estimated=True)
        files = state.files.changed(added=[guessed], at=AT)

        state, _ = pushed(replace(state, files=files), lambda _: Exact([1, 2, 3, 15, 25, 26, 39]))

        assert all(reference.row_count_estimated for reference in state.references())

    def test_first_and_last_key_tell(self):
        """Where the sketch is an estimate, or there is none."""
        state = table([10, 20, 30], 4)
        (reference,) = state.references()
        keys = replace(reference, schema_id=1, first_key="[12]", last_key="[29]", updated=None)
        files = state.files.changed(added=[keys], at=AT)

        state, _ = pushed(replace(state, files=files, schemas={1: SCHEMA}))

        assert counts(state) == [0, 2, 2, 0]
        assert state.files.reference_count == 2

    def test_a_file_whose_rows_all_lie_in_one_leaf_stays_whole(self):
        """With its exact count: readers need not select rows, and nothing is estimated."""
        state, _ = pushed(table([10, 20, 30], 4), lambda name: Exact([11, 12, 15, 16]))

        (reference,) = state.references()
        assert (reference.row_count, reference.whole_file) == (4, True)
        assert not reference.row_count_estimated

    def test_a_sketch_that_is_an_estimate_does_not_tell(self):
        """A row that it left out would be lost."""
        estimate = Exact([1, 2, 25, 26])
        estimate.is_exact = False

        state, _ = pushed(table([10, 20, 30], 4), lambda name: estimate)

        assert state.files.reference_count == 4

    @given(st.lists(st.integers(0, 39), min_size=1, max_size=12), st.booleans())
    def test_no_row_is_without_a_reference(self, keys, exact):
        """Every key lies in a leaf that references the file."""
        state = table([10, 20, 30], len(keys))
        (reference,) = state.references()
        about = replace(
            reference,
            schema_id=1,
            first_key=f"[{min(keys)}]",
            last_key=f"[{max(keys)}]",
            updated=None,
        )
        state = replace(state, files=state.files.changed(added=[about], at=AT), schemas={1: SCHEMA})

        state, _ = pushed(state, lambda name: Exact(keys) if exact else None)

        for key in keys:
            assert state.files.references_on(state.tree.leaf_of((key,)).partition_id)
        assert sum(counts(state)) == len(keys)
