"""A worker's deliberate error comes through every kind of Spark as itself."""

from __future__ import annotations

import pytest

from sleeper.errors import MissingExtra, StorageFull
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


UNFIT = {
    "no Sleeper": (
        "ModuleNotFoundError: No module named 'sleeper'",
        "has no module 'sleeper'",
    ),
    "another Sleeper": (
        (
            "AttributeError: Can't get attribute '_report' on <module 'sleeper.spark.worker_python' "
            "from 'worker_python.py'>"
        ),
        "another version of Sleeper",
    ),
    "another Python": (
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
            "worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run with "
            "different minor versions.\nPlease check environment variables"
        ),
        "is version 3.12, and that of this process 3.11",
    ),
}


@pytest.mark.parametrize(("text", "said"), UNFIT.values(), ids=UNFIT.keys())
def test_workers_whose_python_cannot_run_sleeper_are_reported_as_such(text, said):
    """The message says what is wrong with it, and names the variable to set."""
    with pytest.raises(MissingExtra, match=said) as raised, reraise_worker_errors():
        raise RuntimeError(f"Traceback (most recent call last):\n{text}\n")

    assert "PYSPARK_PYTHON" in str(raised.value)
