"""What the plan of a bulk import takes the size of a DataFrame to be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sleeper.model.schema import Field, Primitive, Schema
from sleeper.spark.bulk_import import known_frame
from sleeper.spark.frame_size import FrameSize

ROW_BYTES = 16  # of two longs
TARGET = SimpleNamespace(
    schema=Schema(row_keys=(Field("id", Primitive.LONG),), values=(Field("n", Primitive.LONG),)),
    leaves=range(9),
    memory_bytes=1 << 30,
)


def known(size_bytes, *, is_estimated=True, row_count=None):
    size = FrameSize(
        size_bytes=size_bytes, is_estimated=is_estimated, partitions=5, row_count=row_count
    )
    return known_frame(size, TARGET, None, cores=4)


def test_an_estimate_is_of_compressed_rows():
    """Spark estimates 10 MB for files of 30: rows that were not counted follow from that."""
    plan_input = known(10_000_000)

    assert (plan_input.size_bytes, plan_input.row_count) == (30_000_000, 30_000_000 // ROW_BYTES)
    assert (plan_input.files, plan_input.row_groups, plan_input.leaves) == (0, 5, 9)


def test_a_guess_is_taken_as_it_is():
    """Where Spark has no estimate, nothing is multiplied."""
    assert known(1 << 30, is_estimated=False).size_bytes == 1 << 30


@pytest.mark.parametrize(
    ("estimate", "size_bytes"),
    [(10, 16_000), (20_000, 60_000), (10**13, 320_000)],
)
def test_counted_rows_limit_an_estimate(estimate, size_bytes):
    """
    Given a sample that counted 1,000 rows, when Spark's estimate is far too low, or as of a join far
    too high, then the size is one that so many rows may have.
    """
    plan_input = known(estimate, row_count=1000)

    assert (plan_input.row_count, plan_input.size_bytes) == (1000, size_bytes)
