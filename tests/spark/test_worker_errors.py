"""A worker's deliberate error comes through every kind of Spark as itself."""

from __future__ import annotations

import pytest

from sleeper.errors import StorageFull
from sleeper.spark.block_shuffle.worker_errors import encode_errors, reraise_worker_errors

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

    with pytest.raises(StorageFull) as raised, reraise_worker_errors():
        rows.mapInArrow(encode_errors(out_of_space()), rows.schema).collect()

    assert str(raised.value) == MESSAGE


@pytest.mark.every_spark
def test_an_error_of_a_task_that_is_read_from_is_raised_too(spark):
    """So does that of a task whose rows are shuffled to another."""
    rows = spark.range(10)
    shuffled = rows.mapInArrow(encode_errors(out_of_space()), rows.schema).repartition(2, "id")

    with pytest.raises(StorageFull) as raised, reraise_worker_errors():
        shuffled.groupBy("id").count().collect()

    assert str(raised.value) == MESSAGE
