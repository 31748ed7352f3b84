"""`sleeper sql`."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

import click
import pyarrow as pa

from sleeper.engine.interruptible import awaited
from sleeper.engine.python_values import python_rows
from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import FORMATS, OutputFormat, stream_rows, write_rows
from sleeper.errors import SleeperError
from sleeper.interfaces.cli.options import (
    instance_option,
    json_option,
    text_of,
    unchanged_since_option,
)
from sleeper.interfaces.cli.present import counted, print_grid
from sleeper.interfaces.cli.query import chosen_format
from sleeper.interfaces.cli.stderr import warn
from sleeper.interfaces.cli.waiting import elapsed_time, ending_at_once, own_temp_folder
from sleeper.interfaces.connection import connect
from sleeper.model.authors import Author, author_now, committing
from sleeper.model.schema import Field, Schema, type_to_text
from sleeper.tables.worker_processes import WorkerProcess

# ---------------------------------------------------------------- sql prompt
#
# The prompt of `sleeper sql`: statements until `\q`, with a history and completion of names.

_log = logging.getLogger(__name__)

readline: Any = import_module("readline") if find_spec("readline") else None
"""Python may be built without it: then the prompt works without history and completion."""

_HELP = r"""A statement ends with ; and may have several lines. Ctrl-C drops it.
  \d          the tables
  \d TABLE    the columns of a table
  \e STATEMENT;   what a statement would read
  \?          this text
  \q          quit, as Ctrl-D"""
_WORDS = (
    *("SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS NULL", "JOIN"),
    *("ON", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "DISTINCT", "WITH", "UNION ALL", "EXPLAIN"),
    *("DESCRIBE", "count(*)", "sum(", "min(", "max(", "avg("),
)
_HISTORY_MAX = 1_000


class SqlPrompt:
    """Reads statements from a terminal, and shows their rows.

    Args:
        instance: The instance, or the client of one.
        state_folder: The folder that has programs' histories.
        run: Runs a statement, and returns its first rows.
        show: Prints rows.
    """

    def __init__(
        self,
        instance: Any,
        state_folder: Path,
        *,
        run: Callable[[str], Rows],
        show: Callable[[Rows], None],
    ) -> None:
        self._instance = instance
        self._run_statement = run
        self._history = state_folder / "sleeper" / "sql_history"
        self._show = show
        self._names: list[str] | None = None

    def run(self) -> None:
        """Read statements until the end of input, or `\\q`."""
        self._begin_history()
        click.echo("SQL that reads tables; \\d lists them, \\? helps, \\q quits")
        lines: list[str] = []
        while True:
            try:
                line = input("...> " if lines else "sql> ")
            except EOFError:
                click.echo()
                break
            except KeyboardInterrupt:
                click.echo()
                lines = []
                continue
            if not lines and line.strip().startswith("\\"):
                if line.strip() in ("\\q", "\\quit"):
                    break
                self._guarded(self._command, line.strip())
                continue
            lines.append(line)
            text = "\n".join(lines).strip()
            if text.endswith(";") or not text:
                lines = []
                if text.strip(";"):
                    self._guarded(self._run, text.rstrip(";"))
        self._save_history()

    def complete(self, text: str, state: int) -> str | None:
        """Return a word, table or column that begins with `text`: the one of a number."""
        if self._names is None:
            self._names = self._known_names()
        start = text.casefold()
        found = [name for name in self._names if name.casefold().startswith(start)]
        return found[state] if state < len(found) else None

    def _guarded(self, run: Callable[[str], None], text: str) -> None:
        """Run something, and print the error that ends it."""
        try:
            run(text)
        except SleeperError as error:
            warn(f"sleeper: {error}")
        except KeyboardInterrupt:
            warn("interrupted")

    def _run(self, text: str) -> None:
        self._show(self._run_statement(text))

    def _command(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        rest = rest.strip().rstrip(";")
        match word:
            case "\\d" if rest:
                schema = self._instance.table(rest.strip('"')).schema
                fields = {field.name: field for field in schema.fields}
                print_grid(
                    ["column", "type", "key"],
                    [_described(schema, fields[name]) for name in schema.columns],
                )
            case "\\d":
                print_grid(["table"], [[record.name] for record in self._instance.tables()])
            case "\\e" if rest:
                click.echo(awaited(lambda: self._instance.explain_sql(rest)))
            case _:
                click.echo(_HELP)

    def _known_names(self) -> list[str]:
        """Return key words, tables and columns; those with signs are quoted."""
        names = dict.fromkeys(_WORDS)
        for record in self._instance.tables():
            table = self._instance.table(record.name)
            names |= dict.fromkeys(map(_as_written, [record.name, *table.schema.names]))
        return [*names]

    def _begin_history(self) -> None:
        if readline is None:
            return
        readline.set_completer(self.complete)
        readline.set_completer_delims(" \t\n(),=<>!;+-*/")
        libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
        readline.set_history_length(_HISTORY_MAX)
        try:
            readline.read_history_file(self._history)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.info("the history of statements is not read: %s", error)

    def _save_history(self) -> None:
        """Write the history, which only this user may read: statements may have data in them."""
        if readline is None:
            return
        try:
            self._history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._history.touch(mode=0o600)
            readline.write_history_file(self._history)
        except OSError as error:
            _log.warning("the history of statements is not written: %s", error)


def _described(schema: Schema, field: Field) -> list[str]:
    key = "row key" if field in schema.row_keys else "sort key" if field in schema.sort_keys else ""
    return [field.name, type_to_text(field.type), key]


def _as_written(name: str) -> str:
    """Return a name as statements have it."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else '"' + name.replace('"', '""') + '"'


