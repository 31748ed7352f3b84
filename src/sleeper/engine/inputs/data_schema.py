"""The schema of a new table: given as such, or taken from data whose columns it is to have.

Of data no row is added: only names and types of columns are used. Of CSV and JSON lines the types
are what the first 8 MiB of the first file suggest, so a later value may not fit; the ingest then
refuses it by row and column.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import pyarrow as pa

from sleeper.engine.arrow_schema import (
    from_arrow,
    no_such_keys,
    refuse_duplicates,
    similar_column,
)
from sleeper.engine.inputs.input_files import file_schema, find_files, shown
from sleeper.engine.inputs.pandas_frames import frame_schema, is_pandas
from sleeper.engine.inputs.sources import (
    check_frame_columns,
    is_frame,
    is_lazy_frame,
    is_paths,
    lazy_schema,
)
from sleeper.engine.inputs.text_files import (
    csv_schema,
    json_schema,
    refuse_other_encoding,
    refuse_other_separator,
    warn_of_types,
)
from sleeper.errors import BadRequest, InputSchemaMismatch, InputUnreadable, SchemaInvalid
from sleeper.model.csv_options import CsvOptions
from sleeper.model.input_names import text_kind
from sleeper.model.schema import Schema
from sleeper.ports.objects import InputStore

_log = logging.getLogger(__name__)

_GROUP = "rowKeyFields"


def schema_of(
    given: object,
    row_keys: Sequence[str] | None,
    sort_keys: Sequence[str],
    *,
    csv: CsvOptions | Mapping[str, Any] | None = None,
    remote: InputStore | None = None,
) -> Schema:
    """Return the schema from one of the forms that `create_table` accepts.

    Args:
        given: A `Schema`, its JSON, a `pyarrow.Schema`, or data.
        row_keys, sort_keys: The names of keys; only for the last two.
        csv: How files of CSV are written.
        remote: Opens files by URL.

    Raises:
        BadRequest: the key fields are given twice, or not at all, or it is nothing of these.
        InputRefused: a file cannot be read.
        SchemaInvalid: it cannot be a table's schema.
    """
    if type(given).__module__.startswith("pyspark."):
        raise BadRequest(
            f"a {type(given).__name__} of Spark does not say which fields are keys: give "
            "row_keys=[...] besides, or Schema(row_keys=[...], values=[...])"
        )
    for name, keys in (("row_keys", row_keys), ("sort_keys", sort_keys)):
        if keys is not None and (isinstance(keys, str) or not isinstance(keys, Iterable)):
            raise BadRequest(
                f"{name} must be a list of names of fields, not {keys!r}: give {name}=[{keys!r}]"
            )
    options = CsvOptions.of(csv)
    if isinstance(given, Schema) or _is_json(given, has_keys=bool(row_keys)):
        if row_keys or sort_keys or options is not None:
            raise BadRequest(
                "row_keys, sort_keys and csv are for a pyarrow.Schema or data; this schema has its "
                "own keys"
            )
        return given if isinstance(given, Schema) else Schema.from_json(given)  # type: ignore[arg-type]
    if options is not None and not is_paths(given):
        raise BadRequest(f"csv is for files of CSV, and not for a {type(given).__name__}")
    columns = _columns_of(given, options, remote, row_keys or ())
    if not row_keys:
        what = "a pyarrow.Schema" if isinstance(given, pa.Schema) else "data"
        raise BadRequest(
            f"{what} does not say which fields are keys: give row_keys=[...]; its columns are "
            f"{columns.names}"
        )
    return from_arrow(columns, row_keys=row_keys, sort_keys=sort_keys)


def _is_json(given: object, *, has_keys: bool) -> bool:
    """Return whether something is the JSON of a schema, and not a path or a dict of columns."""
    if isinstance(given, Mapping):
        return _GROUP in given or not has_keys
    if isinstance(given, bytes):
        given = given.decode("utf-8", "replace")
    return isinstance(given, str) and (given.lstrip().startswith("{") or not has_keys)


def _columns_of(
    given: object, csv: CsvOptions | None, remote: InputStore | None, keys: Sequence[str]
) -> pa.Schema:
    """Return the columns of data, with their Arrow types."""
    if isinstance(given, pa.Schema):
        return given
    if is_paths(given):
        paths = [given] if isinstance(given, str | bytes | os.PathLike) else given
        path = find_files(paths, remote)[0]
        try:
            found = _columns_of_file(path, csv, remote, keys)
        except (InputUnreadable, InputSchemaMismatch) as error:  # as an ingest of it would raise it
            reason = str(error).replace("Nothing was ingested", "No table was made")
            raise type(error)(reason) from None
        _check_names(found, path, keys, csv)
        return found
    if is_lazy_frame(given):
        return lazy_schema(given)
    if isinstance(known := getattr(given, "schema", None), pa.Schema):
        return known  # of a table, a batch, a reader, a dataset, or rows of ours
    if isinstance(given, Mapping):
        return _columns_of_values(given)
    if _is_list_of_dicts(given):
        names = dict.fromkeys(name for row in given for name in row)
        return _columns_of_values({name: [row.get(name) for row in given] for name in names})
    return _columns_of_frame(given)


def _columns_of_frame(given: object) -> pa.Schema:
    """Return the columns of what another library has."""
    if is_pandas(given):
        return frame_schema(given)
    if is_frame(given):
        check_frame_columns(given.schema)  # type: ignore[attr-defined]
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(given).schema
        if hasattr(given, "__arrow_c_array__"):
            return pa.record_batch(given).schema
        if hasattr(given, "__arrow_c_schema__"):
            return pa.schema(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadRequest(f"a {type(given).__name__} does not tell its columns: {error}") from None
    raise SchemaInvalid(
        "schema must be a Schema, its JSON, or a pyarrow.Schema or data with row_keys=[...], not "
        f"{given!r:.500}"
    )


def _check_names(found: pa.Schema, path: str, keys: Sequence[str], csv: CsvOptions | None) -> None:
    """Check the names of a file's columns, to say which file it is and how it is read otherwise.

    Raises:
        SchemaInvalid: a name occurs twice or is empty, or no key is among those of CSV and none
            is similar: its first row may be no header.
    """
    refuse_duplicates(found, shown(path), SchemaInvalid)
    is_csv = csv is not None or text_kind(path) == "csv"
    if "" in found.names:
        advice = (
            "; give other names, by csv=CsvOptions(column_names=[...]) or --column-names. If it is "
            "the index of pandas, write the file by to_csv(index=False); if each line ends in a "
            "separator, leave these out"
        )
        raise SchemaInvalid(
            f"column {found.names.index('') + 1} of {shown(path)} has no name{advice * is_csv}"
        )
    if not is_csv and not set(keys) & set(found.names):
        for field in found:
            if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
                raise SchemaInvalid(
                    f"{no_such_keys(keys, found.names)} of {shown(path)}. Its rows may be the "
                    f"objects in {field.name!r}: write them one a line, as jq -c '.{field.name}[]' "
                    "does"
                )
    has_header = is_csv and (csv is None or csv.header)
    if not has_header or not keys or set(keys) & set(found.names):
        return  # keys that are missing are refused later, for data of any kind
    if similar_column(keys[0], found.names) is None:
        raise SchemaInvalid(
            f"{no_such_keys(keys, found.names)} of {shown(path)}. If its first row has values "
            "and no names, give csv=CsvOptions(header=False, column_names=[...]), on the command "
            "line --no-header --column-names"
        )


def _columns_of_file(
    path: str, csv: CsvOptions | None, remote: InputStore | None, keys: Sequence[str]
) -> pa.Schema:
    kind = "csv" if csv is not None else text_kind(path)
    if kind is None:
        return file_schema(path, remote)
    if kind == "json":
        return json_schema(path, remote)
    if csv is not None and not csv.header and csv.column_names is None:
        raise BadRequest(
            "without a header the columns of a new table have no names: give column_names=[...] "
            "of csv, on the command line --column-names"
        )
    found = csv_schema(path, remote, csv or CsvOptions())
    refuse_other_separator(path, found.names, keys, csv or CsvOptions())
    refuse_other_encoding(path, found)
    warn_of_types(path, remote, csv or CsvOptions())
    unknown = [each.name for each in found if pa.types.is_null(each.type)]
    if any(unknown):  # one without a name is refused
        _log.warning(
            "columns %s of %s are text, because its first 8 MiB have no values of them: if they "
            "are to have other types, write the schema yourself (--schema, in Python pa.schema)",
            *(unknown, shown(path)),
        )
    return pa.schema(
        [each.with_type(pa.string()) if each.name in unknown else each for each in found]
    )


def _columns_of_values(columns: Mapping[Any, Any]) -> pa.Schema:
    """Return the types of lists of Python values, or of arrays, by name."""
    found = []
    for name, values in columns.items():
        if isinstance(values, str | bytes):
            raise SchemaInvalid(
                f"{name!r} of the dict of columns is no column: {values!r:.100} is no list of "
                "values. If it is a type, give a pyarrow.Schema"
            )
        try:
            kind = pa.array(values, from_pandas=True).type
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise SchemaInvalid(
                f"the values of {name!r} have no common type: {error}. Give a Schema"
            ) from None
        if kind == pa.uuid() and not isinstance(values, pa.Array | pa.ChunkedArray):
            kind = pa.string()  # objects of class UUID
        found.append(pa.field(name, kind))
    return pa.schema(found)


def _is_list_of_dicts(given: object) -> TypeGuard[Sequence[Mapping[Any, Any]]]:
    return (
        isinstance(given, list | tuple)
        and bool(given)
        and all(isinstance(row, Mapping) for row in given)
    )
