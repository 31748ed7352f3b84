"""Deletes a table: removes it from the index, then deletes its state and objects (TBL-4)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sleeper.errors import DataDamaged, PropertiesInvalid
from sleeper.ports.objects import Objects
from sleeper.ports.table_index import TableIndex

_log = logging.getLogger(__name__)


def delete_table(
    table_id: str, *, index: TableIndex, delete_states: Callable[[], None], objects: Objects
) -> int:
    """Remove a table from the index, delete its state, and every object under its id.

    If the process is killed in between, a part of that remains, under an id that is not used.

    Args:
        table_id: The table.
        index: The table index.
        delete_states: Deletes what the table's state stores keep outside of its folder; if its
            properties or notes do not tell where that is, it is left behind.
        objects: The instance's objects.

    Returns:
        The number of deleted objects.

    Raises:
        TableNotFound: the table is already deleted.
    """
    index.remove(table_id)
    try:
        delete_states()
    except (PropertiesInvalid, DataDamaged) as error:
        _log.warning("the state of deleted table %s may be left behind: %s", table_id, error)
    return delete_objects(table_id, objects)


def delete_objects(table_id: str, objects: Objects) -> int:
    """Delete every object under the id of a table that is no longer in the index."""
    keys = [info.key for info in objects.listing(f"{table_id}/")]
    objects.delete(keys)
    return len(keys)