_SHOWN_ROWS = 100


class StatementProcess:
    """Runs the statements of a prompt in a process of its own, which Ctrl-C kills.

    It is started with the prompt, and opens the instance while the first statement is typed. The
    next one begins when a statement is interrupted.

    Args:
        address: The instance, as `connect` takes it.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._process: WorkerProcess | None = None
        self._is_open = False
        self._temp = ExitStack()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._temp.close()

    def first_rows(self, statement: str) -> Rows:
        """Return the first rows of a statement: one more than are shown, if there are more.

        Raises:
            SleeperError: it is refused, or its process was killed.
            KeyboardInterrupt: by Ctrl-C; then its process has ended, and its temp files are gone.
        """
        process = self._process if self._process is not None else self._begin()
        try:
            with elapsed_time("sql"):
                if not self._is_open:
                    process.receive()  # what does not open is told by the statement
                    self._is_open = True
                if not process.alive:  # by Ctrl-C at the prompt, while it started
                    process = self._begin()
                    process.receive()
                process.send(partial(_first_rows, self._address, author_now()), statement)
                found = process.receive()
        except KeyboardInterrupt:
            self._begin()
            raise
        if isinstance(found, SleeperError):
            if not process.alive:
                self._begin()
            raise found
        return Rows.from_table(found, transaction=0)

    def _begin(self) -> WorkerProcess:
        """End the process, if there is one, and start another."""
        self._temp.close()
        self._is_open = False
        self._temp.enter_context(own_temp_folder())
        self._process = self._temp.enter_context(WorkerProcess())
        self._process.send(_open, self._address)
        return self._process


@cache
def _open(address: str) -> None:
    """Open an instance for the statements of this process, and load what they need."""
    _opened(address).sql("SELECT 1 AS one").to_arrow()


@cache
def _opened(address: str) -> Any:
    return connect(address)


def _first_rows(address: str, author: Author, statement: str) -> pa.Table:
    with committing(by=author.by, reason=author.reason):
        return _kept(_opened(address).sql(statement)).to_arrow()


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
@unchanged_since_option
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
    if_unchanged_since: int | None,
    instance: str,
    as_json: bool,
) -> None:
    """Run one SQL STATEMENT that reads tables, or deletes rows of one, by their names.

    SELECT, WITH, VALUES, EXPLAIN and DESCRIBE are known, in the dialect of DataFusion,
    and DELETE FROM with a condition, which alone may have --if-unchanged-since.
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
    is_prompt = statement is None and file is None and sys.stdin.isatty()
    if if_unchanged_since is not None and (explain or is_prompt):
        raise click.UsageError("--if-unchanged-since is for a DELETE that is given and run")
    chosen = chosen_format(form, output, as_json=as_json)
    opened = connect(instance)
    if is_prompt:
        history = Path(state_folder).expanduser()
        with StatementProcess(instance) as process:
            SqlPrompt(opened, history, run=process.first_rows, show=_show).run()
        return
    text = statement if statement is not None else _read(file)
    with ending_at_once():
        if explain:
            click.echo(awaited(lambda: _explained(opened, text)))
        else:
            since = {} if if_unchanged_since is None else {"if_unchanged_since": if_unchanged_since}
            _run(lambda: opened.sql(text, **since), limit, chosen, output)


def _run(
    ask: Callable[[], Rows],
    limit: int | None,
    chosen: Literal["table"] | OutputFormat,
    output: str | None,
) -> None:
    """Run a statement, and write its rows."""
    count = None
    with elapsed_time("sql") as rows_counted_by:
        rows = awaited(ask)
        rows_counted_by(rows.rows_read)
        if limit is not None:
            rows = rows.limited(limit)
        if output is not None:
            assert chosen != "table", "a file has another format"
            count = write_rows(rows, Path(output), chosen)
        elif chosen == "table":
            rows = _kept(rows)
        else:
            rows.begun()
    if count is not None:
        warn(f"wrote {counted(count, 'row')} to {output}")
    elif chosen == "table":
        _show(rows)
    else:
        stream_rows(rows, sys.stdout.buffer, chosen)


def _kept(rows: Rows) -> Rows:
    """Return the first rows, read: one more than are shown, if there are more."""
    with rows.limited(_SHOWN_ROWS + 1) as first:
        return Rows.from_table(first.to_arrow(), transaction=rows.transaction)


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
    """Print the first rows as a table, and how to get the others.

    Args:
        rows: The rows: one more than are shown, if there are more.
    """
    names, shown = rows.schema.names, python_rows(rows.to_arrow(), maps=None)
    listed = [[row[name] for name in names] for row in shown[:_SHOWN_ROWS]]
    print_grid(names, listed, as_values=True)
    if len(shown) <= _SHOWN_ROWS:
        click.echo(counted(len(shown), "row"))
        return
    click.echo(f"more rows, the first {_SHOWN_ROWS:,} shown")
    warn("LIMIT in the statement shows fewer; --output FILE or --format csv writes all")
