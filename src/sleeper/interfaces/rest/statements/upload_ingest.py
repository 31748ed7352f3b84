"""Ingests an upload: in this process if it can be read in little memory, else in one with a limit.

A few kilobytes can announce any number of rows and bytes: by compressed buffers, dictionaries, runs
and views in Arrow, and by pages in Parquet. CSV and JSON lines are read in blocks, and take no more
than they are long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import pyarrow as pa

from sleeper.engine.inputs.data_schema import schema_of
from sleeper.errors import InputRefused, InputUnreadable
from sleeper.interfaces.rest.answers import Answer
from sleeper.interfaces.rest.json_values import json_text
from sleeper.interfaces.rest.served_instance import ServedInstance
from sleeper.model.csv_options import CsvOptions
from sleeper.model.schema import Schema
from sleeper.tables.ingest import IngestResult

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_HEADER, _COMPRESSION = 2, 3
"""The places of fields in the tables Message and RecordBatch of Arrow's format."""


def ingest_upload(
    served: ServedInstance,
    *,
    table: str,
    path: str,
    form: str,
    job_id: str | None,
    ignore_extra: bool,
    upsert: bool = False,
    if_unchanged_since: int | None = None,
    csv: CsvOptions | None = None,
) -> Answer:
    """Ingest an upload, and answer with the result.

    Raises:
        InputRefused: it does not fit the table.
    """
    opened = served.table(table)
    add = partial(
        opened.upsert if upsert else opened.ingest,
        ignore_extra_columns=ignore_extra,
        if_unchanged_since=if_unchanged_since,
    )
    result = _added(add, path, form, job_id, csv)
    return Answer(media_type="application/json", body=json_text(result))


def upload_schema(
    path: str,
    form: str,
    *,
    row_keys: Sequence[str],
    sort_keys: Sequence[str],
    csv: CsvOptions | None,
) -> Schema:
    """Return the schema of a table with the columns of an upload. Its rows are not read.

    Raises:
        BadRequest: keys or options of CSV do not fit.
        InputRefused: it cannot be read.
        SchemaInvalid: it cannot be a table's schema.
    """
    with _named_as_sent(path, form):
        if form != "arrow":
            return schema_of([path], row_keys, sort_keys, csv=csv)
        try:
            with pa.memory_map(path) as file, pa.ipc.open_stream(file) as reader:
                columns = reader.schema
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputUnreadable(f"the upload is no Arrow stream: {error}") from None
        return schema_of(columns, row_keys, sort_keys)


def is_plain(path: str, form: str) -> bool:
    """Return whether an upload takes no more memory than it is long."""
    if form != "arrow":
        return form in ("csv", "jsonl")
    try:
        with pa.memory_map(path) as file, pa.ipc.open_stream(file) as reader:
            if not all(_is_plain(field.type) for field in reader.schema):
                return False
        with pa.memory_map(path) as file:
            messages = pa.ipc.MessageReader.open_stream(file)
            if messages.read_next_message().type != "schema":
                return False
            return all(
                each.type == "record batch" and not _is_compressed(bytes(each.metadata))
                for each in messages
            )
    except (pa.ArrowException, OSError, ValueError, struct.error):
        return False


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether each row of a type takes some bytes, which no other row shares."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    if pa.types.is_map(kind):
        return _is_plain(kind.key_type) and _is_plain(kind.item_type)
    if pa.types.is_struct(kind):
        return bool(kind.num_fields) and all(_is_plain(part.type) for part in kind.fields)
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width)
    return (
        pa.types.is_primitive(kind)
        or pa.types.is_decimal(kind)
        or kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    )


def _is_compressed(metadata: bytes) -> bool:
    """Return whether the metadata of a record batch say that its buffers are compressed.

    They are a flatbuffer: a table begins with the distance to the places of its fields.
    """

    def number(form: str, place: int) -> int:
        found: int = struct.unpack_from(form, metadata, place)[0]
        return found

    def field(table: int, index: int) -> int:
        places = table - number("<i", table)
        at = 4 + 2 * index
        offset = number("<H", places + at) if at < number("<H", places) else 0
        return table + offset if offset else 0

    header = field(number("<I", 0), _HEADER)
    return not header or bool(field(header + number("<I", header), _COMPRESSION))


def _added(
    add: Callable[..., IngestResult],
    path: str,
    form: str,
    job_id: str | None,
    csv: CsvOptions | None,
) -> IngestResult:
    """Add the rows of an upload.

    Raises:
        InputRefused: it does not fit the table.
    """
    with _named_as_sent(path, form):
        if form != "arrow":
            return add([path], job_id, csv=csv)
        _check_arrow(path)
        with pa.memory_map(path) as file, pa.ipc.open_stream(file) as reader:
            return add(reader, job_id)


@contextmanager
def _named_as_sent(path: str, form: str) -> Iterator[None]:
    """Name an upload in errors without its temp file, which means nothing to who sent it."""
    try:
        yield
    except InputRefused as error:
        error.args = tuple(
            each.replace(path, f"upload.{form}") if isinstance(each, str) else each
            for each in error.args
        )
        raise


def _check_arrow(path: str) -> None:
    """Check a whole Arrow stream: its values must be what its types say, for nobody checks later.

    Raises:
        InputUnreadable: it is none, is cut off, or has values that are damaged.
    """
    try:
        with pa.memory_map(path) as file:
            with pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    batch.validate(full=True)
            size = file.size()
            file.seek(max(0, size - 8))
            end = file.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputUnreadable(f"the upload is no Arrow stream that can be read: {error}") from None
    if end != _END_OF_STREAM:
        raise InputUnreadable("the upload is an Arrow stream without its end: it was cut off")
