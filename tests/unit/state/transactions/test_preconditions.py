"""What others in an entry rely on: it refuses them, or changes nothing (rule DEL-3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sleeper.errors import TableChanged
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.preconditions import LeavesUnchanged
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
