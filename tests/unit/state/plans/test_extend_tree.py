"""Which leaves are split before a bulk import, and where (rule BLK-10)."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InsufficientData
from sleeper.model.partitions import PartitionTree, split_points_of, tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.plans.extend_tree import extend_tree, leaves_wanted

ONE_KEY = Schema(row_keys=(Field("k", Primitive.LONG),))
TWO_KEYS = Schema(row_keys=(Field("a", Primitive.LONG), Field("b", Primitive.STRING)))


@dataclass
class Exact:
    """Every row of a leaf, as keys; `stands_for` rows of the input each."""

    rows: list[tuple]
    stands_for: int = 1

    def __post_init__(self):
        self.columns = [sorted(column) for column in zip(*self.rows, strict=True)]

    @property
    def row_count(self) -> int:
        return len(self.rows) * self.stands_for

    def quantile(self, dimension: int, fraction: float):
        """As rule SPL-4 has it."""
        ordered = self.columns[dimension]
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def singles(*values):
    """A sample of keys of one value each."""
    return Exact([(value,) for value in values])


def numbered():
    numbers = count()
    return lambda: f"p{next(numbers)}"


def tree(schema=ONE_KEY, *points):
    return tree_from_split_points(schema, points, new_id=numbered())


def samples_of(partitions, *samples):
    """Samples for the leaves of a tree, in key order; None for a leaf without rows."""
    pairs = zip(partitions.leaves(), samples, strict=True)
    return {leaf.partition_id: sample for leaf, sample in pairs if sample is not None}


def plan(partitions, samples, min_leaves, *, min_rows=1, min_percent=10, required=True):
    ids = count()
    return extend_tree(
        partitions,
        samples,
        min_leaves=min_leaves,
        min_rows=min_rows,
        min_percent=min_percent,
        new_id=lambda: f"new-{next(ids)}",
        required=required,
    )


def extended(partitions, samples, min_leaves, **more):
    """The tree with the extension in it, checked as a whole (PRT-10, PRT-11)."""
    extension = plan(partitions, samples, min_leaves, **more)
    changed = {each.partition_id: each for each in (*extension.updated, *extension.new)}
    return PartitionTree.of({**partitions.partitions, **changed}.values())


def points_after(partitions, samples, min_leaves, **more):
    """The split points of the first row key after the extension."""
    return split_points_of(extended(partitions, samples, min_leaves, **more))


def low_corners(partitions):
    """The least values of each leaf, in key order."""
    return [tuple(r.min for r in leaf.region.ranges) for leaf in partitions.leaves()]


class TestWhere:
    """The split point of a leaf (3.3, SPL-3, SPL-4)."""

    def test_a_leaf_is_cut_at_the_median_of_its_rows(self):
        """SPL-4: of 0 to 999 it is 500, which goes to the upper child (SPL-5)."""
        alone = tree()

        assert points_after(alone, samples_of(alone, singles(*range(1000))), 2) == [500]

    def test_halves_share_the_sample_with_a_window_each(self):
        """3.3: the windows (0, 1/2) and (1/2, 1) are cut at their own middles."""
        alone = tree()

        found = points_after(alone, samples_of(alone, singles(*range(1000))), 8)

        assert found == [125, 250, 375, 500, 625, 750, 875]

    @pytest.mark.parametrize("values", [(1, 1, 1, 2), (1, 2, 2, 2), (7, 7), (7,)])
    def test_the_median_must_lie_between_the_ends(self, values):
        """SPL-3: without least < median < most there is no split point."""
        alone = tree()

        with pytest.raises(InsufficientData):
            plan(alone, samples_of(alone, singles(*values)), 2)

    def test_the_ends_are_those_of_the_window(self):
        """3.3: a half whose rows share one key is not split again; the other half is."""
        alone = tree()
        sample = singles(*[5] * 500, *range(6, 506))

        assert points_after(alone, samples_of(alone, sample), 3) == [6, 256]

    def test_the_first_row_key_that_can_be_split_is(self):
        """SPL-3: dimensions are tried in schema order."""
        alone = tree(TWO_KEYS)
        sample = Exact([(n, f"{n:02}") for n in range(10)])

        assert low_corners(extended(alone, samples_of(alone, sample), 2)) == [
            (-(2**63), ""),
            (5, ""),
        ]

    def test_rows_that_share_the_first_row_key_are_split_on_the_second(self):
        """SPL-3, SPL-5: the other dimension's range is copied."""
        alone = tree(TWO_KEYS)
        sample = Exact([(7, f"{n:02}") for n in range(8)])

        grown = extended(alone, samples_of(alone, sample), 4)

        assert low_corners(grown) == [(-(2**63), b) for b in ("", "02", "04", "06")]
        assert {p.dimension for p in grown.partitions.values() if not p.is_leaf} == {1}

    def test_a_split_narrows_one_window_alone(self):
        """3.3: below a split on the first row key, the second is still looked at as a whole."""
        alone = tree(TWO_KEYS)
        sample = Exact([*zip((0, 0, 1, 1, 1, 1, 2, 2), "abcdefgh", strict=True)])

        assert low_corners(extended(alone, samples_of(alone, sample), 4)) == [
            (-(2**63), ""),
            (-(2**63), "e"),
            (1, ""),
            (1, "e"),
        ]

    def test_a_split_point_lies_inside_the_leaf(self):
        """Ours: a sample with values outside its leaf makes no tree that cannot be committed."""
        two = tree(ONE_KEY, 100)
        outside = singles(*range(500, 600))

        with pytest.raises(InsufficientData):
            plan(two, samples_of(two, outside, None), 3)


