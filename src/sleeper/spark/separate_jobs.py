"""Pieces of work that Spark runs side by side, each as a job of its own.

One Spark job for all of them would bring their results when the last has ended, and none at all
where one task dies too often. A job costs some hundredths of a second; pieces take seconds.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from sleeper.errors import SleeperError
from sleeper.spark.block_shuffle.shuffle import Batches, use_one_thread
from sleeper.spark.block_shuffle.worker_errors import reraise_worker_errors
from sleeper.spark.progress import TaggedJobs, cancel_on_interrupt, job_description

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

AT_ONCE = 64
"""Spark jobs that Spark is given at once, each by a thread; it queues what it cannot run."""

_CANCEL_EVERY_S = 0.5

Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceOutcome(Generic[Piece, Result]):
    """The outcome of one piece.

    Attributes:
        piece: The piece.
        result: What running it returned; None where it failed.
        failure: Why it failed: an error of ours, raised in the task; or Spark's, where its
            tries were used up.
    """

    piece: Piece
    result: Result | None = None
    failure: Exception | None = None


def run_separately(
    spark: SparkSession,
    pieces: Iterable[Piece],
    run: Callable[[Piece], Result],
    *,
    describe: Callable[[Piece], str],
    at_once: int = AT_ONCE,
) -> Iterator[PieceOutcome[Piece, Result]]:
    """Run a function on each piece, in a task of Spark, and yield the outcomes as they come.

    An error of ours is an outcome; anything else (a worker that died, a fault of this program)
    Spark tries again, as often as it is set to, before it becomes one. So a piece may be run
    more than once, even side by side. Closing the iterator cancels what has not ended.

    Args:
        spark: Any session, classic or Connect.
        pieces: Each is taken when Spark is free for it. They, the function and its results go
            through pickle.
        run: Runs in a Python worker with one thread for Arrow.
        describe: Describes the Spark job of a piece, for Spark's web page.
        at_once: Pieces that Spark is given at once.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; what ran is cancelled.
        Exception: Spark's own, where somebody else has cancelled a job.
    """
    stopped = threading.Event()
    coming = iter(pieces)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="sleeper-spark-job")
    try:
        with cancel_on_interrupt(spark) as tagged:
            jobs = _Jobs(spark, tagged, run, describe, stopped)
            started: dict[Future[Any], Piece] = {}
            try:
                while True:
                    for piece in islice(coming, at_once - len(started)):
                        started[pool.submit(jobs.run, piece)] = piece
                    if not started:
                        break
                    future = next(as_completed([*started]))
                    yield _outcome(future, started.pop(future))
            except BaseException:
                stopped.set()
                jobs.cancel_until_ended(started)
                raise
    finally:
        pool.shutdown(cancel_futures=True)


class _RunEnded(Exception):
    """A piece was not begun: the run has ended."""


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Runs pieces, each in a thread of the driver that waits for its Spark job."""

    spark: SparkSession
    tagged: TaggedJobs
    run_piece: Callable[[Any], Any]
    describe: Callable[[Any], str]
    stopped: threading.Event

    def run(self, piece: Any) -> Any:
        if self.stopped.is_set():
            raise _RunEnded
        self.tagged.start()  # a tag belongs to a thread
        rows = self.spark.range(0, 1, 1, 1).mapInArrow(
            _task(self.run_piece, piece), "result binary"
        )
        try:
            with job_description(self.spark, self.describe(piece)), reraise_worker_errors():
                (row,) = rows.collect()
        except Exception as error:
            if _is_cancelled(error):
                self.stopped.set()
            raise
        return pickle.loads(row["result"])  # noqa: S301 - written by our own task

    def cancel_until_ended(self, started: Collection[Future[Any]]) -> None:
        """Cancel what runs, again and again: a thread may be about to start another job."""
        for future in started:
            future.cancel()
        while wait(started, timeout=0).not_done:
            self.tagged.cancel()
            wait(started, timeout=_CANCEL_EVERY_S)


def _task(run: Callable[[Any], Any], piece: Any) -> Callable[[Batches], Batches]:
    def once(batches: Batches) -> Batches:
        use_one_thread()
        for _ in batches:
            try:
                result = run(piece)
            except SleeperError as error:
                result = error
            yield pa.RecordBatch.from_arrays(
                [pa.array([pickle.dumps(result)], pa.binary())], names=["result"]
            )

    return once


def _outcome(future: Future[Any], piece: Any) -> PieceOutcome[Any, Any]:
    error = future.exception()
    if error is None:
        result = future.result()
        failed = isinstance(result, Exception)
        return PieceOutcome(
            piece=piece, result=None if failed else result, failure=result if failed else None
        )
    if isinstance(error, Exception) and not _ends_the_run(error):
        return PieceOutcome(piece=piece, failure=error)
    raise error


def _ends_the_run(error: Exception) -> bool:
    return isinstance(error, _RunEnded) or _is_cancelled(error)


def _is_cancelled(error: Exception) -> bool:
    """Return True for the errors of Spark and of Connect that say that a job was cancelled."""
    return re.search(r"\[(SPARK_JOB_CANCELLED|OPERATION_CANCELED)\]", str(error)) is not None
