"""`sleeper jobs`: submits jobs, and shows their states."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

from sleeper.instance.instance import Instance
from sleeper.instance.instance import connect as open_instance
from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import (
    csv_options,
    instance_option,
    json_option,
    one_of,
    text_of,
    unchanged_since_option,
)
from sleeper.interfaces.cli.present import print_facts, print_grid, print_json, say
from sleeper.interfaces.cli.stderr import EXIT_REFUSED, EXIT_TRY_AGAIN
from sleeper.interfaces.connection import connect
from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import ANSWERS, JobKind, QueueName
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.model.jobs.statuses import JobState, JobStatus

_POLL_S = 0.5

kind_option = click.option(
    "--kind",
    type=one_of(*(each for each in JobKind if each not in ANSWERS)),
    default=JobKind.INGEST.value,
    show_default=True,
    help="What the jobs do; a bulk import is an ingest.",
)
table_option = click.option(
    "--table",
    metavar="TABLE",
    shell_complete=complete_tables,
    help="Jobs of this table alone, by its name or id.",
)


@click.group()
def jobs() -> None:
    """Submit jobs for workers, and show their states.

    \b
    Examples:
        sleeper jobs submit flights june.parquet --wait
        sleeper jobs list --state FAILED
        sleeper jobs show 0c6f2c3e-6f6b-4a57-9c43-2f0c9d0e8f8b
    """


@jobs.command()
@click.argument("table", shell_complete=complete_tables)
@click.argument("files", nargs=-1, required=True)
@click.option("--id", "job_id", metavar="ID", help="Names the job, so that it is done once.")
@click.option("--wait", is_flag=True, help="Wait until the job has ended.")
@click.option(
    "--upsert", is_flag=True, help="Replace rows of the table that have the same row keys."
)
@unchanged_since_option
@csv_options
@instance_option
@json_option
def submit(
    table: str,
    files: tuple[str, ...],
    *,
    job_id: str | None,
    wait: bool,
    upsert: bool,
    if_unchanged_since: int | None,
    instance: str,
    as_json: bool,
    csv: CsvOptions | None,
) -> None:
    """Ask a worker to ingest FILES into TABLE: files, folders and patterns of sleeper ingest.

    Nothing is read here. A worker (sleeper worker ingest, sleeper serve) does the
    job. A job of the same id that was committed before adds nothing. One with
    --if-unchanged-since fails for good where the leaves have changed since.

    \b
    Example:
        sleeper jobs submit flights june.parquet july.parquet --id summer
    """
    with connect(instance) as opened:
        given = opened.jobs.submit_ingest(
            table, files, job_id, csv=csv, upsert=upsert, if_unchanged_since=if_unchanged_since
        )
        if wait:
            _wait(opened, (given,), JobKind.INGEST, table, None, as_json=as_json)
        elif as_json:
            print_json({"job_id": given})
        else:
            say(f"submitted job {given}; sleeper jobs show {given} tells what becomes of it")


@jobs.command()
@click.argument("queue", type=one_of(*QueueName))
@click.argument("message", type=click.File("rb"), metavar="FILE")
@instance_option
def send(queue: str, message: Any, *, instance: str) -> None:
    """Send the JSON message in FILE, or of standard input (-), to a QUEUE as it is.

    Whether it is a job is for the worker to say that takes it.

    \b
    Example:
        echo '{"tableName": "flights", "files": ["june.parquet"]}' |
            sleeper jobs send ingest -
    """
    path = Path(message.name)
    text = message.read().decode() if message is sys.stdin.buffer else text_of(path)
    with open_instance(instance) as opened:
        opened.jobs.send(queue, text)
    say(f"sent to the {queue} queue")


@jobs.command("list")
@kind_option
@table_option
@click.option("--state", type=one_of(*JobState), help="Jobs in this state alone.")
@click.option("--task", "task_id", metavar="ID", help="Jobs that this worker ran.")
@click.option("--unfinished", is_flag=True, help="Jobs that run, wait or are tried again.")
@click.option("--since", type=click.DateTime(), help="Jobs that were under way since then (UTC).")
@click.option("--until", type=click.DateTime(), help="Jobs that started before then (UTC).")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="So many at most."
)
@instance_option
@json_option
def list_jobs(
    *,
    kind: str,
    table: str | None,
    state: str | None,
    unfinished: bool,
    task_id: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    instance: str,
    as_json: bool,
) -> None:
    """Show jobs, that of the newest event first.

    --since and --until choose jobs that were under way in that period. A job that
    has not ended counts for a day from its start.

    \b
    Examples:
        sleeper jobs list --unfinished
        sleeper jobs list --state FAILED --since 2026-11-01
    """
    with connect(instance) as opened:
        found = opened.jobs.list(
            kind=kind,
            table=table,
            state=state,
            unfinished=unfinished,
            task_id=task_id,
            since=_utc(since),
            until=_utc(until),
        )
        shown = [*islice(found, limit + 1)]
        names = {record.table_id: record.name for record in opened.tables()}
    if as_json:
        print_json(shown[:limit])
        return
    print_grid(
        ["job", "table", "state", "files", "rows read", "rows written", "updated"],
        [
            [
                status.job_id,
                names.get(status.table_id, status.table_id),
                str(status.state),
                status.input_files,
                _of_run(status, "rows_read"),
                _of_run(status, "rows_written"),
                status.updated.isoformat(sep=" ", timespec="seconds"),
            ]
            for status in shown[:limit]
        ],
    )
    if len(shown) > limit:
        say(f"there are more than {limit}: --limit shows more of them")


@jobs.command()
@click.argument("job_id", metavar="JOB")
@kind_option
@table_option
@instance_option
@json_option
def show(job_id: str, *, kind: str, table: str | None, instance: str, as_json: bool) -> None:
    """Show the state of a JOB and its runs.

    \b
    Example:
        sleeper jobs show summer
    """
    with connect(instance) as opened:
        status = opened.jobs.job(job_id, kind=kind, table=table)
        names = {record.table_id: record.name for record in opened.tables()}
    if as_json:
        print_json(status)
    else:
        _show(status, names.get(status.table_id))


@jobs.command()
@click.option("--exports", is_flag=True, help="Exports instead.")
@table_option
@click.option("--state", type=one_of(*QueryState), help="Those in this state alone.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="So many at most."
)
@instance_option
@json_option
def queries(
    *,
    exports: bool,
    table: str | None,
    state: str | None,
    limit: int,
    instance: str,
    as_json: bool,
) -> None:
    """Show queries, or exports, that workers ran, that of the newest event first.

    \b
    Example:
        sleeper jobs queries --state FAILED
    """
    kind = JobKind.EXPORT if exports else JobKind.QUERY
    with connect(instance) as opened:
        found = opened.jobs.queries(kind=kind, table=table, state=state)
        shown = [*islice(found, limit)]
        names = {record.table_id: record.name for record in opened.tables()}
    if as_json:
        print_json(shown)
        return
    print_grid(
        [str(kind), "table", "state", "rows", "where"],
        [
            [
                status.query_id,
                names.get(status.table_id, status.table_id),
                str(status.state),
                status.rows,
                "; ".join(status.locations or status.errors),
            ]
            for status in shown
        ],
    )


@jobs.command()
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB...")
@kind_option
@table_option
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait so long."
)
@instance_option
@json_option
def wait(
    job_ids: tuple[str, ...],
    *,
    kind: str,
    table: str | None,
    timeout_s: float | None,
    instance: str,
    as_json: bool,
) -> None:
    """Wait until each JOB has ended.

    The exit code is 0 when all are FINISHED, 1 when one was rejected or failed for
    good, and 75 when --timeout is over before.

    \b
    Example:
        sleeper jobs wait summer --timeout 600
    """
    with connect(instance) as opened:
        _wait(opened, job_ids, JobKind(kind), table, timeout_s, as_json=as_json)


def _wait(
    opened: Instance,
    job_ids: Sequence[str],
    kind: JobKind,
    table: str | None,
    timeout_s: float | None,
    *,
    as_json: bool,
) -> None:
    """Wait for jobs and show them.

    Raises:
        click.exceptions.Exit: one did not finish.
    """
    pause = threading.Event()
    looks_left = None if timeout_s is None else int(timeout_s / _POLL_S)

    def rest() -> bool:
        nonlocal looks_left
        if looks_left is not None:
            looks_left -= 1
            if looks_left < 0:
                return False
        pause.wait(_POLL_S)
        return True

    statuses = [opened.jobs.wait(job_id, kind=kind, table=table, rest=rest) for job_id in job_ids]
    if as_json:
        print_json(statuses)
    else:
        for status in statuses:
            say(f"job {status.job_id} is {status.state}{_reasons(status)}")
    if not all(status.is_over for status in statuses):
        raise click.exceptions.Exit(EXIT_TRY_AGAIN)
    if any(status.state is not JobState.FINISHED for status in statuses):
        raise click.exceptions.Exit(EXIT_REFUSED)


def _show(status: JobStatus, table: str | None) -> None:
    print_facts(
        [
            ("job", status.job_id),
            ("kind", str(status.kind)),
            ("table", status.table_id if table is None else f"{table} ({status.table_id})"),
            ("state", str(status.state)),
            ("input files", status.input_files),
            *((("leaf partition", status.partition_id),) if status.partition_id else ()),
            *((("created", status.created),) if status.created else ()),
            ("accepted", status.accepted),
            ("transaction", status.transaction),
            *(("reason", reason) for reason in status.reasons),
            *((("message", status.message),) if status.message is not None else ()),
        ]
    )
    if status.runs:
        print_grid(
            [
                *("run", "state", "worker", "started", "finished"),
                *("rows read", "rows written", "rows a second"),
            ],
            [
                [
                    (run.run_id or "")[:8],
                    str(run.state),
                    (run.task_id or "")[:8],
                    run.started,
                    run.finished,
                    run.rows_read,
                    run.rows_written,
                    None if run.rows_read_per_s is None else int(run.rows_read_per_s),
                ]
                for run in status.runs
            ],
        )


def _of_run(status: JobStatus, name: str) -> Any:
    return None if status.furthest_run is None else getattr(status.furthest_run, name)


def _reasons(status: JobStatus) -> str:
    return f": {'; '.join(status.reasons)}" if status.reasons else ""


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.replace(tzinfo=UTC)
