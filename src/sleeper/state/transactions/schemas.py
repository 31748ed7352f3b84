"""The transaction that records a table's schema in its log (ours)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import TableChanged
from sleeper.model.schema import Schema
from sleeper.state.table_state import TableState, Transaction


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
