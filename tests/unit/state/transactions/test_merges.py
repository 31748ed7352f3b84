"""Merging two leaves: what it does to the tree and to references, and what refuses it."""

from __future__ import annotations

from dataclasses import replace as replaced

import pytest

from sleeper.errors import (
    FileReferenceAssignedToJob,
    PartitionMergeRefused,
    PartitionNotInTree,
    PartitionSplitRefused,
)
from sleeper.model import partitions
from sleeper.state.snapshot import snapshot_parts, state_from_parts
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles, ReplaceFiles
from sleeper.state.transactions.partitions import MergePartitions
from tests.unit.state.small_tables import (
    SCHEMA,
    after,
    one_partition,
    part,
    ref,
    split,
    two_leaves,
)

MERGE = MergePartitions(parent_id="root", child_ids=("L", "R"))


def leaf_ids(table):
    return [leaf.partition_id for leaf in table.leaf_partitions()]


def add(*references):
    return AddFiles(references=references)


def claim(filename, partition_id, job_id="job"):
    assignment = Claim(job_id=job_id, partition_id=partition_id, filenames=(filename,))
    return ClaimFiles(assignments=(assignment,))


class TestMergePartitions:
    """Two leaves become their parent again."""

    def test_makes_the_parent_a_leaf(self):
        """Its children are no longer in the tree."""
        table = after(two_leaves(), MERGE)

        assert leaf_ids(table) == ["root"]
        assert set(table.tree.partitions) == {"root"}
        assert table.tree.root.dimension is None

    def test_moves_whole_files_as_they_are(self):
        """A file of one leaf is a file of the new one, with its exact count."""
        table = after(two_leaves(), add(ref("a", "L", 10), ref("b", "R", 20)), MERGE)

        found = [replaced(each, updated=None, sequence=None) for each in table.references()]
        assert found == [ref("a", "root", 10), ref("b", "root", 20)]
        assert list(table.files.unreferenced()) == []

    def test_unites_the_two_parts_of_a_file(self):
        """FRF-3: its rows are referenced once, and there are as many as in both parts."""
        table = after(two_leaves(), add(part("a", "L", 10), part("a", "R", 20)), MERGE)

        (found,) = table.references()
        assert replaced(found, updated=None, sequence=None) == part("a", "root", 30)

    def test_refuses_a_part_whose_other_half_was_compacted(self):
        """The other half's rows are in another file by now: they would be read twice."""
        compacted = ReplaceFiles(job_id="job", inputs=("a",), output=ref("b", "R", 20))
        table = after(
            two_leaves(), add(part("a", "L", 10), part("a", "R", 20)), claim("a", "R"), compacted
        )

        with pytest.raises(PartitionMergeRefused, match="only 'L' references a part of 'a'"):
            after(table, MERGE)

    @pytest.mark.parametrize("leaf", ["L", "R"])
    def test_refuses_while_a_job_is_at_work(self, leaf):
        """The job would put its output on a partition that is gone."""
        table = after(two_leaves(), add(ref("a", leaf)), claim("a", leaf))

        with pytest.raises(FileReferenceAssignedToJob, match="'job'"):
            after(table, MERGE)

    @pytest.mark.parametrize(
        ("merge", "reason"),
        [
            (MergePartitions(parent_id="no", child_ids=("L", "R")), "no partition 'no'"),
            (MergePartitions(parent_id="root", child_ids=("R", "L")), "does not have children"),
            (MergePartitions(parent_id="L", child_ids=()), "does not have children"),
        ],
    )
    def test_refuses_what_are_no_siblings(self, merge, reason):
        """The tree is as it was."""
        with pytest.raises(PartitionMergeRefused, match=reason):
            after(two_leaves(), merge)

    def test_refuses_when_a_leaf_was_split_meanwhile(self):
        """Then it is no leaf."""
        table = two_leaves()
        table = after(table, split(table.partition("L"), 20, "LL", "LR"))

        with pytest.raises(PartitionMergeRefused, match="'L' was split"):
            after(table, MERGE)

    def test_refuses_to_merge_twice(self):
        """The second of two that planned the same is told."""
        with pytest.raises(PartitionMergeRefused, match="does not have children"):
            after(two_leaves(), MERGE, MERGE)

    def test_refuses_without_partitions(self):
        """A table whose partitions were cleared has none to merge."""
        table = replaced(one_partition(), partitions=None)

        with pytest.raises(PartitionMergeRefused, match="no partition 'root'"):
            after(table, MERGE)


