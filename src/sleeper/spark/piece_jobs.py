"""Runs pieces of work on Spark's workers, and yields their outcomes while others run.

Words: a piece is the work of one task, such as a compaction; a job is a Spark job of several
pieces, a task each; a lone piece is one that has a job of its own.

1. jobs are cut by the size of the cluster (`plan_jobs`): eight are under way, and have together
   twice as many pieces as the cluster has cores, so that no core waits for the end of a job
2. the outcomes of a job arrive when its last piece has ended; the next job is cut then
3. an error of ours is a piece's outcome. What else ends a task, such as a worker that dies, Spark
   tries again. The last attempt but leaves the piece out, so that its job ends well; the piece
   then runs alone, and fails alone
4. a job that fails all the same is taken apart: each of its pieces runs alone

Decision 0121 has the measurements.
"""

from __future__ import annotations

import math
import pickle
import re
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import pyarrow as pa

from sleeper.errors import SleeperError
from sleeper.spark.block_shuffle.shuffle import Batches, use_one_thread
from sleeper.spark.block_shuffle.worker_errors import reraise_worker_errors
from sleeper.spark.progress import TaggedJobs, cancel_on_interrupt, is_connect, job_description

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

JOBS_AT_ONCE: Final = 8
"""Spark jobs that are under way at once, each waited for by a thread of the driver."""

PIECES_MAX: Final = 1_000
"""Pieces of one job at most: so many outcomes are lost if the driver is killed, and done again."""

_PIECES_PER_CORE: Final = 2
_JOB_BYTES: Final = 1 << 20
"""Pieces of a job together, pickled: each of its tasks gets them. Spark sends so much directly."""

_GROWN_EXECUTORS: Final = 64
"""Executors that a session with dynamic allocation is taken to have if it names no maximum."""

_MAX_FAILURES: Final = 4  # Spark's own default
_CANCEL_EVERY_S: Final = 0.5
_RESULT_COLUMNS: Final = "piece int, result binary"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """How pieces are cut into jobs.

    Attributes:
        pieces: Pieces of a job.
        at_once: Jobs under way at once.
    """

    pieces: int
    at_once: int


