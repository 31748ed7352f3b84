"""The transaction that moves a table's state to another state store (ours)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import TableChanged
from sleeper.model.schema import Schema
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


# ---------------------------------------------------------------- schemas
#
# The transaction that records a table's schema in its log (ours).


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSchema(Transaction):
    """Adds a schema of the table. References name by its id the schema of a file.

    The first commit to a table adds its first schema, in the same entry.

    Attributes:
        schema_id: Its id; from 1 on.
        schema: The schema.

    Raises (from `check`):
        TableChanged: the id is not the next one: another writer has set a schema.
    """

    schema_id: int
    schema: Schema

    def check(self, state: TableState) -> None:
        """Check that the id is the next one."""
        following = max(state.schemas, default=0) + 1
        if self.schema_id != following:
            raise TableChanged(
                f"schema {self.schema_id} cannot be added to the table: its next schema is "
                f"{following}. Another writer has set one; read the table's state again."
            )

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Add the schema."""
        return replace(state, schemas={**state.schemas, self.schema_id: self.schema})
