"""Carries Sleeper's errors from a worker to the driver, inside Spark's text of a failure.

Spark retries a failed task. When all attempts have failed, the driver gets the worker's traceback
as text. A Sleeper error adds a line to it with its class and arguments, from which the driver makes
the error again. The line is JSON and not a pickle, because the text may hold anything, such as file
names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from sleeper import errors
from sleeper.errors import MissingExtra, SleeperError, StorageFailed

_MARK = "sleeper-error: "
_MISSING = re.compile(
    r"No module named '((?:sleeper|pyarrow|polars|datafusion|datasketches|numpy)\b[\w.]*)'"
)
_OTHER_SLEEPER = re.compile(r"Can't get attribute '\w+' on <module 'sleeper\b")
_UNSTABLE = re.compile(r"indeterminate output was failed and retried")
_OTHER_PYTHON = re.compile(
    r"PYTHON_VERSION_MISMATCH\].*? version: (\d+\.\d+).*? driver: (\d+\.\d+)"
)

Batches = Iterator[pa.RecordBatch]


def encode_errors(run: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` that encodes its errors for `reraise_worker_errors`."""

    def encoded(batches: Batches) -> Batches:
        try:
            yield from run(batches)
        except SleeperError as error:
            error.add_note(_line(error))
            raise

    return encoded


@contextmanager
def reraise_worker_errors() -> Iterator[None]:
    """Raise a worker's Sleeper error as itself; Spark's own exception is its cause.

    Raises:
        SleeperError: what the last attempt of a task raised.
        MissingExtra: the workers' Python has no Sleeper, or lacks something that it needs.
        StorageFailed: an executor was lost, and its rows came out differently the second time.
    """
    try:
        yield
    except Exception as failure:
        error = error_in(str(failure))
        if error is None:
            raise
        raise error from failure


def error_in(text: str) -> SleeperError | None:
    """Return the Sleeper error for a failure of Spark; the last one, if there are several.

    It is the error in a worker's traceback, or what Spark says of the workers or the input.
    """
    # A message may hold the mark too, but it comes before its own line, and is escaped there.
    for mark in reversed([*re.finditer(_MARK, text)]):
        try:
            name, arguments, attributes = json.JSONDecoder().raw_decode(text, mark.end())[0]
            kind = getattr(errors, name)
            if issubclass(kind, SleeperError):
                error = errors.restored(kind, tuple(arguments))
                vars(error).update(attributes)
                return error
        except (AttributeError, TypeError, ValueError):
            continue  # not a line of ours
    return _unstable_rows(text) or _unfit_python(text)


def _unstable_rows(text: str) -> StorageFailed | None:
    """Return what to do when a task that was run again yielded other rows, or in other order.

    Spark runs a task again whose executor was lost, and compares what it yields. It cannot go on
    with two kinds of rows once other tasks have ended.
    """
    if not _UNSTABLE.search(text):
        return None
    return StorageFailed(
        "an executor of Spark was lost, and the rows that it had read came in another order, or "
        "were others, when they were read again. Nothing was imported. Run it again. If executors "
        "are lost often, write the DataFrame to Parquet files first and import those"
    )


def _unfit_python(text: str) -> MissingExtra | None:
    """Return what to do about workers whose Python has no Sleeper, or another version."""
    if found := _MISSING.search(text):
        what = f"has no module {found[1]!r}"
    elif _OTHER_SLEEPER.search(text):
        what = "has another version of Sleeper than this process"
    elif found := _OTHER_PYTHON.search(text):
        what = f"is version {found[1]}, and that of this process {found[2]}"
    else:
        return None
    return MissingExtra(
        f"the Python of Spark's workers {what}: it must be one with this version of Sleeper "
        "installed. Set PYSPARK_PYTHON (or spark.pyspark.python) to such a Python before the Spark "
        "session starts, the same path on every machine; on a cluster ship one by "
        "`sleeper spark-environment`"
    )


def _line(error: SleeperError) -> str:
    return _MARK + json.dumps([type(error).__name__, error.args, vars(error)], default=str)
