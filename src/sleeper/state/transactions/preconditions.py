"""The transaction that says what others in its entry rely on, and is never written (ours)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sleeper.errors import TableChanged
from sleeper.state.table_state import TableState, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavesUnchanged(Transaction):
    """Is refused if leaves have files that were not known; it changes nothing, and is not written.

    Attributes:
        known: The files of each leaf, by its id.

    Raises (from `check`):
        TableChanged: a leaf has another file, or is no leaf any more.
    """

    known: Mapping[str, frozenset[str]]

    def check(self, state: TableState) -> None:
        """Check that no leaf has another file."""
        for leaf_id, known in self.known.items():
            if leaf_id not in state.tree or not state.partition(leaf_id).is_leaf:
                raise TableChanged(f"leaf {leaf_id} was split or merged meanwhile")
            if any(each.filename not in known for each in state.references_of(leaf_id)):
                raise TableChanged(f"rows were added to leaf {leaf_id} meanwhile")

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Change nothing."""
        return state
