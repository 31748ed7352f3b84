"""Blocks through Spark's shuffle: few large rows, each to the task of its bucket.

Spark only ever sees (place, bucket, block, note). A block holds rows of one bucket in key order;
a note is a task's report to the driver. There is one place more than buckets, for the notes.
"""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
        places: The place of each bucket, or of each of its parts, and last that of the notes.
        refusals_to_all: Whether a refusal goes to every place, so that none of their tasks writes.
        parts: Parts of each bucket.
    """

    def __init__(
        self, places: Sequence[int], *, refusals_to_all: bool = True, parts: int = 1
    ) -> None:
        self._places = places
        self._parts = parts
        self._refusals_to_all = refusals_to_all
        self._numbers: list[int] = []
        self._blocks: list[pa.Buffer | None] = []
        self._notes: list[bytes | None] = []
        self._size_bytes = 0

    def with_blocks(self, blocks: Iterable[tuple[int, pa.Buffer]]) -> Batches:
        """Yield batches of blocks, about 4 MiB at once, of (number of the place, block)."""
        for number, block in blocks:
            self._add(number, block, None)
            self._size_bytes += block.size
            if self._size_bytes >= _BATCH_BYTES:
                yield self._batch()

    def rest(self) -> Batches:
        """Yield what is left."""
        if self._numbers:
            yield self._batch()

    def with_note(self, note: MapTaskReport) -> Batches:
        """Yield what is left and a note, for the notes' place or, if it refuses, for all."""
        to_all = self._refusals_to_all and (note.refusal is not None or note.null_counts)
        first = 0 if to_all else len(self._places) - 1
        for number in range(first, len(self._places)):
            self._add(number, None, pickle.dumps(note))
        yield self._batch()

    def _add(self, number: int, block: pa.Buffer | None, note: bytes | None) -> None:
        self._numbers.append(number)
        self._blocks.append(block)
        self._notes.append(note)

    def _batch(self) -> pa.RecordBatch:
        places = [self._places[number] for number in self._numbers]
        buckets = [number // self._parts for number in self._numbers]
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(places, pa.int32()),
                pa.array(buckets, pa.int32()),
                _binary(self._blocks),
                pa.array(self._notes, pa.binary()),
            ],
            names=["place", "bucket", "block", "note"],
        )
        self._numbers, self._blocks, self._notes, self._size_bytes = [], [], [], 0
        return batch


@dataclass(slots=True)
class ShuffledBlocks:
    """The rows that Spark brings to one task.

    Attributes:
        several: Whether Spark may join neighbouring buckets to one task.
        buckets: The buckets of what has come.
        notes: Notes that came with them, by the bucket that they came with.
    """

    batches: Iterator[pa.RecordBatch]
    several: bool = False
    buckets: set[int] = field(default_factory=set)
    notes: dict[int, list[MapTaskReport]] = field(default_factory=dict)

    def blocks(self) -> Iterator[pa.Buffer]:
        """Yield every block, pointing into Spark's batch; keep notes for later."""
        for batch in self.batches:
            buckets, notes = batch.column(1).to_pylist(), batch.column(3)
            self.buckets |= {*buckets}
            assert self.several or len(self.buckets) <= 1, f"{self.buckets} came to one task"
            if notes.null_count < len(notes):
                for bucket, note in zip(buckets, notes.to_pylist(), strict=True):
                    if note is not None:
                        report = pickle.loads(note)  # noqa: S301 - written by our own task
                        self.notes.setdefault(bucket, []).append(report)
            yield from _buffers(batch.column(2))


