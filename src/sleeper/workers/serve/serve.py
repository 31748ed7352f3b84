"""What `sleeper serve` runs: maintenance of all tables, and the workers of all jobs.

1. The instance is opened. Each round of maintenance looks whether its properties were changed, and
   opens it again then (`CurrentInstance`), or if another one replaced it. After three rounds
   without an instance all ends.
2. `JobServices` starts worker processes while there are jobs, and does what is due now and then.
   Without a place for jobs, tables are maintained all the same.
3. `run_maintenance` maintains tables in this thread. It only plans compactions, and workers run
   them (`WaitingCompactions`), unless there are to be none of these.
4. When all is to end, running processes are asked to end too, and waited for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sleeper.errors import InstanceGone, PropertiesInvalid
from sleeper.instance.instance import Instance
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.jobs.kinds import COMPACTION, KINDS
from sleeper.tables.table import Table
from sleeper.workers.instance_changes import CurrentInstance, PauseLook
from sleeper.workers.maintenance import (
    MaintenanceStep,
    NotePlannedJobs,
    OneRound,
    OnlineTable,
    OnlineTables,
    Pace,
    run_maintenance,
)
from sleeper.workers.serve.fleet import WaitingCompactions, WorkerProcess, start_logged
from sleeper.workers.serve.job_services import open_job_services
from sleeper.workers.serve.metrics import (
    Metrics,
    MetricsServer,
    NoWorkers,
    TableFigures,
    Workers,
)
from sleeper.workers.stop_signal import StopSignal

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_GONE_ROUNDS_MAX = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """What is run.

    Attributes:
        every_s: The shortest pause between two rounds of maintenance.
        once: Whether there is one round only, and no job is run.
        only_tables: Whether no job is run.
        compactions_at_once: Compaction jobs that maintenance runs in parallel, if no worker does.
        workers_max: How many workers of each kind may run at once; 0 for none.
        metrics_address: Host and port where metrics are answered; None for nowhere.
        leaves_compactions: Whether workers elsewhere run all compactions.
    """

    every_s: float
    once: bool = False
    only_tables: bool = False
    compactions_at_once: int = 1
    workers_max: Mapping[str, int]
    metrics_address: tuple[str, int] | None = None
    leaves_compactions: bool = False


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """How a worker process is started, and where its log goes.

    Attributes:
        program: The program `sleeper` and its options.
        write_line: Writes a line of a worker's log.
    """

    program: tuple[str, ...]
    write_line: Callable[[str], None]

    def start(self, instance: Instance, kind: str) -> WorkerProcess:
        """Start a worker of a kind, which ends with this process, or when it has no work.

        Raises:
            OSError: it cannot be started.
        """
        idle_s = instance.properties.ingest_queue.wait_s
        ends = ("--until-empty",) if kind == COMPACTION else ("--idle", str(idle_s))
        options = ("--instance", instance.url, "--parent", str(os.getpid()), *ends)
        return start_logged([*self.program, "worker", kind, *options], self.write_line)


def workers_max_of(given: Mapping[str, int], compactions: int) -> dict[str, int]:
    """Return how many workers of each kind may run at once: one a processor, unless it is given.

    Args:
        given: The kinds that were given, and how many of each.
        compactions: How many of compactions, unless that was given.
    """
    processors = os.cpu_count() or 1
    limits = {kind.name: 1 if kind.one_at_a_time else processors for kind in KINDS}
    return {**limits, COMPACTION: compactions, **given}


def run_serve(
    open_instance: Callable[[], Instance],
    settings: ServeSettings,
    stop: StopSignal,
    command: WorkerCommand,
) -> list[MaintenanceStep]:
    """Maintain all online tables and run all jobs, until `stop` is set.

    Args:
        open_instance: Opens the instance; called again when its properties were changed.
        settings: What is run.
        stop: Asks for the end.
        command: How a worker process is started.

    Returns:
        What was done and what failed in the one round that was asked for. Else nothing, or why
        all ended by itself: the instance was gone.
    """
    with ExitStack() as services:
        return _Serve(open_instance, settings, stop, command, services).run()


class _Serve:
    """All that runs in one `sleeper serve`."""

    def __init__(
        self,
        open_instance: Callable[[], Instance],
        settings: ServeSettings,
        stop: StopSignal,
        command: WorkerCommand,
        services: ExitStack,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._command = command
        self._services = services
        self._current = CurrentInstance(open_instance(), open_instance)
        self._clock = self._current().clock
        self._is_paused = PauseLook(self._current())
        self._pace = Pace(settings.every_s, stop=stop, clock=self._clock)
        self._online = OnlineTables(
            self._current,
            look=self._look,
            is_paused=self._is_paused,
            note_change=self._pace.note_change,
            note_lost=self._current.note_lost,
        )
        self._gone_rounds = 0
        self._waiting = WaitingCompactions(self._clock)
        self._note_planned: NotePlannedJobs | None = None
        if settings.leaves_compactions:
            self._note_planned = self._note_left
        self._fleet: Workers = NoWorkers()
        self._has_jobs = False
        self._wants_jobs = not (settings.once or settings.only_tables)

    def run(self) -> list[MaintenanceStep]:
        """Run all of it; return the steps of one round, if there is only one, or of the end."""
        self._start_metrics()
        if self._wants_jobs:
            self._start_jobs()
        rounds = OneRound(self._stop) if self._settings.once else self._pace
        steps = run_maintenance(self._tables, stop=self._stop, rounds=rounds)
        if self._settings.once:
            return list(steps)
        with _begin_and_end_logged(self._current().url, self._settings.every_s):
            return [step for step in steps if self._is_gone()]  # each was logged

    def _tables(self) -> Iterator[OnlineTable]:
        for table in self._online():
            yield self._maintained(table)

    def _note_waiting(self, table: Table, jobs: Sequence[CompactionJob]) -> None:
        """Have workers started for the jobs of a table."""
        self._waiting.note_planned(table.table_id, jobs)

    def _note_left(self, table: Table, jobs: Sequence[CompactionJob]) -> None:
        """Take note of the jobs of a table, for whoever starts workers by their number."""
        if (figures := self._online.figures) is not None:
            figures.note_compactions(table.name, len(jobs) + len(table.claims()))

    def _maintained(self, table: Table) -> OnlineTable:
        workers = self._settings.compactions_at_once
        return OnlineTable(table, self._stop, workers, self._note_planned)

    def _look(self) -> None:
        """Use changed properties of the instance from now on, or another that replaced it.

        Raises:
            InstanceGone: there is no instance. After a few rounds without one, all ends.
        """
        try:
            is_changed = self._current.look(with_jobs=self._has_jobs)
        except InstanceGone:
            self._gone_rounds += 1
            self._pace.note_change()
            if self._is_gone():
                _log.error("the instance was gone in %d rounds: ending", _GONE_ROUNDS_MAX)
                self._stop.set()
            raise
        self._gone_rounds = 0
        if is_changed and self._wants_jobs and not self._has_jobs:
            self._start_jobs()

    def _is_gone(self) -> bool:
        return self._gone_rounds == _GONE_ROUNDS_MAX

    def _start_jobs(self) -> None:
        """Start what runs jobs, now or when the instance gets a place for jobs."""
        limits = dict(self._settings.workers_max)
        if self._settings.leaves_compactions:
            limits[COMPACTION] = 0
        try:
            jobs = open_job_services(
                self._current,
                start=lambda kind: self._command.start(self._current(), kind),
                workers_max=limits,
                stop=self._stop,
                note_work=self._pace.note_change,
                is_paused=self._is_paused,
                compactions=self._waiting.take,
            )
        except PropertiesInvalid as missing:
            _log.warning("no jobs are run: %s", missing)
            return
        self._has_jobs = True
        self._fleet = jobs.fleet
        self._services.enter_context(jobs)
        if limits[COMPACTION]:
            self._note_planned = self._note_waiting

    def _start_metrics(self) -> None:
        """Answer for metrics, whether or not there are jobs."""
        address = self._settings.metrics_address
        if address is None or self._settings.once:
            return
        if address[0] not in _LOOPBACK:
            _log.warning("anybody who reaches %s can read the metrics", address[0])
        figures = self._online.figures = TableFigures(self._clock)
        metrics = Metrics(
            self._current,
            lambda: self._fleet,
            figures,
            self._clock,
            lost=lambda: self._current.lost,
        )
        self._services.enter_context(MetricsServer(metrics, *address))


@contextmanager
def _begin_and_end_logged(url: str, every_s: float) -> Iterator[None]:
    """Log that serve begins, and that it was asked to end; what it does after may take a while."""
    _log.info("serving %s, with a round of maintenance every %d s", url, every_s)
    yield
    _log.info("asked to end: ending all processes")
