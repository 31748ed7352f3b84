"""A sample of the row keys of a DataFrame, for pre-splitting: one pass over the key columns."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sleeper.engine.arrow_schema import conform, split_null_keys, to_arrow
from sleeper.engine.inputs.key_sample import KeySample
from sleeper.engine.sketches.sketch import SystematicSample
from sleeper.model.schema import Schema
from sleeper.spark.block_shuffle.shuffle import Batches, use_one_thread
from sleeper.spark.block_shuffle.worker_errors import encode_errors, reraise_worker_errors

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import DataFrame

_TASK_ROWS_MAX = 16_384
_TASK_BYTES_MAX = 4 << 20


def sample_frame(rows: DataFrame, schema: Schema) -> KeySample:
    """Sample the row keys of a DataFrame: each task thins its own, the driver evens them out.

    At most 16,384 keys or 4 MiB of each task come to the driver.

    Args:
        rows: Columns of the table, checked.
        schema: The table's.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an extra, and slow to import

    names = schema.row_key_names
    keys = rows.select([F.col(f"`{name.replace('`', '``')}`") for name in names])
    with reraise_worker_errors():
        sampled = keys.mapInArrow(encode_errors(_thinned(schema)), "part binary").collect()
    parts = [pickle.loads(row["part"]) for row in sampled]  # noqa: S301 - written by our own task
    wanted = pa.schema([to_arrow(schema).field(name) for name in names])
    stride = max((part_stride for _, part_stride, _ in parts), default=1)
    tables = [wanted.empty_table()]
    for _, part_stride, table in parts:
        tables.append(table.take(pa.array(np.arange(0, table.num_rows, stride // part_stride))))
    return KeySample(pa.concat_tables(tables), sum(count for count, _, _ in parts))


def _thinned(schema: Schema) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow`: each task's keys at equal distances, in one row.

    Distances are powers of two, so that the driver can make them the same everywhere.
    """

    def run(batches: Batches) -> Batches:
        use_one_thread()
        names = schema.row_key_names
        wanted = pa.schema([to_arrow(schema).field(name) for name in names])
        sample = SystematicSample(_TASK_ROWS_MAX, _TASK_BYTES_MAX)
        for batch in batches:
            table = conform(
                batch, wanted, key_names=names, ignore_extra_columns=True, origin="the DataFrame"
            )
            sample.add(split_null_keys(table, names)[0])
        thinned = sample.rows()
        if thinned is not None:
            part = pickle.dumps((sample.rows_seen, sample.stride, thinned.combine_chunks()))
            yield pa.RecordBatch.from_arrays([pa.array([part], pa.binary())], names=["part"])

    return run
