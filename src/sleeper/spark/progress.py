"""Reports the progress of a block's Spark jobs, and cancels those that the block leaves running.

Only jobs that the block starts are seen and cancelled, whatever else the session is doing. They
are known by a tag, which belongs to a thread: another thread that works for the block adds it.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_REPORT_EVERY_S = 0.5
_CANCEL_EVERY_S = 0.5
_NUMBERS = itertools.count(1)
_DESCRIPTION = "spark.job.description"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far one stage of a Spark job is.

    Attributes:
        label: What the stage does, or its number among the stages of the block.
        tasks_done: Tasks that have ended well.
        tasks_total: Tasks that the stage has.
    """

    label: str
    tasks_done: int
    tasks_total: int


@contextmanager
def stage_progress(
    spark: SparkSession,
    report: Callable[[StageProgress], None],
    *,
    labels: Sequence[str] = (),
) -> Iterator[str]:
    """Report the stages of the block's Spark jobs, about twice a second, when they have changed.

    Yields the tag of the block's jobs, and cancels them as `cancel_on_interrupt` does. `report`
    runs in a thread of its own, and at the end of a block that did not fail. Spark Connect reports
    every two seconds, from the block's thread; it may not report shorter stages. An error that
    `report` raises is raised at the end of a block that did not fail itself.

    Args:
        spark: Any session, classic or Connect.
        report: Takes one stage at a time.
        labels: What to call the stages, in the order in which they start.
    """
    with _tagged(_jobs_of(spark)) as jobs:
        stages = _Stages(report, tuple(labels))
        with jobs.followed(stages):
            yield jobs.tag
        stages.complete()
    if stages.failure is not None:
        raise stages.failure


@contextmanager
def cancel_on_interrupt(spark: SparkSession) -> Iterator[TaggedJobs]:
    """Cancel the block's Spark jobs at Ctrl-C, and when any exception leaves the block.

    The exception goes on. Yields the block's jobs. In the main thread this takes the
    place of pyspark's own answer to Ctrl-C, which cancels all jobs of the process; a handler
    that the user has set stays.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed in the block: at its end, which comes at once where
            it waits for Spark. Pressed again, it is raised where the block is.
    """
    with _tagged(_jobs_of(spark)) as jobs:
        yield jobs


