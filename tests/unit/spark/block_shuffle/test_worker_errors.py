"""A worker's deliberate error is found again in the text that Spark makes of it."""

from __future__ import annotations

import json
import traceback

import pytest

from sleeper.errors import (
    DataDamaged,
    MissingExtra,
    NullKeys,
    SplitAttemptsExceeded,
    StorageFailed,
    StorageFull,
)
from sleeper.spark.block_shuffle.worker_errors import encode_errors, error_in, reraise_worker_errors

ERRORS = [
    StorageFull("cannot write data/é.parquet: the disk is full.\nMake room."),
    DataDamaged('of a name with "quotes" and sleeper-error: ["StorageFull", ["no"]]'),
    NullKeys("2 rows have a null", {"id": 2}),
    SplitAttemptsExceeded(512, 3, 7),
]


def failing(error: Exception):
    """A task that yields a batch and raises."""

    def run(batches):
        yield from batches
        raise error

    return run


def text_of(error: Exception) -> str:
    """What Spark hands the driver of a task that raises: the worker's traceback, in a frame."""
    try:
        list(encode_errors(failing(error))(iter([1])))
    except type(error) as raised:
        text = "".join(traceback.format_exception(raised))
        return f"Job aborted: Lost task 0.3\n{text}\n\tat org.apache.spark.Somewhere"
    raise AssertionError("it does not raise")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_itself_again(error):
    """Its class, message and attributes are those that the worker raised (but for the note)."""
    before = dict(vars(error))

    with pytest.raises(type(error)) as raised, reraise_worker_errors():
        raise RuntimeError(text_of(error))

    assert type(raised.value) is type(error)
    assert str(raised.value) == str(error)
    assert vars(raised.value) == before
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_batches_go_through():
    """What a task yields before it fails, or without failing, is not touched."""
    assert list(encode_errors(lambda batches: batches)(iter([1, 2]))) == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.OutOfMemoryError",
        "sleeper-error: no JSON",
        'sleeper-error: ["SleeperErrors", ["no such class"], {}]',
        'sleeper-error: ["annotations", [], {}]',
        'sleeper-error: ["NullKeys", ["too few parts"]]',
        'sleeper-error: ["NullKeys", ["attributes are no object"], 7]',
        "sleeper-error: 7",
    ],
)
def test_other_failures_stay_what_they_are(text):
    """Words that only look like an error of ours are none."""
    assert error_in(text) is None
    with pytest.raises(RuntimeError), reraise_worker_errors():
        raise RuntimeError(text)


def test_other_errors_of_a_task_are_not_told():
    """A fault of ours, or of a library, keeps Spark's account of it."""
    assert error_in(text_of(ZeroDivisionError("oops"))) is None


def test_a_line_that_names_another_class_makes_nothing():
    """Only errors of Sleeper are made from text, whatever stands there."""
    line = json.dumps(["SleeperError", ["said"], {}])

    assert str(error_in(f"sleeper-error: {line}")) == "said"
    assert error_in(f"sleeper-error: {json.dumps(['OSError', ['said'], {}])}") is None
    assert isinstance(error_in(text_of(StorageFailed("gone"))), StorageFailed)


@pytest.mark.parametrize("module", ["sleeper", "sleeper.spark.bulk_import", "polars"])
def test_workers_without_sleeper_are_told_which_python_they_need(module):
    """Twenty lines of a worker's traceback become one error, which names PYSPARK_PYTHON."""
    text = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n  return self.loads(obj)\n"
        f"ModuleNotFoundError: No module named '{module}'\n"
    )

    with pytest.raises(MissingExtra, match=f"no module '{module}'.*PYSPARK_PYTHON"):
        raise error_in(text)


def test_modules_of_others_are_theirs():
    """A user's own function may miss what it likes."""
    assert error_in("ModuleNotFoundError: No module named 'sleeper_agents'") is None


def test_rows_that_change_when_they_are_read_again_are_told_as_such():
    """Spark aborts a job whose lost task yields something else; what it says is not for users."""
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: A shuffle map stage "
        "with indeterminate output was failed and retried. However, Spark cannot rollback the "
        "ResultStage 33 to re-process the input data, and has to fail this job."
    )

    error = error_in(text)

    assert isinstance(error, StorageFailed)
    assert error.retryable
    assert "in another order" in str(error)
    assert "Run it again" in str(error)
