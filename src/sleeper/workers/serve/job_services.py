"""What runs beside table maintenance in `sleeper serve`: the fleet of workers, and timers.

Timers are work that is done again and again after a fixed time, such as forgetting old events.

Each has a thread that waits most of the time. Neither asks the tables for anything: the fleet
looks at queues only, so a bucket is not asked by an instance without jobs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sleeper.errors import SleeperError, ends_process
from sleeper.instance.instance import Instance
from sleeper.model.jobs.kinds import COMPACTION, kind_of
from sleeper.ports.clock import Clock
from sleeper.workers.kinds.batcher import run_batcher
from sleeper.workers.serve.fleet import WorkerFleet, WorkerProcess
from sleeper.workers.stop_signal import StopSignal

LOOK_S = 0.5
"""How often queues are looked at."""

CHARGED_LOOK_MAX_S = 20.0
"""How often, at least, queues are looked at that charge for it, while there are no jobs."""

PATIENCE_S = 20.0
"""How long workers that were asked to end are waited for before they are killed."""

_HOUR_S = 3600.0
_TIMERS_LOOK_S = 60.0
_DEAD_LETTERS_S = 600.0
_DAY_S = 24 * _HOUR_S  # asks a bucket to list results

_log = logging.getLogger(__name__)


class JobServices:
    """Starts workers and timers on entry, and ends them on exit: gently, or at once by an error.

    Args:
        fleet: The workers.
        timers: What is done now and then.
        stop: Set when everything is to end.
        note_work: Called at each look that sees workers at work.
        look_s: Seconds between two looks at the queues while there are jobs.
        look_max_s: Returns the same while there are none; each look is twice as late as the last.
        patience_s: How long to wait for workers that were asked to end.

    Attributes:
        fleet: The workers.
    """

    def __init__(
        self,
        fleet: WorkerFleet,
        timers: CurrentTimers,
        *,
        stop: StopSignal,
        note_work: Callable[[], None],
        look_s: float = LOOK_S,
        look_max_s: Callable[[], float] = lambda: LOOK_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.fleet = self._fleet = fleet
        self._timers = timers
        self._stop = stop
        self._note_work = note_work
        self._look_s = self._next_look_s = look_s
        self._look_max_s = look_max_s
        self._patience_s = patience_s
        self._at_once = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("fleet", self._run_fleet), ("timers", self._run_timers))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._at_once.set()
        self._stop.set()
        try:
            for thread in self._threads:
                thread.join()
        except BaseException:  # a second Ctrl-C while workers are waited for
            self._at_once.set()
            self._fleet.stop(0)
            raise

    def _run_fleet(self) -> None:
        """Look at queues until all is to end; then end the workers, while maintenance ends too."""
        self._forever(self._look)
        self._fleet.stop(0 if self._at_once.is_set() else self._patience_s)

    def _run_timers(self) -> None:
        self._forever(self._timers.run_due)

    def _look(self) -> float:
        is_busy = self._fleet.look()
        if any(self._fleet.running.values()):
            self._note_work()
        longest_s = self._look_s if is_busy else max(self._look_s, self._look_max_s())
        self._next_look_s = min(longest_s, 2 * self._next_look_s)
        return self._next_look_s

    def _forever(self, do: Callable[[], float]) -> None:
        """Do something until all is to end. An unexpected error is logged and does not end it.

        Args:
            do: Does it, and returns how long to wait.
        """
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            try:
                wait_s = do()
            except BaseException as failure:
                if ends_process(failure):
                    raise
                _log.exception("a service failed with an unexpected error; it continues")
                wait_s = PATIENCE_S


def open_job_services(
    current: Callable[[], Instance],
    *,
    start: Callable[[str], WorkerProcess],
    workers_max: Mapping[str, int],
    stop: StopSignal,
    note_work: Callable[[], None],
    is_paused: Callable[[], bool],
    compactions: Callable[[Callable[[], bool]], int] = lambda paused: 0,
) -> JobServices:
    """Return what runs the jobs of an instance. Nothing is started yet.

    Args:
        current: Returns the instance, which may be opened again while they run.
        start: Starts a worker of a kind.
        workers_max: How many workers of each kind may run at once; a kind that is missing or has
            0 is not run.
        stop: Set when everything is to end.
        note_work: Called at each look that sees workers at work.
        is_paused: Asked before workers are started.
        compactions: Returns how many compaction jobs wait for workers to be started; none while
            what it is given returns that the instance is paused.

    Raises:
        PropertiesInvalid: the instance is in a bucket, and `sleeper.jobs.url` is not set.
    """
    instance = current()
    instance.jobs  # noqa: B018 - raises an error if it has no place for jobs

    def ready(kind: str) -> int:
        if kind == COMPACTION:
            return compactions(is_paused)
        stores = current().jobs.stores
        messages = sum(stores.queue(name).ready() for name in kind_of(kind).queue_names)
        return 0 if messages and not kind_of(kind).goes_on_paused and is_paused() else messages

    fleet = WorkerFleet(
        start=start,
        ready=ready,
        workers_max={kind: count for kind, count in workers_max.items() if count},
        clock=instance.clock,
    )
    timers = CurrentTimers(current, is_paused)

    def look_max_s() -> float:
        return CHARGED_LOOK_MAX_S if current().jobs.stores.are_charged else LOOK_S

    return JobServices(fleet, timers, stop=stop, note_work=note_work, look_max_s=look_max_s)


@dataclass(frozen=True, slots=True)
class Timer:
    """One piece of such work.

    Attributes:
        name: What it is, for the log.
        period_s: Seconds between two runs.
        run: Does it; returns a line to log, or None where nothing was done.
    """

    name: str
    period_s: float
    run: Callable[[], str | None]


class Timers:
    """Runs each timer when it is due, one after the other.

    Args:
        timers: The timers. Each is due at once.
        clock: The time.
    """

    def __init__(self, timers: Sequence[Timer], clock: Clock) -> None:
        self._clock = clock
        self._due = {timer: clock.ticks_s() for timer in timers}

    def run_due(self) -> float:
        """Run what is due, and return the seconds until something is. A failure ends no timer."""
        for timer, due in self._due.items():
            if self._clock.ticks_s() < due:
                continue
            try:
                done = timer.run()
            except SleeperError as failure:
                _log.error("%s failed, and is tried again later: %s", timer.name, failure)
            except BaseException as failure:
                if ends_process(failure):
                    raise
                _log.exception("%s failed unexpectedly, and is tried again later", timer.name)
            else:
                if done is not None:
                    _log.info("%s", done)
            self._due[timer] = self._clock.ticks_s() + timer.period_s
        return max(0.0, min(self._due.values(), default=_HOUR_S) - self._clock.ticks_s())


class CurrentTimers:
    """The timers of an instance that may be opened again: then they are made anew.

    Args:
        current: Returns the instance.
        is_paused: Returns whether the instance is paused.
    """

    def __init__(self, current: Callable[[], Instance], is_paused: Callable[[], bool]) -> None:
        self._current = current
        self._is_paused = is_paused
        self._make(current())

    def run_due(self) -> float:
        """Run what is due, and return the seconds until this is to be called again."""
        if self._current() is not self._instance:
            self._make(self._current())
        return min(_TIMERS_LOOK_S, self._timers.run_due())

    def _make(self, instance: Instance) -> None:
        self._instance = instance
        self._timers = Timers(timers_of(instance, self._is_paused), instance.clock)


def timers_of(instance: Instance, is_paused: Callable[[], bool]) -> tuple[Timer, ...]:
    """Return what an instance's jobs want to be done now and then.

    Args:
        instance: The instance. Its tables are asked for nothing while no file waits for a job.
        is_paused: Returns whether the instance is paused: then no jobs are made, and no results
            deleted.
    """
    jobs = instance.jobs
    batcher = jobs.stores.batcher

    def forget() -> str | None:
        now = jobs.recorder.now()
        events = jobs.stores.tracker.delete_expired(now)
        files = batcher.delete_expired(now)
        if not events and not files:
            return None
        return f"forgot {events:,} events of jobs and {files:,} submitted files, which had expired"

    def delete_results() -> str | None:
        deleted = 0 if is_paused() else jobs.results.delete_expired()
        return f"deleted {deleted:,} results that had expired" if deleted else None

    def batch() -> str | None:
        if not (batcher.pending() or batcher.unsent()) or is_paused():
            return None
        made = run_batcher(jobs, jobs.recorder.now())
        return f"made {made.jobs:,} jobs of {made.files:,} submitted files" if made.jobs else None

    def note_dead_letters() -> str | None:
        noted = jobs.note_dead_letters()
        return f"told the end of {noted:,} jobs whose workers were killed" if noted else None

    return (
        Timer("telling the end of dead letters", _DEAD_LETTERS_S, note_dead_letters),
        Timer("forgetting expired events", _HOUR_S, forget),
        Timer("deleting expired results", _DAY_S, delete_results),
        Timer("making jobs of files", 60.0 * instance.properties.batcher.period_minutes, batch),
    )
