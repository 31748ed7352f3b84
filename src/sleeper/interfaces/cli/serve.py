"""`sleeper serve`: maintains all tables and runs all jobs, until it is stopped."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from sleeper.errors import InstanceGone, PropertiesInvalid
from sleeper.instance.instance import connect
from sleeper.interfaces.cli.options import host_and_port, instance_option, split_pairs
from sleeper.interfaces.cli.present import print_json
from sleeper.interfaces.cli.stderr import EXIT_REFUSED, EXIT_TERMINATED, LogOutput
from sleeper.model.jobs.kinds import COMPACTION, KINDS
from sleeper.workers.maintenance import MaintenanceStep, run_maintenance
from sleeper.workers.online_tables import OnlineTables
from sleeper.workers.serve.current_instance import CurrentInstance
from sleeper.workers.serve.fleet import WorkerProcess, start_logged
from sleeper.workers.serve.job_services import open_job_services
from sleeper.workers.serve.metrics import Metrics, MetricsServer, TableFigures
from sleeper.workers.serve.pace import Pace
from sleeper.workers.serve.pause_look import PauseLook
from sleeper.workers.serve.waiting_compactions import WaitingCompactions

# ---------------------------------------------------------------- signals
#
# How a service is asked to end: by SIGINT or SIGTERM, or because its parent has ended.

_PARENT_CHECK_S = 1.0
_ORPHAN_PATIENCE_S = 5.0
_log = logging.getLogger(__name__)


def stop_on_signals(stop: threading.Event) -> None:
    """Set `stop` at SIGTERM and at the first Ctrl-C; a second Ctrl-C ends the process at once."""

    def ask_to_stop(number: int, _: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)


def stop_with_parent(stop: threading.Event, parent_id: int, *, with_children: bool = False) -> None:
    """Set `stop` when the process `parent_id`, which started this one, has ended.

    A job that does not notice in time is ended with the process: nothing of it is committed by
    halves, and its message comes again. It is the parent's id that tells, however that one died,
    on every system that has processes.

    Args:
        stop: Set when the parent has ended.
        parent_id: The parent.
        with_children: Whether to kill what this process has started too, where it leads a process
            group of its own.
    """

    def watch() -> None:
        woken = threading.Event()  # by nobody
        while os.getppid() == parent_id:
            woken.wait(_PARENT_CHECK_S)
        _log.warning("ending: process %d, which started this one, has ended", parent_id)
        stop.set()
        woken.wait(_ORPHAN_PATIENCE_S)
        if with_children and os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(EXIT_TERMINATED)

    threading.Thread(target=watch, name="parent", daemon=True).start()


_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_GONE_ROUNDS_MAX = 3


@click.command()
@click.option("--only-tables", is_flag=True, help="Maintain tables, and run no jobs.")
@click.option(
    "--every",
    "every_s",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Pause after each round; longer while nothing changes, up to 15 minutes.",
)
@click.option("--once", is_flag=True, help="Stop after one round, for use with a scheduler.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Compaction jobs at once, each in a process of its own.",
)
@click.option(
    "--job-workers",
    multiple=True,
    metavar="KIND=N",
    help="Run N workers of a KIND of job at most; 0 for none.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Answer /metrics (Prometheus) and /healthz there, such as 127.0.0.1:9464.",
)
@instance_option
@click.option("--json", "as_json", is_flag=True, help="With --once: print what was done as JSON.")
@click.pass_obj
def serve(
    log_output: LogOutput,
    *,
    only_tables: bool,
    every_s: int,
    once: bool,
    workers: int,
    job_workers: tuple[str, ...],
    metrics: str | None,
    instance: str,
    as_json: bool,
) -> None:
    """Maintain all online tables and run all jobs, until it is stopped.

    Splits large leaf partitions, merges small ones, deletes garbage, and once a
    day files that killed jobs left. Offline tables are skipped. Processes run jobs
    while there are some: as many at once as there are processors, or --job-workers
    says; for compactions, as many as --workers says. With compaction=0 maintenance
    compacts tables itself. While the instance is paused nothing is begun.

    What is done is logged; sleeper --log-format json serve writes JSON lines.
    Ctrl-C or SIGTERM stops it: jobs go back to their queues, and compactions
    release their files, within 20 seconds. A second Ctrl-C stops it at once, and
    is safe too. Its processes end with it, also where it is killed. An instance
    that was replaced is opened again; after three rounds without one serve ends.

    With --once there is one round and no job is run; code 1 if anything failed.

    \b
    Examples:
        sleeper serve --every 300 --workers 2
        sleeper serve --job-workers ingest=4
        sleeper serve --once --json
    """
    if as_json and not once:
        raise click.UsageError("--json goes with --once; sleeper --log-format json logs as JSON")
    limits = _workers_max(job_workers, workers)
    address = None if metrics is None else host_and_port(metrics, "--metrics")
    log_output.serve()
    stop = threading.Event()
    stop_on_signals(stop)
    opened = connect(instance)
    current = CurrentInstance(opened, lambda: connect(instance))
    pace = Pace(every_s, stop=stop, ticks_s=opened.ticks_s)
    paused = PauseLook(opened.pause_switch, opened.ticks_s)
    with ExitStack() as services:
        served = _Services(
            services, current, limits, pace, paused, stop, log_output, address, workers
        )
        if not (once or only_tables):
            served.start_jobs()
        if not once:
            services.enter_context(_begin_and_end_logged(current().url, every_s))
        run = run_maintenance(
            served.tables,
            rest=stop.set if once else pace.rest,
            stopped=stop.is_set,
            sweep_is_due=pace.sweep_is_due,
        )
        _end_with([step for step in run if once], as_json=as_json)


@contextmanager
def _begin_and_end_logged(url: str, every_s: int) -> Iterator[None]:
    """Log that serve begins, and that it was asked to end; what it does after may take a while."""
    _log.info("serving %s, with a round of maintenance every %d s", url, every_s)
    yield
    _log.info("asked to end: ending all processes")


def _end_with(steps: list[MaintenanceStep], *, as_json: bool) -> None:
    """Print what one round did.

    Raises:
        click.exceptions.Exit: some of it failed.
    """
    if as_json:
        print_json(steps)
    if any(step.failures for step in steps):
        raise click.exceptions.Exit(EXIT_REFUSED)


@dataclass(slots=True)
class _Services:
    """What `sleeper serve` runs. Without a place for jobs, tables are maintained all the same."""

    services: ExitStack
    current: CurrentInstance
    limits: dict[str, int]
    pace: Pace
    paused: PauseLook
    stop: threading.Event
    log_output: LogOutput
    address: tuple[str, int] | None
    workers: int
    tables: OnlineTables = field(init=False)
    jobs_wanted: bool = False
    jobs_started: bool = False
    gone_rounds: int = 0

    def __post_init__(self) -> None:
        self.services.callback(self.check_gone)
        self.tables = OnlineTables(
            self.current,
            look=self._look,
            workers=self.workers,
            stopped=self.stop.is_set,
            paused=self.paused,
            note_change=self.pace.note_change,
            note_lost=self.current.note_lost,
        )

    def start_jobs(self) -> None:
        """Start what runs jobs, now or when the instance gets a place for jobs."""
        self.jobs_wanted = True
        waiting = WaitingCompactions(self.current().ticks_s)
        try:
            jobs = open_job_services(
                self.current,
                start=self._start_worker,
                workers_max=self.limits,
                stop=self.stop,
                note_work=self.pace.note_change,
                paused=self.paused,
                compactions=waiting.take,
            )
        except PropertiesInvalid as missing:
            _log.warning("no jobs are run: %s", missing)
            return
        self.jobs_started = True
        if self.address is not None:
            if self.address[0] not in _LOOPBACK:
                _log.warning("anybody who reaches %s can read the metrics", self.address[0])
            ticks_s = self.current().ticks_s
            figures = self.tables.figures = TableFigures(ticks_s)
            metrics = Metrics(
                lambda: self.current().jobs,
                jobs.fleet,
                figures,
                ticks_s,
                lost=lambda: self.current.lost,
            )
            self.services.enter_context(MetricsServer(metrics, *self.address))
        self.services.enter_context(jobs)
        if self.limits[COMPACTION]:
            self.tables.leave_compactions = waiting.tell

    def check_gone(self) -> None:
        """Exit with a failure if serve ended because its instance is gone."""
        if self.gone_rounds == _GONE_ROUNDS_MAX:
            raise click.exceptions.Exit(EXIT_REFUSED)

    def _look(self) -> None:
        """Use changed properties of the instance from now on, or another that replaced it.

        Raises:
            InstanceGone: there is no instance. After a few rounds without one, serve ends.
        """
        try:
            changed = self.current.look(with_jobs=self.jobs_started)
        except InstanceGone:
            self.gone_rounds += 1
            self.pace.note_change()
            if self.gone_rounds == _GONE_ROUNDS_MAX:
                _log.error("the instance was gone in %d rounds: ending", _GONE_ROUNDS_MAX)
                self.stop.set()
            raise
        self.gone_rounds = 0
        if changed and self.jobs_wanted and not self.jobs_started:
            self.start_jobs()

    def _start_worker(self, kind: str) -> WorkerProcess:
        opened = self.current()
        idle_s = opened.properties.ingest_queue.wait_s
        program = (sys.executable, "-m", "sleeper", *self.log_output.options)
        ends = ("--until-empty",) if kind == COMPACTION else ("--idle", str(idle_s))
        options = ("--instance", opened.url, "--parent", str(os.getpid()), *ends)
        return start_logged([*program, "worker", kind, *options], self.log_output.pass_on)


def _workers_max(given: Iterable[str], compactions: int) -> dict[str, int]:
    """Return how many workers of each kind may run; so many for compactions, unless it is given.

    Raises:
        click.BadParameter: one is not KIND=N.
    """
    processors = os.cpu_count() or 1
    limits = {kind.name: 1 if kind.one_at_a_time else processors for kind in KINDS}
    limits[COMPACTION] = compactions
    for kind, text in split_pairs(given, "--job-workers"):
        if kind not in limits:
            known = ", ".join(limits)
            raise click.BadParameter(f"{kind!r} is none of {known}", param_hint="--job-workers")
        if not text.isdecimal():
            raise click.BadParameter(f"{text!r} is no number", param_hint="--job-workers")
        limits[kind] = int(text)
    return limits
