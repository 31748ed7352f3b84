"""Blocks through Spark's shuffle: few large rows, each to the task of its bucket.

Spark only ever sees (place, bucket, block, note). A block holds rows of one bucket in key order;
a note is a task's report to the driver. There is one place more than buckets, for the notes.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sleeper.errors import InputRefused
from sleeper.spark.block_shuffle.worker_errors import encode_errors, reraise_worker_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BLOCK_COLUMNS = "place int, bucket int, block binary, note binary"
RESULT_COLUMNS = "bucket int, result binary"

_BATCH_BYTES = 4 << 20  # of the blocks that go to Spark in one batch
_BATCH_ROWS = 64  # where Spark bounds its batches by rows alone, as 4.0 does

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTaskReport:
    """What a task reports about the input that it read.

    Attributes:
        rows_read: Rows of its input.
        rows_set_aside: Those of them that have a null key and went to files of their own.
        files_set_aside: The names of these files.
        null_counts: Nulls by key field, of rows that are refused.
        refusal: Why its input cannot go into the table, if it cannot.
    """

    rows_read: int = 0
    rows_set_aside: int = 0
    files_set_aside: tuple[str, ...] = ()
    null_counts: tuple[tuple[str, int], ...] = ()
    refusal: InputRefused | None = None


class BlockBatches:
    """Gathers blocks into batches for Spark, while they are made.

    Args:
        places: The place of each bucket, and last that of the notes.
    """

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places
        self._buckets: list[int] = []
        self._blocks: list[pa.Buffer | None] = []
        self._notes: list[bytes | None] = []
        self._size_bytes = 0

    def with_blocks(self, blocks: Iterable[tuple[int, pa.Buffer]]) -> Batches:
        """Yield batches of blocks, about 4 MiB at once."""
        for bucket, block in blocks:
            self._add(bucket, block, None)
            self._size_bytes += block.size
            if self._size_bytes >= _BATCH_BYTES:
                yield self._batch()

    def with_note(self, note: MapTaskReport) -> Batches:
        """Yield what is left and a note. A refusal goes to every task: none of them writes."""
        to_all = note.refusal is not None or note.null_counts
        first = 0 if to_all else len(self._places) - 1
        for bucket in range(first, len(self._places)):
            self._add(bucket, None, pickle.dumps(note))
        yield self._batch()

    def _add(self, bucket: int, block: pa.Buffer | None, note: bytes | None) -> None:
        self._buckets.append(bucket)
        self._blocks.append(block)
        self._notes.append(note)

    def _batch(self) -> pa.RecordBatch:
        places = [self._places[bucket] for bucket in self._buckets]
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(places, pa.int32()),
                pa.array(self._buckets, pa.int32()),
                _binary(self._blocks),
                pa.array(self._notes, pa.binary()),
            ],
            names=["place", "bucket", "block", "note"],
        )
        self._buckets, self._blocks, self._notes, self._size_bytes = [], [], [], 0
        return batch


@dataclass(slots=True)
class ShuffledBlocks:
    """The rows that Spark brings to one task.

    Attributes:
        bucket: Their bucket; None while nothing has come.
        notes: Notes that came with them.
    """

    batches: Iterator[pa.RecordBatch]
    bucket: int | None = None
    notes: list[MapTaskReport] | None = None

    def blocks(self) -> Iterator[pa.Buffer]:
        """Yield every block, pointing into Spark's batch; keep notes for later."""
        self.notes = []
        for batch in self.batches:
            buckets = {*batch.column(1).to_pylist()}
            assert self.bucket is None or buckets <= {self.bucket}, "two buckets came to one task"
            assert len(buckets) <= 1, f"buckets {sorted(buckets)} came to one task"
            self.bucket = next(iter(buckets), self.bucket)
            self.notes += [
                pickle.loads(note)  # noqa: S301 - written by our own task
                for note in batch.column(3).drop_null().to_pylist()
            ]
            yield from _buffers(batch.column(2))