class TestWhich:
    """Which leaf is split next (3.3)."""

    def test_a_tree_with_leaves_enough_stays_as_it_is(self):
        """BLK-10: nothing is to be done, so there is nothing to commit."""
        two = tree(ONE_KEY, 100)

        extension = plan(two, {}, 2)

        assert (extension.updated, extension.new) == ((), ())

    def test_the_leaf_with_most_rows_comes_first(self):
        """3.3: 100 rows before 40, and so are their halves of 50."""
        two = tree(ONE_KEY, 100)
        samples = samples_of(two, singles(*range(100)), singles(*range(100, 140)))

        assert points_after(two, samples, 3) == [50, 100]
        assert points_after(two, samples, 5) == [25, 50, 75, 100]

    def test_of_equals_the_one_added_first_comes_first(self):
        """3.3: key order at the start, and halves after those that were there."""
        two = tree(ONE_KEY, 100)
        samples = samples_of(two, singles(*range(100)), singles(*range(100, 150)))

        assert points_after(two, samples, 4) == [50, 100, 125]

    def test_rows_of_the_input_count_and_not_those_of_the_sample(self):
        """A sampled row stands for many: the count is scaled, for order and for min.rows."""
        two = tree(ONE_KEY, 100)
        few = Exact([(n,) for n in range(100, 110)], stands_for=50)
        samples = samples_of(two, singles(*range(100)), few)

        assert points_after(two, samples, 3, min_rows=101) == [100, 105]

    def test_a_leaf_with_fewer_than_min_rows_is_not_split(self):
        """3.3: 100 rows are split, their halves of 50 are not."""
        alone = tree()
        samples = samples_of(alone, singles(*range(100)))

        assert points_after(alone, samples, 2, min_rows=100) == [50]
        assert points_after(alone, samples, 4, min_rows=50) == [25, 50, 75]
        with pytest.raises(InsufficientData) as refused:
            plan(alone, samples, 3, min_rows=51)
        assert refused.value.reached == 2

    def test_a_leaf_with_too_small_a_share_is_not_split(self):
        """3.3: of an even spread of 525 rows, a tenth is 53, rounded up."""
        two = tree(ONE_KEY, 100_000)
        few = [singles(*range(100_000, 100_000 + rows)) for rows in (52, 53)]
        many = singles(*[1] * 998)

        with pytest.raises(InsufficientData):
            plan(two, samples_of(two, many, few[0]), 3)
        assert points_after(two, samples_of(two, many, few[1]), 3) == [100_000, 100_026]

    def test_a_leaf_without_rows_is_no_candidate(self):
        """Ours: it needs no sample. It counts as a leaf, and towards an even spread."""
        three = tree(ONE_KEY, 100, 200)
        samples = samples_of(three, None, singles(*range(100, 200)), None)

        assert points_after(three, samples, 4) == [100, 150, 200]

    def test_a_heavy_first_row_key_takes_no_more_than_its_share(self):
        """
        Ours: rows are halved by every split, on whichever row key, so leaves that share one
        first row key do not stay first in the queue for ever (upstream halves a count for each).
        """
        alone = tree(TWO_KEYS)
        heavy = [(0, f"{n:04}") for n in range(500)]
        light = [(n + 1, f"{n:04}") for n in range(500)]
        samples = samples_of(alone, Exact(heavy + light))

        corners = low_corners(extended(alone, samples, 16))

        assert sum(1 for a, _ in corners if a > 0) == 8


