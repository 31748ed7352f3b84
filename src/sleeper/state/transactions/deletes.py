"""The transactions that delete rows by their keys (ours; format 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import TableChanged
from sleeper.model.files import FileReference
from sleeper.model.ranges import Region
from sleeper.model.row_deletes import REGIONS_MAX, RowDelete
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.files import (
    AddFiles,
    as_given,
    check_rows_may_go,
    with_keys_deleted,
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKeys(Transaction):
    """Deletes the rows that have a row key of some files from all files that the table has now.

    Attributes:
        references: The files, which have row keys alone, and the partitions of these keys. No
            partition references them.
        written_since: No file was written before this time, by the storage's clock.

    Raises:
        ValueError: there is no file.

    Raises (from `check`):
        TableChanged: the table has format 1 now.
        FileAlreadyExists: the table tracks one of the files.
        PartitionNotInTree: a file is for a partition that does not exist.
        NewFilesTooOld: a sweep of orphans may have deleted the files.
    """

    references: tuple[FileReference, ...]
    written_since: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "references", as_given(self.references))
        if not self.references:
            raise ValueError("a deletion of keys needs a file of them")

    def check(self, state: TableState) -> None:
        """Check that the files are new, and that the table has format 2."""
        self._as_added().check(state)
        check_rows_may_go(state)

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Record the deletion and the files, which are garbage once it is carried out."""
        names = [each.filename for each in self.references]
        files = state.files.changed(unreferenced=names, at=at)
        return with_keys_deleted(replace(state, files=files), state, self.references)

    def _as_added(self) -> AddFiles:
        return AddFiles(references=self.references, written_since=self.written_since)
