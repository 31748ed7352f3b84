"""Delete a table: first it can no longer be seen, then its objects go (rule TBL-4)."""

from __future__ import annotations

from sleeper.ports.objects import Objects
from sleeper.ports.table_index import TableIndex


def delete_table(table_id: str, *, index: TableIndex, objects: Objects) -> int:
    """Forget a table and delete everything under its id.

    Works whatever the table's properties say. Killed in between, objects are left under an id
    that no table has.

    Returns:
        How many objects were deleted.

    Raises:
        TableNotFound: the table is gone already.
    """
    index.remove(table_id)
    return delete_objects(table_id, objects)


def delete_objects(table_id: str, objects: Objects) -> int:
    """Delete everything under the id of a table that is no longer in the index."""
    keys = [info.key for info in objects.listing(f"{table_id}/")]
    objects.delete(keys)
    return len(keys)
