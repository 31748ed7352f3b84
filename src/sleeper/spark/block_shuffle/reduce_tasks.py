"""The second half of a bulk import: tasks that put a bucket's blocks together and write files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

import pyarrow as pa

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.sorting.sort import SortSettings
from sleeper.engine.writing.leaf_files import (
    LeafFiles,
    SortedGroup,
    ranges_by_leaf_group,
    sorted_groups,
    sorted_ranges,
)
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.model.files import FileReference
from sleeper.model.partitions import leaf_groups
from sleeper.model.processing import Processing
from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.spark.block_shuffle.blocks import read_block
from sleeper.spark.block_shuffle.packed_buckets import BucketLeaves, RangeBuckets
from sleeper.spark.block_shuffle.shuffle import (
    Batches,
    MapTaskReport,
    ShuffledBlocks,
    result_batch,
    use_one_thread,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceSettings:
    """Where and how the rows of a bucket are written.

    Attributes:
        files: The table's folder, as every worker reaches it.
        schema: The table's.
        leaves: The leaves of each bucket.
        notes_bucket: The number of the notes' place, after those of all buckets.
        ranges: The bucket of each range of keys, where Spark may join neighbouring buckets to one
            task; None where a task has one bucket.
        write: How data files are written.
        processing: The table's filters and aggregations.
        memory_bytes: What sorting a bucket may need; more rows go through local disk.
        temp_folder: Where they go; None for the system's temporary folder.
        now_ms: The present, in milliseconds since 1970, for filters by age.
        new_id: Fresh random ids, different in every attempt of a task.
    """

    files: Objects
    schema: Schema
    leaves: BucketLeaves
    notes_bucket: int
    write: WriteSettings
    processing: Processing
    memory_bytes: int
    temp_folder: Path | None
    now_ms: int
    new_id: NewId
    ranges: RangeBuckets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBucket:
    """What became of one bucket, or of a part of it.

    Attributes:
        references: Its files, ready to be committed.
        rows_in: Rows that came to its task.
        host: The machine that wrote it.
        rows_written: Rows in its files; fewer where the table filters or aggregates.
    """

    references: tuple[FileReference, ...]
    rows_in: int
    rows_written: int
    host: str


Result = WrittenBucket | tuple[MapTaskReport, ...]


def write_buckets(settings: ReduceSettings) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` over what was shuffled: one task a Spark partition.

    A task has a bucket, a part of one, neighbours that Spark has joined, or the notes of map tasks.
    """

    def run(batches: Batches) -> Batches:
        use_one_thread()
        arrived = ShuffledBlocks(batches, several=settings.ranges is not None)
        written = _write(arrived, settings)
        if written is not None:
            yield result_batch(min(arrived.buckets), written)
        if notes := arrived.notes.get(settings.notes_bucket):
            yield result_batch(settings.notes_bucket, tuple(notes))

    return run


class _Incoming:
    """The rows of a bucket, block by block, counted."""

    def __init__(self, arrived: ShuffledBlocks, arrow_schema: pa.Schema) -> None:
        self._arrived = arrived
        self._arrow_schema = arrow_schema
        self.row_count = 0

    def rows(self) -> Iterator[pa.RecordBatch]:
        for block in self._arrived.blocks():
            rows = read_block(block, self._arrow_schema)
            self.row_count += rows.num_rows
            yield rows


def _write(arrived: ShuffledBlocks, settings: ReduceSettings) -> WrittenBucket | None:
    """Write the rows that came; None if there are none, or some task refused its input."""
    schema, arrow_schema = settings.schema, to_arrow(settings.schema)
    incoming = _Incoming(arrived, arrow_schema)
    # The bucket is known when its first block has come.
    first = next(rows := incoming.rows(), None)
    if first is None:
        return None
    leaf_files = LeafFiles(settings.files, schema, arrow_schema, settings.write, settings.new_id)
    groups = _sorted_groups(_chained(first, rows), arrived, settings)
    try:
        with closing(groups):
            for group in groups:
                if _is_refused(arrived):  # all blocks have come
                    return None
                leaf_files.write_one_file_per_leaf([group])
    except BaseException:
        leaf_files.discard()
        raise
    return WrittenBucket(
        references=tuple(leaf_files.references),
        rows_in=incoming.row_count,
        rows_written=leaf_files.rows_written,
        host=gethostname(),
    )


def _is_refused(arrived: ShuffledBlocks) -> bool:
    return any(
        note.refusal is not None or note.null_counts
        for notes in arrived.notes.values()
        for note in notes
    )


def _sorted_groups(
    rows: Iterator[pa.RecordBatch], arrived: ShuffledBlocks, settings: ReduceSettings
) -> Generator[SortedGroup, None, None]:
    """Yield the groups of leaves that have rows, with their rows in key order."""
    schema, arrow_schema = settings.schema, to_arrow(settings.schema)
    sort = SortSettings(memory_bytes=settings.memory_bytes, temp_folder=settings.temp_folder)
    how = (schema, arrow_schema, settings.processing, sort)
    if settings.ranges is None:
        (bucket,) = arrived.buckets
        leaves = leaf_groups(settings.leaves.of_bucket(bucket))
        yield from sorted_groups(rows, leaves, *how, now_ms=settings.now_ms)
        return
    # Which buckets come is known at the end. So rows are sorted by ranges, and then cut by leaves.
    bounds = [*settings.ranges.bounds]
    with closing(sorted_ranges(rows, bounds, *how, now_ms=settings.now_ms)) as ranges:
        for place, chunks in ranges:
            inside = leaf_groups(settings.ranges.leaves(place, settings.leaves))
            yield from ranges_by_leaf_group(chunks, inside, schema, arrow_schema)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def references_of(results: Sequence[WrittenBucket]) -> tuple[FileReference, ...]:
    """Return all references, in the order of buckets."""
    return tuple(reference for written in results for reference in written.references)
