"""Changes a table's record in the index: its name, its online flag, its properties.

A change is applied to the newest record and stored only if the record is unchanged since. Otherwise
it is applied to the newer record, so two users who set different properties both succeed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from sleeper.errors import CommitContended, TableChanged, TableNotFound
from sleeper.model.known_properties.checks import (
    check_editable,
    table_property_warnings,
    validate_table_properties,
)
from sleeper.model.known_properties.given import PropertyValue, property_texts
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import SCHEMA, StateMove, TableRecord, checked_table_name
from sleeper.ports.table_index import TableIndex
from sleeper.state.moves import StatePlace

_ATTEMPTS = 20
_log = logging.getLogger(__name__)


def rename_table(table_id: str, name: str, *, index: TableIndex) -> TableRecord:
    """Rename a table (rule TBL-3).

    Raises:
        BadRequest: the name is not allowed.
        TableAlreadyExists: another table has this name.
        TableNotFound: the table is gone.
    """
    return _change(table_id, lambda record: replace(record, name=checked_table_name(name)), index)


def set_table_online(table_id: str, *, online: bool, index: TableIndex) -> TableRecord:
    """Turn background operations on a table on or off (rule TBL-6).

    Raises:
        TableNotFound: the table is gone.
    """
    return _change(table_id, lambda record: replace(record, online=online), index)


def set_table_properties(
    table_id: str,
    changes: Mapping[str, PropertyValue | None],
    *,
    index: TableIndex,
    instance: InstanceProperties | None = None,
    columns: Callable[[Schema], Schema] | None = None,
) -> TableRecord:
    """Set properties by full name, and change columns, in one step; None resets a value.

    Args:
        table_id: The table.
        changes: Values are str, int or bool.
        index: The table index.
        instance: The instance's properties, with defaults for tables; for warnings alone.
        columns: Returns the schema after a change of columns, the same one if nothing changes;
            None leaves them as they are.

    Raises:
        PropertiesInvalid: a name or value is not allowed, a property is not editable, or filters or
            aggregations do not fit the columns; lists every failure. Nothing was changed.
        SchemaInvalid: `columns` raises it. Nothing was changed.
        TableNotFound: the table is gone.
    """
    texts = property_texts(changes)

    def change(record: TableRecord) -> TableRecord:
        before = record.all_properties()
        after = {name: value for name, value in {**before, **texts}.items() if value is not None}
        check_editable(before, after)
        schema = Schema.from_json(after[SCHEMA])
        if columns is not None:
            schema, schema_before = columns(schema), schema
            if schema is not schema_before:
                after[SCHEMA] = schema.to_json()
        # A stored name that nothing knows may be taken away.
        set_now = {name: texts[name] for name in texts if name in after or name not in before}
        validate_table_properties(after, schema, given=set_now)
        return TableRecord.of(after)

    changed = _change(table_id, change, index)
    in_force = TableProperties(changed.all_properties(), instance or InstanceProperties())
    for warning in table_property_warnings(texts, in_force):
        _log.warning("%s", warning)
    return changed


def switch_state_store(
    table_id: str, before: StatePlace, move: StateMove, *, index: TableIndex
) -> TableRecord:
    """Say in a table's record that its state is in the store of a move.

    Only if it says that it is where the move has taken it from: else the record stays, as somebody
    else has said so already, and may have moved the state further.

    Args:
        table_id: The table.
        before: The place that the state has left.
        move: The move.
        index: The table index.

    Returns:
        The table's record.

    Raises:
        TableNotFound: the table is gone.
    """

    def change(record: TableRecord) -> TableRecord:
        known = TableProperties(record.properties)
        if StatePlace(known.state_store, known.state_move) != before:
            return record
        return replace(record, properties={**record.properties, **move.properties})

    return _change(table_id, change, index)


def _change(
    table_id: str, change: Callable[[TableRecord], TableRecord], index: TableIndex
) -> TableRecord:
    for _ in range(_ATTEMPTS):
        before = index.by_id(table_id)
        if before is None:
            raise TableNotFound(f"table {table_id!r} was deleted")
        after = change(before)
        if after == before:
            return before
        try:
            index.replace(before, after)
        except TableChanged as change_of_others:
            _log.info("trying again: %s", change_of_others)
            continue
        return after
    raise CommitContended(f"others changed table {table_id!r} {_ATTEMPTS} times; try again")
