"""Deletes a table: removes it from the index, then deletes its state and objects (TBL-4)."""

from __future__ import annotations

from sleeper.ports.objects import Objects
from sleeper.ports.table_index import TableIndex
from sleeper.state.state_store import StateStore


def delete_table(
    table_id: str, *, index: TableIndex, objects: Objects, store: StateStore | None
) -> int:
    """Remove a table from the index, and delete its state and every object under its id.

    If the process is killed in between, what is left belongs to a table id that is not used.

    Args:
        table_id: The table.
        index: The instance's tables.
        objects: The instance's objects.
        store: The table's state; None if its properties do not say where it is.

    Returns:
        The number of deleted objects.

    Raises:
        TableNotFound: the table is already deleted.
    """
    index.remove(table_id)
    if store is not None:
        store.delete()
    return delete_objects(table_id, objects)


def delete_objects(table_id: str, objects: Objects) -> int:
    """Delete every object under the id of a table that is no longer in the index."""
    keys = [info.key for info in objects.listing(f"{table_id}/")]
    objects.delete(keys)
    return len(keys)