class TestResult:
    """What is handed to the commit (STS-4)."""

    def test_leaves_of_the_tree_are_updated_and_all_below_is_new(self):
        """STS-4: the leaf keeps its id and becomes a parent; partitions in between are new."""
        alone = tree()

        extension = plan(alone, samples_of(alone, singles(*range(100))), 4)

        assert [p.partition_id for p in extension.updated] == ["root"]
        assert not extension.updated[0].is_leaf
        assert sorted(p.is_leaf for p in extension.new) == [False] * 2 + [True] * 4

    def test_too_little_data_says_how_far_it_goes(self):
        """BLK-10: how many were wanted, how many are possible, and what to do about it."""
        two = tree(ONE_KEY, 100)

        with pytest.raises(InsufficientData, match="Required 9 minimum leaf partitions") as refused:
            plan(two, samples_of(two, singles(1, 2, 3), None), 9)

        assert (refused.value.min_leaves, refused.value.reached) == (9, 3)
        assert "Unable to reach more than 3 " in str(refused.value)
        assert "sleeper.table.bulk.import.min.leaf.partitions" in str(refused.value)
        again = pickle.loads(pickle.dumps(refused.value))
        assert (str(again), again.reached) == (str(refused.value), 3)

    def test_fewer_leaves_may_do(self):
        """Where no number is required, the tree gets as many as the keys allow."""
        two = tree(ONE_KEY, 100)

        extension = plan(two, samples_of(two, singles(1, 2, 3), None), 9, required=False)

        assert sum(p.is_leaf for p in extension.new) == 2
        assert plan(tree(), {}, 2, required=False).new == ()

    def test_no_data_at_all(self):
        """BLK-10: an empty input cannot extend a tree."""
        with pytest.raises(InsufficientData, match="more than 1 "):
            plan(tree(), {}, 2)


@given(
    values=st.sets(st.integers(-(2**40), 2**40), min_size=64, max_size=300),
    leaves=st.integers(1, 32),
)
def test_leaves_cover_all_keys_in_the_number_asked_for(values, leaves):
    """
    Law: the tree is valid, has just so many leaves, and of distinct keys, sampled exactly, no
    leaf has more than twice as many rows as another and one for each rounding.
    """
    alone = tree()

    grown = extended(alone, samples_of(alone, singles(*values)), leaves)

    rows = dict.fromkeys((leaf.partition_id for leaf in grown.leaves()), 0)
    for value in values:
        rows[grown.leaf_of((value,)).partition_id] += 1
    assert len(rows) == leaves
    assert max(rows.values()) <= 2 * min(rows.values()) + 2
    if leaves in (1, 2, 4, 8, 16, 32):
        assert max(rows.values()) - min(rows.values()) <= 1


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.text("abc", max_size=2)), min_size=1),
    leaves=st.integers(2, 12),
    points=st.sets(st.integers(1, 5), max_size=3),
)
def test_any_rows_make_a_valid_tree_or_a_refusal(rows, leaves, points):
    """Law: with repeated values and two row keys too, the tree covers the key space (PRT-10)."""
    before = tree(TWO_KEYS, *sorted(points))
    by_leaf: dict[str, list] = {}
    for row in rows:
        by_leaf.setdefault(before.leaf_of(row).partition_id, []).append(row)
    samples = {name: Exact(some) for name, some in by_leaf.items()}

    reached = leaves
    try:
        grown = extended(before, samples, leaves)
    except InsufficientData as refused:
        reached = refused.reached
        grown = extended(before, samples, reached)

    assert len(list(grown.leaves())) == max(reached, len(points) + 1)
    assert reached <= leaves


@pytest.mark.parametrize(
    ("row_count", "size_bytes", "leaves"),
    [
        (0, 0, 1),
        (336_776, 40 << 20, 1),
        (1_000_000, 128 << 20, 1),
        (1_000_001, 0, 2),
        (10, (128 << 20) + 1, 2),
        (10_000_000, 2 << 30, 16),
        (300_000_000, 0, 300),
        (4_096_000_000, 0, 4096),
        (10**10, 0, 4096),
        (10**11, 0, 12_500),
        (5, 100 * 10**12, 93_133),
    ],
)
def test_the_leaves_of_an_import_follow_its_size(row_count, size_bytes, leaves):
    """A leaf for each million rows or 128 MiB, and beyond 4,096 leaves for up to eight times as much.

    A year of flights is one leaf, 300 million rows are not limited to 256.
    """
    assert leaves_wanted(row_count, size_bytes) == leaves
