"""The transaction that a sweep of orphans commits before it deletes files (ours)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sleeper.language.value_classes import dataclass
from sleeper.state.table_state import TableState, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrphans(Transaction):
    """Forbids adding files that were written before a time, because a sweep deletes such files.

    The log decides which comes first. If a job has added its files before, the sweep sees them and
    keeps them. A job that commits after the sweep is refused.

    Attributes:
        before: The time, by the storage's clock (aware, UTC).
    """

    before: datetime

    def check(self, state: TableState) -> None:
        """Refuse nothing."""

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Record the time, if it is later than that of earlier sweeps."""
        if state.swept_before is not None and state.swept_before >= self.before:
            return state
        return replace(state, swept_before=self.before)
