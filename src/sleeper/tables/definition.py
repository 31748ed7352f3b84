"""`Table` methods that read and change its name, properties and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sleeper.model.files import FileReference
from sleeper.model.known_properties.given import PropertyValue
from sleeper.model.partitions import split_points_of
from sleeper.state.stores.moves import MoveNotes
from sleeper.tables.change import (
    rename_table,
    set_table_online,
    set_table_properties,
    switch_state_store,
)
from sleeper.tables.handle import TableHandle
from sleeper.tables.maintenance_methods import leaf_sizes
from sleeper.tables.migrate_state import MigrationResult, StatePlaces
from sleeper.tables.migrate_state import migrate_state as migrate
from sleeper.tables.reinitialise import reinitialise_table
from sleeper.tables.report import FilesReport, PartitionReport, list_references
from sleeper.tables.report import report_files as count_files
from sleeper.tables.report import report_partitions as describe_partitions
from sleeper.tables.state_stores import store_at


def split_points(self: TableHandle) -> list[Any]:
    """Return the split points on the first row key, ascending (rule TBL-11)."""
    return split_points_of(self.state().tree)


def report_partitions(self: TableHandle) -> list[PartitionReport]:
    """Describe every partition, leaves in key order first (rule ADM-6)."""
    sizes = leaf_sizes(self)
    to_split = {size.partition.partition_id for size in sizes if size.will_be_split}
    return describe_partitions(self.state(), self.schema, to_split=to_split)


def report_files(self: TableHandle) -> FilesReport:
    """Count the table's files, references and rows (rule ADM-5)."""
    return count_files(self.state())


def references(self: TableHandle) -> list[FileReference]:
    """Return every file reference, by partition in key order."""
    return list_references(self.state())


def rename(self: TableHandle, name: str) -> None:
    """Rename the table. Its id, data and open handles do not change (rule TBL-3).

    Raises:
        TableAlreadyExists: another table has this name.
    """
    self._adopt(rename_table(self.table_id, name, index=self._context.index))


def set_online(self: TableHandle, *, online: bool) -> None:
    """Turn background operations on the table on or off (rule TBL-6)."""
    index = self._context.index
    self._adopt(set_table_online(self.table_id, online=online, index=index))


def set_properties(self: TableHandle, changes: Mapping[str, PropertyValue | None]) -> None:
    """Set properties by their full names; None resets to the default.

    Args:
        changes: Values are str, int or bool.

    Raises:
        PropertiesInvalid: a name or value is not allowed, or the property cannot be changed.
    """
    index = self._context.index
    self._adopt(set_table_properties(self.table_id, changes, index=index))


def reinitialise(self: TableHandle, split_points: Sequence[Any] | None = None) -> int:
    """Remove all rows, and return the new transaction number (rule TBL-5).

    Args:
        split_points: New partitions; None keeps them, an empty list makes one.

    Raises:
        SplitPointsInvalid: split points have the wrong type, or are not strictly ascending.
    """
    opened = self._current()
    number = reinitialise_table(
        self.schema,
        store=opened.store,
        files=opened.files,
        new_id=self._context.new_id,
        split_points=split_points,
    )
    self._undo_commit_if_deleted()
    return number


def migrate_state(self: TableHandle, to: str) -> MigrationResult:
    """Move the table's state to another state store, or complete an interrupted move.

    The copy is read back and compared first. Queries go on; a commit that comes meanwhile makes it
    start again, a few times, and from the last step on commits go to the new store. Transaction
    numbers, job ids and claims stay; earlier versions stay behind, so `as_of` cannot read them.

    Args:
        to: The class of the state store, as of the property `sleeper.table.statestore.classname`.

    Raises:
        BadRequest: there is no such state store.
        CommitContended: others wrote to the table in every attempt. Nothing was changed.
        TableChanged: an interrupted move to a third store must be completed first.
        CommitUnknown, StorageFailed: run it again, which completes the move or begins anew.
        DataDamaged: the copy is not what was written. The table is as it was.
        TableNotFound: the table was deleted.
    """
    opened = self._current()
    context = self._context
    places = StatePlaces(
        record=partial(context.index.by_id, self.table_id),
        open_store=partial(store_at, self._record, context),
        begin_store=partial(store_at, self._record, context, is_new=True),
        switch=partial(switch_state_store, self.table_id, index=context.index),
        notes=MoveNotes(opened.files),
        new_id=context.new_id,
    )
    try:
        return migrate(to, places=places)
    finally:
        self._undo_commit_if_deleted()
