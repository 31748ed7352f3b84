"""Checks that the Python of Spark's workers can run Sleeper, before a read needs it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING
from weakref import WeakSet

import pyarrow as pa

from sleeper.errors import MissingExtra
from sleeper.spark.block_shuffle.worker_errors import reraise_worker_errors
from sleeper.spark.progress import job_description

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_DISTRIBUTION = "sleeper-store"

_checked: WeakSet[SparkSession] = WeakSet()


def check_worker_python(spark: SparkSession) -> None:
    """Check that workers import this version of Sleeper: one small Spark job for each session.

    Raises:
        MissingExtra: their Python has no Sleeper, or another version; or it is another version
            of Python than this process has.
    """
    if spark in _checked:
        return
    with job_description(spark, "sleeper: check the Python of workers"), reraise_worker_errors():
        (row,) = spark.range(0, 1, 1, 1).mapInArrow(_report_version, "version string").collect()
    _compare(row["version"], version(_DISTRIBUTION))
    _checked.add(spark)


def _report_version(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"version": [version(_DISTRIBUTION)]})


def _compare(theirs: str, ours: str) -> None:
    if theirs != ours:
        raise MissingExtra(
            f"Spark's workers have Sleeper {theirs}, and this process has {ours}: install the same "
            "version for the Python that PYSPARK_PYTHON names, on every machine"
        )