def result_batch(bucket: int, result: Any) -> pa.RecordBatch:
    """Return one row for the driver."""
    columns = [pa.array([bucket], pa.int32()), pa.array([pickle.dumps(result)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "result"])


def shuffle_keys_for(spark: SparkSession, count: int) -> Sequence[int]:
    """Return numbers that `repartition_by_key` brings to Spark partitions 0 to `count` - 1.

    They are in the order of the partitions. From Spark 4.1 on these are the partitions' own
    numbers. Spark 4.0 places by a hash, so numbers are searched whose hashes give each partition
    once.
    """
    return range(count) if _places_directly(spark) else hashed_keys(count)


def hashed_keys(count: int) -> list[int]:
    """Return the least number that Spark's hash brings to each of `count` partitions, in order."""
    tried = 20 * count + 100
    while True:
        places = _spark_hash(np.arange(tried, dtype=np.uint32)).astype(np.int32) % count
        found, numbers = np.unique(places, return_index=True)
        if len(found) == count:
            return [int(number) for number in numbers]
        tried *= 2


def _spark_hash(numbers: np.ndarray[Any, np.dtype[np.uint32]]) -> np.ndarray[Any, Any]:
    """Return Spark's hash of 32-bit integers: Murmur3 with the seed 42."""
    mixed = numbers * np.uint32(0xCC9E2D51)
    mixed = _rotated(mixed, 15) * np.uint32(0x1B873593)
    value = _rotated(np.uint32(42) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    value ^= np.uint32(4)  # bytes of an integer
    value = (value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return value ^ (value >> np.uint32(16))


def _rotated(values: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def one_task_a_row(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return a DataFrame with a partition for each row of a table, and a column `place` before it.

    Spark sends a row to its task alone.
    """
    places = pa.array(shuffle_keys_for(spark, rows.num_rows), pa.int32())
    with_places = rows.add_column(0, "place", places)
    return repartition_by_key(spark.createDataFrame(with_places), rows.num_rows)


def repartition_by_key(blocks: DataFrame, count: int) -> DataFrame:
    """Bring every row to the Spark partition of its place, exactly."""
    if _places_directly(blocks.sparkSession):
        return blocks.repartitionById(count, "place")
    return blocks.repartition(count, "place")


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualTasks:
    """How Spark makes tasks of equal size when it knows what the shuffle has: by its AQE.

    Attributes:
        split_bytes: Share a place out to several tasks if it turns out to have more bytes, as the
            shuffle compresses them: each gets the blocks of some map tasks.
        tasks: Join neighbouring places to about so many tasks; None for one task a place.
        joined_bytes: Join them up to so many bytes in any case.
    """

    split_bytes: int
    tasks: int | None = None
    joined_bytes: int = 1 << 20

    def settings(self) -> dict[str, str]:
        """Return the session's settings for it."""
        adaptive = "spark.sql.adaptive"
        joining = f"{adaptive}.coalescePartitions"
        found = {
            f"{adaptive}.enabled": "true",
            f"{joining}.enabled": str(self.tasks is not None).lower(),
            f"{adaptive}.optimizeSkewsInRebalancePartitions.enabled": "true",
            f"{adaptive}.advisoryPartitionSizeInBytes": f"{self.split_bytes}b",
        }
        if self.tasks is not None:
            found |= {
                f"{joining}.minPartitionNum": str(self.tasks),
                f"{joining}.minPartitionSize": f"{self.joined_bytes}b",
            }
        return found


def through_shuffle(
    blocks: DataFrame,
    count: int,
    write: Callable[[Batches], Batches],
    *,
    equal: EqualTasks | None = None,
) -> Iterator[tuple[int, Any]]:
    """Run the job, and yield each task's result with its bucket.

    Args:
        blocks: What map tasks send.
        count: Places of buckets or of their parts, and one for notes.
        write: What the task of a place does.
        equal: Have Spark make tasks of equal size. The blocks are at `hashed_keys` then. None for
            one task a place.

    Raises:
        SleeperError: what made a task fail for good.
    """
    spark = blocks.sparkSession
    settings = _small_batches(spark)
    if equal is None:
        shuffled = repartition_by_key(blocks, count)
    else:
        shuffled = blocks.hint("rebalance", count, "place")
        settings |= equal.settings()
    with session_settings(spark, settings), reraise_worker_errors():
        results = shuffled.mapInArrow(encode_errors(write), RESULT_COLUMNS).collect()
    for row in results:
        yield row["bucket"], pickle.loads(row["result"])  # noqa: S301 - written by our own task


_BATCH_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"


def _small_batches(spark: SparkSession) -> dict[str, str]:
    """Return what makes Spark 4.0 give Python few blocks at a time; later versions limit bytes."""
    bounded = spark.conf.isModifiable(_BATCH_BYTES_SETTING)  # where it is known, it has a default
    return {} if bounded else {_BATCH_ROWS_SETTING: str(_BATCH_ROWS)}


@dataclass(slots=True)
class _ChangedSetting:
    """A setting that blocks have changed: its value before the first of them, and their number."""

    before: str | None
    blocks: int = 0


_changed: dict[tuple[int, str], _ChangedSetting] = {}
_changed_lock = threading.Lock()


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a block.

    The values before are restored when no block of any thread has changed them any more.
    """
    with _changed_lock, _no_word_of_age():
        for name, value in settings.items():
            key = (id(spark), name)
            if key not in _changed:
                _changed[key] = _ChangedSetting(spark.conf.get(name, None))
            _changed[key].blocks += 1
            spark.conf.set(name, value)
    try:
        yield
    finally:
        with _changed_lock, _no_word_of_age():
            for name in settings:
                changed = _changed[id(spark), name]
                changed.blocks -= 1
                if changed.blocks:
                    continue
                del _changed[id(spark), name]
                if changed.before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, changed.before)


@contextmanager
def _no_word_of_age() -> Iterator[None]:
    """Hide what Spark Connect warns of: the setting that relates tasks to the true size is old."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*minPartitionNum.*deprecated", UserWarning)
        yield


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