@contextmanager
def job_description(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs that this thread starts in the block, for Spark's web page and logs.

    Spark Connect has no such call; there nothing happens.

    Args:
        spark: Any session.
        text: What the jobs do, for which table and job.
    """
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type] # None removes it


def is_connect(spark: SparkSession) -> bool:
    """Say whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


# ---------------------------------------------------------------- stages


@dataclass(slots=True)
class _Stages:
    """The stages seen so far, numbered as they start; calls `report` for those that changed."""

    report: Callable[[StageProgress], None]
    labels: tuple[str, ...]
    told: dict[int, StageProgress] = field(default_factory=dict)
    failure: BaseException | None = None

    def tell(self, counts: Iterable[tuple[int, int, int]]) -> None:
        """Report each (stage id, tasks done, tasks in all) that has changed."""
        for stage_id, done, total in sorted(counts):
            before = self.told.get(stage_id)
            place = list(self.told).index(stage_id) if before else len(self.told)
            named = place < len(self.labels)
            label = self.labels[place] if named else f"stage {place + 1}"
            # A slow poll may bring counts that are older than those reported.
            now = StageProgress(label, max(done, before.tasks_done if before else 0), total)
            if now != before and self.failure is None:
                self.told[stage_id] = now
                try:
                    self.report(now)
                except Exception as error:  # noqa: BLE001 - the caller's own; raised at the end
                    self.failure = error

    def complete(self) -> None:
        """Report as complete what was seen: a block without error has seen its jobs end."""
        self.tell(
            [
                (stage_id, stage.tasks_total, stage.tasks_total)
                for stage_id, stage in self.told.items()
            ]
        )


# ---------------------------------------------------------------- jobs of a block


class TaggedJobs(Protocol):
    """The jobs that carry one tag, on one kind of session."""

    @property
    def tag(self) -> str:
        """The tag, which is unique in this process."""

    def start(self) -> None:
        """Have jobs that this thread starts carry the tag."""

    def end(self) -> None:
        """Have them carry it no longer."""

    def cancel(self) -> None:
        """Cancel the jobs that run."""

    def followed(self, stages: _Stages) -> Any:
        """Return a context that reports the progress of the jobs to `stages`."""


def _jobs_of(spark: SparkSession) -> TaggedJobs:
    tag = f"sleeper-{next(_NUMBERS)}"
    return _ConnectJobs(spark, tag) if is_connect(spark) else _ClassicJobs(spark, tag)


@contextmanager
def _tagged(jobs: TaggedJobs) -> Iterator[TaggedJobs]:
    with _ctrl_c_cancels(jobs):
        jobs.start()
        try:
            yield jobs
        except BaseException:
            # In a thread of its own: where this one was interrupted in a call to Spark, its
            # connection may be in a wrong state.
            canceller = threading.Thread(target=jobs.cancel, name="sleeper-spark-cancel")
            canceller.start()
            canceller.join()
            raise
        finally:
            jobs.end()


@contextmanager
def _ctrl_c_cancels(jobs: TaggedJobs) -> Iterator[None]:
    """Have Ctrl-C cancel these jobs; KeyboardInterrupt comes when the block has seen them end.

    To raise it at once would interrupt a call to Spark: calls like `toArrow` would then wait for
    the end of a job that nobody cancels. A second Ctrl-C is raised at once.
    """
    before = signal.getsignal(signal.SIGINT)
    of_pyspark = getattr(before, "__module__", None) == "pyspark.core.context"
    chosen_by_user = not of_pyspark and before is not signal.default_int_handler
    if chosen_by_user or threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()

    def cancel_until_ended() -> None:
        jobs.cancel()
        while not ended.wait(_CANCEL_EVERY_S):  # the block may start another job yet
            jobs.cancel()

    canceller = threading.Thread(
        target=cancel_until_ended, name="sleeper-spark-cancel", daemon=True
    )

    def on_ctrl_c(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        canceller.start()

    signal.signal(signal.SIGINT, on_ctrl_c)
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()
        if canceller.ident is not None:
            canceller.join()
            raise KeyboardInterrupt from failure


@dataclass(frozen=True, slots=True)
class _ClassicJobs:
    """Jobs of this process's own SparkContext."""

    spark: SparkSession
    tag: str

    def start(self) -> None:
        self.spark.sparkContext.addJobTag(self.tag)

    def end(self) -> None:
        self.spark.sparkContext.removeJobTag(self.tag)

    def cancel(self) -> None:
        self.spark.sparkContext.cancelJobsWithTag(self.tag)

    @contextmanager
    def followed(self, stages: _Stages) -> Iterator[None]:
        ended = threading.Event()

        def poll() -> None:
            while not ended.wait(_REPORT_EVERY_S):
                stages.tell(self._counts())
            stages.tell(self._counts())

        thread = threading.Thread(target=poll, name="sleeper-spark-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _counts(self) -> list[tuple[int, int, int]]:
        """Stages that have started; those that Spark skips never do."""
        context = self.spark.sparkContext
        tracker = context.statusTracker()
        counts = []
        # pyspark's own tracker knows job groups alone, and a user may have set one.
        for job_id in context._jsc.sc().statusTracker().getJobIdsForTag(self.tag):  # noqa: SLF001
            job = tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job else ():
                stage = tracker.getStageInfo(stage_id)
                if stage and (stage.numActiveTasks or stage.numCompletedTasks):
                    counts.append((stage_id, stage.numCompletedTasks, stage.numTasks))
        return counts


@dataclass(frozen=True, slots=True)
class _ConnectJobs:
    """Operations of a session on a Spark Connect server."""

    spark: SparkSession
    tag: str

    def start(self) -> None:
        self.spark.addTag(self.tag)

    def end(self) -> None:
        self.spark.removeTag(self.tag)

    def cancel(self) -> None:
        self.spark.interruptTag(self.tag)

    @contextmanager
    def followed(self, stages: _Stages) -> Iterator[None]:
        of_the_block = threading.get_ident()

        def handle(**progress: Any) -> None:
            # Every operation of the session comes here, in the thread that waits for it.
            if threading.get_ident() == of_the_block:
                stages.tell(
                    (stage.stage_id, stage.num_completed_tasks, stage.num_tasks)
                    for stage in progress["stages"] or ()
                    if stage.num_completed_tasks  # stages that Spark skips are listed, too
                )

        self.spark.registerProgressHandler(handle)  # type: ignore[arg-type]
        try:
            yield
        finally:
            self.spark.removeProgressHandler(handle)  # type: ignore[arg-type]
