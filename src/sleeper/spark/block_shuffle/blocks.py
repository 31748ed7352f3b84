"""Blocks: rows of one bucket in key order, as bytes that travel between processes.

What one process sorts and cuts, others put together: sorted input of bounded size is cut at the
bounds of the buckets, so each bucket gets one block of every sorted piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from sleeper.engine.sorting.key_order import Groups, OrderedRows, key_at, sorting_bytes
from sleeper.engine.writing.leaf_files import rows_by_leaf
from sleeper.model.partitions import Partition
from sleeper.model.schema import Schema
from sleeper.spark.block_shuffle.packed_buckets import NOT_DIVIDED, BucketParts, RangeBuckets

_CHUNK_BYTES = 8 << 20
_FAR_MORE = 1.5  # times what a task should write: such a bucket is divided


class BlockCutter:
    """Sorts rows in pieces and cuts each piece into blocks.

    Holds the rows of one piece, and twice as much while it is sorted.

    Args:
        schema: The table's.
        arrow_schema: The same for Arrow.
        buckets: Where each row goes.
        memory_bytes: What sorting a piece may need.
        parts: How buckets with far more rows than others are sent. None is divided by default.
        number: The number of the map task.
    """

    def __init__(
        self,
        schema: Schema,
        arrow_schema: pa.Schema,
        buckets: RangeBuckets,
        *,
        memory_bytes: int,
        parts: BucketParts = NOT_DIVIDED,
        number: int = 0,
    ) -> None:
        self._schema = schema
        self._arrow_schema = arrow_schema
        self._buckets = buckets
        self._memory_bytes = memory_bytes
        first_key = schema.row_keys[0].name
        self._ranges = Groups(buckets.bounds, first_key, arrow_schema.field(first_key).type)
        self._shared: dict[int, Sequence[tuple[Partition, int]]] = {}
        self._divider = _Divider(parts, number)

    def blocks(self, batches: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield (bucket, block) for all rows; where buckets have parts, (number of part, block).

        The parts of bucket b have the numbers from b times their count on.

        Args:
            batches: Rows of exactly the table's Arrow schema, without nulls in key columns.
        """
        waiting: list[pa.Table] = []
        need = 0
        for batch in batches:
            waiting.append(batch)
            need += sorting_bytes(self._arrow_schema, batch.num_rows, batch.nbytes)
            if need >= self._memory_bytes:
                yield from self._cut(waiting)
                need = 0
        yield from self._cut(waiting)

    def _cut(self, waiting: list[pa.Table]) -> Iterator[tuple[int, pa.Buffer]]:
        """Sort the rows that wait and cut them; none wait afterwards."""
        if not waiting:
            return
        rows = pa.concat_tables(waiting)
        waiting.clear()
        ordered = OrderedRows(rows, self._schema.key_names)
        del rows
        if self._divider.parts.count > 1:
            yield from self._cut_in_parts(ordered)
            return
        for chunk in ordered.chunks(_CHUNK_BYTES):
            for bucket, inside in self._inside(chunk):
                yield bucket, _encode(inside)

    def _cut_in_parts(self, ordered: OrderedRows) -> Iterator[tuple[int, pa.Buffer]]:
        """Cut a piece; buckets that have too much are divided at quantiles of it."""
        first_key = self._schema.row_keys[0].name
        keys = ordered.keys(first_key)
        inside_of = self._rows_of_buckets(keys)
        plan = self._divider.plan(inside_of, lambda row: key_at(keys, row, [first_key]))
        cut_before: dict[int, int] = {}
        for chunk in ordered.chunks(_CHUNK_BYTES):
            for bucket, inside in self._inside(chunk):
                parts, start = plan.get(bucket, [0]), cut_before.get(bucket, 0)
                cut_before[bucket] = start + inside.num_rows
                row_count = len(inside_of.get(bucket, ()))
                for part, rows in _in_parts(inside, start, row_count, parts):
                    block = _encode(rows)
                    self._divider.sent(bucket, block.size)
                    yield bucket * self._divider.parts.count + part, block

    def _rows_of_buckets(self, keys: pa.Table) -> dict[int, range]:
        """Return where a piece has each bucket, but for leaves that share a range of keys."""
        found: dict[int, range] = {}
        start = 0
        for place, inside in self._ranges.parts(keys):
            bucket, stop = self._buckets.bucket(place), start + inside.num_rows
            if bucket is not None:
                found[bucket] = range(found.get(bucket, range(start, stop)).start, stop)
            start = stop
        return found

    def recut(self, blocks: Iterable[Any]) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield (bucket, block) for the rows of blocks that were cut for larger buckets."""
        for block in blocks:
            rows = pa.Table.from_batches([read_block(block, self._arrow_schema)])
            for bucket, inside in self._inside(rows):
                yield bucket, _encode(inside)

    def _inside(self, ordered: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield each bucket that has rows, with its rows; one may come several times."""
        for place, part in self._ranges.parts(ordered):
            yield from self._by_bucket(place, part)

    def _by_bucket(self, place: int, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        bucket = self._buckets.bucket(place)
        if bucket is not None:
            yield bucket, rows
            return
        if place not in self._shared:
            self._shared[place] = self._buckets.leaf_buckets(place)
        leaves = [leaf for leaf, _ in self._shared[place]]
        buckets = {leaf.partition_id: bucket for leaf, bucket in self._shared[place]}
        for leaf, inside in rows_by_leaf(rows, self._schema, leaves):
            yield buckets[leaf.partition_id], inside


class _Divider:
    """Chooses the parts of each bucket that the pieces of a map task are sent to.

    A bucket is divided if its share of a piece is larger than that of a task, and the piece says
    something about the whole: it has rows of most buckets, or the bucket's rows in it have keys
    around those that it had in the piece before. In sorted input neither is so: there a piece has
    all rows of one bucket, and the next piece those of the next. Such a bucket is divided once the
    task has sent more of it than a task should write. Until then it goes to one part, which each
    map task has for itself, as many tasks may begin so.
    """

    def __init__(self, parts: BucketParts, number: int) -> None:
        self.parts = parts
        self._number = number
        self._sent_bytes: dict[int, int] = {}
        self._middles: dict[int, tuple[Any, ...]] = {}

    def sent(self, bucket: int, size_bytes: int) -> None:
        """Count a block that was sent."""
        self._sent_bytes[bucket] = self._sent_bytes.get(bucket, 0) + size_bytes

    def plan(
        self, inside_of: Mapping[int, range], key: Callable[[int], tuple[Any, ...]]
    ) -> dict[int, list[int]]:
        """Return the parts of each bucket, one after the other.

        Args:
            inside_of: The rows of each bucket in a piece.
            key: Returns the key of a row of the piece.
        """
        divided = self.parts
        is_mixed = 2 * len(inside_of) >= divided.buckets
        row_count = sum(map(len, inside_of.values()))
        plan = {}
        for bucket, rows in inside_of.items():
            wanted = divided.tasks * len(rows) / row_count
            if wanted > _FAR_MORE and (self._is_around_the_last(bucket, rows, key) or is_mixed):
                count = min(divided.count, ceil(wanted))
            elif self._sent_bytes.get(bucket, 0) > _FAR_MORE * divided.task_bytes:
                count = divided.count
            else:
                plan[bucket] = [0 if is_mixed else self._number % divided.count]
                continue
            # Of few parts, each has several places for itself: Spark joins neighbours.
            plan[bucket] = [part * divided.count // count for part in range(count)]
        return plan

    def _is_around_the_last(
        self, bucket: int, rows: range, key: Callable[[int], tuple[Any, ...]]
    ) -> bool:
        """Return whether a bucket's keys in a piece lie around those of the piece before."""
        before = self._middles.get(bucket)
        self._middles[bucket] = key(rows[len(rows) // 2])
        return before is not None and key(rows[0]) < before < key(rows[-1])


def _in_parts(
    rows: pa.Table, start: int, row_count: int, parts: Sequence[int]
) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows `start` and following of `row_count`, divided as all are into equal parts."""
    if len(parts) == 1:
        yield parts[0], rows
        return
    for place, part in enumerate(parts):
        low = max(0, place * row_count // len(parts) - start)
        high = min(rows.num_rows, (place + 1) * row_count // len(parts) - start)
        if low < high:
            yield part, rows.slice(low, high - low)


def read_block(block: Any, arrow_schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a block, without copying where the block is an Arrow buffer."""
    return ipc.read_record_batch(ipc.read_message(block), arrow_schema)


def _encode(rows: pa.Table) -> pa.Buffer:
    return rows.combine_chunks().to_batches()[0].serialize()
