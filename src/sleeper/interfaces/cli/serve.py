"""`sleeper serve`: one process that takes care of everything, until it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from sleeper.errors import TableNotFound
from sleeper.instance import Instance, connect
from sleeper.interfaces.cli.options import instance_option, json_option
from sleeper.interfaces.cli.present import counted, print_json, say
from sleeper.interfaces.cli.stderr import warn
from sleeper.services.maintenance import MaintenanceStep, run_maintenance
from sleeper.table.table import Table

_DAY_S = 24 * 60 * 60


class _Stopped(Exception):
    """The process was asked to end while a table was compacted."""


@click.command()
@click.option(
    "--only-tables",
    is_flag=True,
    required=True,
    help="Maintain tables. There is nothing else to serve yet.",
)
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
@json_option
def serve(
    only_tables: bool, every_s: int, once: bool, workers: int, instance: str, as_json: bool
) -> None:
    """Maintain all online tables, again and again, until it is stopped.

    Compacts files, splits large leaf partitions, merges small ones, deletes
    garbage, and once a day deletes files that killed jobs left. Offline tables
    are skipped (sleeper table offline). Ctrl-C or SIGTERM stops it after the
    current compaction job; a second Ctrl-C stops it at once, and is safe too.

    \b
    Example:
        sleeper serve --only-tables --every 300
    """
    assert only_tables
    stop = threading.Event()
    _stop_on_signals(stop)
    tables = _Tables(connect(instance), workers, stop)
    failed = False

    def rest() -> None:
        stop.set() if once else stop.wait(every_s)

    with suppress(_Stopped):
        for care in run_maintenance(
            tables.online,
            rest=rest,
            stopped=stop.is_set,
            sweep_rounds=max(1, _DAY_S // every_s),
        ):
            failed = failed or care.failure is not None
            _show(care, as_json=as_json)
    if once and failed:
        raise click.exceptions.Exit(1)


def _stop_on_signals(stop: threading.Event) -> None:
    def ask_to_stop(number: int, _: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)


def _show(care: MaintenanceStep, *, as_json: bool) -> None:
    failure = None if care.failure is None else str(care.failure)
    if as_json:
        told = {"table": care.table, "verb": care.verb, "done": care.done, "failure": failure}
        print_json(told)
    elif failure is None:
        say(f"{care.table}: {care.done}")
    else:
        warn(f"{care.table or 'instance'}: {care.verb} failed: {failure}")


@dataclass
class _Tables:
    """The tables of an instance; their handles are kept from round to round."""

    instance: Instance
    workers: int
    stop: threading.Event

    def __post_init__(self) -> None:
        self._handles: dict[str, Table] = {}

    def online(self) -> Iterator[_Cared]:
        """Yield the tables that are online, as the instance has them now."""
        records = {record.table_id: record for record in self.instance.tables()}
        self._handles = {name: each for name, each in self._handles.items() if name in records}
        for table_id, record in records.items():
            if not record.online:
                continue
            with suppress(TableNotFound):  # deleted at this moment
                if table_id not in self._handles:
                    self._handles[table_id] = self.instance.table(record.name)
                self._handles[table_id].refresh()
                yield _Cared(self._handles[table_id], self.workers, self.stop)


@dataclass(frozen=True, slots=True)
class _Cared:
    """What is done to one table, and how that is told."""

    table: Table
    workers: int
    stop: threading.Event

    @property
    def name(self) -> str:
        return self.table.name

    def care(self, verb: str) -> str | None:
        done: str | None = getattr(self, f"_{verb}")()
        return done

    def _compact(self) -> str | None:
        run = self.table.compact(workers=self.workers, progress=self._check_stopped)
        parts = [f"released files of job {job_id}, which did not end" for job_id in run.released]
        parts += [f"compaction job {job.job.job_id} failed: {job.failure}" for job in run.failed]
        done = [job for job in run.jobs if job.failure is None]
        if done:
            files = sum(len(job.job.inputs) for job in done)
            parts.append(f"{counted(files, 'file')} became {len(done):,}")
        return "; ".join(parts) or None

    def _check_stopped(self, done: int, total: int) -> None:
        if self.stop.is_set() and done < total:
            raise _Stopped

    def _split(self) -> str | None:
        split = [each for each in self.table.split_partitions() if each.reason is None]
        return f"split {counted(len(split), 'leaf partition')}" if split else None

    def _merge(self) -> str | None:
        merged = [each for each in self.table.merge_partitions() if each.reason is None]
        return f"merged {counted(len(merged), 'pair')} of leaf partitions" if merged else None

    def _gc(self) -> str | None:
        run = self.table.collect_garbage()
        left = f"; could not delete {counted(len(run.failures), 'file')}" if run.failures else ""
        return f"deleted {counted(len(run.deleted), 'file')}{left}" if run.deleted or left else None

    def _sweep(self) -> str | None:
        swept = self.table.sweep_orphans()
        count = len(swept.orphans) - len(swept.failures)
        return f"deleted {counted(count, 'file')} that killed jobs left" if swept.orphans else None
