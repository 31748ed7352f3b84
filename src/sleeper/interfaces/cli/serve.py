"""`sleeper serve`: maintains all tables and runs all jobs, until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial

import click

from sleeper.instance.instance import connect
from sleeper.interfaces.cli.options import host_and_port, instance_option, split_pairs
from sleeper.interfaces.cli.present import print_json
from sleeper.interfaces.cli.signals import stop_on_signals
from sleeper.interfaces.cli.stderr import EXIT_REFUSED, LogOutput
from sleeper.model.jobs.kinds import KIND_NAMES
from sleeper.workers.serve.serve import (
    ServeSettings,
    WorkerCommand,
    run_serve,
    workers_max_of,
)
from sleeper.workers.stop_signal import StopSignal


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
    "--leave-compactions",
    is_flag=True,
    help="Only plan compactions: workers elsewhere (sleeper worker compaction) run them.",
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
    leave_compactions: bool,
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
    if once and metrics is not None:
        raise click.UsageError("--metrics answers while serve runs, and --once ends at once")
    settings = ServeSettings(
        every_s=every_s,
        once=once,
        only_tables=only_tables,
        compactions_at_once=workers,
        workers_max=workers_max_of(_worker_counts(job_workers), workers),
        metrics_address=None if metrics is None else host_and_port(metrics, "--metrics"),
        leaves_compactions=leave_compactions,
    )
    log_output.serve()
    stop = StopSignal()
    stop_on_signals(stop)
    program = (sys.executable, "-m", "sleeper", *log_output.options)
    command = WorkerCommand(program, log_output.pass_on)
    steps = run_serve(partial(connect, instance), settings, stop, command)
    if as_json:
        print_json(steps)
    if any(step.failures for step in steps):
        raise click.exceptions.Exit(EXIT_REFUSED)


def _worker_counts(given: Iterable[str]) -> dict[str, int]:
    """Return how many workers of each kind were asked for.

    Raises:
        click.BadParameter: one is not KIND=N.
    """
    counts = {}
    for kind, text in split_pairs(given, "--job-workers"):
        if kind not in KIND_NAMES:
            known = ", ".join(KIND_NAMES)
            raise click.BadParameter(f"{kind!r} is none of {known}", param_hint="--job-workers")
        if not text.isdecimal():
            raise click.BadParameter(f"{text!r} is no number", param_hint="--job-workers")
        counts[kind] = int(text)
    return counts
