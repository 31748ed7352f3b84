"""`sleeper query`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any, Literal

import click

from sleeper.engine.interruptible import awaited
from sleeper.engine.python_values import python_rows
from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import FORMATS, OutputFormat, stream_rows, write_rows
from sleeper.interfaces.cli.completion import complete_tables
from sleeper.interfaces.cli.options import (
    as_of_option,
    column_names,
    columns_option,
    instance_option,
    json_option,
    ranges_option,
    read_key_value,
    read_ranges,
    row_key_field,
    split_pairs,
    text_of,
)
from sleeper.interfaces.cli.present import counted, print_grid
from sleeper.interfaces.cli.stderr import warn
from sleeper.interfaces.cli.waiting import elapsed_time, ending_at_once
from sleeper.interfaces.connection import connect
from sleeper.model.keys import keys_of_lines
from sleeper.model.ranges import Range, exact_range, prefix_range
from sleeper.model.schema import Schema
from sleeper.tables.table import Table

# ---------------------------------------------------------------- options of a query
#
# The options that say which rows of a table are asked for.

prefixes_option = click.option(
    "--prefix", "prefixes", multiple=True, metavar="F=V", help="How its values begin."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which rows are asked for, as it was typed.

    Attributes:
        keys: `FIELD=VALUE`, any number of them.
        ranges: `FIELD=MIN,MAX`, any number of them.
        prefixes: `FIELD=START`, any number of them.
        keys_file: The file with one key on each line.
        where: A condition in SQL.
    """

    keys: tuple[str, ...]
    ranges: tuple[str, ...]
    prefixes: tuple[str, ...]
    keys_file: str | None
    where: str | None

    @property
    def is_all(self) -> bool:
        """True if all rows are asked for."""
        conditions = (self.keys, self.ranges, self.prefixes, self.keys_file, self.where)
        return not any(conditions)

    def arguments(self, schema: Schema) -> dict[str, Any]:
        """Return the arguments for `Table.query`.

        Raises:
            click.UsageError: options contradict each other.
            QueryInvalid: a field or value does not fit the schema.
        """
        asked = self._by_key(schema)
        return asked if self.where is None else {**asked, "where": self.where}

    def _by_key(self, schema: Schema) -> dict[str, Any]:
        if sum(map(bool, (self.keys, self.ranges, self.keys_file))) > 1:
            raise click.UsageError("give only one of --key, --range and --keys-file")
        if self.keys_file:
            if self.prefixes:
                raise click.UsageError("--keys-file has complete keys: leave out --prefix")
            return {"keys": _keys_from_file(schema, Path(self.keys_file))}
        if self.prefixes:
            return {"regions": self._regions(schema)}
        if self.ranges:
            return {"regions": _combined(read_ranges(schema, self.ranges))}
        if not self.keys:
            return {}
        values = self._values(schema)
        found = _combined(values)
        if len(found) == 1:
            return {"key": found[0]}
        if len(values) == len(schema.row_keys):
            return {"keys": found}
        return {"regions": [{n: (v, True, v, True) for n, v in key.items()} for key in found]}

    def _values(self, schema: Schema) -> dict[str, list[Any]]:
        values: dict[str, list[Any]] = {}
        for name, text in split_pairs(self.keys, "--key", schema.row_key_names):
            values.setdefault(name, []).append(read_key_value(schema, name, text))
        return values

    def _regions(self, schema: Schema) -> list[dict[str, Range]]:
        """Return the regions of prefixes, with keys or ranges of other fields."""
        conditions: dict[str, list[Any]] = {**read_ranges(schema, self.ranges)}
        for name, values in self._values(schema).items():
            field = row_key_field(schema, name)
            conditions[name] = [exact_range(field, value) for value in values]
        starts: dict[str, list[Range]] = {}
        for name, text in split_pairs(self.prefixes, "--prefix", schema.row_key_names):
            if name in conditions:
                raise click.UsageError(
                    f"--prefix and --key or --range are both given for {name!r}: leave one out"
                )
            field = row_key_field(schema, name)
            starts.setdefault(name, []).append(
                prefix_range(field, read_key_value(schema, name, text))
            )
        return _combined({**conditions, **starts})


