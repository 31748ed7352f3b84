"""What runs beside table maintenance in `sleeper serve`: the fleet of workers, and timers.

Each has a thread that waits most of the time. Neither asks the tables for anything: the fleet
looks at queues only, so a bucket is not asked by an instance without jobs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from sleeper.instance.instance import Instance
from sleeper.language.failures import ends_process
from sleeper.model.jobs.kinds import COMPACTION, kind_of
from sleeper.workers.serve.fleet import WorkerFleet, WorkerProcess
from sleeper.workers.serve.timers import CurrentTimers

LOOK_S = 0.5
"""How often queues are looked at."""

CHARGED_LOOK_MAX_S = 20.0
"""How often, at least, queues are looked at that charge for it, while there are no jobs."""

PATIENCE_S = 20.0
"""How long workers that were asked to end are waited for before they are killed."""

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
        stop: threading.Event,
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
    stop: threading.Event,
    note_work: Callable[[], None],
    paused: Callable[[], bool],
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
        paused: Asked before workers are started.
        compactions: Returns how many compaction jobs wait for workers to be started; none while
            what it is given returns that the instance is paused.

    Raises:
        PropertiesInvalid: the instance is in a bucket, and `sleeper.jobs.url` is not set.
    """
    instance = current()
    instance.jobs  # noqa: B018 - raises an error if it has no place for jobs

    def ready(kind: str) -> int:
        if kind == COMPACTION:
            return compactions(paused)
        stores = current().jobs.stores
        messages = sum(stores.queue(name).ready() for name in kind_of(kind).queue_names)
        return 0 if messages and not kind_of(kind).goes_on_paused and paused() else messages

    fleet = WorkerFleet(
        start=start,
        ready=ready,
        workers_max={kind: count for kind, count in workers_max.items() if count},
        ticks_s=instance.ticks_s,
    )
    timers = CurrentTimers(current, paused)

    def look_max_s() -> float:
        return CHARGED_LOOK_MAX_S if current().jobs.stores.are_charged else LOOK_S

    return JobServices(fleet, timers, stop=stop, note_work=note_work, look_max_s=look_max_s)
