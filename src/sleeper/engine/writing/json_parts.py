"""Rows as JSON in parts, each small enough for a message."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.writing.user_file import json_lines
from sleeper.errors import QueryInvalid

_NEW_LINE = ord("\n")
_NO_CHARACTERS = {text.encode(): f"\\u{ord(text):04x}".encode() for text in "\ufffe\uffff"}
"""Code points that are no characters, which SQS refuses, and how JSON escapes them."""


@dataclass(frozen=True, slots=True)
class JsonPart:
    """Some rows.

    Attributes:
        rows: Their objects as JSON, with commas between them.
        row_count: How many they are.
    """

    rows: str
    row_count: int


def json_parts(
    batches: Iterable[pa.RecordBatch], *, rows_max: int, bytes_max: int
) -> Iterator[JsonPart]:
    """Yield rows in parts; one without rows where there are none.

    Args:
        batches: The rows, which are read to the end, a batch at a time.
        rows_max: Rows in a part. Only the last has fewer, and those that would be too long.
        bytes_max: Bytes in a part, as UTF-8.

    Raises:
        QueryInvalid: a row is longer than a part may be, or has a number that JSON has not.
    """
    held, row_count = b"", 0
    for batch in batches:
        row_count += batch.num_rows
        held = yield from _full_parts(held + _lines(batch), rows_max, bytes_max)
    if held or not row_count:
        yield _part(held)


def _full_parts(lines: bytes, rows_max: int, bytes_max: int) -> Generator[JsonPart, None, bytes]:
    """Yield the parts that no further row fits into, and return the lines that are left."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == _NEW_LINE) + 1
    start = row = 0
    while row < len(ends):
        fitting = int(np.searchsorted(ends, start + bytes_max + 1, side="right")) - row
        if not fitting:
            raise QueryInvalid(
                f"a row has {ends[row] - start - 1:,} bytes as JSON, and a message of results may "
                f"have {bytes_max:,} of rows. Ask for fewer fields, or for results in S3."
            )
        if fitting < rows_max and row + fitting == len(ends):
            break  # more rows may fit
        row += min(fitting, rows_max)
        end = int(ends[row - 1])
        yield _part(lines[start:end])
        start = end
    return lines[start:]


def _part(lines: bytes) -> JsonPart:
    text = lines.decode()
    return JsonPart(text.rstrip("\n").replace("\n", ","), text.count("\n"))


def _lines(batch: pa.RecordBatch) -> bytes:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _has_no_number(column):
            raise QueryInvalid(
                f"field {name!r} has NaN or an infinity, which JSON has not. Leave the field out, "
                "or ask for results in S3."
            )
    lines = json_lines(batch)
    for found, escape in _NO_CHARACTERS.items():
        lines = lines.replace(found, escape)
    return lines


def _has_no_number(column: pa.Array) -> bool:
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.any(pc.invert(pc.is_finite(column))).as_py() is True
    if pa.types.is_struct(kind):
        return any(map(_has_no_number, column.flatten()))
    if pa.types.is_map(kind):
        return _has_no_number(column.keys) or _has_no_number(column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_no_number(column.flatten())
    return False
