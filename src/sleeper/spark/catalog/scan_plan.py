"""Plans a scan of a query in Spark: which leaves, and by which reader.

Spark's Parquet reader reads the files where that is right (`spark/frames.py` says when); otherwise
the data source `sleeper` reads, with the columns and regions of this query among its options.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sleeper.model.formats.query_json import regions_to_json
from sleeper.model.ranges import Region, whole_region
from sleeper.spark.column_names import columns_to_text
from sleeper.spark.data_source.open_table import TableFiles
from sleeper.spark.frames import PARQUET_OPTIONS, parquet_files
from sleeper.state.plans.key_conditions import (
    UNKNOWN,
    AllOf,
    AnyOf,
    Condition,
    KeyCondition,
    Negation,
    narrow,
)
from sleeper.state.plans.queries import plan_leaf_queries
from sleeper.state.table_state import TableState

_REGIONS_MAX: Final = 1_000
"""More regions than that are not worth an option of the data source: it reads those given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """How a scan is to be read.

    Attributes:
        columns: The columns to read, at least those that were asked for.
        files: Where Spark's Parquet reader finds the files; None if the data source reads.
        options: The options of the reader.
    """

    columns: Sequence[str]
    files: Sequence[str] | None
    options: Mapping[str, str]


def plan_scan(
    table: TableFiles,
    state: TableState,
    *,
    columns: Sequence[str],
    filters: Sequence[Any],
    regions: Sequence[Region] | None,
    options: Mapping[str, str],
    s3_scheme: str | None,
) -> ScanPlan:
    """Plan a scan of one state of a table.

    Args:
        table: The table's files.
        state: The state to read.
        columns: The columns that the query needs.
        filters: Conditions that each row of the answer meets, as the jar writes them
            (FilterJson.java); Spark evaluates them again.
        regions: Rows inside any of these, which Spark does not evaluate; None for all rows.
        options: What makes the data source find the table.
        s3_scheme: The scheme by which the session's JVM reads `s3://`, if it does.
    """
    schema = table.schema
    given = [whole_region(schema)] if regions is None else regions
    wanted = AllOf(tuple(condition_of(each) for each in filters))
    narrowed = narrow(given, wanted, schema).regions
    leaves = [leaf for group in plan_leaf_queries(state, narrowed) for leaf in group]
    files = parquet_files(table, state, leaves, s3_scheme) if regions is None else None
    if files is not None:
        return ScanPlan(columns=columns, files=files, options=PARQUET_OPTIONS)
    # The data source cannot count rows without a column.
    read = [*columns] or [schema.row_keys[0].name]
    asked = narrowed if len(narrowed) <= max(_REGIONS_MAX, len(given)) else given
    return ScanPlan(
        columns=read,
        files=None,
        options={
            **options,
            "as_of": str(state.number),
            "columns": columns_to_text(read),
            "regions": regions_to_json(schema, asked),
        },
    )


def condition_of(given: Any) -> Condition:
    """Return the condition that the jar wrote as JSON; unknown, where it could not.

    >>> condition_of(["and", ["=", "id", {"text": "a"}], None])
    AllOf(parts=(KeyCondition(column='id', operator='=', value='a'), Unknown()))
    """
    match given:
        case ["and", left, right]:
            return AllOf((condition_of(left), condition_of(right)))
        case ["or", left, right]:
            return AnyOf((condition_of(left), condition_of(right)))
        case ["not", part]:
            return Negation(condition_of(part))
        case ["in", str(column), [*values]]:
            return KeyCondition(column, "in", [_value_of(each) for each in values])
        case ["=" | "<" | "<=" | ">" | ">=" | "prefix" as operator, str(column), value]:
            return KeyCondition(column, operator, _value_of(value))
        case _:
            return UNKNOWN


def _value_of(given: Any) -> Any:
    match given:
        case {"text": text}:
            return text
        case {"bytes": text}:
            return base64.b64decode(text)
        case _:
            return given
