"""The transaction that records a table's schema in its log (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import TableChanged
from sleeper.model.schema import Schema
from sleeper.state.table_state import TableState, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSchema(Transaction):
    """Adds a schema of the table. References name by its id the schema of a file.

    The first commit to a table adds its first schema, in the same entry; the first commit by a
    writer that knows of changed columns adds theirs, if nobody has.

    Attributes:
        schema_id: Its number; from 1 on.
        schema: The schema.
        columns_before: The order in which the columns of the schema before were returned, where the
            log does not say so; else ().

    Raises (from `check`):
        TableChanged: the number is not the next one: another writer has set a schema.
    """

    schema_id: int
    schema: Schema
    columns_before: tuple[str, ...] = ()

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
        schemas = {**state.schemas, self.schema_id: self.schema}
        before = schemas.get(state.schema_id)
        if self.columns_before and before is not None:
            schemas[state.schema_id] = replace(before, columns=self.columns_before)
        return replace(state, schemas=schemas)


def missing_schema(
    state: TableState, schema: Schema, transactions: Sequence[Transaction] = ()
) -> SetSchema | None:
    """Return what adds a writer's schema to a state.

    Args:
        state: The state.
        schema: The writer's schema.
        transactions: What the writer commits.

    Returns:
        None if the state has the schema or a newer one, or the writer adds one itself.
    """
    if schema.number in state.schemas or schema.number < state.schema_id:
        return None
    if any(isinstance(each, SetSchema) for each in transactions):
        return None
    return SetSchema(
        schema_id=schema.number, schema=schema if schema.last_id else schema.as_stored()
    )
