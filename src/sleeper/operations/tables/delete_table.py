"""Deletes a table: removes it from the index, then deletes its objects (rule TBL-4)."""

from __future__ import annotations

from sleeper.ports.objects import Objects
from sleeper.ports.table_index import TableIndex


def delete_table(table_id: str, *, index: TableIndex, objects: Objects) -> int:
    """Remove a table from the index and delete every object under its id.

    Does not depend on the table's properties. If the process is killed in between, objects of the
    unused table id remain.

    Returns:
        The number of deleted objects.

    Raises:
        TableNotFound: the table is already deleted.
    """
    index.remove(table_id)
    return delete_objects(table_id, objects)


def delete_objects(table_id: str, objects: Objects) -> int:
    """Delete every object under the id of a table that is no longer in the index."""
    keys = [info.key for info in objects.listing(f"{table_id}/")]
    objects.delete(keys)
    return len(keys)
