"""Creates a table (rule TBL-1).

1. schema, name and properties are checked, and make the table's record
2. the partitions are committed to the table's state, or begin it if there are too many for a commit
3. the record is added to the index; from then on the table exists
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sleeper.engine.inputs.data_schema import schema_of
from sleeper.errors import CommitTooLarge, PropertiesInvalid, TableAlreadyExists
from sleeper.model.csv_options import CsvOptions
from sleeper.model.formats.split_points_file import read_split_points
from sleeper.model.known_properties.checks import table_property_warnings, validate_table_properties
from sleeper.model.known_properties.given import PropertyValue, property_texts
from sleeper.model.known_properties.table import DefinitionProperties
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Schema
from sleeper.model.tables import (
    ID,
    NAME,
    SCHEMA,
    STATE_MOVE,
    STATE_STORE,
    TableRecord,
    checked_table_name,
)
from sleeper.ports.ids import NewId
from sleeper.ports.table_index import TableIndex
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import FORMATS, TableState, Transaction
from sleeper.state.transactions.formats import SetFormat
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.state.transactions.schemas import missing_schema
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.state_stores import store_of

_SPLITS_FILE = "sleeper.table.splits.file"

_log = logging.getLogger(__name__)


def create_table(
    context: InstanceContext,
    name: str,
    schema: object,
    *,
    row_keys: Sequence[str] | None,
    sort_keys: Sequence[str],
    csv: CsvOptions | Mapping[str, Any] | None,
    split_points: Sequence[Any] | None,
    properties: Mapping[str, PropertyValue | None] | None,
) -> TableRecord:
    """Make a table, and return its record (`Instance.create_table`)."""
    if row_keys and type(schema).__module__.startswith("pyspark."):
        from sleeper.spark.data_source.schema import columns_of_spark

        schema = columns_of_spark(schema)
    ours = schema_of(schema, row_keys, sort_keys, csv=csv, remote=context.inputs).as_new()
    table_id = context.new_id()[:8]
    record = _new_record(name, ours, properties or {}, table_id, context.properties)
    if split_points is None:
        definition = TableProperties(record.properties, context.properties).definition
        split_points = _named_split_points(definition, ours)
    add_table(
        record,
        ours,
        split_points,
        index=context.index,
        store=store_of(record, context, is_new=True),
        new_id=context.new_id,
    )
    return record


def _new_record(
    name: str,
    schema: Schema,
    given: Mapping[str, PropertyValue | None],
    table_id: str,
    instance: InstanceProperties,
) -> TableRecord:
    """Return the record of a new table with the given properties.

    Args:
        name, schema, given, table_id: What it has.
        instance: The instance's properties. If they name a state store for new tables, and `given`
            does not, the record says so from now on.

    Raises:
        PropertiesInvalid: a name or value is not allowed, or disagrees with the table's name or
            schema; lists every failure.
        BadRequest: the table's name is not allowed.
    """
    texts = property_texts(given)
    set_now = {name: text for name, text in texts.items() if text is not None}
    fixed = {ID: table_id, NAME: checked_table_name(name), SCHEMA: schema.to_json()}
    _check_agreement(set_now, name, schema)
    values = {**set_now, **fixed}
    validate_table_properties(values, schema, given=set_now)
    chosen = TableProperties(values, instance)
    for warning in table_property_warnings(set_now, chosen):
        _log.warning("%s", warning)
    if chosen.statestore.class_name != chosen.state_store:
        values[STATE_STORE] = chosen.statestore.class_name
    return TableRecord.of(values)


def _check_agreement(set_now: Mapping[str, str], name: str, schema: Schema) -> None:
    """Check that properties repeat the name and schema of a new table, where they have them."""
    failures = {}
    if (named := set_now.get(NAME, name)) != name:
        failures[NAME] = f"{NAME} is {named!r}, but the table is to be called {name!r}"
    if STATE_MOVE in set_now:
        failures[STATE_MOVE] = f"{STATE_MOVE} is set when the state of a table is moved"
    if ID in set_now:
        failures[ID] = f"{ID} is {set_now[ID]!r}, but each new table gets an id of its own"
    if SCHEMA in set_now and Schema.from_json(set_now[SCHEMA]).as_new() != schema:
        failures[SCHEMA] = f"{SCHEMA} is another schema than the one that is given"
    if failures:
        raise PropertiesInvalid(
            {each: f"{text}. Leave the property out." for each, text in failures.items()}
        )


def _named_split_points(definition: DefinitionProperties, schema: Schema) -> list[Any]:
    """Return the split points in the file that a table's properties name; none without one.

    Raises:
        PropertiesInvalid: the file cannot be read.
        SplitPointsInvalid: a line is no value of the first row key, or they do not ascend.
    """
    if not definition.splits_file:
        return []
    try:
        text = Path(definition.splits_file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PropertiesInvalid(
            {
                _SPLITS_FILE: f"{_SPLITS_FILE} is {definition.splits_file!r}, which cannot be read "
                f"({error}). Name a text file of this machine, with a split point on each line."
            }
        ) from error
    return read_split_points(text, schema, base64_encoded=definition.splits_base64_encoded)


def add_table(
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
        raise TableAlreadyExists(
            f"table {record.name!r} exists already; choose another name, or "
            f"open it by instance.table({record.name!r})"
        )
    tree = tree_from_split_points(schema, split_points, new_id=new_id)
    first = (
        SetFormat(format=max(FORMATS)),
        InitialisePartitions(partitions=tuple(tree.partitions.values())),
    )
    try:
        store.commit_group(first, together=True).of_all()
    except CommitTooLarge:  # nobody reads this state before the index has the table
        store.begin_with(_first_state(first, schema, store))
    index.add(record)


def _first_state(first: Sequence[Transaction], schema: Schema, store: StateStore) -> TableState:
    """Return the state after the first commit of a table."""
    at = store.time()
    state = replace(store.state(), number=1, at=at)
    missing = missing_schema(state, schema)
    transactions = first if missing is None else (missing, *first)
    for transaction in transactions:
        state = transaction.apply(state, at)
    return state
