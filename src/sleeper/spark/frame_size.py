"""How large a DataFrame is, as Spark estimates it: no row is evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sleeper.spark.progress import is_connect

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import DataFrame

_UNKNOWN_FROM = 1 << 50
_PARTITION_BYTES = 128 << 20
_UNKNOWN_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSize:
    """What is known of a DataFrame before it runs.

    Attributes:
        size_bytes: Its bytes, roughly: Spark counts files as they are compressed, and a filter as
            if it kept every row. A guess where `is_estimated` is False.
        is_estimated: Whether Spark had an estimate.
        partitions: Its partitions, about.
        row_count: Its rows; None unless they were counted.
    """

    size_bytes: int
    is_estimated: bool
    partitions: int
    row_count: int | None = None


def frame_size(rows: DataFrame) -> FrameSize:
    """Return the size that Spark estimates for a DataFrame, or a guess of 1 GiB.

    There is no estimate on Spark Connect, and none is believed from a petabyte on: Spark multiplies
    the sizes of what is joined, and calls unknown sizes very large.
    """
    estimate = None if is_connect(rows.sparkSession) else _estimate(rows)
    known = estimate is not None and estimate < _UNKNOWN_FROM
    size = estimate if known and estimate is not None else _UNKNOWN_BYTES
    return FrameSize(
        size_bytes=size, is_estimated=known, partitions=max(1, -(-size // _PARTITION_BYTES))
    )


def _estimate(rows: DataFrame) -> int | None:
    """Return the statistics of the optimized plan."""
    plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no other way shows it
    return int(str(plan.stats().sizeInBytes()))
