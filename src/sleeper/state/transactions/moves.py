"""The transaction that moves a table's state to another state store (ours)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import TableChanged
from sleeper.model.tables import StateMove
from sleeper.state.table_state import TableState, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveState(Transaction):
    """Says in which state store the table's state is from now on (decision 0066).

    It is committed to the store that the state is moved to, as the first commit there, and to the
    one that it leaves, which then refuses every other commit: it is sealed.

    Attributes:
        move: The move; its number is the number of the transaction.

    Raises (from `check`):
        TableChanged: it would get another number: others have committed.
    """

    move: StateMove

    def check(self, state: TableState) -> None:
        """Check that nothing was committed since the state was copied."""
        if state.number != self.move.number:
            raise TableChanged(
                f"the state was copied before transaction {self.move.number}, but others have "
                f"committed: the next one is {state.number}. Nothing was moved."
            )

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Record the move."""
        return replace(state, moved=self.move)
