"""`sleeper export`."""

from __future__ import annotations

import click

from sleeper.instance import connect
from sleeper.interfaces.cli.options import (
    as_of_option,
    column_names,
    columns_option,
    instance_option,
    json_option,
    ranges_option,
    read_regions,
)
from sleeper.interfaces.cli.present import counted, print_json, progress_of, say


@click.command()
@click.argument("table")
@click.argument("target")
@ranges_option
@columns_option
@as_of_option
@instance_option
@json_option
def export(
    table: str,
    target: str,
    ranges: tuple[str, ...],
    columns: tuple[str, ...],
    as_of: int | None,
    instance: str,
    as_json: bool,
) -> None:
    """Write the rows of TABLE to Parquet files in TARGET, in key order; all without --range.

    TARGET is a folder that does not exist yet or is empty, or s3://bucket/folder
    with nothing in it. It appears when all rows are in it; in a bucket the file
    _SUCCESS comes last. Rows are filtered and aggregated as in queries.

    Repeat --range with other fields to narrow them together, with the same field
    to ask for several ranges. An empty MIN or MAX is no limit.

    \b
    Examples:
        sleeper export flights exported/
        sleeper export flights n1/ --range tailnum=N1,N2 --columns tailnum,dest
        sleeper ingest copy exported/      # the rows again, in another table
    """
    opened = connect(instance).table(table)
    with progress_of(f"export {table}", "files") as progress:
        result = opened.export(
            target,
            regions=read_regions(opened.schema, ranges),
            columns=column_names(opened.schema, columns),
            as_of=as_of,
            progress=progress,
        )
    if as_json:
        print_json(result)
        return
    say(
        f"exported {counted(result.rows, 'row')} of {table} to {target}: "
        f"{counted(len(result.files), 'file')}, {result.took_s:.1f} s, "
        f"transaction {result.transaction}"
    )