def plan_jobs(cores: int) -> JobPlan:
    """Plan jobs that keep a number of cores busy.

    A piece waits for its commit until its job has ended. All pieces of a job begin together, since
    it has fewer than the cluster has cores, so that is until the longest of them has ended.
    """
    wanted = _PIECES_PER_CORE * max(1, cores)
    pieces = min(PIECES_MAX, max(1, wanted // JOBS_AT_ONCE))
    return JobPlan(pieces=pieces, at_once=max(JOBS_AT_ONCE, math.ceil(wanted / pieces)))


def run_pieces_by_spark(
    spark: SparkSession,
    pieces: Iterable[Piece],
    run: Callable[[Piece], Result],
    *,
    describe: Callable[[Sequence[Piece]], str],
) -> Generator[Sequence[PieceOutcome[Piece, Result]]]:
    """Run a function on each piece, in a task of Spark, and yield the outcomes of jobs as they end.

    A piece may be run more than once, even side by side, when Spark tries it again. Closing the
    iterator cancels what has not ended.

    Args:
        spark: Any session, classic or Connect.
        pieces: Each is taken when Spark is free for it; pieces of about the same length should
            follow each other, the longest first. They, the function and its results go through
            pickle.
        run: Runs in a Python worker with one thread for Arrow.
        describe: Describes the Spark job of some pieces, for Spark's web page.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; what ran is cancelled.
        Exception: Spark's own, where somebody else has cancelled a job.
    """
    stopped = threading.Event()
    waiting = _Waiting(iter(pieces))
    plan = plan_jobs(cluster_cores(spark))
    pool = ThreadPoolExecutor(plan.at_once, thread_name_prefix="sleeper-spark-job")
    try:
        with cancel_on_interrupt(spark) as tagged:
            jobs = _Jobs(spark, tagged, run, describe, stopped, task_attempts(spark))
            started: dict[Future[Any], _Job] = {}
            try:
                while True:
                    room = 0 if stopped.is_set() else plan.at_once - len(started)
                    for job in islice(iter(partial(waiting.next_job, plan.pieces), None), room):
                        started[pool.submit(jobs.run, job)] = job
                    if not started:
                        break
                    future = next(as_completed([*started]))
                    outcomes = _outcomes(future, started.pop(future), waiting)
                    if outcomes:
                        yield outcomes
            except BaseException:
                stopped.set()
                jobs.cancel_until_ended(started)
                raise
    finally:
        pool.shutdown(cancel_futures=True)


def results_by_spark(
    spark: SparkSession,
    pieces: Iterable[Piece],
    run: Callable[[Piece], Result],
    *,
    describe: Callable[[Sequence[Piece]], str],
) -> Generator[tuple[Piece, Result]]:
    """Run a function on each piece, as `run_pieces_by_spark`; yield each piece with its result.

    The first piece that fails ends the run: what has not ended is cancelled.

    Raises:
        SleeperError: what a task raised.
        Exception: Spark's own, where a task failed as often as it may be tried.
    """
    outcomes = run_pieces_by_spark(spark, pieces, run, describe=describe)
    with closing(outcomes):
        for ended in outcomes:
            for each in ended:
                if each.failure is not None:
                    raise each.failure
                yield each.piece, cast("Result", each.result)


def cluster_cores(spark: SparkSession) -> int:
    """Return about how many tasks a session runs at once, or may run once it has grown."""
    if is_connect(spark):
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an extra, and slow to import

        # A range that is not told otherwise has a partition for each core of the server's cluster.
        numbers = spark.range(1 << 16).select(F.spark_partition_id().alias("partition"))
        cores = int(numbers.agg(F.max("partition")).collect()[0][0] or 0) + 1
    else:
        cores = int(spark.sparkContext.defaultParallelism)
    if _setting(spark, "spark.dynamicAllocation.enabled", "false") != "true":
        return cores
    executors = int(_setting(spark, "spark.dynamicAllocation.maxExecutors", "0"))
    if not 0 < executors < (1 << 31) - 1:
        executors = _GROWN_EXECUTORS
    return max(cores, executors * int(_setting(spark, "spark.executor.cores", "1")))


def task_attempts(spark: SparkSession) -> int:
    """Return how often a session runs a task before it fails the job of the task."""
    local = re.fullmatch(
        r"local(?:\[[^,\]]*(?:,\s*(\d+))?\])?", _setting(spark, "spark.master", "")
    )
    if local:
        return int(local[1] or 1)
    return int(_setting(spark, "spark.task.maxFailures", str(_MAX_FAILURES)))


def _setting(spark: SparkSession, name: str, default: str) -> str:
    return str(spark.conf.get(name, default))


# ---------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class _Job:
    """Pieces that run as one Spark job; of a lone one, Spark has the last word."""

    pieces: Sequence[Any]
    pickled: Sequence[bytes]

    @property
    def is_lone(self) -> bool:
        return len(self.pieces) == 1


class _Waiting:
    """Pieces that have not been given to Spark, and those that are to run alone, which go first."""

    def __init__(self, pieces: Iterator[Any]) -> None:
        self._pieces = pieces
        self._next: tuple[Any, bytes] | None = None
        self._lone: list[_Job] = []

    def next_job(self, pieces_max: int) -> _Job | None:
        if self._lone:
            return self._lone.pop()
        taken: list[tuple[Any, bytes]] = []
        size = 0
        while len(taken) < pieces_max and (piece := self._look()) is not None:
            size += len(piece[1])
            if taken and size > _JOB_BYTES:
                break
            taken.append(piece)
            self._next = None
        if not taken:
            return None
        return _Job([piece for piece, _ in taken], [pickled for _, pickled in taken])

    def run_alone(self, job: _Job, number: int) -> None:
        self._lone.append(_Job([job.pieces[number]], [job.pickled[number]]))

    def _look(self) -> tuple[Any, bytes] | None:
        if self._next is None:
            for piece in self._pieces:
                self._next = piece, pickle.dumps(piece)
                break
        return self._next


class _RunEnded(Exception):
    """A job was not begun: the run has ended."""


class _LeftOut:
    """The result of a piece that the last attempt of its task did not run."""


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Runs jobs, each in a thread of the driver that waits for it."""

    spark: SparkSession
    tagged: TaggedJobs
    run_piece: Callable[[Any], Any]
    describe: Callable[[Any], str]
    stopped: threading.Event
    attempts: int

    def run(self, job: _Job) -> dict[int, Any]:
        """Return the result of each piece by its number: a value, an error or `_LeftOut`."""
        if self.stopped.is_set():
            raise _RunEnded
        self.tagged.start()  # a tag belongs to a thread
        count = len(job.pieces)
        attempts = None if job.is_lone or self.attempts < 2 else self.attempts
        rows = self.spark.range(0, count, 1, count).mapInArrow(
            _task(self.run_piece, job.pickled, attempts), _RESULT_COLUMNS
        )
        try:
            with job_description(self.spark, self.describe(job.pieces)), reraise_worker_errors():
                found = rows.collect()
        except Exception as error:
            if _is_cancelled(error):
                self.stopped.set()
            raise
        return {row["piece"]: pickle.loads(row["result"]) for row in found}  # noqa: S301 - our own

    def cancel_until_ended(self, started: Collection[Future[Any]]) -> None:
        """Cancel what runs, again and again: a thread may be about to start another job."""
        for future in started:
            future.cancel()
        while wait(started, timeout=0).not_done:
            self.tagged.cancel()
            wait(started, timeout=_CANCEL_EVERY_S)


def _task(
    run: Callable[[Any], Any], pieces: Sequence[bytes], attempts: int | None
) -> Callable[[Batches], Batches]:
    """Return the function of a job's tasks. The last of `attempts` leaves its piece out."""

    def run_some(batches: Batches) -> Batches:
        from pyspark import TaskContext  # noqa: PLC0415 - an extra, and slow to import

        use_one_thread()
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        is_last = attempts is not None and attempt >= attempts - 1
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = _LeftOut() if is_last else _result(run, pieces[number])
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([pickle.dumps(result)], pa.binary())],
                    names=["piece", "result"],
                )

    return run_some