def question_options(run: Callable[..., None]) -> Callable[..., None]:
    """Give a command --key, --range, --prefix, --keys-file and --where, as one `question`."""

    @wraps(run)
    def asked(
        keys: tuple[str, ...],
        ranges: tuple[str, ...],
        prefixes: tuple[str, ...],
        keys_file: str | None,
        where: str | None,
        **others: Any,
    ) -> None:
        question = Question(
            keys=keys, ranges=ranges, prefixes=prefixes, keys_file=keys_file, where=where
        )
        run(question=question, **others)

    in_order = (
        click.option(
            "--key", "keys", multiple=True, metavar="F=V", help="A row key field's value."
        ),
        ranges_option,
        prefixes_option,
        click.option(
            "--keys-file", type=click.Path(exists=True, dir_okay=False), help="One key a line."
        ),
        click.option("--where", metavar="CONDITION", help="A condition in SQL over any fields."),
    )
    for option in reversed(in_order):
        asked = option(asked)
    return asked


def _combined(conditions: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values of several fields."""
    return [dict(zip(conditions, chosen, strict=True)) for chosen in product(*conditions.values())]


def _keys_from_file(schema: Schema, path: Path) -> list[Any]:
    """Read one key from each line; values of a composite key are separated by tabs."""
    content = text_of(path).removeprefix("\ufeff").rstrip("\r\n")
    lines = re.split(r"\r\n|\n|\r", content) if content else []
    return keys_of_lines(schema.row_keys, lines, f" of {str(path)!r}")


_FIRST_ROWS = 20
_PART_ROWS = 1000


class _Query(click.Command):
    """The command, which says where a key without its option belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read arguments; more than one that is no option is likely a key."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            found = _UNEXPECTED.fullmatch(error.message)
            if found is None:
                raise
            raise click.UsageError(
                f"{found[1]} is not an option: a row key is --key FIELD={found[1]}, a range "
                "--range FIELD=MIN,MAX, a condition --where CONDITION",
                ctx,
            ) from None


_UNEXPECTED = re.compile(r"Got unexpected extra arguments? \((.*)\)")


@click.command(cls=_Query)
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
    with ending_at_once():
        _run(run, run.checked_format(), connect(instance).table(table), question)


def _run(
    run: _Options, chosen: Literal["table"] | OutputFormat, opened: Table, question: Question
) -> None:
    asked = {**question.arguments(opened.schema), "as_of": run.as_of}
    if run.only_count:
        with elapsed_time(f"count rows of {opened.name}"):
            found = awaited(lambda: opened.count(**asked))
        click.echo(json.dumps({"rows": found}) if run.as_json else str(found))
        return
    shown_max = None
    if chosen == "table" and run.limit is None and not run.show_all:
        shown_max = _FIRST_ROWS if question.is_all else _PART_ROWS
    count = None
    with elapsed_time(f"query {opened.name}") as rows_counted_by:
        rows = awaited(
            lambda: opened.query(
                **asked,
                limit=run.limit if shown_max is None else shown_max + 1,
                columns=column_names(opened.schema, run.columns),
                ordered=not run.unordered,
            )
        )
        rows_counted_by(rows.rows_read)
        if run.output is None:
            rows.begun()
        else:
            assert chosen != "table", "a file has another format"
            count = write_rows(rows, Path(run.output), chosen)
    if count is not None:
        warn(f"wrote {counted(count, 'row')} to {run.output}")
    elif chosen == "table":
        _show(rows, shown_max, _counter(opened, asked, question), by_key=not question.is_all)
    else:
        stream_rows(rows, sys.stdout.buffer, chosen)


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
    by_name = next((known for known in FORMATS if known == _JSON_LINES.get(ending, ending)), None)
    if as_json and by_name not in (None, "json"):
        raise click.UsageError(
            f"--json and {output!r} contradict each other: leave out --json, or name a .json file"
        )
    chosen = "json" if as_json else form or by_name
    if chosen is None:
        raise click.UsageError(
            f"{output!r} does not end with a known format: give --format, or a name that ends in "
            f"{', '.join(f'.{known}' for known in FORMATS)}"
        )
    return chosen


_JSON_LINES = {"jsonl": "json", "ndjson": "json"}
"""Other endings of files of JSON lines; an ingest knows them too."""


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
                part += python_rows(batch.slice(start, _PART_ROWS), maps=None)
                if len(part) > _PART_ROWS:
                    yield part[:_PART_ROWS]
                    part = part[_PART_ROWS:]
    if part:
        yield part


def _print_part(rows: Rows, part: Sequence[dict[str, Any]]) -> None:
    names = rows.schema.names
    print_grid(names, [[row[name] for name in names] for row in part], as_values=True)
