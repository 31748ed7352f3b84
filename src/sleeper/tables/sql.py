"""Reads tables for conditions and statements in SQL: only what conditions on row keys leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from sleeper.engine.read_leaves import TableReader
from sleeper.engine.rows import Rows
from sleeper.engine.sql.statements import Statement, rows_where
from sleeper.engine.sql.table_scan import NarrowedRead, ScannedTable, chosen_pages
from sleeper.model.keys import Key
from sleeper.model.queries import checked_columns
from sleeper.model.ranges import Region, whole_region
from sleeper.model.tables import no_such_table
from sleeper.state.plans.key_conditions import Condition, narrow, single_keys
from sleeper.state.plans.queries import filenames_for, plan_leaf_queries
from sleeper.state.table_state import TableState
from sleeper.tables.query import query_key, query_keys, query_regions

_FILES_EXPLAINED: Final = 100
"""Pages are counted by the indexes of files: of at most so many files."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One state of a table, and what reads it.

    Attributes:
        name: The table's name.
        reading: The table's readers.
        state: The state.
        now_ms: The current time in milliseconds since 1970, for filters by age.
    """

    name: str
    reading: TableReader
    state: TableState
    now_ms: int


def scanned_table(
    version: TableVersion, *, regions: Sequence[Region] | None = None, ordered: bool = False
) -> ScannedTable:
    """Return a state of a table for the SQL engine.

    Args:
        version: The table and its state.
        regions: The rows to read, all without them.
        ordered: True to read rows in key order.
    """
    reading = version.reading
    asked = [whole_region(reading.schema)] if regions is None else regions

    def narrowed(condition: Condition) -> _RegionsRead:
        found = narrow(asked, condition, reading.schema)
        # A table's function may return other keys than it was given.
        is_exact = found.is_exact and reading.processing.function is None
        return _RegionsRead(version, found.regions, is_exact, ordered)

    return _scanned(version.name, reading, narrowed, may_merge=ordered or _may_merge(reading))


def scanned_lazily(
    name: str, reading: TableReader, state: Callable[[], TableState], now_ms: int
) -> ScannedTable:
    """Return a table whose state is read when a statement needs its rows.

    Args:
        name: The table's name.
        reading: The table's readers.
        state: Reads the state; called once at most.
        now_ms: The current time in milliseconds since 1970, for filters by age.
    """
    known_state = cache(state)

    def narrowed(condition: Condition) -> NarrowedRead:
        version = TableVersion(name, reading, known_state(), now_ms)
        return scanned_table(version).narrowed(condition)

    return _scanned(name, reading, narrowed, may_merge=_may_merge(reading))


def _scanned(
    name: str,
    reading: TableReader,
    narrowed: Callable[[Condition], NarrowedRead],
    *,
    may_merge: bool,
) -> ScannedTable:
    key = reading.schema.names[0]
    return ScannedTable(name, reading.shown_schema, key, narrowed, may_merge=may_merge)


def _may_merge(reading: TableReader) -> bool:
    processing = reading.processing
    merges = bool(processing.aggregations) or processing.function is not None
    return merges or reading.files.is_remote


def query_where(
    reading: TableReader,
    state: TableState,
    columns: Sequence[str] | None,
    now_ms: int,
    *,
    where: str,
    name: str,
    regions: Sequence[Region] | None = None,
    keys: Sequence[object] | None = None,
    ordered: bool = True,
) -> Rows:
    """Return the rows of regions or keys that meet a condition in SQL.

    Args:
        reading, state: The table.
        columns: The columns to return, all without it.
        now_ms: The current time in milliseconds since 1970, for filters by age.
        where: The condition.
        name: The table's name.
        regions: Where rows are read; the condition narrows them.
        keys: The complete row keys of the rows, instead of regions.
        ordered: False for rows in any order.

    Raises:
        QueryInvalid: the condition, a key or the columns do not fit the schema.
        DataDamaged: a file of the table is missing or wrong.
    """
    version = TableVersion(name, reading, state, now_ms)
    if keys is None:
        table = scanned_table(version, regions=regions, ordered=ordered)
    else:
        read = _KeysRead(version, keys)
        table = _scanned(name, reading, lambda _: read, may_merge=False)
    return rows_where(
        table,
        where,
        None if columns is None else checked_columns(reading.schema, columns),
        transaction=state.number,
        temp_folder=reading.temp_folder,
    )


def planned_statement(
    text: str,
    tables: Mapping[str, ScannedTable],
    *,
    names: Sequence[str],
    temp_folder: Path | None,
) -> Statement:
    """Return a statement that is planned over tables, and reads nothing yet.

    Args:
        text: The statement.
        tables: The tables that it may name, by name.
        names: The names of all tables that there are, for messages.
        temp_folder: Where sorting and grouping spill; None for the system's temp folder.

    Raises:
        QueryInvalid: it is not a statement that reads, or names what there is not.
    """

    def no_such(name: str) -> str:
        return no_such_table(name, names)

    return Statement(text, tables, no_such_table=no_such, temp_folder=temp_folder)


def query_sql(
    reading: TableReader,
    state: TableState,
    columns: None,
    now_ms: int,
    *,
    statement: str,
    name: str,
) -> Rows:
    """Return the rows of a statement about one table.

    Args:
        reading, state: The table.
        columns: None.
        now_ms: The current time in milliseconds since 1970, for filters by age.
        statement: The statement.
        name: The table's name.

    Raises:
        QueryInvalid: it is not a statement that reads, or names what there is not.
        DataDamaged: a file of the table is missing or wrong; raised while rows are read.
    """
    rows = _about_one_table(statement, TableVersion(name, reading, state, now_ms)).rows()
    rows.transaction = state.number
    return rows


def explain_sql(
    reading: TableReader, state: TableState, now_ms: int, *, statement: str, name: str
) -> str:
    """Return the plan of a statement about one table, and what is read of it.

    Args and Raises: as `query_sql`.
    """
    return _about_one_table(statement, TableVersion(name, reading, state, now_ms)).explain()


def _about_one_table(text: str, version: TableVersion) -> Statement:
    tables = {version.name: scanned_table(version)}
    folder = version.reading.temp_folder
    return planned_statement(text, tables, names=[version.name], temp_folder=folder)


def named_in(text: object, names: Sequence[str]) -> list[str]:
    """Return the names that may be in a statement: it contains them, also as part of a word."""
    if not isinstance(text, str):
        return []
    plain = text.replace('""', '"')
    return [name for name in names if name in plain]


@dataclass(frozen=True, slots=True)
class _RegionsRead:
    """The read of regions; `is_exact` as in `NarrowedRegions`."""

    version: TableVersion
    regions: Sequence[Region]
    is_exact: bool
    ordered: bool

    @property
    def transaction(self) -> int:
        """The transaction number of the state."""
        return self.version.state.number

    def rows(self, columns: Sequence[str] | None) -> Rows:
        """Return the rows; those of complete keys are looked up."""
        reading, state, now_ms = self.version.reading, self.version.state, self.version.now_ms
        keys: list[Key] | None = single_keys(self.regions, reading.schema)
        if not keys:
            return query_regions(
                reading, state, self.regions, columns, now_ms, ordered=self.ordered
            )
        if len(keys) == 1:
            return query_key(reading, state, keys[0], columns, now_ms)
        asked: list[object] = [key if len(key) > 1 else key[0] for key in keys]
        return query_keys(reading, state, asked, columns, now_ms)

    def explain(self) -> str:
        """Return how many leaves, files and pages are read, of those that there are."""
        reading, state = self.version.reading, self.version.state
        plan = [leaf for group in plan_leaf_queries(state, self.regions) for leaf in group]
        regions_by_file: dict[str, list[Region]] = {}
        for leaf in plan:
            for name in leaf.filenames:
                regions_by_file.setdefault(name, []).extend(leaf.regions)
        every_leaf = [*state.tree.leaves()]
        every_file = {name for leaf in every_leaf for name in filenames_for(state, leaf)}
        text = (
            f"{len(plan)} of {len(every_leaf)} leaves, {len(regions_by_file)} of "
            f"{len(every_file)} files"
        )
        if len(regions_by_file) <= _FILES_EXPLAINED:
            pages = [
                chosen_pages(reading.lookup, name, regions, reading.arrow_schema)
                for name, regions in regions_by_file.items()
            ]
            text += f", {sum(n for n, _ in pages)} of {sum(n for _, n in pages)} pages of these"
        keys = single_keys(self.regions, reading.schema)
        return f"{text}; {len(keys):,} complete keys, looked up" if keys else text


@dataclass(frozen=True, slots=True)
class _KeysRead:
    """The read of complete row keys that were asked for."""

    version: TableVersion
    keys: Sequence[object]
    is_exact: bool = False

    @property
    def transaction(self) -> int:
        """The transaction number of the state."""
        return self.version.state.number

    def rows(self, columns: Sequence[str] | None) -> Rows:
        """Return the rows, in key order."""
        version = self.version
        return query_keys(version.reading, version.state, self.keys, columns, version.now_ms)

    def explain(self) -> str:
        """Return what is read."""
        return f"{len(self.keys):,} keys"