def _result(run: Callable[[Any], Any], pickled: bytes) -> Any:
    try:
        return run(pickle.loads(pickled))  # noqa: S301 - our driver's own
    except SleeperError as error:
        return error


def _outcomes(
    future: Future[dict[int, Any]], job: _Job, waiting: _Waiting
) -> list[PieceOutcome[Any, Any]]:
    """Return the outcomes of a job that has ended; pieces that are to run alone have none yet."""
    error = future.exception()
    if error is None:
        return [*_ended(future.result(), job, waiting)]
    if isinstance(error, _RunEnded):
        return []  # another job has the reason
    if not isinstance(error, Exception) or _is_cancelled(error):
        raise error
    if job.is_lone or isinstance(error, SleeperError):  # that would fail all of them alike
        return [PieceOutcome(piece=piece, failure=error) for piece in job.pieces]
    for number in range(len(job.pieces)):
        waiting.run_alone(job, number)
    return []


def _ended(
    results: dict[int, Any], job: _Job, waiting: _Waiting
) -> Iterator[PieceOutcome[Any, Any]]:
    for number, piece in enumerate(job.pieces):
        result = results[number]
        if isinstance(result, _LeftOut):
            waiting.run_alone(job, number)
        elif isinstance(result, Exception):
            yield PieceOutcome(piece=piece, failure=result)
        else:
            yield PieceOutcome(piece=piece, result=result)


def _is_cancelled(error: Exception) -> bool:
    """Return True for the errors of Spark and of Connect that say that a job was cancelled."""
    return re.search(r"\[(SPARK_JOB_CANCELLED|OPERATION_CANCELED)\]", str(error)) is not None
