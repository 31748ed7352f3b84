"""Work that is done again and again after a fixed time, such as forgetting old events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sleeper.errors import SleeperError
from sleeper.instance.instance import Instance
from sleeper.language.failures import ends_process
from sleeper.workers.kinds.batcher import run_batcher

_HOUR_S = 3600.0
_LOOK_S = 60.0
_DAY_S = 24 * _HOUR_S  # asks a bucket to list results

_log = logging.getLogger(__name__)


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
        ticks_s: A clock that is never set, in seconds.
    """

    def __init__(self, timers: Sequence[Timer], ticks_s: Callable[[], float]) -> None:
        self._ticks_s = ticks_s
        self._due = {timer: ticks_s() for timer in timers}

    def run_due(self) -> float:
        """Run what is due, and return the seconds until something is. A failure ends no timer."""
        for timer, due in self._due.items():
            if self._ticks_s() < due:
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
            self._due[timer] = self._ticks_s() + timer.period_s
        return max(0.0, min(self._due.values(), default=_HOUR_S) - self._ticks_s())


class CurrentTimers:
    """The timers of an instance that may be opened again: then they are made anew.

    Args:
        current: Returns the instance.
        paused: Returns whether the instance is paused.
    """

    def __init__(self, current: Callable[[], Instance], paused: Callable[[], bool]) -> None:
        self._current = current
        self._paused = paused
        self._make(current())

    def run_due(self) -> float:
        """Run what is due, and return the seconds until this is to be called again."""
        if self._current() is not self._instance:
            self._make(self._current())
        return min(_LOOK_S, self._timers.run_due())

    def _make(self, instance: Instance) -> None:
        self._instance = instance
        self._timers = Timers(timers_of(instance, self._paused), instance.ticks_s)


def timers_of(instance: Instance, paused: Callable[[], bool]) -> tuple[Timer, ...]:
    """Return what an instance's jobs want to be done now and then.

    Args:
        instance: The instance. Its tables are asked for nothing while no file waits for a job.
        paused: Returns whether the instance is paused: then no jobs are made, and no results
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
        deleted = 0 if paused() else jobs.results.delete_expired()
        return f"deleted {deleted:,} results that had expired" if deleted else None

    def batch() -> str | None:
        if not (batcher.pending() or batcher.unsent()) or paused():
            return None
        made = run_batcher(jobs, jobs.recorder.now())
        return f"made {made.jobs:,} jobs of {made.files:,} submitted files" if made.jobs else None

    return (
        Timer("forgetting expired events", _HOUR_S, forget),
        Timer("deleting expired results", _DAY_S, delete_results),
        Timer("making jobs of files", 60.0 * instance.properties.batcher.period_minutes, batch),
    )
