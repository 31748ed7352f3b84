"""Every transaction about partitions: what it does, and what refuses it (rules STS-1 to STS-4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sleeper.errors import InitialiseWithFilesPresent, PartitionSplitRefused, SplitInvalid
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.ranges import Range
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.partitions import (
    ExtendPartitionTree,
    InitialisePartitions,
    SplitPartition,
)
from tests.unit.state.small_tables import (
    NOON,
    ROOT,
    SCHEMA,
    after,
    filenames_by_partition,
    one_partition,
    ref,
    split,
    two_leaves,
)


def leaf_ids(table):
    return [leaf.partition_id for leaf in table.leaf_partitions()]


def grown_from_root(*split_points):
    """The extension that takes `root` to a tree with these split points; ids p0, p1, ..."""
    ids = iter(range(10**9))
    tree = tree_from_split_points(SCHEMA, split_points, new_id=lambda: f"p{next(ids)}")
    root = replace(tree.root, partition_id="root")
    below = (each for each in tree.partitions.values() if each.parent_id is not None)
    return ExtendPartitionTree(
        updated=(root,),
        new=tuple(
            replace(each, parent_id="root") if each.parent_id == tree.root_id else each
            for each in below
        ),
    )


class TestInitialisePartitions:
    """Giving a table its partitions (rule STS-1)."""

    def test_replaces_whatever_tree_there_was(self):
        """A table without files can start again with another tree."""
        assert leaf_ids(after(two_leaves(), InitialisePartitions(partitions=(ROOT,)))) == ["root"]

    def test_clears_partitions_when_there_are_none(self):
        """STS-2: an empty list leaves the table without partitions."""
        cleared = after(two_leaves(), InitialisePartitions(partitions=()))

        assert cleared.partitions is None

    @pytest.mark.parametrize("files", [{"references": (ref("a"),)}, {"unreferenced": ("a",)}])
    def test_refuses_while_files_are_tracked(self, files):
        """Referenced or waiting for collection: their partitions must not vanish."""
        table = after(one_partition(), AddFiles(**files))

        with pytest.raises(InitialiseWithFilesPresent, match="1 files"):
            after(table, InitialisePartitions(partitions=(ROOT,)))

    def test_cannot_be_made_of_what_is_no_tree(self):
        """PRT-10 is checked when the value is made."""
        with pytest.raises(SplitInvalid):
            InitialisePartitions(partitions=(replace(ROOT, child_ids=("L", "R"), dimension=0),))


class TestSplitPartition:
    """Splitting a leaf (rule STS-3)."""

    def test_makes_a_leaf_a_parent_of_two_leaves(self):
        """Its files stay where they are (SPL-8)."""
        table = after(one_partition(), AddFiles(references=(ref("a"),)))

        table = after(table, split(ROOT, 50, "L", "R"))

        assert leaf_ids(table) == ["L", "R"]
        assert filenames_by_partition(table) == {"root": ("a",)}

    def test_refuses_a_partition_that_was_split_before(self):
        """SPL-6: the second of two that split one leaf at once is refused."""
        with pytest.raises(PartitionSplitRefused, match=r"Parent should be a leaf.* L and R"):
            after(two_leaves(), split(ROOT, 40, "A", "B"))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda t: replace(t, parent=replace(t.parent, partition_id="x")), "Parent partition not found: x"),
            (lambda t: replace(t, parent=ROOT), "Parent should not be a leaf partition after split"),
            (lambda t: _with_child(t, partition_id="root"), "Child partition should not be present: root"),
            (lambda t: _with_child(t, parent_id="x"), "Parent ID does not match on child: L"),
            (lambda t: _with_child(t, child_ids=("M", "N")), "Child should be a leaf partition: L"),
            (lambda t: replace(t, children=t.children[::-1]), "Failed to validate partition split"),
            (lambda t: _with_range(t, Range(-5, 50)), "Failed to validate partition split"),
            (lambda t: replace(t, parent=replace(t.parent, parent_id="x")), "Failed to validate"),
        ],
    )  # fmt: skip
    def test_refuses_a_split_that_does_not_fit(self, change, message):
        """Each rule of STS-3, with the partition at fault in the message."""
        with pytest.raises(PartitionSplitRefused, match=message):
            after(one_partition(), change(split(ROOT, 50, "L", "R")))

    def test_refuses_a_table_without_partitions(self):
        """There is nothing to split."""
        with pytest.raises(PartitionSplitRefused, match="Parent partition not found"):
            after(TableState.empty(), split(ROOT, 50, "L", "R"))

    def test_does_not_touch_the_tree_that_it_splits(self):
        """A reader with the older state goes on undisturbed."""
        before = one_partition()

        after(before, split(ROOT, 50, "L", "R"))

        assert leaf_ids(before) == ["root"]


def _with_child(transaction: SplitPartition, **change) -> SplitPartition:
    lower, upper = transaction.children
    return replace(transaction, children=(replace(lower, **change), upper))


def _with_range(transaction: SplitPartition, key_range: Range) -> SplitPartition:
    region = transaction.children[0].region.with_range(0, key_range)
    return _with_child(transaction, region=region)


class TestExtendPartitionTree:
    """Splitting leaves into subtrees (rule STS-4)."""

    def test_grows_a_leaf_into_a_subtree(self):
        """All levels in one transaction."""
        table = after(one_partition(), grown_from_root(10, 20, 30))

        assert [leaf.region.ranges[0].min for leaf in table.leaf_partitions()][1:] == [10, 20, 30]

    def test_adds_a_hundred_thousand_leaves_at_once(self):
        """STS-4 asks for it. Every split is checked."""
        table = after(one_partition(), grown_from_root(*range(99_999)))

        assert len(table.tree) == 199_999
        assert len(leaf_ids(table)) == 100_000

    def test_changes_nothing_when_it_is_empty(self):
        """Nothing to add is nothing to write."""
        table = one_partition()

        assert ExtendPartitionTree(updated=(), new=()).apply(table, NOON) is table

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda t: replace(t, updated=(replace(t.updated[0], partition_id="x"),)), "Parent partition not found: x"),
            (lambda t: replace(t, updated=(ROOT,)), "should not be a leaf"),
            (lambda t: replace(t, updated=()), "have no parent"),
            (lambda t: replace(t, updated=t.updated * 2), "listed twice"),
            (lambda t: replace(t, new=t.new[1:]), "children that are not added"),
            (lambda t: replace(t, new=(*t.new, t.new[0])), "listed twice"),
            (lambda t: replace(t, new=(*t.new, replace(ROOT, partition_id="x", parent_id="y"))), "1 of 7 added"),
            (lambda t: replace(t, new=(*t.new, ROOT)), "in the tree already: root"),
            (lambda t: replace(t, new=(replace(t.new[0], region=ROOT.region), *t.new[1:])), "Failed to validate"),
        ],
    )  # fmt: skip
    def test_refuses_what_would_be_no_tree(self, change, message):
        """Each rule of STS-4, with what is at fault in the message."""
        with pytest.raises(PartitionSplitRefused, match=message):
            after(one_partition(), change(grown_from_root(10, 20, 30)))

    def test_refuses_a_leaf_that_was_split_before(self):
        """A bulk import that planned from an older tree plans again."""
        with pytest.raises(PartitionSplitRefused, match="Parent should be a leaf"):
            after(two_leaves(), grown_from_root(10, 20))
