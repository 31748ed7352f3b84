"""`sleeper sql`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import click

from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import FORMATS, OutputFormat, stream_rows, write_rows
from sleeper.interfaces.cli.options import instance_option, json_option, text_of
from sleeper.interfaces.cli.present import counted, print_grid
from sleeper.interfaces.cli.query import chosen_format
from sleeper.interfaces.cli.sql_prompt import SqlPrompt
from sleeper.interfaces.cli.stderr import warn
from sleeper.interfaces.connection import connect

_SHOWN_ROWS = 100


@click.command()
@click.argument("statement", required=False)
@click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read the statement from this file; - is stdin.",
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most N rows.")
@click.option("--explain", is_flag=True, help="Print the plan and what it reads, and no rows.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write all rows to this file.")
@click.option(
    "--format", "form", type=click.Choice(["table", *FORMATS]), help="How rows are written."
)
@click.option(
    "--state-folder",
    envvar="XDG_STATE_HOME",
    default="~/.local/state",
    hidden=True,
    help="The folder of the prompt's history.",
)
@instance_option
@json_option
def sql(
    statement: str | None,
    file: str | None,
    limit: int | None,
    explain: bool,
    output: str | None,
    form: Literal["table"] | OutputFormat | None,
    state_folder: str,
    instance: str,
    as_json: bool,
) -> None:
    """Run one SQL STATEMENT that reads tables, by their names.

    SELECT, WITH, VALUES, EXPLAIN and DESCRIBE are known, in the dialect of DataFusion.
    Conditions on row keys narrow what is read: --explain tells. Names are
    case-sensitive; those with signs are in double quotes, text in single ones.

    Without a statement there is a prompt on a terminal, with a history and
    completion of names by Tab; elsewhere the statement is read from stdin.
    Of many rows the first 100 are shown; --output writes all.

    \b
    Examples:
        sleeper sql "SELECT dest, count(*) FROM flights GROUP BY dest"
        sleeper sql -f busiest.sql --output busiest.parquet
        sleeper sql --explain "SELECT * FROM flights WHERE tailnum LIKE 'N14%'"
        sleeper sql
    """
    if statement is not None and file is not None:
        raise click.UsageError("give a STATEMENT or --file, not both")
    if explain and (output or form or as_json or limit is not None):
        raise click.UsageError("--explain prints a text: leave out other options of output")
    chosen = chosen_format(form, output, as_json=as_json)
    opened = connect(instance)
    if statement is None and file is None and sys.stdin.isatty():
        SqlPrompt(opened, Path(state_folder).expanduser(), _show).run()
        return
    text = statement if statement is not None else _read(file)
    if explain:
        click.echo(_explained(opened, text))
        return
    rows = opened.sql(text)
    if limit is not None:
        rows = rows.limited(limit)
    if chosen == "table":
        _show(rows)
    elif output is None:
        stream_rows(rows, sys.stdout.buffer, chosen)
    else:
        count = write_rows(rows, Path(output), chosen)
        warn(f"wrote {counted(count, 'row')} to {output}")


def _read(file: str | None) -> str:
    if file is None or file == "-":
        return sys.stdin.read()
    return text_of(Path(file))


def _explained(opened: Any, text: str) -> str:
    explain = getattr(opened, "explain_sql", None)
    if explain is None:
        raise click.UsageError("--explain is for an instance in a folder or bucket, not a server")
    return str(explain(text))


def _show(rows: Rows) -> None:
    """Print the first rows as a table, and how to get the others."""
    names, shown = rows.schema.names, list[dict[str, Any]]()
    with rows.limited(_SHOWN_ROWS + 1) as first:
        for batch in first:
            shown += batch.to_pylist()
    listed = [[row[name] for name in names] for row in shown[:_SHOWN_ROWS]]
    print_grid(names, listed, as_values=True)
    if len(shown) <= _SHOWN_ROWS:
        click.echo(counted(len(shown), "row"))
        return
    click.echo(f"more rows, the first {_SHOWN_ROWS:,} shown")
    warn("LIMIT in the statement shows fewer; --output FILE or --format csv writes all")