class TestWritersWithAnOlderTree:
    """What was written for a leaf that was merged meanwhile goes to the leaf in its place."""

    def test_add_whole_files_to_the_new_leaf(self):
        """PRT-13: an ingest that began before the merge is no failure."""
        table = after(two_leaves(), MERGE, add(ref("a", "L", 10)))

        (found,) = table.references()
        assert replaced(found, updated=None, sequence=None) == ref("a", "root", 10)

    def test_add_a_file_for_both_leaves_once(self):
        """FRF-3, ING-6: one file for all leaves is whole again where all of them merged."""
        table = after(two_leaves(), MERGE, add(part("a", "L", 10), part("a", "R", 20)))

        (found,) = table.references()
        assert (found.partition_id, found.row_count, found.whole_file) == ("root", 30, True)

    def test_keep_parts_apart_where_not_all_leaves_merged(self):
        """Two of three leaves merged: the file has two references, each to a part."""
        table = two_leaves()
        table = after(table, split(table.partition("L"), 20, "LL", "LR"))
        merge = MergePartitions(parent_id="L", child_ids=("LL", "LR"))
        parts = add(part("a", "LL", 1), part("a", "LR", 2), part("a", "R", 4))

        table = after(table, merge, parts)

        found = {
            each.partition_id: (each.row_count, each.whole_file) for each in table.references()
        }
        assert found == {"L": (3, False), "R": (4, False)}

    def test_find_their_place_through_several_merges(self):
        """The parent was merged as well."""
        table = two_leaves()
        table = after(table, split(table.partition("L"), 20, "LL", "LR"))
        merge = MergePartitions(parent_id="L", child_ids=("LL", "LR"))

        table = after(table, merge, MERGE, add(ref("a", "LR", 10)))

        assert [each.partition_id for each in table.references()] == ["root"]

    def test_find_their_place_when_the_new_leaf_was_split_elsewhere(self):
        """The parent is split at another point: what comes is referenced there, and goes down."""
        table = after(two_leaves(), MERGE)
        table = after(table, split(table.partition("root"), 80, "A", "B"), add(ref("a", "L", 10)))

        assert [each.partition_id for each in table.references()] == ["root"]

    def test_are_refused_on_a_partition_that_never_was(self):
        """As before."""
        with pytest.raises(PartitionNotInTree):
            after(two_leaves(), MERGE, add(ref("a", "X")))


class TestTheMemoryOfMergedIds:
    """It is bounded, so that a table whose leaves split and merge for ever stays small."""

    @pytest.fixture(autouse=True)
    def _remembers_four(self, monkeypatch):
        monkeypatch.setattr(partitions, "MERGED_IDS_MAX", 4)

    def split_and_merged(self, *names, table=None):
        table = table or one_partition()
        for name in names:
            ids = (f"L{name}", f"R{name}")
            table = after(
                table,
                split(table.partition("root"), 50, *ids),
                MergePartitions(parent_id="root", child_ids=ids),
            )
        return table

    def test_holds_the_last_ids_in_their_order(self):
        """Given three splits and merges, of which two are remembered."""
        table = self.split_and_merged("1", "2", "3")

        assert [*table.tree.merged] == ["L2", "R2", "L3", "R3"]

    def test_refuses_files_for_a_leaf_that_is_forgotten(self):
        """The writer read the tree 50,000 merges ago, and is to read it again."""
        table = self.split_and_merged("1", "2", "3")

        placed = after(table, add(ref("a", "R2")))

        assert [each.partition_id for each in placed.references()] == ["root"]
        with pytest.raises(PartitionNotInTree):
            after(table, add(ref("b", "R1")))

    def test_forgets_the_same_after_a_snapshot(self):
        """Whoever replays from a snapshot agrees with whoever replays from the beginning."""
        whole = self.split_and_merged("1", "2", "3")
        parts = snapshot_parts(self.split_and_merged("1", "2"), SCHEMA)
        opened = state_from_parts(5, parts.__getitem__, SCHEMA)

        assert [*self.split_and_merged("3", table=opened).tree.merged] == [*whole.tree.merged]


def test_an_id_that_was_merged_is_not_given_again():
    """Writers with an older tree would add rows of another region to it."""
    table = after(two_leaves(), MERGE)

    with pytest.raises(PartitionSplitRefused, match="should not be present: L"):
        after(table, split(table.partition("root"), 80, "L", "B"))
