"""Few rows as JSON, by Python: for a handful, polars takes longer to begin than Python to end.

The text is that of `user_file.json_lines`, letter for letter, but for the form of very small
numbers (1e-05, where polars writes 0.00001). Whatever Python would write in another way is left to
polars: nested values, lengths of time, short floats, instants of other zones or before year 1.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.python_values import python_values

FEW_ROWS: Final = 32
"""So many rows of four columns take Python as long as polars takes to begin."""

_Write = Callable[[Any], str]


def few_json_lines(batch: pa.RecordBatch) -> bytes | None:
    """Return a few rows as JSON, an object a line; None if polars must write them."""
    if batch.num_rows > FEW_ROWS or not batch.num_columns:
        return None
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        write = _writer(field.type)
        if write is None:
            return None
        try:
            values = python_values(column)
        except (ValueError, OverflowError):  # a time that Python has not
            return None
        name = _text(field.name)
        columns.append([f"{name}:{'null' if each is None else write(each)}" for each in values])
    return "".join(f"{{{','.join(row)}}}\n" for row in zip(*columns, strict=True)).encode()


def _writer(kind: pa.DataType) -> _Write | None:
    """Return what writes values of a type; None if Python writes some in another way."""
    if pa.types.is_integer(kind):
        return str
    return _decimal if pa.types.is_decimal128(kind) else _WRITERS.get(kind)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    return repr(value) if isfinite(value) else "null"


def _truth(value: object) -> str:
    return "true" if value else "false"


def _base64(value: bytes) -> str:
    return f'"{b64encode(value).decode()}"'


def _day(value: date) -> str:
    return f'"{value.isoformat()}"'


def _time(value: time) -> str:
    return f'"{value.isoformat(_digits(value))}"'


def _local(value: datetime) -> str:
    return f'"{value.isoformat(" ", _digits(value))}"'


def _utc(value: datetime) -> str:
    return f'"{value.isoformat("T", _digits(value))}"'


def _digits(value: time | datetime) -> str:
    """Return to which part of a second a time is written: as far as it is not zero."""
    if not value.microsecond:
        return "seconds"
    return "microseconds" if value.microsecond % 1000 else "milliseconds"


def _decimal(value: Decimal) -> str:
    return f'"{value:f}"'


_WRITERS: Final[dict[pa.DataType, _Write]] = {
    pa.string(): _text,
    pa.large_string(): _text,
    pa.float64(): _number,
    pa.bool_(): _truth,
    pa.binary(): _base64,
    pa.date32(): _day,
    pa.time64("us"): _time,
    pa.timestamp("us"): _local,
    pa.timestamp("us", "UTC"): _utc,
}
