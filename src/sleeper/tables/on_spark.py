"""Runs a verb's work over files in tasks of Spark; the verb decides and commits in this process.

Work is cut into batches of items, such as files to check: one batch is a piece of
`spark/piece_jobs.py`. A task gets its own items alone, and no state of the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from sleeper.ports.objects import Objects
from sleeper.tables.instance_context import InstanceContext
from sleeper.tables.open_table import OpenTable

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


def spark_session(
    context: InstanceContext, *, master: str | None, conf: Mapping[str, str]
) -> SparkSession:
    """Start Spark for an instance, or return the session of this process if it is such a one.

    Args:
        context: The instance.
        master: Where Spark runs: `local[4]`, `spark://host:7077`, ...; None for this machine.
        conf: Settings of Spark.

    Raises:
        MissingExtra: pyspark is not installed, or there is no Java that it runs on.
        BadRequest: a session runs already, with another master or other settings.
    """
    from sleeper.spark.session import local_session

    return local_session(
        conf=conf,
        master=master,
        temp_folder=str(context.temp_folder) if context.temp_folder else None,
        environment=context.environment,
        python=sys.executable,
        instance=context.url,
    )


def files_for_spark(table: OpenTable) -> Objects:
    """Return the table's folder, as Spark's workers reach it.

    Raises:
        BadRequest: the instance is in memory.
    """
    from sleeper.tables.spark import open_for_spark

    return open_for_spark(table).table_files.files


def run_batches(
    spark: SparkSession,
    batches: Iterable[Sequence[Item]],
    run: Callable[[Sequence[Item]], Result],
    *,
    title: str,
) -> Iterator[tuple[Sequence[Item], Result]]:
    """Run a function on batches in tasks of Spark; yield each with its result, in any order.

    Args:
        spark: Any session, classic or Connect.
        batches: Each is taken when Spark is free for it.
        run: Runs in a Python worker. Batches, function and results go through pickle.
        title: What Spark's web page calls the jobs; the number of items is added.

    Raises:
        SleeperError: what a task raised.
        Exception: Spark's own, where a task failed as often as it may be tried.
    """
    from sleeper.spark.piece_jobs import results_by_spark

    def describe(some: Sequence[Sequence[Item]]) -> str:
        return f"{title}: {sum(map(len, some)):,}"

    return results_by_spark(spark, batches, run, describe=describe)


def batches_of(
    items: Iterable[Item], size_of: Callable[[Item], int], size_max: int
) -> Iterator[list[Item]]:
    """Yield items in order, in batches of about a size.

    Args:
        items: They are taken as batches are.
        size_of: Returns the size of an item.
        size_max: A batch ends when its items together have this size or more.
    """
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if size >= size_max:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
