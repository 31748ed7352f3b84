"""Compaction jobs on Spark: one task a job, in Python workers; no row passes through the JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from sleeper.engine.writing.compaction_output import CompactionOutput
from sleeper.errors import ObjectNotFound, SleeperError, StorageFailed
from sleeper.ports.objects import Objects
from sleeper.spark.separate_jobs import AT_ONCE, PieceOutcome, run_separately
from sleeper.state.plans.claims import ClaimedJob

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Outcomes = Generator[tuple[ClaimedJob, CompactionOutput | SleeperError], None, None]
Runner = Callable[[Iterable[ClaimedJob], Callable[[ClaimedJob], CompactionOutput]], Outcomes]


def compaction_runner(
    spark: SparkSession, files: Objects, *, title: str, at_once: int = AT_ONCE
) -> Runner:
    """Return what runs compaction jobs on Spark: it yields each with its output, or our error.

    Jobs are independent: each comes back as it ends, and one that fails fails alone. A task uses
    one core. Closing the iterator cancels what has not ended.

    Args:
        spark: Any session, classic or Connect, whose workers reach the table's folder.
        files: The table's folder, as this process reaches it.
        title: What the Spark jobs are called on Spark's web page.
        at_once: Jobs that Spark is given at once; more than the cluster has cores is no use.
    """
    return partial(_run, spark, files, title, at_once)


def _run(
    spark: SparkSession,
    files: Objects,
    title: str,
    at_once: int,
    jobs: Iterable[ClaimedJob],
    write: Callable[[ClaimedJob], CompactionOutput],
) -> Outcomes:
    def describe(claimed: ClaimedJob) -> str:
        return f"{title}, job {claimed.job.job_id}"

    outcome: Any = run_separately(spark, jobs, write, describe=describe, at_once=at_once)
    with closing(outcome):
        for each in outcome:
            yield each.piece, _outcome(each, files)


def _outcome(
    outcome: PieceOutcome[ClaimedJob, CompactionOutput], files: Objects
) -> CompactionOutput | SleeperError:
    if outcome.result is not None:
        return _missing(outcome.result, files) or outcome.result
    if isinstance(outcome.failure, SleeperError):
        return outcome.failure
    job_id = outcome.piece.job.job_id
    _log.warning("Spark could not run the compaction job %s: %s", job_id, outcome.failure)
    reason = (str(outcome.failure).strip() or type(outcome.failure).__name__).splitlines()[0]
    return StorageFailed(
        f"Spark could not run the compaction job {job_id}, in any attempt: {reason}. Its "
        "inputs are as they were; compact again"
    )


def _missing(written: CompactionOutput, files: Objects) -> StorageFailed | None:
    """Return why this process does not find the file: workers may have disks of their own."""
    filename = written.reference.filename
    try:
        size_bytes = files.size(filename)
    except ObjectNotFound as error:
        return StorageFailed(
            f"Spark's workers wrote a file that this process does not find ({error}). Nothing was "
            "committed. Workers and driver must reach the instance at the same place: use an "
            "object store, a shared file system, or local mode"
        )
    if size_bytes != written.size_bytes:
        return StorageFailed(
            f"{filename} has {size_bytes:,} bytes here, but a worker of Spark wrote "
            f"{written.size_bytes:,}. Nothing was committed. Run the job again."
        )
    return None
