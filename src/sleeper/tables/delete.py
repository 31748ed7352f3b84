"""Deletes a table: removes it from the index, then deletes its state and objects (TBL-4)."""

from __future__ import annotations

import logging

from sleeper.errors import DataDamaged, PropertiesInvalid
from sleeper.model.tables import TableRecord
from sleeper.ports.objects import Objects
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.state_stores import delete_states

_log = logging.getLogger(__name__)


def delete_table(record: TableRecord, context: InstanceContext) -> int:
    """Remove a table from the index, delete its state, and every object under its id.

    If the process is killed in between, a part of that remains, under an id that is not used. What
    its state stores keep outside of its folder is left behind if its properties or notes do not
    tell where that is.

    Returns:
        The number of deleted objects.

    Raises:
        TableNotFound: the table is already deleted.
    """
    table_id = record.table_id
    context.index.remove(table_id)
    try:
        delete_states(record, context)
    except (PropertiesInvalid, DataDamaged) as error:
        _log.warning("the state of deleted table %s may be left behind: %s", table_id, error)
    return delete_objects(table_id, context.objects)


def delete_objects(table_id: str, objects: Objects) -> int:
    """Delete every object under the id of a table that is no longer in the index."""
    keys = [info.key for info in objects.listing(f"{table_id}/")]
    objects.delete(keys)
    return len(keys)
