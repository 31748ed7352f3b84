"""`sleeper ingest`."""

from __future__ import annotations

import click

from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import (
    csv_options,
    instance_option,
    json_option,
    unchanged_since_option,
)
from sleeper.interfaces.cli.present import counted, print_json, progress_rows, say
from sleeper.interfaces.connection import connect
from sleeper.model.csv_options import CsvOptions


@click.command()
@click.argument("table", shell_complete=complete_tables)
@click.argument("files", nargs=-1, required=True)
@click.option("--job-id", metavar="ID", help="Id of the job: a repeated job changes nothing.")
@click.option(
    "--ignore-extra-columns", is_flag=True, help="Ignore columns that the table does not have."
)
@click.option(
    "--set-aside",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write rows with a null key to this Parquet file.",
)
@click.option(
    "--upsert", is_flag=True, help="Replace rows of the table that have the same row keys."
)
@unchanged_since_option
@csv_options
@instance_option
@json_option
def ingest(
    table: str,
    files: tuple[str, ...],
    job_id: str | None,
    ignore_extra_columns: bool,
    set_aside: str | None,
    upsert: bool,
    if_unchanged_since: int | None,
    instance: str,
    as_json: bool,
    csv: CsvOptions | None,
) -> None:
    """Add the rows of FILES to TABLE in one commit.

    FILES are Parquet files, or files of CSV (.csv) or JSON lines (.jsonl,
    .ndjson, .json), also compressed (.gz, .zst, .bz2, .lz4); or folders of
    them, or patterns such as 'in/*.csv'; by path or URL. With an option of CSV
    all are CSV, whatever their names.

    All rows become visible together. With --job-id, running the same command
    again after any failure neither loses nor doubles a row. With --upsert, rows of
    the same row keys are replaced in the same commit.

    \b
    Examples:
        sleeper ingest flights 2013/ --job-id flights-2013
        sleeper ingest flights more.csv.gz
        sleeper ingest people corrections.csv --upsert
        sleeper ingest flights sales.txt --separator ';' --encoding latin-1
    """
    opened = connect(instance).table(table)
    with progress_rows(f"ingest into {table}") as progress:
        result = (opened.upsert if upsert else opened.ingest)(
            [*files],
            job_id,
            csv=csv,
            ignore_extra_columns=ignore_extra_columns,
            set_aside=set_aside,
            progress=progress,
            if_unchanged_since=if_unchanged_since,
        )
    if as_json:
        print_json(result)
        return
    if result.already_committed:
        say(f"job {job_id} was committed by transaction {result.transaction}: nothing to do")
        return
    partitions = len({ref.partition_id for ref in result.files})
    file_count = len({ref.filename for ref in result.files})
    say(
        f"ingested {counted(result.rows_written, 'row')} into {table}: "
        f"{counted(file_count, 'file')}, {counted(partitions, 'partition')}, "
        f"{result.took_s:.1f} s, transaction {result.transaction}"
    )
    if result.rows_set_aside:
        say(f"set aside {counted(result.rows_set_aside, 'row')} without a key in {set_aside}")
