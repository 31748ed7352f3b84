"""Rows on their way into data files: sorted, cut where leaves meet, and processed.

Standard ingest, the tasks of a bulk import and Spark's writer all go through here, each row once:
it is where rows come into a table.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing

import pyarrow as pa

from sleeper.engine.processing.aggregations import as_counts
from sleeper.engine.processing.process import process
from sleeper.engine.sort import SortSettings, sort_into_groups
from sleeper.engine.writing.leaf_files import SortedGroup
from sleeper.model.partitions import LeafGroup
from sleeper.model.processing import Processing
from sleeper.model.schema import Schema


def sorted_groups(
    batches: Iterable[pa.Table | pa.RecordBatch],
    groups: Sequence[LeafGroup],
    schema: Schema,
    arrow_schema: pa.Schema,
    processing: Processing,
    settings: SortSettings,
    *,
    now_ms: int,
) -> Generator[SortedGroup, None, None]:
    """Yield groups of leaves with their rows in key order, for groups that have rows.

    To be closed by its reader, whatever happens: the sort has a thread and temporary files.

    Args:
        batches: Rows of exactly `arrow_schema`, without nulls in key columns. All are read
            before the first group is yielded.
        groups: In key order; together they hold all rows.
        schema: The table's.
        arrow_schema: The same for Arrow.
        processing: Filters, aggregations and function, applied to the sorted rows.
        settings: Memory and folder of the sort.
        now_ms: The present, in milliseconds since 1970, for filters by age.

    Raises: as `sort_into_groups` and `process`.
    """
    by_group = sort_into_groups(
        batches,
        arrow_schema,
        key_names=schema.key_names,
        bounds=[group.values.min for group in groups[1:]],
        settings=settings,
    )
    with closing(by_group):
        for place, chunks in by_group:
            if processing.is_identity:
                yield groups[place], chunks
                continue
            rows = (batch for chunk in chunks for batch in chunk.to_batches())
            fresh = as_counts(rows, processing)
            kept = process(fresh, processing, schema, now_ms=now_ms)
            yield groups[place], (pa.Table.from_batches([batch], arrow_schema) for batch in kept)
