"""Estimates split points that divide input data evenly, for a table to be created (TBL-10)."""

from __future__ import annotations

from typing import Any

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.inputs.sources import first_key_columns, open_source
from sleeper.engine.writing.sketch import estimate_split_points as from_columns
from sleeper.model.schema import Schema
from sleeper.ports.input_store import InputStore


def estimate_split_points(
    data: object,
    schema: Schema,
    partitions: int,
    *,
    rows_per_file_max: int | None = None,
    remote: InputStore | None = None,
) -> list[Any]:
    """Return values of the first row key that divide the rows of `data` into equal parts.

    Args:
        data: As for `Table.ingest`. Only the first row key is read; nulls are skipped.
        schema: The schema of the future table.
        partitions: The wanted number of leaves, at least 2. Repeated values may give fewer.
        rows_per_file_max: Maximum number of rows to read from the start of each file.
        remote: Reads files by URL.

    Raises:
        SplitPointsInvalid: fewer than 2 partitions are requested.
        InputRefused: the input cannot be read.
    """
    arrow_schema = to_arrow(schema)
    source = open_source(data, arrow_schema, remote)
    columns = first_key_columns(source, arrow_schema, rows_per_file_max)
    return from_columns(columns, schema.row_keys[0], partitions)
