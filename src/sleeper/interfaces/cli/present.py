"""Prints results: tables by rich, JSON on request, progress on stderr."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from sleeper.interfaces.cli.stderr import visible
from sleeper.model.column_types import duration_text

if TYPE_CHECKING:  # a command that prints rows loads no writer
    from sleeper.state.plans.claims import HeldClaim
    from sleeper.tables.bulk_import import BulkImportResult

# Control characters that JSON does not escape, and those that change the text direction.
_OBEYED = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line what happens when the reader of stdout closes the pipe."""
        raise BrokenPipeError


def say(text: str) -> None:
    """Print a line. Characters that the terminal's encoding lacks are written as escapes."""
    click.echo(visible(text))


def counted(number: int, thing: str) -> str:
    """Return a number with the name of what was counted.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def claim_text(claim: HeldClaim) -> str:
    """Return a claim's owner, age and end as text."""
    owner = claim.owner or "an unknown process"
    ends = claim.lease_ends.isoformat(sep=" ", timespec="seconds")
    return f"claimed {_age_text(claim.age_s)} ago by {owner}, until {ends} unless renewed"


def claim_line(claim: HeldClaim) -> str:
    """Return a line that says how many files a job has claimed, of which leaf and for whom."""
    files = counted(len(claim.filenames), "file")
    return f"job {claim.job_id} has {files} of {claim.partition_id[:8]}: {claim_text(claim)}"


def _age_text(seconds: int) -> str:
    minutes, hours = seconds // 60, seconds // 3600
    return f"{hours:,} h {minutes % 60} min" if hours else f"{minutes} min {seconds % 60} s"


def print_json(value: Any) -> None:
    """Print any result value as JSON, with the terminal's control characters escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
    click.echo(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_grid(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, as_values: bool = False
) -> None:
    """Print rows under column headings; numbers are right-aligned. Only a terminal cuts long rows.

    Numbers are shown as counts, with separators; with `as_values`, values are shown as by
    `value_text`.
    """
    write = value_text if as_values else _count_text
    cells = [[visible(write(value)) for value in row] for row in rows]
    headings = [visible(column) for column in columns]
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, heading in enumerate(headings):
        numbers = all(isinstance(row[place], int | float) for row in rows) and bool(rows)
        grid.add_column(heading, justify="right" if numbers else "left", no_wrap=True)
    for row in cells:
        grid.add_row(*row)
    widths = (max(map(cell_len, column)) for column in zip(headings, *cells, strict=True))
    _console(width_min=sum(width + 4 for width in widths)).print(grid)


def print_facts(facts: Sequence[tuple[str, Any]]) -> None:
    """Print names and values, one on each line."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        say(f"{name:<{width}}  {_count_text(value)}")


def value_text(value: Any) -> str:
    """Return a row's value as text: keys in the form of `--key`, null as an empty text."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat(sep=" ")
        case date():
            return value.isoformat()
        case timedelta():
            return duration_text(value)
        case list():
            return f"[{', '.join(map(value_text, value))}]"
        case tuple():  # an entry of a map
            return ": ".join(map(value_text, value))
        case _:
            return str(value)


def _console(width_min: int) -> Console:
    """Return a console on stdout; in a pipe it is wide enough for any row."""
    width = None if sys.stdout.isatty() else max(80, width_min)
    return _Output(width=width, highlight=False, markup=False, emoji=False)


def progress_rows(about: str) -> AbstractContextManager[Callable[[int, int | None], None]]:
    """Show progress in rows on stderr while the block runs, if stderr is a terminal."""
    return progress_of(about, "rows")


@contextmanager
def progress_of(about: str, things: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show progress in other things, as `progress_rows` does."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(things),
        TimeElapsedColumn(),
    )
    err = Console(stderr=True)
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(about, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def _count_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else value_text(value)


def show_imported(
    result: BulkImportResult, table: str, *, set_aside: str | None, as_json: bool
) -> None:
    """Print the result of a bulk import: the engine and why, rows added, rows set aside."""
    if as_json:
        print_json(result)
        return
    if result.already_committed:
        say(f"job {result.job_id} was committed by transaction {result.transaction}: nothing to do")
        return
    say(f"engine {result.engine}: {result.reason}")
    if result.leaves_after > result.leaves_before:
        say(f"split partitions: {result.leaves_before:,} leaves are now {result.leaves_after:,}")
    partitions = len({ref.partition_id for ref in result.files})
    file_count = len({ref.filename for ref in result.files})
    say(
        f"imported {counted(result.rows_written, 'row')} into {table}: "
        f"{counted(file_count, 'file')}, {counted(partitions, 'partition')}, "
        f"{result.took_s:.1f} s, transaction {result.transaction}"
    )
    if result.rows_set_aside:
        say(f"set aside {counted(result.rows_set_aside, 'row')} without a key in {set_aside}")
