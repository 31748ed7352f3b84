"""SQL about tables, and tables in other engines: only what conditions on row keys leave is read.

    1. a state of the table is given to the SQL engine as a `ScannedTable`
    2. the engine plans the statement, and asks the table for the rows of a condition
    3. the condition narrows the regions that are read; complete keys among them are looked up

A statement, a condition of `Table.query`, a LazyFrame of polars and a relation of DuckDB all read
a table in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sleeper.engine.reading.few_rows import FEW_ROWS
from sleeper.engine.reading.read_leaves import TableReader, check_whole_files
from sleeper.engine.rows import Rows
from sleeper.engine.sql.deletions import SqlDeletion, deletion_in
from sleeper.engine.sql.plain_statements import plain_rows
from sleeper.engine.sql.statements import Statement, rows_where
from sleeper.engine.sql.table_scan import NarrowedRead, ScannedTable, chosen_pages
from sleeper.engine.sql.whole_files import FILES_MAX, WholeFiles
from sleeper.errors import BadRequest, QueryInvalid
from sleeper.model.keys import Key
from sleeper.model.queries import checked_columns
from sleeper.model.ranges import Region, whole_region
from sleeper.model.tables import no_such_table
from sleeper.state.plans.key_conditions import Condition, narrow, single_keys
from sleeper.state.plans.queries import filenames_for, plan_leaf_queries
from sleeper.state.table_state import TableState
from sleeper.tables.open_table import OpenTable
from sleeper.tables.read_rows import query_key, query_keys, query_regions
from sleeper.tables.table_version import TableVersion

if TYPE_CHECKING:  # an extra, and slow to import
    import polars as pl

_FILES_EXPLAINED: Final = 100
"""Pages are counted by the indexes of files: of at most so many files."""


def sql(table: OpenTable, state: TableState, statement: str) -> Rows:
    """Return the rows of a statement about one state of one table (`Table.sql`)."""
    version = TableVersion(table.name, table.reader, state, table.now_ms())
    rows = statement_rows(statement, *_one_table(version))
    rows.transaction = state.number
    return rows


def deletion_asked_for(statement: object, names: Callable[[], Sequence[str]]) -> SqlDeletion | None:
    """Return what a DELETE statement asks for; None for any other statement.

    Args:
        statement: The statement.
        names: Returns the names of the tables that it may name.

    Raises:
        QueryInvalid: it names no such table, or has another form than a table and a condition.
    """
    found = deletion_in(statement)
    if found is not None and found.table not in (known := names()):
        raise QueryInvalid(no_such_table(found.table, known))
    return found


def check_deletes(if_unchanged_since: object) -> None:
    """Check that a statement that deletes nothing relies on no version.

    Raises:
        QueryInvalid: it does.
    """
    if if_unchanged_since is not None:
        raise QueryInvalid(
            "if_unchanged_since is for DELETE: other statements change nothing, so leave it out"
        )


def deletion_answer(rows: int | None, transaction: int) -> Rows:
    """Return the answer to a DELETE statement: one row, with how many rows went."""
    deleted = pa.table({"deleted": pa.array([rows], pa.int64())})
    return Rows.from_table(deleted, transaction=transaction)


def explain_sql(table: OpenTable, statement: str) -> str:
    """Return the plan of a statement, and what is read of the table (`Table.explain_sql`)."""
    return planned_statement(statement, *_one_table(TableVersion.newest(table))).explain()


def _one_table(
    version: TableVersion,
) -> tuple[Mapping[str, ScannedTable], Sequence[str], Path | None]:
    tables = {version.name: scanned_table(version)}
    return tables, [version.name], version.reading.temp_folder


def scan_polars(table: OpenTable, *, ordered: bool) -> pl.LazyFrame:
    """Return the newest state of a table as a LazyFrame (`Table.scan_polars`)."""
    if not isinstance(ordered, bool):
        raise BadRequest(f"ordered must be True or False, not {ordered!r}")
    from sleeper.engine.sql import other_engines

    return other_engines.scan_polars(scanned_table(TableVersion.newest(table), ordered=ordered))


def to_duckdb(table: OpenTable, connection: Any, name: str | None) -> None:
    """Register the newest state of a table in a connection to DuckDB (`Table.to_duckdb`)."""
    if not type(connection).__module__.lstrip("_").startswith("duckdb"):
        raise BadRequest(f"connection must be what duckdb.connect() returns, not {connection!r}")
    if name is not None and (type(name) is not str or not name):
        raise BadRequest(f"name must be a name for DuckDB, not {name!r}")
    from sleeper.engine.sql import other_engines

    dataset = other_engines.DuckdbDataset(scanned_table(TableVersion.newest(table)))
    connection.register(table.name if name is None else name, dataset)


def query_where(
    version: TableVersion,
    where: str,
    *,
    regions: Sequence[Region] | None = None,
    keys: Sequence[object] | None = None,
    columns: Sequence[str] | None = None,
    ordered: bool = True,
) -> Rows:
    """Return the rows of regions or keys that meet a condition in SQL.

    Args:
        version: The table and its state.
        where: The condition.
        regions: Where rows are read; the condition narrows them.
        keys: The complete row keys of the rows, instead of regions.
        columns: The columns to return, all without it.
        ordered: False for rows in any order.

    Raises:
        QueryInvalid: the condition, a key or the columns do not fit the schema.
        DataDamaged: a file of the table is missing or wrong.
    """
    reading = version.reading
    if keys is None:
        table = scanned_table(version, regions=regions, ordered=ordered)
    else:
        read = _KeysRead(version, keys)
        table = _scanned(version.name, reading, lambda _: read, may_merge=False)
    return rows_where(
        table,
        where,
        None if columns is None else checked_columns(reading.schema, columns),
        transaction=version.state.number,
        temp_folder=reading.temp_folder,
    )


def statement_rows(
    text: str,
    tables: Mapping[str, ScannedTable],
    names: Sequence[str],
    temp_folder: Path | None,
) -> Rows:
    """Return the rows of a statement; a plain one needs no plan.

    Args and Raises: as `planned_statement`.
    """
    rows = plain_rows(text, tables)
    return planned_statement(text, tables, names, temp_folder).rows() if rows is None else rows


def planned_statement(
    text: str,
    tables: Mapping[str, ScannedTable],
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


def named_in(text: object, names: Sequence[str]) -> list[str]:
    """Return the names that may be in a statement: it contains them, also as part of a word."""
    if not isinstance(text, str):
        return []
    plain = text.replace('""', '"')
    return [name for name in names if name in plain]


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

    may_merge = ordered or _may_merge(reading)
    row_count = partial(_row_count, version.state)
    return _scanned(version.name, reading, narrowed, may_merge=may_merge, row_count=row_count)


def scanned_lazily(table: OpenTable) -> ScannedTable:
    """Return a table whose state is read, once at most, when a statement needs its rows."""
    reading, now_ms = table.reader, table.now_ms()
    known_state = cache(table.store.refresh)

    def narrowed(condition: Condition) -> NarrowedRead:
        version = TableVersion(table.name, reading, known_state(), now_ms)
        return scanned_table(version).narrowed(condition)

    return _scanned(
        table.name,
        reading,
        narrowed,
        may_merge=_may_merge(reading),
        row_count=lambda: _row_count(known_state()),
    )


def _row_count(state: TableState) -> int:
    """Return how many rows the files of a table have; some counts may be estimates."""
    return sum(totals.rows for totals in state.files.totals().values())


def _scanned(
    name: str,
    reading: TableReader,
    narrowed: Callable[[Condition], NarrowedRead],
    *,
    may_merge: bool,
    row_count: Callable[[], int] | None = None,
) -> ScannedTable:
    key = reading.schema.names[0]
    shown = reading.shown_schema
    return ScannedTable(name, shown, key, narrowed, may_merge=may_merge, row_count=row_count)


def regions_read(read: NarrowedRead) -> Sequence[Region]:
    """Return the regions of a read of `scanned_table`."""
    assert isinstance(read, _RegionsRead)
    return read.regions


def _may_merge(reading: TableReader) -> bool:
    processing = reading.processing
    merges = bool(processing.aggregations) or processing.function is not None
    return merges or reading.files.is_remote


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

    def rows(self, columns: Sequence[str] | None, *, rows_max: int | None = None) -> Rows:
        """Return the rows; those of complete keys are looked up, and few others read in order."""
        reading, state, now_ms = self.version.reading, self.version.state, self.version.now_ms
        keys: list[Key] | None = single_keys(self.regions, reading.schema)
        if not keys:
            ordered = self.ordered or (rows_max is not None and rows_max <= FEW_ROWS)
            return query_regions(
                *(reading, state, self.regions, columns, now_ms),
                ordered=ordered,
                rows_max=rows_max,
            )
        if len(keys) == 1:
            return query_key(reading, state, keys[0], columns, now_ms)
        asked: list[object] = [key if len(key) > 1 else key[0] for key in keys]
        return query_keys(reading, state, asked, columns, now_ms)

    def whole_files(self, rows_min: int) -> WholeFiles | None:
        """Return the files of the table, if all their rows are read as they are."""
        reading, state = self.version.reading, self.version.state
        schema, files = reading.schema, state.files
        if self.ordered or [*self.regions] != [whole_region(schema)] or schema.last_id:
            return None
        if reading.files.is_remote or not reading.processing.is_identity:
            return None
        if not 0 < files.reference_count <= FILES_MAX or _row_count(state) < rows_min:
            return None
        if files.partly_referenced():
            return None
        plan = [leaf for group in plan_leaf_queries(state, self.regions) for leaf in group]
        size_bytes, is_exact = files.referenced_bytes()
        if not is_exact or any(leaf.hidden or leaf.key_files for leaf in plan):
            return None
        names = [*dict.fromkeys(name for leaf in plan for name in leaf.filenames)]
        return WholeFiles(
            paths=tuple(map(reading.files.url, names)),
            arrow_schema=reading.arrow_schema,
            size_bytes=size_bytes,
            check=partial(check_whole_files, reading, names),
        )

    def explain(self) -> str:
        """Return how many leaves, files and pages are read, of those that there are."""
        reading, state = self.version.reading, self.version.state
        plan = [leaf for group in plan_leaf_queries(state, self.regions) for leaf in group]
        regions_by_file: dict[str, list[Region]] = {}
        for leaf in plan:
            for name in leaf.filenames:
                if asked := leaf.regions_of(name):
                    regions_by_file.setdefault(name, []).extend(asked)
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

    def rows(self, columns: Sequence[str] | None, *, rows_max: int | None = None) -> Rows:
        """Return the rows, in key order."""
        version = self.version
        return query_keys(version.reading, version.state, self.keys, columns, version.now_ms)

    def whole_files(self, rows_min: int) -> WholeFiles | None:
        """Return None: few of their rows are read."""
        return None

    def explain(self) -> str:
        """Return what is read."""
        return f"{len(self.keys):,} keys"
