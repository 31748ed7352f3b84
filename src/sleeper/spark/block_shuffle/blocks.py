"""Blocks: rows of one bucket in key order, as bytes that travel between processes.

What one process sorts and cuts, others put together: sorted input of bounded size is cut at the
bounds of the buckets, so each bucket gets one block of every sorted piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from sleeper.engine.sorting.key_order import Groups, OrderedRows, sorting_bytes
from sleeper.engine.writing.leaf_files import rows_by_leaf
from sleeper.model.partitions import Partition
from sleeper.model.schema import Schema
from sleeper.spark.block_shuffle.packed_buckets import RangeBuckets

_CHUNK_BYTES = 8 << 20


class BlockCutter:
    """Sorts rows in pieces and cuts each piece into blocks.

    Holds the rows of one piece, and twice as much while it is sorted.

    Args:
        schema: The table's.
        arrow_schema: The same for Arrow.
        buckets: Where each row goes.
        memory_bytes: What sorting a piece may need.
    """

    def __init__(
        self, schema: Schema, arrow_schema: pa.Schema, buckets: RangeBuckets, *, memory_bytes: int
    ) -> None:
        self._schema = schema
        self._arrow_schema = arrow_schema
        self._buckets = buckets
        self._memory_bytes = memory_bytes
        first_key = schema.row_keys[0].name
        self._ranges = Groups(buckets.bounds, first_key, arrow_schema.field(first_key).type)
        self._shared: dict[int, Sequence[tuple[Partition, int]]] = {}

    def blocks(self, batches: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield (bucket, block) for all rows.

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
        for chunk in ordered.chunks(_CHUNK_BYTES):
            yield from self._parts(chunk)

    def recut(self, blocks: Iterable[Any]) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield (bucket, block) for the rows of blocks that were cut for larger buckets."""
        for block in blocks:
            rows = pa.Table.from_batches([read_block(block, self._arrow_schema)])
            yield from self._parts(rows)

    def _parts(self, ordered: pa.Table) -> Iterator[tuple[int, pa.Buffer]]:
        for place, part in self._ranges.parts(ordered):
            for bucket, inside in self._by_bucket(place, part):
                yield bucket, _encode(inside)

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


def read_block(block: Any, arrow_schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a block, without copying where the block is an Arrow buffer."""
    return ipc.read_record_batch(ipc.read_message(block), arrow_schema)


def _encode(rows: pa.Table) -> pa.Buffer:
    return rows.combine_chunks().to_batches()[0].serialize()
