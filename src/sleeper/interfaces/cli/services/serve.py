"""`sleeper serve`: one process that maintains all tables, until it is stopped."""

from __future__ import annotations

import threading

import click

from sleeper.instance import connect
from sleeper.interfaces.cli.exit_codes import EXIT_REFUSED
from sleeper.interfaces.cli.options import instance_option
from sleeper.interfaces.cli.present import print_json
from sleeper.interfaces.cli.services.signals import stop_on_signals
from sleeper.interfaces.cli.stderr import LogOutput
from sleeper.services.maintenance import run_maintenance
from sleeper.services.online_tables import OnlineTables

_DAY_S = 24 * 60 * 60


@click.command()
@click.option("--only-tables", is_flag=True, hidden=True, help="Was needed once; changes nothing.")
@click.option(
    "--every",
    "every_s",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Pause after each round.",
)
@click.option("--once", is_flag=True, help="Stop after one round, for use with a scheduler.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Compaction jobs at once, each in a process of its own.",
)
@instance_option
@click.option("--json", "as_json", is_flag=True, help="With --once: print what was done as JSON.")
@click.pass_obj
def serve(
    log_output: LogOutput,
    only_tables: bool,
    every_s: int,
    once: bool,
    workers: int,
    instance: str,
    as_json: bool,
) -> None:
    """Maintain all online tables, again and again, until it is stopped.

    Compacts files, splits large leaf partitions, merges small ones, deletes
    garbage, and once a day deletes files that killed jobs left. Offline tables
    are skipped (sleeper table offline). What it does is logged with time and
    level; sleeper --log-format json serve writes JSON lines. Ctrl-C or SIGTERM
    stops it after the current compaction job; a second Ctrl-C stops it at once,
    and is safe too. With --once the exit code is 1 if anything failed.

    \b
    Examples:
        sleeper serve --every 300 --workers 2
        sleeper serve --once --json
    """
    if as_json and not once:
        raise click.UsageError("--json goes with --once; sleeper --log-format json logs as JSON")
    log_output.serve()
    stop = threading.Event()
    stop_on_signals(stop)

    def rest() -> None:
        stop.set() if once else stop.wait(every_s)

    steps = []
    failed = False
    for step in run_maintenance(
        OnlineTables(connect(instance), workers=workers, stopped=stop.is_set),
        rest=rest,
        stopped=stop.is_set,
        sweep_rounds=max(1, _DAY_S // every_s),
    ):
        failed = failed or bool(step.failures)
        if as_json:
            steps.append(step)
    if as_json:
        print_json(steps)
    if once and failed:
        raise click.exceptions.Exit(EXIT_REFUSED)
