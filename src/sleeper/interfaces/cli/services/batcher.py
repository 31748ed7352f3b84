"""`sleeper batcher`: files that are gathered until they make a job of a sensible size."""

from __future__ import annotations

from itertools import islice

import click

from sleeper.instance import connect
from sleeper.interfaces.cli.options import instance_option, json_option
from sleeper.interfaces.cli.present import counted, print_grid, print_json, say
from sleeper.services.file_batcher import run_batcher


@click.group()
def batcher() -> None:
    """Submit files, which the ingest batcher gathers into jobs of a sensible size.

    \b
    Examples:
        sleeper batcher submit flights june.parquet
        sleeper batcher report --pending
    """


@batcher.command()
@click.argument("table")
@click.argument("files", nargs=-1, required=True)
@instance_option
def submit(table: str, files: tuple[str, ...], *, instance: str) -> None:
    """Submit FILES, Parquet files or folders of them, for TABLE.

    sleeper serve makes jobs of them, by the table's properties
    sleeper.table.ingest.batcher.*.

    \b
    Example:
        sleeper batcher submit flights june.parquet
    """
    with connect(instance) as opened:
        opened.jobs.submit_files(table, files)
    say(f"submitted {counted(len(files), 'path')} for {table}")


@batcher.command()
@click.option("--pending", is_flag=True, help="Only files that are in no job yet.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="So many at most."
)
@instance_option
@json_option
def report(*, pending: bool, limit: int, instance: str, as_json: bool) -> None:
    """Show submitted files, newest first, and the jobs they are in.

    \b
    Example:
        sleeper batcher report --pending
    """
    with connect(instance) as opened:
        shown = [*islice(opened.jobs.submitted_files(pending=pending), limit)]
        names = {record.table_id: record.name for record in opened.tables()}
    if as_json:
        print_json(shown)
        return
    print_grid(
        ["state", "file", "bytes", "table", "received", "job"],
        [
            [
                "PENDING" if file.job_id is None else "BATCHED",
                file.path,
                file.size_bytes,
                names.get(file.table_id, file.table_id),
                file.received.isoformat(sep=" ", timespec="seconds"),
                file.job_id or "",
            ]
            for file in shown
        ],
    )


@batcher.command("run")
@instance_option
@json_option
def run_once(*, instance: str, as_json: bool) -> None:
    """Make jobs of the files that are due, once. sleeper serve does it every minute.

    \b
    Example:
        sleeper batcher run
    """
    with connect(instance) as opened:
        done = run_batcher(opened.jobs, opened.jobs.recorder.now())
    if as_json:
        print_json(done)
    else:
        say(f"sent {counted(done.jobs, 'job')} of {counted(done.files, 'file')}")
