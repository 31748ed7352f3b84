"""What DataFusion's Parquet writer is told, so that its files have the layout of data files.

Columns have plain names in DataFusion, `c0`, `c1` and so on, because its options know neither dots
nor capitals; `finished_file` gives them back theirs.
"""

from __future__ import annotations

import pyarrow as pa

from sleeper.engine.arrow_schema import parquet_paths
from sleeper.engine.writing.data_file import (
    DICTIONARY_BYTES_MAX,
    FILTER_FALSE_POSITIVES,
    WriteSettings,
)
from sleeper.model.schema import Schema

BOUND_BYTES = 256
"""Bytes of bounds in page indexes, as many as look-ups compare; longer ones are cut off."""

_CODECS = {
    "none": "uncompressed",
    "snappy": "snappy",
    "gzip": "gzip({})",
    "brotli": "brotli({})",
    "lz4": "lz4_raw",
    "zstd": "zstd({})",
}
_LEVELS = {"gzip": 6, "brotli": 8, "zstd": 1}  # where a layout has none


def plain_name(number: int) -> str:
    """Return the name of a column in DataFusion."""
    return f"c{number}"


def is_known_codec(settings: WriteSettings) -> bool:
    """Return whether DataFusion has the codec of these settings."""
    return settings.codec is None or settings.codec in _CODECS


def copy_options(
    schema: Schema, arrow_schema: pa.Schema, settings: WriteSettings, *, group_rows: int
) -> dict[str, str]:
    """Return the options of a `COPY` statement.

    Args:
        schema: The table's.
        arrow_schema: The same for Arrow.
        settings: The layout.
        group_rows: Rows of a row group.
    """
    options = {
        "max_row_group_size": str(group_rows),
        "data_page_row_count_limit": str(settings.page_rows),
        "data_pagesize_limit": str(settings.page_bytes),
        "write_batch_size": str(min(1024, settings.page_rows)),
        "writer_version": settings.page_version,
        "encoding": "plain",
        "dictionary_enabled": "false",
        "dictionary_page_size_limit": str(DICTIONARY_BYTES_MAX),
        "statistics_enabled": "page",
        "statistics_truncate_length": str(BOUND_BYTES),
        "column_index_truncate_length": str(BOUND_BYTES),
        "bloom_filter_on_write": "false",
        "skip_arrow_metadata": "true",
        "allow_single_file_parallelism": "true",
    }
    layouts = settings.layouts(schema, arrow_schema)
    dictionaries = settings.dictionary_columns(schema, arrow_schema)
    for number, field in enumerate(arrow_schema):
        name = plain_name(number)
        if pa.types.is_floating(field.type):  # NaN would be left out of them
            options[f"statistics_enabled::{name}"] = "none"
        if settings.bloom_filter and number < len(schema.row_keys):
            options[f"bloom_filter_enabled::{name}"] = "true"
            options[f"bloom_filter_fpp::{name}"] = str(FILTER_FALSE_POSITIVES)
            options[f"bloom_filter_ndv::{name}"] = str(group_rows)
        for path, own in zip(_paths(name, field.type), parquet_paths(field), strict=True):
            layout = layouts[own]
            options[f"compression::{path}"] = _codec(layout.codec, layout.level)
            if own in dictionaries:
                options[f"dictionary_enabled::{path}"] = "true"
            elif layout.encoding is not None:
                options[f"encoding::{path}"] = layout.encoding.lower()
    return {f"format.{name}": value for name, value in options.items()}


def _codec(codec: str, level: int | None) -> str:
    return _CODECS[codec].format(_LEVELS.get(codec) if level is None else level)


def _paths(name: str, kind: pa.DataType) -> list[str]:
    """Return the Parquet paths that DataFusion gives the columns of a field."""
    if pa.types.is_list(kind):
        return [f"{name}.list.{kind.value_field.name}"]
    if pa.types.is_map(kind):
        return [f"{name}.entries.{kind.key_field.name}", f"{name}.entries.{kind.item_field.name}"]
    return [name]
