"""`sleeper query`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click

from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import FORMATS, OutputFormat, stream_rows, write_rows
from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import (
    as_of_option,
    column_names,
    columns_option,
    instance_option,
    json_option,
)
from sleeper.interfaces.cli.present import counted, print_grid
from sleeper.interfaces.cli.question import Question, question_options
from sleeper.interfaces.cli.stderr import warn
from sleeper.interfaces.connection import connect
from sleeper.language.value_classes import dataclass
from sleeper.tables.table import Table

_FIRST_ROWS = 20
_PART_ROWS = 1000


@click.command()
@click.argument("table", shell_complete=complete_tables)
@question_options
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most N rows.")
@click.option("--all", "show_all", is_flag=True, help="Show all rows, not the first ones.")
@columns_option
@as_of_option
@click.option("--count", "only_count", is_flag=True, help="Print the number of rows alone.")
@click.option("--unordered", is_flag=True, help="Read rows in any order: faster for many rows.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write all rows to this file.")
@click.option(
    "--format", "form", type=click.Choice(["table", *FORMATS]), help="How rows are written."
)
@instance_option
@json_option
def query(table: str, question: Question, instance: str, **options: Any) -> None:
    """Read rows of TABLE by key, key range, prefix or condition, in key order.

    Without any of these the first 20 rows are shown; --limit and --all show
    more. With --output, --json or another --format all rows are written,
    up to --limit.

    Repeat --key, --range or --prefix with other fields to combine conditions, with
    the same field for several values. An empty MIN or MAX is no limit; a value
    with a comma is quoted as in CSV. --prefix may stand with --key or --range
    of other fields. Each line of --keys-file is one key; the values of a
    composite key are separated by tabs. Bytes are base64; dates and timestamps
    are ISO 8601. --count is exact, and mostly needs no row to be read.

    \b
    Examples:
        sleeper query flights
        sleeper query flights --key tailnum=N14228
        sleeper query flights --prefix tailnum=N14 --limit 100
        sleeper query flights --range tailnum=N1,N2 --columns tailnum,dest
        sleeper query names --range 'name="Smith, J","Smith, K"'
        sleeper query flights --keys-file tails.txt --output found.parquet
        sleeper query flights --range tailnum=N1,N2 --count
        sleeper query flights --where "dep_delay > 60 AND dest = 'MIA'"
    """
    run = _Options(**options)
    chosen = run.checked_format()
    opened = connect(instance).table(table)
    asked = {**question.arguments(opened.schema), "as_of": run.as_of}
    if run.only_count:
        found = opened.count(**asked)
        click.echo(json.dumps({"rows": found}) if run.as_json else str(found))
        return
    shown_max = None
    if chosen == "table" and run.limit is None and not run.show_all:
        shown_max = _FIRST_ROWS if question.is_all else _PART_ROWS
    rows = opened.query(
        **asked,
        limit=run.limit if shown_max is None else shown_max + 1,
        columns=column_names(opened.schema, run.columns),
        ordered=not run.unordered,
    )
    if chosen == "table":
        _show(rows, shown_max, _counter(opened, asked, question), by_key=not question.is_all)
    elif run.output is None:
        stream_rows(rows, sys.stdout.buffer, chosen)
    else:
        count = write_rows(rows, Path(run.output), chosen)
        warn(f"wrote {counted(count, 'row')} to {run.output}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of `sleeper query` that do not say which rows are asked for."""

    limit: int | None
    show_all: bool
    columns: tuple[str, ...]
    as_of: int | datetime | None
    only_count: bool
    unordered: bool
    output: str | None
    form: Literal["table"] | OutputFormat | None
    as_json: bool

    def checked_format(self) -> Literal["table"] | OutputFormat:
        """Return the output format, after a check of the options against each other."""
        if self.only_count and (self.columns or self.output or self.form):
            raise click.UsageError(
                "--count prints a number: leave out --columns, --output and --format"
            )
        if self.only_count and (self.show_all or self.limit is not None):
            raise click.UsageError("--count counts all rows: leave out --limit and --all")
        if self.show_all and self.limit is not None:
            raise click.UsageError("--all and --limit contradict each other: leave one of them out")
        return chosen_format(self.form, self.output, as_json=self.as_json)


def _counter(
    opened: Table, asked: Mapping[str, Any], question: Question
) -> Callable[[int], int | None]:
    """Return what counts the rows; of a whole table only if the state knows their number."""

    def count(transaction: int) -> int | None:
        at = {**asked, "as_of": transaction}
        if question.is_all or question.where is not None:  # to count would read many rows
            return opened.query(**at).known_count()
        return opened.count(**at)

    return count


def chosen_format(
    form: Literal["table"] | OutputFormat | None, output: str | None, *, as_json: bool
) -> Literal["table"] | OutputFormat:
    """Return the output format, checked before rows are read."""
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json and --format contradict each other: leave one of them out")
    if output is None:
        return "json" if as_json else form or "table"
    folder = Path(output).parent
    if not folder.is_dir():
        raise click.BadParameter(f"folder {str(folder)!r} does not exist", param_hint="--output")
    if form == "table":
        raise click.UsageError(
            "--format table is for the terminal: choose another --format for --output"
        )
    ending = Path(output).suffix.lstrip(".")
    by_name = next((known for known in FORMATS if known == ending), None)
    if as_json and by_name not in (None, "json"):
        raise click.UsageError(
            f"--json and {output!r} contradict each other: leave out --json, or name a .json file"
        )
    chosen = "json" if as_json else form or by_name
    if chosen is None:
        raise click.UsageError(f"{output!r} does not end with a known format: give --format")
    return chosen


def _show(
    rows: Rows, shown_max: int | None, count: Callable[[int], int | None], *, by_key: bool
) -> None:
    """Print rows as a table for people, and their number.

    Args:
        rows: The rows; one more than are shown, if there are more.
        shown_max: How many are shown; None for all.
        count: Returns the number of all rows at a transaction, or None.
        by_key: Whether a key or range was given.
    """
    shown = 0
    for part in _parts(rows):
        if shown_max is not None and shown + len(part) > shown_max:
            if shown < shown_max:
                _print_part(rows, part[: shown_max - shown])
            total = count(rows.transaction)
            all_rows = "more rows" if total is None else counted(total, "row")
            click.echo(
                f"{all_rows}, the first {shown_max:,} shown (transaction {rows.transaction})"
            )
            others = "" if by_key else "; --key, --range, --prefix and --where find others"
            warn(f"--limit N shows more, --all shows all, --output FILE writes all{others}")
            return
        _print_part(rows, part)
        shown += len(part)
    if not shown:
        _print_part(rows, [])
    click.echo(f"{counted(shown, 'row')} (transaction {rows.transaction})")


def _parts(rows: Rows) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in parts, each of which is a table with its own headings."""
    part: list[dict[str, Any]] = []
    with rows:
        for batch in rows:
            for start in range(0, batch.num_rows, _PART_ROWS):
                part += batch.slice(start, _PART_ROWS).to_pylist()
                if len(part) > _PART_ROWS:
                    yield part[:_PART_ROWS]
                    part = part[_PART_ROWS:]
    if part:
        yield part


def _print_part(rows: Rows, part: Sequence[dict[str, Any]]) -> None:
    names = rows.schema.names
    print_grid(names, [[row[name] for name in names] for row in part], as_values=True)
