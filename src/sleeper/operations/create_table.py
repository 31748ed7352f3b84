"""Creates a table: checks everything, commits its partitions, then adds it to the index (TBL-1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sleeper.errors import TableAlreadyExists
from sleeper.model.known_properties.given import PropertyValue, property_texts
from sleeper.model.known_properties.typed import (
    SCHEMA,
    table_property_warnings,
    validate_table_properties,
)
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Schema
from sleeper.model.tables import ID, NAME, TableRecord, checked_table_name
from sleeper.ports.ids import NewId
from sleeper.ports.table_index import TableIndex
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.partitions import InitialisePartitions

_log = logging.getLogger(__name__)


def new_table_record(
    name: str, schema: Schema, given: Mapping[str, PropertyValue | None], *, table_id: str
) -> TableRecord:
    """Return the record of a new table with the given properties.

    Raises:
        PropertiesInvalid: a name or value is not allowed; lists every failure.
        BadRequest: the table's name is not allowed.
    """
    texts = property_texts(given)
    set_now = {name: text for name, text in texts.items() if text is not None}
    fixed = {ID: table_id, NAME: checked_table_name(name), SCHEMA: schema.to_json()}
    values = {**set_now, **fixed}
    validate_table_properties(values, schema, given=set_now)
    for warning in table_property_warnings(set_now):
        _log.warning("%s", warning)
    return TableRecord.of(values)


def create_table(
    record: TableRecord,
    schema: Schema,
    split_points: Sequence[Any],
    *,
    index: TableIndex,
    store: StateStore,
    new_id: NewId,
) -> None:
    """Initialise the table's partitions, then add it to the index.

    The table exists once the index has it. If the process is killed before, no table is visible,
    and the folder of the unused table id remains.

    Raises:
        SplitPointsInvalid: split points have the wrong type, or are not strictly ascending.
        TableAlreadyExists: the name is taken.
    """
    if index.by_name(record.name) is not None:
        raise TableAlreadyExists(f"table {record.name!r} exists already; choose another name")
    tree = tree_from_split_points(schema, split_points, new_id=new_id)
    store.commit(InitialisePartitions(partitions=tuple(tree.partitions.values())))
    index.add(record)
