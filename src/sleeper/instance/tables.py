"""`Instance.create_table` and `Instance.delete_table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from sleeper.engine.arrow_schema import schema_of
from sleeper.instance.handle import InstanceHandle
from sleeper.model.known_properties.given import PropertyValue
from sleeper.model.schema import Schema
from sleeper.tables import create as creation
from sleeper.tables import delete as deletion
from sleeper.tables.state_stores import delete_states, store_of
from sleeper.tables.table import Table, record_of


def create_table(
    self: InstanceHandle,
    name: str,
    schema: Schema | pa.Schema | str | Mapping[str, Any],
    *,
    row_keys: Sequence[str] | None = None,
    sort_keys: Sequence[str] = (),
    split_points: Sequence[Any] | None = None,
    properties: Mapping[str, PropertyValue | None] | None = None,
) -> Table:
    """Make a table.

    Args:
        name: Unique within the instance.
        schema: A `Schema`, its JSON, or a `pyarrow.Schema` with `row_keys` named. Rows are returned
            with their columns in the order of the `pyarrow.Schema`, or of `Schema.columns`.
        row_keys: With a `pyarrow.Schema`: the fields that partition and sort the table.
        sort_keys: With a `pyarrow.Schema`: the fields that order rows with equal row keys.
        split_points: Values of the first row key between leaf partitions, ascending. None
            reads them from the file that `sleeper.table.splits.file` names, if it is set.
        properties: Table properties by full name (docs/reference/properties.md); values are
            str, int or bool.

    Raises:
        TableAlreadyExists: the name is taken.
        SchemaInvalid, SplitPointsInvalid, PropertiesInvalid: what is wrong, and why.

    Source: rule TBL-1.
    """
    ours = schema_of(schema, row_keys, sort_keys)
    context = self._context
    given, table_id = properties or {}, context.new_id()[:8]
    record = creation.new_table_record(name, ours, given, table_id, context.properties)
    table = Table(record, context)
    if split_points is None:
        split_points = creation.named_split_points(table.properties.definition, ours)
    creation.create_table(
        record,
        ours,
        split_points,
        index=context.index,
        store=store_of(record, context, is_new=True),
        new_id=context.new_id,
    )
    return table


def delete_table(self: InstanceHandle, name: str) -> None:
    """Delete a table with all its data. This cannot be undone (rule TBL-4).

    Raises:
        TableNotFound: there is no table with this name.
    """
    context = self._context
    record = record_of(name, context)
    deletion.delete_table(
        record.table_id,
        index=context.index,
        delete_states=partial(delete_states, record, context),
        objects=context.objects,
    )
