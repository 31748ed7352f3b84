"""`sleeper query`."""

from __future__ import annotations

import json
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any, Literal

import click

from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import FORMATS, OutputFormat, stream_rows, write_rows
from sleeper.errors import BadRequest, QueryInvalid
from sleeper.instance.instance import connect
from sleeper.interfaces.cli.terminal.options import (
    as_of_option,
    column_names,
    columns_option,
    instance_option,
    json_option,
    ranges_option,
    read_key_value,
    read_regions,
    split_pairs,
    text_of,
)
from sleeper.interfaces.cli.terminal.present import counted, print_grid
from sleeper.interfaces.cli.terminal.stderr import warn
from sleeper.model.schema import Schema

_SHOWN_ROWS = 1000


@click.command()
@click.argument("table")
@click.option("--key", "keys", multiple=True, metavar="F=V", help="A row key field's value.")
@ranges_option
@click.option("--keys-file", type=click.Path(exists=True, dir_okay=False), help="One key a line.")
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
def query(
    table: str,
    keys: tuple[str, ...],
    ranges: tuple[str, ...],
    keys_file: str | None,
    columns: tuple[str, ...],
    as_of: int | None,
    only_count: bool,
    unordered: bool,
    output: str | None,
    form: Literal["table", "parquet", "csv", "arrow", "json"] | None,
    instance: str,
    as_json: bool,
) -> None:
    """Read rows of TABLE by key or key range, in key order; all rows without either.

    Repeat --key or --range with other fields to combine conditions, with the same
    field for several values. An empty MIN or MAX is no limit. Each line of
    --keys-file is one key; the values of a composite key are separated by tabs.
    Bytes are base64; dates and timestamps are ISO 8601. --count is exact, and mostly
    needs no row to be read.

    \b
    Examples:
        sleeper query flights --key tailnum=N14228
        sleeper query flights --range tailnum=N1,N2 --columns tailnum,dest
        sleeper query flights --keys-file tails.txt --output found.parquet
        sleeper query flights --range tailnum=N1,N2 --count
    """
    if only_count and (columns or output or form):
        raise click.UsageError(
            "--count prints a number: leave out --columns, --output and --format"
        )
    chosen = _chosen_format(form, output, as_json=as_json)
    opened = connect(instance).table(table)
    asked = _question(opened.schema, keys, ranges, keys_file)
    if only_count:
        found = opened.count(**asked, as_of=as_of)
        click.echo(json.dumps({"rows": found}) if as_json else str(found))
        return
    names = column_names(opened.schema, columns)
    rows = opened.query(**asked, columns=names, as_of=as_of, ordered=not unordered)
    if chosen == "table":
        _show(rows)
    elif output is None:
        stream_rows(rows, sys.stdout.buffer, chosen)
    else:
        count = write_rows(rows, Path(output), chosen)
        warn(f"wrote {counted(count, 'row')} to {output}")


def _chosen_format(
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


def _question(
    schema: Schema, keys: tuple[str, ...], ranges: tuple[str, ...], keys_file: str | None
) -> dict[str, Any]:
    """Return the arguments for `Table.query`."""
    if sum(map(bool, (keys, ranges, keys_file))) > 1:
        raise click.UsageError("give only one of --key, --range and --keys-file")
    if keys_file:
        return {"keys": _keys_from_file(schema, Path(keys_file))}
    if keys:
        values: dict[str, list[Any]] = {}
        for name, text in split_pairs(keys, "--key", schema.row_key_names):
            values.setdefault(name, []).append(read_key_value(schema, name, text))
        found = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
        if len(found) == 1:
            return {"key": found[0]}
        if len(values) == len(schema.row_keys):
            return {"keys": found}
        exact = [{n: (v, True, v, True) for n, v in key.items()} for key in found]
        return {"regions": exact}
    return {"regions": read_regions(schema, ranges)}


def _keys_from_file(schema: Schema, path: Path) -> list[Any]:
    """Read one key from each line; values of a composite key are separated by tabs."""
    content = text_of(path).removeprefix("\ufeff").rstrip("\r\n")
    lines = re.split(r"\r\n|\n|\r", content) if content else []
    names = schema.row_key_names
    keys = []
    for number, line in enumerate(lines, 1):
        values = line.split("\t") if len(names) > 1 else [line]
        if len(values) != len(names):
            raise QueryInvalid(
                f"line {number} of {str(path)!r} has {len(values)} values; a key has "
                f"{len(names)}, separated by tabs: {', '.join(names)}"
            )
        read = zip(names, values, strict=True)
        try:
            keys.append(tuple(read_key_value(schema, name, value) for name, value in read))
        except BadRequest as error:
            raise QueryInvalid(f"line {number} of {str(path)!r}: {error}") from error
    return keys


def _show(rows: Rows) -> None:
    """Print the first rows as a table, and the number of all rows."""
    shown: list[dict[str, Any]] = []
    count = 0
    for batch in rows:
        if len(shown) < _SHOWN_ROWS:
            shown += batch.slice(0, _SHOWN_ROWS - len(shown)).to_pylist()
        count += batch.num_rows
    names = rows.schema.names
    print_grid(names, [[row[name] for name in names] for row in shown], as_values=True)
    more = f", the first {len(shown):,} shown" if count > len(shown) else ""
    click.echo(f"{counted(count, 'row')}{more} (transaction {rows.transaction})")
