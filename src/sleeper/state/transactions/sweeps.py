"""The transaction by which a sweep of orphans says which files it may delete (ours)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.state.table_state import TableState, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrphans(Transaction):
    """Forbids to add files that were written before a time, as a sweep deletes such files.

    The log decides which comes first: a job that has added its files keeps them, as the sweep
    knows them by then; a job that comes after the sweep is refused.

    Attributes:
        before: The time, by the storage's clock (aware, UTC).
    """

    before: datetime

    def check(self, state: TableState) -> None:
        """Refuse nothing."""

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Note the time, if it is later than that of the sweeps before."""
        if state.swept_before is not None and state.swept_before >= self.before:
            return state
        return replace(state, swept_before=self.before)
