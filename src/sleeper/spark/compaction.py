"""Compaction jobs on Spark: one task a job, in Python workers; no row passes through the JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from sleeper.engine.writing.compaction_output import CompactionOutput
from sleeper.errors import ObjectNotFound, SleeperError, StorageFailed
from sleeper.ports.objects import Objects
from sleeper.spark.piece_jobs import PieceOutcome, run_pieces_by_spark
from sleeper.state.plans.claims import ClaimedJob

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Outcome = tuple[ClaimedJob, CompactionOutput | SleeperError]
Outcomes = Generator[Sequence[Outcome], None, None]
Runner = Callable[[Iterable[ClaimedJob], Callable[[ClaimedJob], CompactionOutput]], Outcomes]


def compaction_runner(spark: SparkSession, files: Objects, *, title: str) -> Runner:
    """Return what runs compaction jobs on Spark: it yields each with its output, or our error.

    They come back a few at a time, and one that fails fails alone (`piece_jobs`). A task uses one
    core. Closing the iterator cancels what has not ended.

    Args:
        spark: Any session, classic or Connect, whose workers reach the table's folder.
        files: The table's folder, as this process reaches it.
        title: What the Spark jobs are called on Spark's web page.
    """
    return partial(_run, spark, files, title)


def _run(
    spark: SparkSession,
    files: Objects,
    title: str,
    jobs: Iterable[ClaimedJob],
    write: Callable[[ClaimedJob], CompactionOutput],
) -> Outcomes:
    def describe(claimed: Sequence[ClaimedJob]) -> str:
        return f"{title}: {described(claimed)}"

    outcomes = run_pieces_by_spark(
        spark, jobs, partial(_write_and_look, write, files), describe=describe
    )
    with closing(outcomes):
        for ended in outcomes:
            yield [(each.piece, _outcome(each, files)) for each in ended]


def described(claimed: Sequence[ClaimedJob]) -> str:
    """Return what some jobs read, as text: Spark itself sees no row of it."""
    files = sum(len(each.job.inputs) for each in claimed)
    rows = sum(each.row_count for each in claimed)
    size = sum(each.size_bytes for each in claimed)
    leaves = len({each.job.partition_id for each in claimed})
    return f"leaves {leaves:,}, files {files:,}, rows {rows:,}, MB {size / 1e6:,.1f}"


def _write_and_look(
    write: Callable[[ClaimedJob], CompactionOutput], files: Objects, claimed: ClaimedJob
) -> CompactionOutput:
    """Write a job's output; in a bucket, which is one for all, its worker checks that it is there.

    The driver would do so one file after the other.
    """
    written = write(claimed)
    missing = _missing(written, files) if files.is_remote else None
    if missing is not None:
        raise missing
    return written


def _outcome(
    outcome: PieceOutcome[ClaimedJob, CompactionOutput], files: Objects
) -> CompactionOutput | SleeperError:
    if outcome.result is not None:
        missing = None if files.is_remote else _missing(outcome.result, files)
        return missing or outcome.result
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
    """Return why the file is not found here: workers may have disks of their own."""
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
