"""Changes the columns of a table; no data file is written (rules COL-1 to COL-8).

1. the log gets the schema of the newest record of the table, should it lack it: so it misses none
2. the new schema is made of that record, and stored there, with the properties that go with it, in
   one step, if the record is still the newest: from then on readers and writers use it
3. the log gets it too, with who changed it and why. If this process is killed before, the next
   commit adds it.

Files keep the schema that they were written with; readers find columns in them by the ids of
fields, and compactions write the newest schema (docs/format.md, "Columns that change").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from sleeper.columns.default_values import default_text, default_value
from sleeper.columns.type_traits import arrow_type
from sleeper.engine.arrow_schema import field_of_arrow, type_of_arrow
from sleeper.errors import BadRequest, SchemaInvalid, TableChanged
from sleeper.html.values import NotebookHtml
from sleeper.model.known_properties.given import PropertyValue
from sleeper.model.schema import Field, FieldType, Schema, check_name
from sleeper.model.schema_changes import SchemaChange, changed_schema
from sleeper.model.tables import TableRecord
from sleeper.state.state_store import StateStore
from sleeper.state.transactions.schemas import missing_schema
from sleeper.tables.change import set_table_properties
from sleeper.tables.open_table import OpenTable

NewFields: TypeAlias = pa.Schema | Iterable[pa.Field | Field]
"""Fields to add: an Arrow schema, or fields."""

NewType: TypeAlias = pa.DataType | FieldType


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange(NotebookHtml):
    """A change of columns that was made.

    Attributes:
        schema: The table's schema.
        transaction: The newest transaction of the table, which has the schema.
    """

    schema: Schema
    transaction: int


def asked_change(
    *,
    add: NewFields,
    drop: Iterable[str],
    rename: Mapping[str, str],
    widen: Mapping[str, NewType],
    nullable: Iterable[str],
    defaults: Mapping[str, Any],
) -> SchemaChange:
    """Return the change that arguments of `Table.alter` ask for.

    Raises:
        SchemaInvalid: a type is none of a table's, or a default does not fit.
        BadRequest: nothing is to be changed.
    """
    for what, given in (("drop", drop), ("nullable", nullable)):
        if isinstance(given, str):
            raise SchemaInvalid(f"{what} is a list of names, not {given!r}: write [{given!r}]")
        if not isinstance(given, Iterable):
            raise SchemaInvalid(f"{what} is a list of names, not {given!r:.200}")
    for what, mapping in (("rename", rename), ("widen", widen), ("defaults", defaults)):
        if not isinstance(mapping, Mapping):
            raise SchemaInvalid(f"{what} is a dict by name, not {mapping!r:.200}")
    if isinstance(add, str) or not isinstance(add, Iterable):
        raise SchemaInvalid(f"add is a list of fields{_SUCH_AS}, not {add!r:.200}")
    fields, drop, nullable = [_field(each) for each in add], [*drop], [*nullable]
    for name in (*drop, *rename, *rename.values(), *widen, *nullable):
        check_name(name)
    unknown = sorted(set(defaults) - {each.name for each in fields})
    if unknown:
        raise SchemaInvalid(
            f"there is a default for {unknown[0]!r}, which is not added: only rows that were "
            "written before a field need one"
        )
    change = SchemaChange(
        drop=tuple(drop),
        rename=dict(rename),
        widen={name: _type(name, kind) for name, kind in widen.items()},
        nullable=tuple(nullable),
        add=tuple(_with_default(each, defaults) for each in fields),
    )
    if change.is_empty:
        raise BadRequest(
            "alter needs something to add, drop, rename, widen or make nullable; properties alone "
            "are set by set_properties() (`sleeper table set`)"
        )
    return change


_SUCH_AS = ", such as pa.field('x', pa.int64())"


def _field(given: object) -> Field:
    if isinstance(given, Field):
        return given
    if isinstance(given, pa.Field):
        return field_of_arrow(given)
    raise SchemaInvalid(f"a column to add is a field{_SUCH_AS}, not {given!r:.200}")


def _type(name: str, given: object) -> FieldType:
    if isinstance(given, pa.DataType):
        return type_of_arrow(given, name)
    if isinstance(given, FieldType):
        return given
    raise SchemaInvalid(
        f"the new type of field {name!r} is one of Arrow, such as pa.int64(), or of a schema, not "
        f"{given!r:.200}"
    )


def _with_default(field: Field, defaults: Mapping[str, Any]) -> Field:
    kind, value = arrow_type(field.type), defaults.get(field.name)
    if value is None and field.default is not None:
        value = default_value(field.default, kind, field.name).as_py()
    text = None if value is None else default_text(value, kind, field.name)
    return Field(field.name, field.type, field.nullable, default=text)


def alter(
    table: OpenTable,
    change: SchemaChange,
    properties: Mapping[str, PropertyValue | None],
) -> tuple[TableRecord, Schema]:
    """Change the columns of a table (`Table.alter`).

    Returns:
        Its record, and the schema that it had.
    """
    if table.store.refresh().format < 2:
        table.check_exists()
        raise BadRequest(
            f"table {table.name!r} has format 1, whose readers find columns by name. Nothing "
            f"was changed. Upgrade it first: `sleeper table upgrade {table.name}` or "
            "table.upgrade(); versions of Sleeper that do not know format 2 refuse it then"
        )
    before = table.schema

    def changed(schema: Schema) -> Schema:
        nonlocal before
        before = schema
        after = changed_schema(schema, change)
        if after is not schema:
            _record_schema(table.store, schema)
        return after

    record = set_table_properties(
        table.record.table_id,
        properties,
        index=table.context.index,
        instance=table.context.properties,
        columns=changed,
    )
    return record, before


def record_change(table: OpenTable, before: Schema) -> ColumnChange:
    """Add the schema of a table to its log, unless another writer has.

    Args:
        table: The table, opened with its new schema.
        before: The schema that it had.
    """
    try:
        number = _record_schema(table.store, table.schema, before)
    finally:
        table.undo_commit_if_deleted()
    return ColumnChange(schema=table.schema, transaction=number)


def _record_schema(store: StateStore, schema: Schema, before: Schema | None = None) -> int:
    state = store.refresh()
    missing = missing_schema(state, schema)
    if missing is None:
        return state.number
    if before is not None and not before.last_id and not before.columns_as_stored:
        missing = replace(missing, columns_before=before.columns)
    try:
        return store.commit(missing).number
    except TableChanged:  # another writer has added it, or a newer one
        return store.refresh().number
