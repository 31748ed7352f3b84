"""Footers of many input files, read and checked by Spark's tasks.

A driver reads about a thousand footers a second, so for a million files it would take a quarter of
an hour. Tasks send their row groups back, about a hundred bytes each.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sleeper.engine.inputs.input_files import RowGroup, checked_row_groups
from sleeper.errors import InputRefused
from sleeper.ports.objects import InputStore
from sleeper.spark.block_shuffle.shuffle import Batches, one_task_a_row, use_one_thread
from sleeper.spark.block_shuffle.worker_errors import encode_errors, reraise_worker_errors

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_FILES_OF_A_TASK = 500
_AT_ONCE = 16  # of one task: reading a footer is mostly latency
_QUICK = 1  # of zlib


def read_footers(
    spark: SparkSession,
    files: Sequence[str],
    arrow_schema: pa.Schema,
    inputs: InputStore,
    *,
    ignore_extra_columns: bool,
) -> list[RowGroup]:
    """Return the row groups of files that have rows, file after file, after a check of columns.

    Args:
        spark: Any session.
        files: Paths or URLs of Parquet files, which every worker reaches.
        arrow_schema: The table's.
        inputs: Opens files that are given by URL.
        ignore_extra_columns: Accept columns that the table does not have.

    Raises:
        InputSchemaMismatch: a file's columns do not fit the table: of the first such file.
        InputNotFound, InputUnreadable: a file no longer exists, or cannot be read.
    """
    starts = range(0, len(files), _FILES_OF_A_TASK)
    parts = [_packed(list(files[start : start + _FILES_OF_A_TASK])) for start in starts]
    rows = pa.table({"number": pa.array(range(len(parts)), pa.int32()), "files": parts})
    check = partial(
        checked_row_groups,
        arrow_schema=arrow_schema,
        remote=inputs,
        ignore_extra_columns=ignore_extra_columns,
    )
    with reraise_worker_errors():
        rows_back = (
            one_task_a_row(spark, rows)
            .mapInArrow(encode_errors(_read_parts(check)), "number int, groups binary")
            .collect()
        )
    packed = {row["number"]: row["groups"] for row in rows_back}
    return joined_row_groups(packed.pop(number) for number in range(len(parts)))


def joined_row_groups(results: Iterable[bytes]) -> list[RowGroup]:
    """Return the row groups that tasks sent, in the order of their files.

    Raises:
        InputRefused: what a task refused, of the first such task.
    """
    groups: list[RowGroup] = []
    for packed in results:
        result = _unpacked(packed)
        if isinstance(result, InputRefused):
            raise result
        groups += map(RowGroup, *result)
    return groups


def _read_parts(check: Callable[[str], Sequence[RowGroup]]) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow`: the row groups of each row's files, or a refusal."""

    def run(batches: Batches) -> Batches:
        use_one_thread()
        for batch in batches:
            for number, files in zip(
                batch["number"].to_pylist(), batch["files"].to_pylist(), strict=True
            ):
                groups = read_part(check, _unpacked(files))
                columns = [pa.array([number], pa.int32()), pa.array([groups], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, names=["number", "groups"])

    return run


def read_part(check: Callable[[str], Sequence[RowGroup]], files: Sequence[str]) -> bytes:
    """Return the row groups of some files, or a refusal, packed for `joined_row_groups`.

    Args:
        check: Returns the row groups of a file.
        files: The files, in order.
    """
    try:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            groups = [group for found in threads.map(check, files) for group in found]
    except InputRefused as refusal:
        return _packed(refusal)
    # A list for each attribute: a tenth of the time of objects.
    return _packed(tuple([*map(attrgetter(name), groups)] for name in RowGroup.__slots__))


def _packed(value: object) -> bytes:
    return zlib.compress(pickle.dumps(value), _QUICK)


def _unpacked(packed: bytes) -> Any:
    return pickle.loads(zlib.decompress(packed))  # noqa: S301 - written by our own process
