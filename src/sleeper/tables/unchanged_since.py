"""What a conditional commit relies on: leaves that have not changed since a version (rule DEL-5).

1. the state after that version is read, before anything else is done
2. when the new files or the deletion are known, so are the regions of keys that they are about
3. `RegionsUnchanged` is committed in the same entry: it refuses all of it if a leaf of these
   regions has changed since, also in the moment before the entry is written
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

from sleeper.errors import BadRequest, VersionNotFound
from sleeper.model.queries import checked_transaction
from sleeper.model.ranges import Region
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.files import AddFiles, placed_references
from sleeper.state.transactions.preconditions import RegionsUnchanged
from sleeper.tables.open_table import OpenTable


@cache
def _no_state() -> TableState:
    """Return the state before any transaction; to make one takes half a millisecond."""
    return TableState.empty()


def check_committed_here(if_unchanged_since: object, send_commit: object) -> None:
    """Check that nobody else is asked to commit what relies on a version.

    Raises:
        BadRequest: a committer is.
    """
    if send_commit is not None and if_unchanged_since is not None:
        raise BadRequest("leave out if_unchanged_since: a committer commits whatever has changed")


@dataclass(frozen=True, slots=True)
class UnchangedSince:
    """A version that a commit relies on.

    Attributes:
        number: Its transaction number; None if the commit relies on none.
        before: The state after it.
    """

    number: int | None
    before: TableState

    @classmethod
    def of(cls, table: OpenTable, number: object) -> Self:
        """Read the version that a caller names; None for none.

        Raises:
            BadRequest: it is no transaction number, or the table has none such yet.
            VersionNotFound: it is no longer kept, so what has changed since is not known.
        """
        if number is None:
            return cls(None, _no_state())
        number = checked_transaction(number)
        state = table.store.state_after(number)
        if state is not None:
            return cls(number, state)
        newest = table.store.refresh().number
        if number > newest:
            raise BadRequest(
                f"if_unchanged_since is {number}, and table {table.name!r} has had "
                f"{newest:,} transactions so far: give the number of one that you have read"
            )
        raise VersionNotFound(
            f"transaction {number} of table {table.name!r} is no longer kept, so what has changed "
            "since is not known. Nothing was changed. Read again, and give that answer's number"
        )

    def over(self, regions: Iterable[Region], job_id: str | None = None) -> list[Transaction]:
        """Return what refuses an entry if leaves of some regions have changed; nothing for none."""
        if self.number is None:
            return []
        found = tuple(dict.fromkeys(regions))
        return [
            RegionsUnchanged(since=self.number, before=self.before, regions=found, job_id=job_id)
        ]

    def under(self, added: AddFiles, state: TableState) -> list[Transaction]:
        """Return what refuses new files if leaves that get them have changed.

        The partitions of the files are in the tree of the state, unless it was replaced: then the
        files are refused themselves.
        """
        placed = placed_references(added.references, state.partitions)
        held = dict.fromkeys(each.partition_id for each in placed)
        regions = [state.partition(each).region for each in held if each in state.tree]
        return self.over(regions, None if added.job is None else added.job.job_id)

    def check(self, state: TableState, regions: Sequence[Region]) -> None:
        """Check it now, before work is done that a refusal would waste.

        Raises:
            RowsChanged: a leaf of the regions has changed.
        """
        for each in self.over(regions):
            each.check(state)


def beside(
    condition: UnchangedSince, regions: Iterable[Region], job: AddFiles | None
) -> list[Transaction]:
    """Return what is committed with a deletion: its condition, and the id of its job."""
    if job is None or job.job is None:
        return condition.over(regions)
    return [*condition.over(regions, job.job.job_id), job]
