"""Chooses codec and encoding of each column of a data file.

Every writer of data files asks here, so that files do not depend on who wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sleeper.engine.arrow_schema import parquet_paths
from sleeper.model.schema import Schema


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How the pages of one column are written.

    Attributes:
        codec: Compression, by pyarrow's name: "zstd", "lz4" (raw blocks), "none" ...
        level: Level of the codec; None is the codec's default.
        encoding: Parquet's name of an encoding; None for PLAIN, or for a dictionary.
    """

    codec: str
    level: int | None = None
    encoding: str | None = None


_KEYS = ColumnLayout("zstd", 1)
_NUMBERS = ColumnLayout("lz4", None, "DELTA_BINARY_PACKED")
_TEXTS = ColumnLayout("zstd", 3, "DELTA_LENGTH_BYTE_ARRAY")
_OTHERS = ColumnLayout("zstd", 3)


def column_layouts(
    schema: Schema, arrow_schema: pa.Schema, *, codec: str | None, delta_encodings: bool = True
) -> dict[str, ColumnLayout]:
    """Return the layout of each column without a dictionary, by its path in Parquet.

    Args:
        schema: The table's schema.
        arrow_schema: The same as Arrow's.
        codec: The codec that a user chose for all columns, by pyarrow's name; None if each column
            gets its own.
        delta_encodings: False if only PLAIN is wanted.
    """
    found = {}
    for field in arrow_schema:
        chosen = _layout(field.type, is_key=field.name in schema.row_key_names)
        if codec is not None:
            chosen = ColumnLayout(codec, 3 if codec == "zstd" else None, chosen.encoding)
        if not delta_encodings:
            chosen = ColumnLayout(chosen.codec, chosen.level)
        found.update(dict.fromkeys(parquet_paths(field), chosen))
    return found


def _layout(kind: pa.DataType, *, is_key: bool) -> ColumnLayout:
    types = pa.types
    if is_key:
        return _KEYS  # found by bisection of PLAIN values
    if types.is_string(kind) or types.is_binary(kind):
        return _TEXTS
    whole = types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind)
    return _NUMBERS if whole else _OTHERS