def result_batch(bucket: int, result: Any) -> pa.RecordBatch:
    """Return one row for the driver."""
    columns = [pa.array([bucket], pa.int32()), pa.array([pickle.dumps(result)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "result"])


def shuffle_keys_for(spark: SparkSession, count: int) -> list[int]:
    """Return numbers that `repartition_by_key` brings to Spark partitions 0 to `count` - 1.

    They are in the order of the partitions. From Spark 4.1 on these are the partitions' own
    numbers. Spark 4.0 places by a hash, so numbers are searched whose hashes give each partition
    once.
    """
    if _places_directly(spark):
        return [*range(count)]
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an extra, and slow to import

    found: dict[int, int] = {}
    tried = 20 * count + 100
    while len(found) < count:
        number = F.col("id").cast("int")
        place = F.pmod(F.hash(number), F.lit(count)).alias("place")
        rows = spark.range(tried).groupBy(place).agg(F.min(number).alias("number")).collect()
        found = {row["place"]: row["number"] for row in rows}
        tried *= 2
    return [found[place] for place in range(count)]


def repartition_by_key(blocks: DataFrame, count: int) -> DataFrame:
    """Bring every row to the Spark partition of its place, exactly."""
    if _places_directly(blocks.sparkSession):
        return blocks.repartitionById(count, "place")
    return blocks.repartition(count, "place")


def through_shuffle(
    blocks: DataFrame, count: int, write: Callable[[Batches], Batches]
) -> dict[int, Any]:
    """Run the job and return each bucket's result.

    Raises:
        SleeperError: what made a task fail for good.
    """
    with _small_batches(blocks.sparkSession), reraise_worker_errors():
        rows = (
            repartition_by_key(blocks, count)
            .mapInArrow(encode_errors(write), RESULT_COLUMNS)
            .collect()
        )
    return {
        row["bucket"]: pickle.loads(row["result"])  # noqa: S301 - written by our own task
        for row in rows
    }


class _small_batches:  # noqa: N801 - used as a function
    """Makes Spark 4.0 give Python few blocks at a time; later versions limit a batch by its size.

    The setting is the session's; its old value is restored.
    """

    _SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
    _BY_SIZE = "spark.sql.execution.arrow.maxBytesPerBatch"

    def __init__(self, spark: SparkSession) -> None:
        self._conf = spark.conf
        bounded = spark.conf.isModifiable(self._BY_SIZE)  # where it is known, it has a default
        self._before = None if bounded else spark.conf.get(self._SETTING)

    def __enter__(self) -> None:
        if self._before is not None:
            self._conf.set(self._SETTING, str(_BATCH_ROWS))

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            self._conf.set(self._SETTING, self._before)


def _places_directly(spark: SparkSession) -> bool:
    return hasattr(spark.range(0), "repartitionById")


def _binary(blocks: Sequence[pa.Buffer | None]) -> pa.Array:
    """Return blocks as one column, copied once."""
    lengths = np.array([0 if block is None else block.size for block in blocks], np.int64)
    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    data = b"".join(memoryview(block) for block in blocks if block is not None)
    missing = np.array([block is None for block in blocks])
    present = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [present, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(blocks), buffers, int(missing.sum()))


def _buffers(column: pa.BinaryArray) -> Iterator[pa.Buffer]:
    """Yield the values that are there, without copying them."""
    if column.type == pa.large_binary():
        column = column.cast(pa.binary())
    _, ends, data = column.buffers()
    places = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    for row in range(len(column)):
        if column.is_valid()[row].as_py():
            yield data.slice(int(places[row]), int(places[row + 1] - places[row]))


# ---------------------------------------------------------------- workers
#
# What a Python worker of Spark does before it touches rows.


def use_one_thread() -> None:
    """Keep Arrow and polars to one thread each: Spark runs a worker on every core.

    polars reads its setting when it is first imported, which in our modules is when it is first
    used; so this comes before that.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # noqa: TID251 - polars reads nothing else
    pa.set_cpu_count(1)
