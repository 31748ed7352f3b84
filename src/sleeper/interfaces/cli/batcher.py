"""`sleeper batcher`: files that are gathered until they make a job of a sensible size."""

from __future__ import annotations

from itertools import islice

import click

from sleeper.instance.instance import connect as open_instance
from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import csv_options, instance_option, json_option
from sleeper.interfaces.cli.present import counted, print_grid, print_json, say
from sleeper.interfaces.connection import connect
from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.kinds import QueueName
from sleeper.workers.kinds.batcher import batch_limits, run_batcher
from sleeper.workers.kinds.bulk_import import where_jobs_run


@click.group()
def batcher() -> None:
    """Submit files, which the ingest batcher gathers into jobs of a sensible size.

    \b
    Examples:
        sleeper batcher submit flights june.parquet
        sleeper batcher report --pending
    """


@batcher.command()
@click.argument("table", shell_complete=complete_tables)
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--upsert", is_flag=True, help="Replace rows of the table that have the same row keys."
)
@csv_options
@instance_option
def submit(
    table: str,
    files: tuple[str, ...],
    *,
    upsert: bool,
    csv: CsvOptions | None,
    instance: str,
) -> None:
    """Submit FILES, which are as for sleeper ingest, for TABLE.

    sleeper serve makes jobs of them, by the table's properties
    sleeper.table.ingest.batcher.*. Files that are submitted with --upsert are in
    jobs of their own.

    \b
    Examples:
        sleeper batcher submit flights june.parquet
        sleeper batcher submit flights 'in/*.txt' --separator ';'
        sleeper batcher submit flights corrections/ --upsert
    """
    with connect(instance) as opened:
        opened.jobs.submit_files(table, files, csv=csv, upsert=upsert)
    what = ", whose rows replace others" if upsert else ""
    say(f"submitted {counted(len(files), 'path')} for {table}{what}")


@batcher.command()
@click.option("--pending", is_flag=True, help="Only files that are in no job yet.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="So many at most."
)
@instance_option
@json_option
def report(*, pending: bool, limit: int, instance: str, as_json: bool) -> None:
    """Show submitted files, newest first, the jobs they are in, and what became of these.

    Files of a job that was REJECTED or FAILED for good wait for sleeper batcher
    retry. Then, for each of their tables: the queue that its jobs go to, and where they run.

    \b
    Example:
        sleeper batcher report --pending
    """
    with connect(instance) as opened:
        shown = [*islice(opened.jobs.submitted_files(pending=pending), limit)]
        records = opened.tables()
        shown_ids = {file.table_id for file in shown}
        ways = [
            f"jobs of {record.name} go to the {queue} queue and run "
            f"{where_jobs_run(queue, opened.properties)}"
            for record in records
            if record.table_id in shown_ids
            for queue in [batch_limits(opened.table(record.name).properties).queue]
        ]
        refused = opened.jobs.queue_depths()[QueueName.BATCHER].dead
    names = {record.table_id: record.name for record in records}
    if as_json:
        print_json(shown)
        return
    print_grid(
        ["state", "file", "bytes", "table", "received", "rows", "job"],
        [
            [
                str(file.state),
                file.path,
                file.size_bytes,
                names.get(file.table_id, file.table_id),
                file.received.isoformat(sep=" ", timespec="seconds"),
                "replaced" if file.upsert else "added",
                file.job_id or "",
            ]
            for file in shown
        ],
    )
    for job_id, reasons in {file.job_id: file.reasons for file in shown if file.reasons}.items():
        say(f"job {job_id}: {'; '.join(reasons)}")
    for way in ways:
        say(way)
    if refused:
        say(f"{counted(refused, 'submission')} refused: sleeper queue dead-letters batcher")


@batcher.command()
@click.argument("job_ids", nargs=-1, metavar="[JOB]...")
@instance_option
@json_option
def retry(job_ids: tuple[str, ...], *, instance: str, as_json: bool) -> None:
    """Send rejected and failed JOBs of submitted files again: those named, or all.

    Files that are there no longer are left out. Each job keeps its id, so nothing
    is added twice; the batcher's next round sends it.

    \b
    Example:
        sleeper batcher retry
    """
    with connect(instance) as opened:
        done = opened.jobs.retry_files(job_ids or None)
    if as_json:
        print_json(done)
        return
    say(f"{counted(done.jobs, 'job')} of {counted(done.files, 'file')} will be sent again")
    for path in done.missing:
        say(f"left out, as it is not there: {path}")


@batcher.command("run")
@instance_option
@json_option
def run_once(*, instance: str, as_json: bool) -> None:
    """Make jobs of the files that are due, once. sleeper serve does it every minute.

    \b
    Example:
        sleeper batcher run
    """
    with open_instance(instance) as opened:
        done = run_batcher(opened.jobs, opened.jobs.recorder.now())
    if as_json:
        print_json(done)
    else:
        say(f"sent {counted(done.jobs, 'job')} of {counted(done.files, 'file')}")
