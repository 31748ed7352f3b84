"""The transaction that deletes rows by their keys (ours; format 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import TableChanged
from sleeper.model.ranges import Region
from sleeper.model.row_deletes import REGIONS_MAX, RowDelete
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.files import check_rows_may_go


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRows(Transaction):
    """Deletes the rows inside of regions from all files that the table has now.

    No file is changed: readers leave the rows out, and so do compactions, whose outputs are free of
    them. A file that is added later keeps its rows, whatever their keys.

    Attributes:
        regions: The regions.

    Raises:
        ValueError: there is no region, or one is empty.

    Raises (from `check`):
        TableChanged: the table has format 1 now, or too many deleted regions.
    """

    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        if not self.regions:
            raise ValueError("a deletion of rows needs a region")
        if any(side.is_empty for region in self.regions for side in region.ranges):
            raise ValueError("a region of a deletion is empty")

    def check(self, state: TableState) -> None:
        """Check that the table has format 2, and room for the regions."""
        check_rows_may_go(state)
        waiting = sum(len(each.regions) for each in state.deletes)
        if waiting + len(self.regions) > REGIONS_MAX:
            raise TableChanged(
                f"the table has {waiting:,} deleted keys and ranges that its files still have, and "
                f"may have {REGIONS_MAX:,}; these would be {len(self.regions):,} more. Nothing was "
                "deleted. Compact the table (`sleeper compact NAME --all-files`), or delete by "
                "ranges."
            )

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Record the deletion; where its leaves have no file, there is nothing to delete."""
        delete = RowDelete(state.number, self.regions)
        if not state.is_yet_to_obey(delete, state.files):
            return state
        return replace(state, deletes=(*state.deletes, delete))
