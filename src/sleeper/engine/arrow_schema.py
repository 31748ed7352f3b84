"""Converts a table's schema to Arrow and back, and input columns to that schema.

Columns of input are found by name. Values are never changed: an input with a value that its
column's type cannot represent exactly is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.default_values import default_value
from sleeper.columns.exact_cast import castable, exact_cast, is_list, plain_type
from sleeper.columns.type_traits import arrow_type, fitting_kind, outside_limits
from sleeper.errors import InputSchemaMismatch, SchemaInvalid
from sleeper.lookup.columns import FieldInFiles
from sleeper.model.schema import (
    Field,
    FieldType,
    ListType,
    MapType,
    Schema,
    StructType,
    type_to_text,
)

_NEAR = 0.8


def to_arrow(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of rows in data files: row keys, sort keys, values (rule FMT-2)."""
    return pa.schema(
        [pa.field(field.name, arrow_type(field.type), field.nullable) for field in schema.fields]
    )


def stored_schema(schema: Schema, arrow_schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema that a new data file is written with: fields have their ids.

    Args:
        schema: A table's schema.
        arrow_schema: What `to_arrow` returns for it.
    """
    if not schema.last_id:
        return arrow_schema
    return pa.schema(
        [
            of_arrow.with_metadata({_FIELD_ID: str(field.id)})
            for field, of_arrow in zip(schema.fields, arrow_schema, strict=True)
        ]
    )


_FIELD_ID = b"PARQUET:field_id"
"""What pyarrow writes as the id of a column."""


def fields_in_files(schema: Schema) -> dict[str, FieldInFiles] | None:
    """Return how files have the fields of a table, by name; None if its columns never changed."""
    if not schema.last_id:
        return None
    return {
        field.name: FieldInFiles(
            field.id or 0, field.first_name, default_value(field.default, arrow_type(field.type))
        )
        for field in schema.fields
    }


def shown_schema(schema: Schema, arrow_schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of rows as they are returned (rule SCH-10).

    Args:
        schema: A table's schema.
        arrow_schema: What `to_arrow` returns for it.
    """
    if schema.columns_as_stored:
        return arrow_schema
    return pa.schema([arrow_schema.field(name) for name in schema.columns])


def from_arrow(
    arrow: pa.Schema, *, row_keys: Sequence[str], sort_keys: Sequence[str] = ()
) -> Schema:
    """Return the schema of a table for rows of an Arrow schema.

    Keys are in the given order, values in column order; rows are returned with the columns in
    their order here. Small integers, large strings,
    dictionaries and similar types become the narrowest type of ours that fits. A value field is
    nullable if its Arrow field is, and so are elements of lists; a key never is, nor are values of
    maps, as aggregations of maps need it.

    Raises:
        SchemaInvalid: a key is not a column, a column has a type that no field can have, or
            the schema breaks a rule (rules SCH-1 to SCH-6).
    """
    refuse_duplicates(arrow, "the Arrow schema", SchemaInvalid)
    missing = [name for name in (*row_keys, *sort_keys) if name not in arrow.names]
    if missing:
        raise SchemaInvalid(no_such_keys(missing, arrow.names))
    keys = {*row_keys, *sort_keys}
    return Schema(
        row_keys=tuple(Field(name, _field_type(arrow.field(name))) for name in row_keys),
        sort_keys=tuple(Field(name, _field_type(arrow.field(name))) for name in sort_keys),
        values=tuple(
            Field(column.name, _field_type(column), column.nullable)
            for column in arrow
            if column.name not in keys
        ),
        columns=tuple(arrow.names),
    )


def no_such_keys(missing: Sequence[str], columns: Sequence[str]) -> str:
    """Return what to say where keys are no columns, and which column is similar."""
    near = similar_column(missing[0], columns)
    meant = "" if near is None else f" (did you mean {near!r}?)"
    return f"key fields {[*missing]} are not among the columns {[*columns]}{meant}"


def similar_column(name: str, columns: Sequence[str]) -> str | None:
    """Return the column whose name is most similar to a name; None if none is."""
    plain = {column.casefold(): column for column in columns}
    near = get_close_matches(str(name).casefold(), plain, n=1)
    return plain[near[0]] if near else None


def field_of_arrow(field: pa.Field) -> Field:
    """Return a field of Arrow as one of a table.

    Raises:
        SchemaInvalid: it has a type that no field can have.
    """
    return Field(field.name, _field_type(field), field.nullable)


def type_of_arrow(kind: pa.DataType, name: str) -> FieldType:
    """Return a type of Arrow as one of a table; `name` is the field's, for errors.

    Raises:
        SchemaInvalid: no field can have the type.
    """
    return _field_type(pa.field(name, kind))


def _field_type(column: pa.Field, inner: pa.DataType | None = None) -> FieldType:
    """Return the type of a column, or of what is inside of its values."""
    have = plain_type(column.type if inner is None else inner)
    if is_list(have):
        return ListType(_field_type(column, have.value_type), have.value_field.nullable)
    if pa.types.is_map(have):
        key = _field_type(column, have.key_type)
        if not isinstance(key, ListType | MapType | StructType):
            return MapType(key, _field_type(column, have.item_type))
    if pa.types.is_struct(have) and have.num_fields:
        return StructType(
            tuple((part.name, _field_type(column, part.type)) for part in have.fields)
        )
    kind = fitting_kind(have)
    if kind is not None:
        return kind
    raise SchemaInvalid(
        f"column {column.name!r} is of Arrow type {column.type}, which no field can have: "
        f"{_advice(have)}"
    )


def _advice(have: pa.DataType) -> str:
    if have == pa.uint64():
        return "cast it to int64 if its values fit, or to decimal128(20, 0)"
    if pa.types.is_struct(have):
        return "Parquet keeps no struct without parts; leave it out"
    if pa.types.is_null(have):
        return (
            "it has only nulls; leave it out, cast it to the type it should have, or write a "
            "schema with that type (--schema)"
        )
    if pa.types.is_map(have):
        return "keys of maps need a primitive type; make a list of structs of it"
    return "cast it to a type of schemas, or leave it out"


def conform(
    data: pa.Table | pa.RecordBatch,
    arrow_schema: pa.Schema,
    *,
    key_names: Sequence[str],
    ignore_extra_columns: bool,
    origin: str,
) -> pa.Table:
    """Return input rows as a table of exactly `arrow_schema`; `origin` names them in errors.

    Columns are found by name. A nullable column may be missing and becomes null (rule SCH-5).
    Casts are exact. Nulls in key columns are handled by `split_null_keys`.

    Raises:
        InputSchemaMismatch: columns do not fit (see `check_columns`), a value does not fit
            its column's type, a required value is null, text is not UTF-8, or a date or
            timestamp key is outside the years 1 to 9999.
    """
    check_columns(
        data.schema, arrow_schema, ignore_extra_columns=ignore_extra_columns, origin=origin
    )
    present = set(data.schema.names)
    columns = []
    for field in arrow_schema:
        if field.name not in present:
            columns.append(pa.chunked_array([pa.nulls(data.num_rows, field.type)]))
            continue
        column = data.column(field.name)
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        cast = pa.chunked_array(
            [_cast(chunk, field.type, field.name, origin) for chunk in chunks], field.type
        )
        if field.name in key_names:
            _check_limits(cast, field, origin)
        else:
            _check_nulls(cast, field, origin)
        columns.append(cast)
    return pa.Table.from_arrays(columns, schema=arrow_schema)


def check_columns(
    given: pa.Schema, arrow_schema: pa.Schema, *, ignore_extra_columns: bool, origin: str
) -> None:
    """Check names and types of input columns, before any row is read.

    Raises:
        InputSchemaMismatch: a name occurs twice, a required column is missing, a column is
            unknown and not ignored, or has a name so similar to a missing one that it may be
            misspelt, or has a type without an exact cast.
    """
    refuse_duplicates(given, origin, InputSchemaMismatch)
    missing = [f.name for f in arrow_schema if not f.nullable and f.name not in given.names]
    extra = [name for name in given.names if name not in arrow_schema.names]
    if missing:
        raise InputSchemaMismatch(
            f"{origin} lacks required columns {missing}; it has {given.names}"
            f"{_rename_advice(_misspelt(extra, missing))}"
        )
    misspelt = [*_misspelt(extra, [n for n in arrow_schema.names if n not in given.names])]
    if extra and not ignore_extra_columns:
        raise InputSchemaMismatch(
            f"{origin} has columns {extra} that the table does not have; leave them out, or give "
            "ignore_extra_columns=True (on the command line --ignore-extra-columns). The table has "
            f"{arrow_schema.names}{_rename_advice(misspelt)}"
        )
    for name, near in misspelt:
        raise InputSchemaMismatch(
            f"{origin} has no column {name!r}, but a column {near!r}, which the table does not "
            f"have: is {name!r} misspelt? Rename it. If it is another column, leave it out of the "
            f"input, or add a column {name!r} of nulls. It is not ignored, because every {name!r} "
            "would be null"
        )
    for field in arrow_schema:
        have = given.field(field.name).type if field.name in given.names else field.type
        if not castable(have, field.type):
            raise InputSchemaMismatch(
                f"column {field.name!r} of {origin} is {have}, but the table needs {field.type}"
                f"{_type_advice(have, field.type)}"
            )


def _misspelt(extra: Sequence[str], missing: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield missing columns, each with an extra column that has a similar name.

    Case, spaces and signs are ignored. Names that differ only in digits, such as `price_2023` and
    `price_2024`, are different columns.
    """
    plain = {_letters(name): name for name in extra}
    for name in missing:
        wanted = _letters(name)
        for near in get_close_matches(wanted, plain, cutoff=_NEAR):
            if near == wanted or re.sub(r"\d", "", near) != re.sub(r"\d", "", wanted):
                yield name, plain[near]


def _rename_advice(misspelt: Iterable[tuple[str, str]]) -> str:
    pairs = [f"{near!r} to {name!r}" for name, near in misspelt]
    return (
        f". If a name is misspelt, rename {', '.join(pairs)}: case and spaces count"
        if pairs
        else ""
    )


def row_key_columns(schema: Schema, arrow_schema: pa.Schema) -> pa.Schema:
    """Return the columns of row keys alone, as files of deleted keys have them."""
    return pa.schema([arrow_schema.field(name) for name in schema.row_key_names])


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def split_null_keys(table: pa.Table, key_names: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return (rows without nulls in keys, rows with a null in any key)."""
    with_nulls = [name for name in key_names if table.column(name).null_count]
    if not with_nulls:
        return table, table.slice(0, 0)
    good = pc.is_valid(table.column(with_nulls[0]))
    for name in with_nulls[1:]:
        good = pc.and_(good, pc.is_valid(table.column(name)))
    return table.filter(good), table.filter(pc.invert(good))


def refuse_duplicates(
    given: pa.Schema, origin: str, error: type[SchemaInvalid | InputSchemaMismatch]
) -> None:
    """Raise an error of a class if two columns have one name; `origin` says where."""
    repeated = sorted(name for name, count in Counter(given.names).items() if count > 1)
    if repeated:
        raise error(f"{origin} has more than one column named {repeated}; rename or drop them")


def _type_advice(given: pa.DataType, want: pa.DataType) -> str:
    if isinstance(given, pa.UuidType):
        return (
            ": it has the 16 bytes of each UUID. Give their texts, as by "
            "[str(each) for each in column.to_pylist()], or declare ByteArrayType"
        )
    have = plain_type(given)
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(want):
        if want.tz:
            return ": it has no time zone, but the field needs one. Add it first"
        fitting = fitting_kind(have)
        assert fitting is not None
        return (
            ": it has a time zone, but the field has none. Remove its time zone first, or declare "
            + type_to_text(fitting)
        )
    return ". Cast it first"


def _cast(chunk: pa.Array, want: pa.DataType, name: str, origin: str) -> pa.Array:
    """Return an array as exactly the wanted type, every value unchanged."""
    try:
        cast = exact_cast(chunk, want)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputSchemaMismatch(
            f"column {name!r} of {origin} does not fit: from {chunk.type} to {want}: "
            f"{str(error).splitlines()[0]}"
        ) from None
    _check_elements(cast, name, origin)
    return cast


def _check_elements(chunk: pa.Array, name: str, origin: str) -> None:
    """Raise an error for nulls inside lists and maps that may have none, at any depth."""
    if not pa.types.is_nested(chunk.type):
        return
    if pa.types.is_struct(chunk.type):
        for part in chunk.flatten():
            _check_elements(part, name, origin)
        return
    first, last = chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()
    is_map = pa.types.is_map(chunk.type)
    held = chunk.type.item_field if is_map else chunk.type.value_field
    values = (chunk.items if is_map else chunk.values).slice(first, last - first)
    if values.null_count and not held.nullable:
        raise InputSchemaMismatch(
            f"column {name!r} of {origin} has {values.null_count:,} nulls inside its lists or "
            "maps, which are not allowed; drop them, replace them by a value, or declare a table "
            f"whose {'MapType' if is_map else 'ListType'} has nullable=True"
        )
    _check_elements(values, name, origin)


def _check_nulls(column: pa.ChunkedArray, field: pa.Field, origin: str) -> None:
    if column.null_count and not field.nullable:
        raise InputSchemaMismatch(
            f"column {field.name!r} of {origin} has {column.null_count:,} nulls among "
            f"{len(column):,} rows, but the field is required; fill them in, or make the field "
            "nullable in a new table"
        )


def _check_limits(column: pa.ChunkedArray, field: pa.Field, origin: str) -> None:
    """Raise an error for date and timestamp keys outside Python's range, which partitions need."""
    outside = outside_limits(column)
    if outside is not None:
        raise InputSchemaMismatch(
            f"key column {field.name!r} of {origin} has {outside}. Correct them first"
        )


def columns_with_statistics(arrow_schema: pa.Schema) -> list[str] | bool:
    """Return pyarrow's `write_statistics`: the Parquet paths of the columns, or False for none.

    Floating-point columns get none: the least and greatest value of Parquet's statistics leave out
    NaN, and do not say so. Engines that use them read a NaN as another row's value, or skip the row
    (docs/decisions, 0034).

    Numbers inside lists and maps have statistics: engines take no value from them, and the page
    index of a list counts its values only if it has statistics. Engines do use those of parts of
    structs, so such a part has none if it is a floating-point number.
    """
    return [path for field in arrow_schema for path in _paths(field, of_floats=False)] or False


def parquet_paths(field: pa.Field) -> list[str]:
    """Return the Parquet paths of the columns that pyarrow makes from a field."""
    return _paths(field, of_floats=True)


def _paths(field: pa.Field, *, of_floats: bool) -> list[str]:
    """Return the paths of columns below a field; those of floats in no list only if wanted."""
    kind = field.type
    if pa.types.is_struct(kind):
        inside = [path for part in kind.fields for path in _paths(part, of_floats=of_floats)]
    elif pa.types.is_list(kind):
        inside = [f"list.{path}" for path in parquet_paths(kind.value_field.with_name("element"))]
    elif pa.types.is_map(kind):
        parts = kind.key_field.with_name("key"), kind.item_field.with_name("value")
        inside = [f"key_value.{path}" for part in parts for path in parquet_paths(part)]
    else:
        return [field.name] if of_floats or not pa.types.is_floating(kind) else []
    return [f"{field.name}.{path}" for path in inside]
