"""What a table is: its name, properties and partitions, looked at and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sleeper.model.files import FileReference
from sleeper.model.known_properties.given import PropertyValue
from sleeper.model.partitions import split_points_of
from sleeper.operations.change_table import rename_table, set_table_online, set_table_properties
from sleeper.operations.reinitialise_table import reinitialise_table
from sleeper.operations.report import (
    FilesReport,
    PartitionReport,
    list_references,
    report_files,
    report_partitions,
)
from sleeper.table.handle import TableHandle


class TableDefinition(TableHandle):
    """The part of a `Table` that describes and changes the table itself."""

    def split_points(self) -> list[Any]:
        """Return where leaves meet on the first row key, ascending (spec TBL-11)."""
        return split_points_of(self.state().tree)

    def report_partitions(self) -> list[PartitionReport]:
        """Describe every partition, leaves in key order first (spec ADM-6)."""
        threshold = self.properties.splitting.threshold_rows
        return report_partitions(self.state(), self.schema, splitting_threshold=threshold)

    def report_files(self) -> FilesReport:
        """Count the table's files, references and rows (spec ADM-5)."""
        return report_files(self.state())

    def references(self) -> list[FileReference]:
        """Return every file reference, by partition in key order."""
        return list_references(self.state())

    def rename(self, name: str) -> None:
        """Give the table another name. Its id, data and open handles stay (spec TBL-3).

        Raises:
            TableAlreadyExists: another table has this name.
        """
        self._take(rename_table(self.table_id, name, index=self._context.index))

    def set_online(self, *, online: bool) -> None:
        """Let background operations work on the table, or keep them off it (spec TBL-6)."""
        index = self._context.index
        self._take(set_table_online(self.table_id, online=online, index=index))

    def set_properties(self, changes: Mapping[str, PropertyValue | None]) -> None:
        """Set properties by their full names; None goes back to the default.

        Args:
            changes: Values are str, int or bool.

        Raises:
            PropertiesInvalid: a name or value is not allowed, or the property cannot be changed.
        """
        index = self._context.index
        self._take(set_table_properties(self.table_id, changes, index=index))

    def reinitialise(self, split_points: Sequence[Any] | None = None) -> int:
        """Remove all rows, and return the new transaction number (spec TBL-5).

        Args:
            split_points: New partitions; None keeps them, an empty list makes one.

        Raises:
            SplitPointsInvalid: split points of the wrong type, or not strictly ascending.
        """
        self._current_record()
        opened = self._open()
        number = reinitialise_table(
            self.schema,
            store=opened.store,
            files=opened.files,
            new_id=self._context.new_id,
            split_points=split_points,
        )
        self._undo_commit_if_deleted()
        return number
