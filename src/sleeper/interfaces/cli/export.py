"""`sleeper export`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from sleeper.instance.instance import connect
from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import (
    as_of_option,
    column_names,
    columns_option,
    instance_option,
    json_option,
    ranges_option,
    spark_options,
)
from sleeper.interfaces.cli.present import counted, print_json, progress_of, say
from sleeper.interfaces.cli.query import Question, prefixes_option


@click.command()
@click.argument("table", shell_complete=complete_tables)
@click.argument("target")
@ranges_option
@prefixes_option
@columns_option
@as_of_option
@spark_options
@instance_option
@json_option
def export(
    table: str,
    target: str,
    ranges: tuple[str, ...],
    prefixes: tuple[str, ...],
    columns: tuple[str, ...],
    as_of: int | datetime | None,
    instance: str,
    session: Callable[[str], Any],
    as_json: bool,
) -> None:
    """Write rows of TABLE to Parquet files in TARGET, in key order; all without options.

    TARGET is a folder that does not exist or is empty, or an empty
    s3://bucket/folder. A local folder becomes visible when all rows are in it; in a
    bucket the file _SUCCESS is written last. Rows are filtered and aggregated as in
    queries.

    Repeat --range or --prefix with other fields to combine conditions, with the same
    field for several. An empty MIN or MAX is no limit.

    \b
    Examples:
        sleeper export flights exported/
        sleeper export flights n1/ --range tailnum=N1,N2 --columns tailnum,dest
        sleeper export flights n14/ --prefix tailnum=N14
        sleeper ingest copy exported/      # copies the rows to another table
    """
    opened = connect(instance).table(table)
    spark = session(instance)
    question = Question(keys=(), ranges=ranges, prefixes=prefixes, keys_file=None, where=None)
    with progress_of(f"export {table}", "files") as progress:
        result = opened.export(
            target,
            **question.arguments(opened.schema),
            columns=column_names(opened.schema, columns),
            as_of=as_of,
            spark=spark,
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
