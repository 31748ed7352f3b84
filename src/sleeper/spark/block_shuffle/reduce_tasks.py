"""The second half of a bulk import: tasks that put a bucket's blocks together and write files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

import pyarrow as pa

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.sorting.sort import SortSettings
from sleeper.engine.writing.leaf_files import LeafFiles, sorted_groups
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import StorageFailed
from sleeper.model.files import FileReference
from sleeper.model.partitions import leaf_groups
from sleeper.model.processing import Processing
from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.spark.block_shuffle.blocks import read_block
from sleeper.spark.block_shuffle.packed_buckets import BucketLeaves
from sleeper.spark.block_shuffle.shuffle import (
    Batches,
    MapTaskReport,
    ShuffledBlocks,
    result_batch,
    use_one_thread,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceSettings:
    """Where and how the rows of a bucket are written.

    Attributes:
        files: The table's folder, as every worker reaches it.
        schema: The table's.
        leaves: The leaves of each bucket.
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
    write: WriteSettings
    processing: Processing
    memory_bytes: int
    temp_folder: Path | None
    now_ms: int
    new_id: NewId


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
    """Return a function for `mapInArrow` over what was shuffled: one bucket a Spark partition."""

    def run(batches: Batches) -> Batches:
        use_one_thread()
        arrived = ShuffledBlocks(batches)
        result = _write(arrived, settings)
        if arrived.bucket is not None:
            yield result_batch(arrived.bucket, result)

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


def _write(arrived: ShuffledBlocks, settings: ReduceSettings) -> Result:
    schema, arrow_schema = settings.schema, to_arrow(settings.schema)
    incoming = _Incoming(arrived, arrow_schema)
    # The bucket is known when its first block has come.
    first = next(rows := incoming.rows(), None)
    if arrived.bucket is None or first is None:
        return tuple(arrived.notes or ())
    leaf_files = LeafFiles(settings.files, schema, arrow_schema, settings.write, settings.new_id)
    groups = sorted_groups(
        _chained(first, rows),
        leaf_groups(settings.leaves.of_bucket(arrived.bucket)),
        schema,
        arrow_schema,
        settings.processing,
        SortSettings(memory_bytes=settings.memory_bytes, temp_folder=settings.temp_folder),
        now_ms=settings.now_ms,
    )
    try:
        with closing(groups):
            for group in groups:
                if arrived.notes:  # all blocks have come, and some task refused its input
                    return ()
                leaf_files.write_one_file_per_leaf([group])
    except BaseException:
        try:
            leaf_files.delete_written()
        except StorageFailed as failure:
            _log.warning("files that will not be committed stay until a sweep: %s", failure)
        raise
    return WrittenBucket(
        references=tuple(leaf_files.references),
        rows_in=incoming.row_count,
        rows_written=leaf_files.rows_written,
        host=gethostname(),
    )


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def references_of(results: Sequence[WrittenBucket]) -> tuple[FileReference, ...]:
    """Return all references, in the order of buckets."""
    return tuple(reference for written in results for reference in written.references)
