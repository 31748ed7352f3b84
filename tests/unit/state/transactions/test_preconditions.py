"""What others in an entry rely on: it refuses them, or changes nothing (rules DEL-3, DEL-5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sleeper.errors import JobAlreadyCommitted, RowsChanged, TableChanged
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.preconditions import LeavesUnchanged, RegionsUnchanged
from tests.unit.state.small_tables import LATER, NOON, after, ref, split, two_leaves


def with_file(name, leaf_id):
    return after(two_leaves(), AddFiles(references=(ref(name, leaf_id),)))


def known(**files_by_leaf):
    return LeavesUnchanged(
        known={leaf_id: frozenset(names) for leaf_id, names in files_by_leaf.items()}
    )


class TestLeavesUnchanged:
    """Leaves have no file but those that a writer has read."""

    def test_changes_nothing_so_that_it_is_never_written(self):
        """Given leaves as they were, then the very state is returned: an entry leaves it out."""
        table = with_file("a", "L")

        assert known(L=["a"], R=[]).apply(table, LATER) is table

    def test_lets_files_go_that_were_known(self):
        """A compaction that took a file away has added no row."""
        table = with_file("a", "L")

        assert known(L=["a", "gone"]).apply(table, LATER) is table

    def test_refuses_a_leaf_with_another_file(self):
        """Its rows may have the same keys."""
        with pytest.raises(TableChanged, match="rows were added to leaf R meanwhile"):
            known(L=[], R=["a"]).apply(with_file("b", "R"), LATER)

    def test_does_not_ask_for_other_leaves(self):
        """Rows that were added elsewhere do no harm."""
        table = with_file("b", "R")

        assert known(L=[]).apply(table, LATER) is table

    def test_refuses_a_leaf_that_is_none_any_more(self):
        """Given a split, or a tree without it, then its files are found elsewhere."""
        table = two_leaves()
        cut = after(table, split(table.partition("L"), 25, "LL", "LR"), at=NOON)

        for state, leaf_id in ((cut, "L"), (replace(table, number=9), "nobody")):
            with pytest.raises(TableChanged, match=f"leaf {leaf_id} was split or merged meanwhile"):
                known(**{leaf_id: []}).apply(state, LATER)


def unchanged(before, *leaf_ids, job_id=None):
    regions = tuple(before.partition(each).region for each in leaf_ids)
    return RegionsUnchanged(since=before.number, before=before, regions=regions, job_id=job_id)


class TestRegionsUnchanged:
    """Leaves have the rows that they had at a version."""

    def test_changes_nothing_so_that_it_is_never_written(self):
        """Given leaves as they were, then the very state is returned: an entry leaves it out."""
        table = with_file("a", "L")

        assert unchanged(table, "L", "R").apply(table, LATER) is table

    def test_does_not_ask_for_other_leaves(self):
        """Rows that were added elsewhere do no harm."""
        table = after(before := with_file("a", "L"), AddFiles(references=(ref("b", "R"),)))

        assert unchanged(before, "L").apply(table, LATER) is table

    def test_refuses_a_leaf_with_another_file(self):
        """And says which, and how many more."""
        table = after(before := with_file("a", "L"), AddFiles(references=(ref("b", "L"),)))

        with pytest.raises(RowsChanged, match="leaf L: rows were added") as refused:
            unchanged(before, "L", "R").apply(table, LATER)

        assert (refused.value.since, refused.value.leaves) == (before.number, ("L",))

    def test_refuses_a_leaf_whose_file_is_gone(self):
        """Given a file that nothing references any more, its rows went with it."""
        before = with_file("a", "L")
        gone = before.files.changed(removed=[("a", "L")], at=NOON)

        with pytest.raises(RowsChanged, match="leaf L: its files were removed"):
            unchanged(before, "L").apply(replace(before, files=gone), LATER)

    def test_knows_rows_again_in_leaves_that_were_divided(self):
        """Given a split, then the parts have the file that the leaf had."""
        before = with_file("a", "L")
        cut = after(before, split(before.partition("L"), 25, "LL", "LR"), at=NOON)

        assert unchanged(before, "L").apply(cut, LATER) is cut
        with pytest.raises(RowsChanged, match="leaf LL"):
            unchanged(before, "L").apply(after(cut, AddFiles(references=(ref("b", "LL"),))), LATER)

    def test_tells_of_a_job_that_was_committed_before_anything_else(self):
        """Given files that the same job added, it is told that it was committed."""
        before = with_file("a", "L")
        job = CommittedJob(job_id="j", keep_until=LATER, rows_read=1, rows_written=1)
        table = after(before, AddFiles(references=(ref("b", "L"),), job=job))

        with pytest.raises(JobAlreadyCommitted):
            unchanged(before, "L", job_id="j").apply(table, LATER)
        with pytest.raises(RowsChanged):
            unchanged(before, "L", job_id="k").apply(table, LATER)
