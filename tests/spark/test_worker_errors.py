"""A worker's deliberate error comes through every kind of Spark as itself."""

from __future__ import annotations

import pytest

from sleeper.errors import StorageFull
from sleeper.spark.block_shuffle.worker_errors import raised_here, told

MESSAGE = "cannot write data/\u00e9 'x' \"y\".parquet: the disk is full.\n" + 200 * "Make room. "


def out_of_space():
    """A task that can never be done; workers get it whole, as they cannot import this file."""

    def run(batches):
        yield from batches
        raise StorageFull(MESSAGE)

    return run


@pytest.mark.every_spark
def test_an_error_of_all_attempts_is_raised_at_the_driver(spark):
    """Its class and its whole message arrive, however long it is and whatever stands in it."""
    rows = spark.range(10)

    with pytest.raises(StorageFull) as raised, raised_here():
        rows.mapInArrow(told(out_of_space()), rows.schema).collect()

    assert str(raised.value) == MESSAGE


@pytest.mark.every_spark
def test_an_error_of_a_task_that_is_read_from_is_raised_too(spark):
    """So does that of a task whose rows are shuffled to another."""
    rows = spark.range(10)
    shuffled = rows.mapInArrow(told(out_of_space()), rows.schema).repartition(2, "id")

    with pytest.raises(StorageFull) as raised, raised_here():
        shuffled.groupBy("id").count().collect()

    assert str(raised.value) == MESSAGE
