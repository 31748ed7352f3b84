"""The transaction that sets the format of a table's log and state (ours)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import TableChanged
from sleeper.state.table_state import FORMATS, TableState, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFormat(Transaction):
    """Sets the format in which entries and snapshots of a table are written, its own included.

    Attributes:
        format: The format; one of `FORMATS`.

    Raises (from `check`):
        TableChanged: the table has this format already: another writer has set it; or files have
            deleted rows, which readers of format 1 would show; or columns were changed.
    """

    format: int

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"a table's format is one of {FORMATS}, not {self.format!r}")

    def check(self, state: TableState) -> None:
        """Check that the table has another format."""
        if state.format == self.format:
            raise TableChanged(
                f"the table has format {self.format} already; read the table's state again."
            )
        if state.deletes and self.format < 2:
            raise TableChanged(
                "files of the table have deleted rows, which readers of format 1 would show. "
                "Nothing was changed. Compact it first (`sleeper compact NAME --all-files`)."
            )
        if state.schema_id > 1 and self.format < 2:
            raise TableChanged(
                "columns of the table were changed, which readers of format 1 do not know. Nothing "
                "was changed. Make a table of format 1, and ingest the rows into it."
            )

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Set the format."""
        return replace(state, format=self.format, digest=None)
