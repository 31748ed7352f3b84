"""Workers that a schedule starts elsewhere, such as tasks of ECS, where jobs wait (rule ING-15)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from sleeper.errors import SleeperError, StorageFailed, TableNotFound
from sleeper.instance.instance import Instance
from sleeper.model.jobs.kinds import COMPACTION, kind_of
from sleeper.workers.instance_changes import is_paused
from sleeper.workers.scheduled_operations import ChangedTables, DueTable
from sleeper.workers.serve.fleet import WaitingCompactions, workers_to_start

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningWorkers:
    """The workers of a kind.

    Attributes:
        count: All of them, those that are starting included.
        starting: Those that have not taken a job yet, because they are starting.
    """

    count: int
    starting: int


class WorkerStarter(Protocol):
    """Starts workers on other machines."""

    def running(self, kind: str) -> RunningWorkers:
        """Return the workers of a kind.

        Raises:
            StorageFailed: they cannot be counted now.
        """
        ...

    def start(self, kind: str, count: int) -> int:
        """Start workers of a kind, and return how many were started: fewer where there is no room.

        Raises:
            StorageFailed: none could be started.
        """
        ...


class ScheduledStarts:
    """Looks at what waits in an instance, and starts workers. Kept from one look to the next.

    Args:
        current: Returns the instance.
        starter: Starts workers.
    """

    def __init__(self, current: Callable[[], Instance], starter: WorkerStarter) -> None:
        self._current, self._starter = current, starter
        self._waiting = WaitingCompactions(current().clock)
        self._tables: ChangedTables | None = None

    def look(self, limits: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Start workers, and return how many of each kind; kinds without any are left out.

        Nothing more is asked for a kind that nothing waits for.

        Args:
            limits: The kinds of workers, and how many of each there may be.

        Raises:
            StorageFailed: one kind failed; the others were looked at.
        """
        started: dict[str, int] = {}
        failures: list[SleeperError] = []
        for kind, workers_max in limits:
            try:
                count = self._look_at(kind, workers_max)
            except SleeperError as failure:
                _log.error("%s workers cannot be started now: %s", kind, failure)
                failures.append(failure)
            else:
                if count:
                    started[kind] = count
        if failures:
            raise StorageFailed(
                f"workers were not started: {'; '.join(map(str, failures))}. The next look tries "
                "again."
            ) from failures[0]
        return started

    def _look_at(self, kind: str, workers_max: int) -> int:
        ready = self._compactions() if kind == COMPACTION else self._messages(kind)
        if not ready or self._is_paused(kind):
            return 0
        running = self._starter.running(kind)
        wanted = workers_to_start(
            ready, running=running.count, workers_max=workers_max, idle=running.starting
        )
        if not wanted:
            return 0
        count = self._starter.start(kind, wanted)
        _log.info(
            "started %d of %d %s workers: %d jobs wait, and %d workers were running",
            count,
            wanted,
            kind,
            ready,
            running.count,
        )
        return count

    def _messages(self, kind: str) -> int:
        stores = self._current().jobs.stores
        return sum(stores.queue(name).ready() for name in kind_of(kind).own_queues)

    def _compactions(self) -> int:
        """Return how many compaction jobs want workers; opens no table that has not changed."""
        if self._tables is None or self._tables.instance is not self._current():
            self._tables = ChangedTables(self._current(), COMPACTION)
        due = self._tables.due()
        self._tables.note([each for each in due if self._has_nothing(each)])
        return self._waiting.take(lambda: self._is_paused(COMPACTION))

    def _has_nothing(self, due: DueTable) -> bool:
        """Plan the compactions of a table; return whether it has none, and none at work.

        A table with claims is looked at again: their worker may have been killed.
        """
        table_id = due.record.table_id
        try:
            table = self._current().jobs.tables.table(table_id)
            jobs = table.plan_compaction().jobs
            self._waiting.note_planned(table_id, jobs)
            return not jobs and not table.claims()
        except TableNotFound as deleted:
            _log.info("no compactions: %s", deleted)
            self._waiting.note_planned(table_id, ())
        except SleeperError as failure:
            _log.error("compactions of %s cannot be planned now: %s", due.record.name, failure)
        return False

    def _is_paused(self, kind: str) -> bool:
        if not is_paused(self._current(), kind):
            return False
        _log.info("no %s workers are started: the instance is paused", kind)
        return True
