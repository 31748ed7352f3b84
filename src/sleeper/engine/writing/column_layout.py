"""Chooses codec and encoding of each column of a data file.

Every writer of data files asks here, so that files do not depend on who wrote them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from sleeper.engine.arrow_schema import parquet_paths
from sleeper.language.value_classes import dataclass
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
_NUMBERS = ColumnLayout("lz4")  # plain: differences take longer to look up (docs/decisions)
_TEXTS = ColumnLayout("zstd", 3, "DELTA_LENGTH_BYTE_ARRAY")
_OTHERS = ColumnLayout("zstd", 3)


def column_layouts(
    schema: Schema,
    arrow_schema: pa.Schema,
    *,
    codec: str | None,
    level: int | None = None,
    delta_encodings: bool = True,
) -> dict[str, ColumnLayout]:
    """Return the layout of each column without a dictionary, by its path in Parquet.

    Args:
        schema: The table's schema.
        arrow_schema: The same as Arrow's.
        codec: The codec that a user chose for all columns, by pyarrow's name; None if each column
            gets its own.
        level: The level of that codec; None is its default.
        delta_encodings: False if only PLAIN is wanted.
    """
    found = {}
    for field in arrow_schema:
        chosen = _layout(field.type, is_key=field.name in schema.row_key_names)
        if codec is not None:
            chosen = ColumnLayout(codec, level, chosen.encoding)
        if not delta_encodings:
            chosen = ColumnLayout(chosen.codec, chosen.level)
        found.update(dict.fromkeys(parquet_paths(field), chosen))
    return found


def pyarrow_options(
    layouts: Mapping[str, ColumnLayout], dictionaries: Collection[str] = ()
) -> dict[str, Any]:
    """Return the layouts as options of pyarrow's writer.

    Args:
        layouts: The layout of each column, by path.
        dictionaries: Paths of columns that get a dictionary instead of an encoding.
    """
    levels = {path: each.level for path, each in layouts.items() if each.level is not None}
    encodings = {
        path: each.encoding
        for path, each in layouts.items()
        if each.encoding is not None and path not in dictionaries
    }
    return {
        "compression": {path: each.codec for path, each in layouts.items()},
        "compression_level": levels or None,
        "column_encoding": encodings or None,
    }


def _layout(kind: pa.DataType, *, is_key: bool) -> ColumnLayout:
    types = pa.types
    if is_key:
        return _KEYS  # found by bisection of PLAIN values
    if types.is_string(kind) or types.is_binary(kind):
        return _TEXTS
    whole = types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind)
    return _NUMBERS if whole else _OTHERS
