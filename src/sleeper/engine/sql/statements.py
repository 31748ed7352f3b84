"""Runs one SQL statement over tables, and returns its rows as a stream.

Words: a logical plan says what is computed, a physical plan how; a direct read is a plan that one
of our readers answers by itself; spooled rows are written to a temp file before they are read.

1. what only looks like a question, or what DataFusion would leave out, is refused (`_check_reads`),
   and the text is made to mean what it says (`as_written`)
2. it is planned in a session of its own (`_plan_it`), and planned again without joins of lists, or
   with limits kept, where DataFusion's plan would be wrong or hold all rows in memory
3. the plan is checked: what would return other rows is refused (`refusals`)
4. aggregates of floats are written anew, and planned again (`_rewrite`)
5. rows are read during iteration (`rows`): by a direct read, or by DataFusion over scans of tables,
   which ask for the columns and regions that the plan needs (`table_scan`)

`rows_where` does the same for a condition of a query, over one table and in its order. Plain
statements and conditions on keys are read before all that (`plain_statements`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.interruptible import interruptible
from sleeper.engine.reading.session import column, datafusion
from sleeper.engine.rows import Rows
from sleeper.engine.sql.as_written import as_written
from sleeper.engine.sql.comparable_floats import (
    ComparableRead,
    comparable_and_stored,
    comparable_table,
)
from sleeper.engine.sql.deletions import without_comments
from sleeper.engine.sql.failures import shortened, translated
from sleeper.engine.sql.float_aggregates import (
    HOW_TO_NAME,
    check_rewritten,
    may_need_rewriting,
    rewritten,
)
from sleeper.engine.sql.plain_statements import plain_read
from sleeper.engine.sql.plans import BARRIERS, LIMITS, STORED, joins_lists
from sleeper.engine.sql.refusals import check_planned, check_times, check_written
from sleeper.engine.sql.session import SqlSession, spawns_tasks
from sleeper.engine.sql.table_scan import NarrowedRead, ScannedTable, spooled
from sleeper.engine.sql.whole_files import bytes_max, check_are_there
from sleeper.errors import QueryInvalid

# ---------------------------------------------------------------- statement size
#
# Limits how many operators a statement may have.
#
# DataFusion plans a chain of operators by recursion: one of some thousand ends the process.

OPERATORS_MAX: Final = 1_500
"""A chain of 3,000 additions ended a process with a stack of 8 MiB."""

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_OPERATOR: Final = re.compile(
    r"::|\[|[-+*/%|&^~<>=!#@]+"
    r"|\b(?:and|or|not|is|i?like|similar|between|union|intersect|except|join|collate)\b",
    re.IGNORECASE,
)


def check_operators(text: str, operators_max: int = OPERATORS_MAX) -> None:
    """Check that SQL has not too many operators.

    Raises:
        QueryInvalid: it has.
    """
    operators = sum(1 for _ in _OPERATOR.finditer(_QUOTED.sub("", text)))
    if operators > operators_max:
        raise QueryInvalid(
            f"the SQL has {operators:,} operators, and {operators_max:,} are allowed. Ask by keys= "
            "or regions=, use IN (...), or ask several times."
        )


_READING: Final = ("select", "with", "values", "explain", "describe", "desc", "show", "(")
_WORD: Final = re.compile(r"\s*(\(|\w*)")
_NOT_FOUND: Final = re.compile(r"table 'sleeper\.tables\.(?P<name>.+?)' not found", re.DOTALL)
_TEXTS: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_IGNORED: Final = re.compile(
    r"\b(?:TABLESAMPLE|SAMPLE\s*\(?\s*\d|PREWHERE|CONNECT\s+BY"
    r"|WITH\s+(?:ROLLUP|CUBE|TOTALS)\b(?!\s*(?:\(|AS\b))|PARTITION\s*\()",
    re.IGNORECASE,
)
"""Clauses that DataFusion parses and leaves out, so that a statement returns other rows."""

_COUNTED: Final = re.compile(r"\b(?:EXCEPT|INTERSECT|MINUS)\s+ALL\b", re.IGNORECASE)
"""Operators that are to count equal rows: DataFusion takes away, or keeps, all of them."""

_WINDOW_BEGINS: Final = (
    r"(?!(?:PARTITION|ORDER|ROWS|RANGE|GROUPS|SELECT|WITH|VALUES|FROM)\b)[\w\"`]"
)
_WINDOW_IN_WINDOW: Final = re.compile(
    rf"\bOVER\s*\(\s*{_WINDOW_BEGINS}|\bWINDOW\b.*\bAS\s*\(\s*{_WINDOW_BEGINS}",
    re.IGNORECASE | re.DOTALL,
)
"""Windows that go on from another one by its name, which DataFusion leaves out."""

_INSTEAD: Final = {
    "insert": "add rows by Table.ingest() (`sleeper ingest`)",
    "update": "replace rows by newer ones of the same row keys: Table.upsert() "
    "(`sleeper ingest --upsert`)",
    "merge": "replace rows, and add new ones, by Table.upsert() (`sleeper ingest --upsert`)",
    "truncate": "remove all rows by Table.reinitialise() (`sleeper table reinitialise`)",
    "copy": "write rows to files by Table.export(), or `sleeper sql --output FILE`",
    "create": "make tables by Instance.create_table() (`sleeper table add`)",
    "drop": "delete tables by Instance.delete_table() (`sleeper table delete`)",
    "alter": "change columns by Table.alter() (`sleeper table alter`), a table's name by "
    "Table.rename(), its properties by Table.set_properties()",
    "set": "set properties by Table.set_properties() (`sleeper table set`)",
}

_SORTS_IN_MEMORY: Final = tuple(f"TopK(fetch={limit})" for limit in LIMITS)
"""Sorts of all rows into which DataFusion moved the LIMIT above a table: they spill nothing."""


class Statement:
    """One statement, planned over some tables. Nothing is read before `rows` is called.

    Args:
        text: The statement.
        tables: The tables that it may name, by name.
        no_such_table: Returns the message about a name that no table has.
        temp_folder: Where sorting and grouping spill; None for the system's temp folder.

    Raises:
        QueryInvalid: it is not a statement that reads, or names what there is not.
    """

    def __init__(
        self,
        text: str,
        tables: Mapping[str, ScannedTable],
        *,
        no_such_table: Callable[[str], str],
        temp_folder: Path | None,
    ) -> None:
        self._asked = text
        self._temp_folder = temp_folder
        self._tables = {name: comparable_table(table) for name, table in tables.items()}
        _check_reads(text)
        self._no_such_table = no_such_table
        self._planned_text = self._text = as_written(text)
        self._joined = _named_together(text, self._tables)
        self._plan()
        with self._translated():
            given = self._frame.schema()
        self._names = given.names
        if may_need_rewriting(self._logical):
            self._rewrite(given)

    def _plan(self) -> None:
        self._joins_lists = True
        self._plan_it()
        if joins_lists(self._planned_text, self._frame, self._logical):
            self._joins_lists = False
            self._session.close()
            self._plan_it()
        shown = "" if self._physical is None else self._physical.display_indent()
        if any(sort in shown for sort in _SORTS_IN_MEMORY):
            self._session.close()
            self._plan_it(keep_limits=True)

    def _rewrite(self, given: pa.Schema) -> None:
        """Plan the statement with its aggregates of floats as `float_aggregates` writes them."""
        with self._translated():
            written = rewritten(self._text, self._types_of, self._what)
        if written != self._text:
            self._session.close()
            self._planned_text = written
            try:
                self._plan()
            except QueryInvalid as error:
                raise QueryInvalid(f"{self._what}: {HOW_TO_NAME}") from error
        with self._translated():
            if self._frame.schema().types != given.types:
                raise QueryInvalid(f"{self._what}: {HOW_TO_NAME}")
            part = self._session.context.create_dataframe_from_logical_plan
            check_rewritten(self._logical, lambda node: part(node).schema().types, self._what)

    def _types_of(self, text: str) -> str:
        """Return the plan of another statement with the types of its columns."""
        try:
            frame = self._session.context.sql_with_options(text, _reading_only())
        except Exception as error:
            raise QueryInvalid(f"{self._what}: {HOW_TO_NAME}") from error
        return str(frame.logical_plan().display_indent_schema())

    def _plan_it(self, *, keep_limits: bool = False) -> None:
        self._session = SqlSession(
            self._tables,
            in_order=False,
            temp_folder=self._temp_folder,
            keep_limits=keep_limits,
            joins_lists=self._joins_lists,
            joined=self._joined,
        )
        if self._planned_text != self._text:
            self._session.use_float_functions()
        with self._translated():
            try:
                self._frame = self._new_frame()
            except Exception as error:
                missing = _NOT_FOUND.search(str(error))
                if missing:
                    text = self._no_such_table(missing["name"])
                    raise QueryInvalid(f"{text} ({self._what})") from None
                raise
            check_written(self._planned_text, self._frame, self._what)
            check_times(self._frame, self._what)
            self._logical = self._session.plan(self._frame)
            check_planned(self._frame, self._logical, self._what)
            is_direct = self._session.direct(self._logical) is not None
            self._physical = None if is_direct else self._frame.execution_plan()

    @property
    def _what(self) -> str:
        return f"statement {shortened(self._asked)!r}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of planning as ours, and end the statement with them."""
        session = self._session
        try:
            with translated(self._what, session.columns, session.scans):
                yield
        except BaseException:
            session.close()
            raise

    def rows(self) -> Rows:
        """Return the rows. It is called once."""
        session = self._session
        with self._translated():
            given = self._frame.schema()
            schema = _result_schema(self._names, given)
            direct = session.direct(self._logical)
            if direct is not None and given.names == schema.names:
                session.close()
                return direct.rows(schema.names)
            physical = self._physical or self._frame.execution_plan()
        numbers = [read.transaction for read in session.reads.values()]
        number = numbers[0] if len(numbers) == 1 else 0
        batches = interruptible(self._batches(physical, schema))
        return Rows(batches, schema, number, rows_read=session.scans.rows_read)

    def explain(self) -> str:
        """Return DataFusion's plan, and what is read of each table. It is called once."""
        session = self._session
        with self._translated():
            steps = None if self._physical is None else self._physical.display_indent()
        session.close()
        shown = "none: the table's reader returns exactly these rows"
        parts = [
            f"plan:\n{_without_barriers(self._logical.display_indent())}",
            f"steps:\n{shown if steps is None else _without_barriers(steps)}",
        ]
        reads = [f"  {name}: {read.explain()}" for name, read in session.reads.items()]
        return "\n\n".join([*parts, "\n".join(["read:", *(reads or ["  nothing"])])])

    def _batches(self, physical: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        files = self._session.whole_files(self._whole_bytes_max(physical))
        with ExitStack() as stack:
            frame = self._frame
            if files:
                with self._translated():
                    frame, physical = self._session.over_whole_files(files, self._again, stack)
            self._spool(physical, stack)
            check_are_there(files)
            try:
                yield from self._session.batches(frame, physical, schema, self._what)
            except QueryInvalid:
                check_are_there(files)
                raise
            check_are_there(files)

    def _whole_bytes_max(self, physical: Any) -> int:
        logical = _without_barriers(self._logical.display_indent())
        if logical.startswith("Explain"):
            return 0
        nodes = (line.lstrip() for line in logical.splitlines())
        return bytes_max(physical, has_limit=any(node.startswith("Limit:") for node in nodes))

    def _again(self) -> tuple[Any, Any]:
        frame = self._new_frame()
        return frame, frame.execution_plan()

    def _new_frame(self) -> Any:
        return self._session.context.sql_with_options(self._planned_text, _reading_only())

    def _spool(self, physical: Any, stack: ExitStack) -> None:
        """Write rows that are merged to a temp file first, if DataFusion's threads would read them.

        These threads wait for rows, and a merge needs threads of the same pool: all could wait.
        """
        if not spawns_tasks(physical):
            return
        for name, read in [*self._session.reads.items()]:
            if self._tables[name].may_merge:
                columns = self._session.columns_read(name)
                found = spooled(partial(read.rows, columns), self._temp_folder)
                self._session.reads[name] = stack.enter_context(found)


def _without_barriers(shown: str) -> str:
    """Return a plan without the LIMITs above tables, which limit nothing."""
    lines = [
        line
        for line in shown.splitlines()
        if line.strip().removeprefix("Global").replace("LimitExec:", "Limit:") not in BARRIERS
    ]
    return _FETCHES.sub("", "\n".join(lines)).replace(f"{STORED}.", "")


_FETCHES: Final = re.compile(rf", fetch=(?:{'|'.join(map(str, LIMITS))})\b")


def _named_together(text: str, tables: Mapping[str, ScannedTable]) -> frozenset[str]:
    """Return the tables whose names are words of a statement, if they are several."""
    plain = text.replace('""', '"')
    found = {name for name in tables if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", plain)}
    return frozenset(found if len(found) > 1 else ())


def _check_reads(text: object) -> None:
    if not isinstance(text, str):
        raise QueryInvalid(f"a statement must be SQL text, not {text!r}")
    rest = without_comments(text)
    word = _WORD.match(rest)
    first = word[1].lower() if word else ""
    if not rest.strip():
        raise QueryInvalid("the statement is empty: give one SELECT statement")
    if first == "show":
        raise QueryInvalid(
            "SHOW is not known here: DESCRIBE table shows the columns of a table, and "
            "Instance.tables() (`sleeper table list`) all tables"
        )
    if first == "delete":
        raise QueryInvalid(
            "EXPLAIN is for statements that read; how many rows a DELETE would remove, "
            "SELECT count(*) with its condition tells. Nothing was deleted"
        )
    if first not in _READING:
        instead = f"; {_INSTEAD[first]}" if first in _INSTEAD else ""
        raise QueryInvalid(
            "SQL only reads and deletes here: SELECT, WITH, VALUES, EXPLAIN, DESCRIBE and DELETE, "
            f"not {first.upper() or rest[:20]!r}{instead}"
        )
    check_operators(text)
    words = _TEXTS.sub(" ", text)
    counted = _COUNTED.search(words)
    if counted:
        raise QueryInvalid(
            f"{counted[0].upper()} would not count equal rows here: number them by row_number() "
            "OVER (PARTITION BY all columns) on both sides, and write it without ALL"
        )
    # Names of windows may be quoted; what is in a text or comment has no effect.
    if _WINDOW_IN_WINDOW.search(_TEXTS.sub(_name_or_space, text)):
        raise QueryInvalid(
            "a window in parentheses cannot go on from another one by its name here: write OVER "
            "name without parentheses, or all of the window, as in OVER (PARTITION BY a ORDER BY b)"
        )
    ignored = _IGNORED.search(words)
    if ignored:
        raise QueryInvalid(
            f"{ignored[0].upper()} is not known here: use LIMIT, WHERE, WITH RECURSIVE, or "
            "GROUP BY ROLLUP (...) or CUBE (...); a name that is such a word is quoted"
        )


def _name_or_space(match: re.Match[str]) -> str:
    return '""' if match[0].startswith('"') else " "


def _reading_only() -> Any:
    options = datafusion().SQLOptions()
    options = options.with_allow_ddl(allow=False).with_allow_dml(allow=False)
    return options.with_allow_statements(allow=False)


def _result_schema(names: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """Return the schema of a result: each name once, and text as tables have it."""
    pairs = zip(_distinct(names), schema, strict=True)
    return pa.schema([pa.field(name, _plain(each.type), each.nullable) for name, each in pairs])


def _plain(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.string()
    return pa.binary() if kind == pa.binary_view() else kind


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names, of which those that occur again get a number: `id`, `id_1`."""
    found = dict[str, None]()
    for name in names:
        shown, number = name, 0
        while shown in found or (number and shown in names):
            number += 1
            shown = f"{name}_{number}"
        found[shown] = None
    return [*found]


# ---------------------------------------------------------------- conditional rows
#
# Rows of one table that meet a condition written in SQL: `query(where=...)`.


def rows_where(
    table: ScannedTable,
    where: str,
    columns: Sequence[str] | None,
    *,
    transaction: int,
    temp_folder: Path | None,
) -> Rows:
    """Return the rows that meet a condition, in the order in which they are read.

    The condition is checked now; rows are read during iteration.

    Args:
        table: The table.
        where: A condition in SQL over its columns, such as `n > 1 AND name LIKE 'a%'`.
        columns: The columns to return, all without it.
        transaction: The number of the state that is read.
        temp_folder: For DataFusion.

    Raises:
        QueryInvalid: it is not a condition, a column is unknown, or types do not fit.
    """
    plain = plain_read(where, table)
    if plain is not None:
        return plain.rows(columns)
    what = f"where={shortened(where)!r}"
    scanned, stored = comparable_and_stored(table)
    names = [*(table.arrow_schema.names if columns is None else columns)]
    with translated(what, table.arrow_schema.names):
        session, frame, plan = _planned(where, scanned, what, temp_folder)
        try:
            direct = _direct(session, plan)
            if direct is not None:
                session.close()
                return direct.rows(columns)
            frame = frame.select(*[column(stored.get(name, name)) for name in names])
            physical = frame.execution_plan()
        except BaseException:
            session.close()
            raise
    schema = pa.schema([table.arrow_schema.field(name) for name in names])
    batches = interruptible(session.batches(frame, physical, schema, what))
    return Rows(batches, schema, transaction, rows_read=session.scans.rows_read)


def exact_read(table: ScannedTable, where: str, *, temp_folder: Path | None) -> NarrowedRead | None:
    """Return the read whose rows are all that meet a condition; None if each has to be tested.

    Nothing is read.

    Raises:
        QueryInvalid: it is not a condition, a column is unknown, or types do not fit.
    """
    what = f"where={shortened(where)!r}"
    plain = plain_read(where, table)
    if plain is not None:
        return plain
    scanned, _ = comparable_and_stored(table)
    with translated(what, table.arrow_schema.names):
        session, _, plan = _planned(where, scanned, what, temp_folder)
        try:
            return _direct(session, plan)
        finally:
            session.close()


def _direct(session: SqlSession, plan: Any) -> NarrowedRead | None:
    """Return the read whose rows are the result of a plan, with numbers as they are stored."""
    found = session.direct(plan)
    return found.stored if isinstance(found, ComparableRead) else found


def _planned(
    where: str, table: ScannedTable, what: str, temp_folder: Path | None
) -> tuple[SqlSession, Any, Any]:
    """Return a session, the rows of a table that meet a condition as a frame, and its plan."""
    if not isinstance(where, str):
        raise QueryInvalid(f"where must be a condition in SQL, such as 'n > 1', not {where!r}")
    check_operators(where)
    where = as_written(where)
    session, frame, plan = _planned_once(where, table, what, temp_folder, joins_lists=True)
    if joins_lists(where, frame, plan):
        session.close()
        return _planned_once(where, table, what, temp_folder, joins_lists=False)
    return session, frame, plan


def _planned_once(
    where: str, table: ScannedTable, what: str, temp_folder: Path | None, *, joins_lists: bool
) -> tuple[SqlSession, Any, Any]:
    tables = {table.name: table}
    session = SqlSession(tables, in_order=True, temp_folder=temp_folder, joins_lists=joins_lists)
    try:
        frame = session.view(table.name).filter(where)
        _refuse_subqueries(frame, what)
        check_written(where, frame, what)
        check_times(frame, what)
        plan = session.plan(frame)
        check_planned(frame, plan, what)
    except BaseException:
        session.close()
        raise
    return session, frame, plan


def _refuse_subqueries(frame: Any, what: str) -> None:
    shown = frame.logical_plan().display_indent().splitlines()
    if any(line.strip() == "Subquery:" for line in shown):
        raise QueryInvalid(
            f"{what} has a query inside, and a condition is about the columns of one row: use "
            "Table.sql() or Instance.sql() (on the command line `sleeper sql`)"
        )
