"""Transactions that say what others in their entry rely on, and are never written (ours)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sleeper.errors import JobAlreadyCommitted, RowsChanged, TableChanged
from sleeper.model.partitions import Partition
from sleeper.model.ranges import Region
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
            names = {each.filename for each in state.references_of(leaf_id)}
            if not names <= known:
                raise TableChanged(f"rows were added to leaf {leaf_id} meanwhile")

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Change nothing."""
        return state


_SHOWN_MAX = 3
"""So many leaves are named in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsUnchanged(Transaction):
    """Is refused if leaves of some regions have changed since a version; it changes nothing.

    A leaf has changed if it has files that it did not have then, if a file that it had is in the
    table no more, or if rows of it were deleted. Files that are moved down after a split, and
    leaves that are split or merged, have the rows that they had.

    Attributes:
        since: The number of the version.
        before: The state after it.
        regions: The keys that its entry is about.
        job_id: The job of the entry. If that was committed, it was by another run of the same job.

    Raises (from `check`):
        JobAlreadyCommitted: the job was committed before.
        RowsChanged: a leaf has changed.
    """

    since: int
    before: TableState
    regions: tuple[Region, ...]
    job_id: str | None = None

    def check(self, state: TableState) -> None:
        """Check that no leaf of the regions has changed."""
        done = None if self.job_id is None else state.jobs.find(self.job_id)
        if done is not None and self.job_id is not None:
            raise JobAlreadyCommitted(self.job_id, done.number)
        changed = {}
        for leaf, _ in state.tree.leaves_overlapping(self.regions):
            if (what := self._change(leaf, state)) is not None:
                changed[leaf.partition_id] = what
        if changed:
            raise _refusal(self.since, changed)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Change nothing."""
        return state

    def _change(self, leaf: Partition, state: TableState) -> str | None:
        """Return what has changed in a leaf; None if nothing has."""
        known = {
            each.filename
            for then in self._leaves_before(leaf.region)
            for each in self.before.references_of(then)
        }
        if any(each.filename not in known for each in state.references_of(leaf.partition_id)):
            return "rows were added, or its files were written anew"
        if not all(state.files.references_count(name) for name in known):
            return "its files were removed"
        if _are_deleted_since(self.since, leaf, state):
            return "rows were deleted"
        return None

    def _leaves_before(self, region: Region) -> list[str]:
        if self.before.partitions is None:
            return []
        then = self.before.partitions.leaves_overlapping([region])
        return [leaf.partition_id for leaf, _ in then]


def _are_deleted_since(number: int, leaf: Partition, state: TableState) -> bool:
    """Return whether rows of a leaf were deleted by their keys since a transaction."""
    ids = state.tree.ids_upwards(leaf.partition_id)
    return any(
        any(leaf.region.overlaps(region) for region in each.regions)
        or any(True for _ in each.key_files_of(ids))
        for each in state.deletes
        if each.number > number
    )


def _refusal(since: int, changed: Mapping[str, str]) -> RowsChanged:
    """Return the error that tells which leaves have changed, and how."""
    shown = [f"leaf {leaf}: {what}" for leaf, what in [*changed.items()][:_SHOWN_MAX]]
    more = len(changed) - len(shown)
    return RowsChanged(
        f"the table has changed since transaction {since} where this would change it "
        f"({'; '.join(shown)}{f'; and {more:,} more' if more else ''}). Nothing was changed. Read "
        "the rows again, decide anew, and try again with the number of that answer",
        since=since,
        leaves=tuple(changed),
    )
