"""The plan of one statement: its context, what it reads of each table, and its rows."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.reading.session import datafusion, new_context, node_names
from sleeper.engine.rows import Rows
from sleeper.engine.sql.failures import translated
from sleeper.engine.sql.float_aggregates import register_functions
from sleeper.engine.sql.plans import (
    SIMPLIFY,
    STORED,
    BarredTable,
    conditions_of,
    direct_read,
    rows_limit,
)
from sleeper.engine.sql.table_scan import (
    NarrowedRead,
    OpenScan,
    OpenScans,
    ScannedTable,
    ScanStream,
    TableDataset,
    check_row_count,
)
from sleeper.engine.sql.whole_files import (
    ROWS_MIN,
    SETTINGS_OF_FILES,
    WholeFiles,
    batch_settings,
    frame_of,
)
from sleeper.state.plans.key_conditions import UNKNOWN

# ---------------------------------------------------------------- contexts
#
# DataFusion contexts with tables, which statements use one after the other.
#
# To make a context and to register its tables takes half a millisecond, which is more than a look-
# up by key. So a few contexts are kept, each with the tables of one kind of statement. They have
# the columns of tables, and no rows: what a scan reads is decided by the statement that plans it.

MEMORY_BYTES: Final = 1 << 30
"""Memory for sorting, grouping and joining in one statement; more is spilled to the temp folder."""

_IDLE_MAX: Final = 8
_ALWAYS: Final = "random() >= 0"  # not known to be true before it is computed
_CATALOG, _SCHEMA = "sleeper", "tables"
_SETTINGS: Final = {
    # Names are written as they are in the table; functions and key words in either case.
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.catalog.information_schema": "false",
    "datafusion.catalog.create_default_catalog_and_schema": "true",
    "datafusion.catalog.default_catalog": _CATALOG,
    "datafusion.catalog.default_schema": _SCHEMA,
}


class SqlContext:
    """A context of DataFusion with some tables.

    Args:
        tables: The tables, by name.
        partitions: How many parts of the rows are computed at once.
        temp_folder: Where sorting and grouping spill; None for the system's temp folder.
        settings: More settings of DataFusion.
        keep_limits: True to keep the LIMIT above each table where it is, by a condition above it
            that is true of every row. It costs a little for each row.
        joins_lists: False to plan without the rule that joins lists (`joined_lists`), which also
            computes constants and puts conditions into the forms that narrow what is read.

    Attributes:
        context: The context of DataFusion.
        views: The tables as frames of DataFusion, by name.
        datasets: What is scanned for each of them.
        has_float_functions: Whether statements may call the functions of `float_aggregates`.
    """

    def __init__(
        self,
        tables: Mapping[str, BarredTable],
        partitions: int,
        temp_folder: Path | None,
        *,
        settings: Mapping[str, str],
        keep_limits: bool = False,
        joins_lists: bool = True,
    ) -> None:
        module = datafusion()
        self.context = new_context(
            {**_SETTINGS, **settings},
            partitions=partitions,
            memory_bytes=IDLE.memory_bytes,
            temp_folder=temp_folder,
        )
        if not joins_lists:
            was_there = self.context.remove_optimizer_rule(SIMPLIFY)
            assert was_there, f"DataFusion has no rule {SIMPLIFY}"
        self.has_float_functions = False
        self._keep_limits = keep_limits
        self._limits = {name: table.limit for name, table in tables.items()}
        self.views: dict[str, Any] = {}
        catalog = self.context.catalog(_CATALOG)
        catalog.register_schema(STORED, module.catalog.Schema.memory_schema())
        self.datasets = {name: TableDataset(name, table.schema) for name, table in tables.items()}
        for name, dataset in self.datasets.items():
            self._register(name, dataset)

    def _register(self, name: str, rows: Any) -> None:
        """Register what has the rows of a table, and the view on it that statements name."""
        table_of = datafusion().catalog.Table
        catalog = self.context.catalog(_CATALOG)
        stored, named = catalog.schema(STORED), catalog.schema(_SCHEMA)
        if name in self.views:
            stored.deregister_table(name)
            named.deregister_table(name)
        stored.register_table(name, table_of(rows))
        place = f'{STORED}."{name.replace(chr(34), chr(34) * 2)}"'
        limited = self.context.table(place).limit(self._limits[name])
        self.views[name] = limited.filter(_ALWAYS) if self._keep_limits else limited
        named.register_table(name, table_of(self.views[name]))

    @contextmanager
    def reading(self, frames: Mapping[str, Any]) -> Iterator[None]:
        """Let statements that are planned inside read frames in place of the datasets of tables."""
        try:
            for name, frame in frames.items():
                self._register(name, frame)
            yield
        finally:
            for name in frames:
                self._register(name, self.datasets[name])

    def use_float_functions(self) -> None:
        """Register the functions of rewritten statements; few statements need them."""
        if not self.has_float_functions:
            register_functions(self.context)
            self.has_float_functions = True

    def use(self, open_scan: OpenScan | None) -> None:
        """Let scans that are planned from now on be those of a statement."""
        for dataset in self.datasets.values():
            dataset.open_scan = open_scan


class IdleContexts:
    """The contexts that no statement uses, up to a number of them: the last used ones.

    Attributes:
        memory_bytes: The memory of contexts that are made from now on, for sorting, grouping and
            joining.
    """

    def __init__(self) -> None:
        self.memory_bytes = MEMORY_BYTES
        self._idle: OrderedDict[Any, list[SqlContext]] = OrderedDict()
        self._lock = Lock()

    def take(self, key: Any, make: Callable[[], SqlContext]) -> SqlContext:
        """Return an idle context of a kind, or a new one."""
        datafusion()  # raises in a child of a process that used it
        with self._lock:
            known = self._idle.get((os.getpid(), key))
            if known:
                return known.pop()
        return make()

    def give_back(self, key: Any, context: SqlContext) -> None:
        """Let other statements use a context."""
        context.use(None)
        with self._lock:
            place = (os.getpid(), key)
            self._idle.setdefault(place, []).append(context)
            self._idle.move_to_end(place)
            while sum(map(len, self._idle.values())) > _IDLE_MAX:
                self._idle.popitem(last=False)


IDLE: Final = IdleContexts()


PARTITIONS = max(1, min(4, (os.cpu_count() or 1) // 2))
"""How many parts of the rows a statement computes at once: half of the processors, for our readers
decode in threads of their own. To deal rows out to more parts costs up to a third of the time."""

PARTITIONS_OF_FILES = min(8, os.cpu_count() or 1)
"""The same where DataFusion reads files by itself, and so decodes in these parts."""


class SqlSession:
    """Plans one statement or condition over some tables, and runs it.

    Args:
        tables: The tables, by name.
        in_order: True if rows must stay in the order in which they are read.
        temp_folder: Where sorting and grouping spill; None for the system's temp folder.
        keep_limits, joins_lists: As for `SqlContext`.
        joined: The tables that the statement may join.

    Attributes:
        scans: The reads of the statement.
        reads: What is read of each table, once the statement is planned.
    """

    def __init__(
        self,
        tables: Mapping[str, ScannedTable],
        *,
        in_order: bool,
        temp_folder: Path | None,
        keep_limits: bool = False,
        joins_lists: bool = True,
        joined: Collection[str] = (),
    ) -> None:
        self.scans = OpenScans()
        self.reads: dict[str, NarrowedRead] = {}
        self._tables = tables
        self._temp_folder = temp_folder
        self._barred = {
            name: BarredTable(table.arrow_schema, _limit(table, is_joined=name in joined))
            for name, table in tables.items()
        }
        self._columns_read: dict[str, set[str]] = {name: set() for name in tables}
        one_partition = in_order or any(table.may_merge for table in tables.values())
        self._keep_limits, self._joins_lists = keep_limits, joins_lists
        self._partitions_of_files = 1 if one_partition else PARTITIONS_OF_FILES
        self._context: SqlContext | None = None
        self._take_context(1 if one_partition else PARTITIONS, {})

    def _take_context(self, partitions: int, settings: Mapping[str, str]) -> None:
        """Use a context, in place of the one that was used."""
        self._give_back()
        kind = (self._temp_folder, self._keep_limits, self._joins_lists, partitions)
        self._kind = (tuple(self._barred.items()), *kind, *settings.items())
        make = partial(
            SqlContext,
            self._barred,
            partitions,
            self._temp_folder,
            settings=settings,
            keep_limits=self._keep_limits,
            joins_lists=self._joins_lists,
        )
        self._context = IDLE.take(self._kind, make)
        self._context.use(self._open_scan)

    def _give_back(self) -> None:
        context, self._context = self._context, None
        if context is not None:
            IDLE.give_back(self._kind, context)

    @property
    def context(self) -> Any:
        """The context of DataFusion."""
        assert self._context is not None, "the statement has ended"
        return self._context.context

    @property
    def columns(self) -> list[str]:
        """The names of all columns of all tables."""
        tables = self._barred.values()
        return [*dict.fromkeys(name for table in tables for name in table.schema.names)]

    def view(self, name: str) -> Any:
        """Return a table as a frame of DataFusion."""
        assert self._context is not None, "the statement has ended"
        return self._context.views[name]

    def use_float_functions(self) -> None:
        """Let the statement call the functions of `float_aggregates`."""
        assert self._context is not None, "the statement has ended"
        self._context.use_float_functions()

    def close(self) -> None:
        """Stop all reads, and let other statements use the context. Calling it again is allowed."""
        self.scans.close()
        self._give_back()

    def plan(self, frame: Any) -> Any:
        """Return the optimized plan of a frame, and note what it reads of each table."""
        plan = frame.optimized_logical_plan()
        for name, condition in conditions_of(plan, self._barred).items():
            self.reads[name] = self._tables[name].narrowed(condition)
        return plan

    def columns_read(self, name: str) -> list[str]:
        """Return the columns that the planned scans of a table need, one at least."""
        names = self._barred[name].schema.names
        return [each for each in names if each in self._columns_read[name]] or [
            self._tables[name].key
        ]

    def direct(self, plan: Any) -> NarrowedRead | None:
        """Return the read whose rows are the result of a plan, if there is nothing else to do."""
        found = direct_read(plan, self._barred)
        if found is None:
            return None
        read = self.reads[found.table]
        return read if found.condition is None or read.is_exact else None

    def whole_files(self, bytes_max: int) -> dict[str, WholeFiles]:
        """Return the tables of which DataFusion reads all files by itself, once all is planned.

        Args:
            bytes_max: How many bytes all these files may have.
        """
        found, left = dict[str, WholeFiles](), bytes_max
        for name, read in self.reads.items():
            files = read.whole_files(ROWS_MIN) if left else None
            if files is None or files.size_bytes > left:
                continue
            if files.changed.isdisjoint(self.columns_read(name)):
                found[name] = files
                left -= files.size_bytes
        return found

    def over_whole_files(
        self, files: Mapping[str, WholeFiles], plan: Callable[[], tuple[Any, Any]], stack: ExitStack
    ) -> tuple[Any, Any]:
        """Check files, and plan the statement over them; `stack` is closed when it has ended.

        Args:
            files: The files, by table.
            plan: Returns the statement as a frame, and its physical plan.
            stack: Gets what must last while rows are read.

        Returns:
            The frame, and its physical plan.

        Raises:
            DataDamaged: a page is damaged.
            StorageFailed: a file cannot be read.
        """
        assert self._context is not None, "the statement has ended"
        has_functions = self._context.has_float_functions
        reads = (partial(self.reads[name].rows, self.columns_read(name)) for name in files)
        settings = {**SETTINGS_OF_FILES, **batch_settings(reads)}
        self._take_context(self._partitions_of_files, settings)
        if has_functions:
            self._context.use_float_functions()
        frames = {}
        for name, own in files.items():
            names = self._barred[name].schema.names
            frame = frame_of(self.context, own, names, stack, self._temp_folder)
            if frame is None:
                continue
            frames[name] = frame
            row_count = own.check(self.columns_read(name))
            check_row_count(row_count, self._barred[name].limit)
            self.scans.add_rows(row_count)
        with self._context.reading(frames):
            return plan()

    def batches(
        self, frame: Any, physical: Any, schema: pa.Schema, what: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a frame; closing the iterator stops all reads.

        A plan may have several partitions, which DataFusion then reads into one stream.

        Args:
            frame: The frame.
            physical: Its physical plan.
            schema: The names and types of its columns.
            what: The statement, for messages.
        """
        try:
            with translated(what, self.columns, self.scans):
                is_one = physical.partition_count == 1
                stream = self.context.execute(physical, 0) if is_one else frame.execute_stream()
                for batch in stream:
                    yield _with_schema(batch.to_pyarrow(), schema)
        finally:
            self.close()

    def _open_scan(self, name: str, columns: Sequence[str]) -> Callable[[], ScanStream]:
        self._columns_read[name].update(columns)

        def rows() -> Rows:
            if name not in self.reads:  # a scan that was not found in the plan
                self.reads[name] = self._tables[name].narrowed(UNKNOWN)
            if columns:
                return self.reads[name].rows(columns)
            return _counted(self.reads[name], self.columns_read(name)[:1])

        return partial(self.scans.open, rows, self._barred[name].limit)


def _limit(table: ScannedTable, *, is_joined: bool) -> int:
    """Return the LIMIT above a table, which tells joins how large it is."""
    if not is_joined or table.row_count is None:
        return rows_limit(None)
    return rows_limit(table.row_count())


def _counted(read: NarrowedRead, column: Sequence[str]) -> Rows:
    """Return rows without columns: count(*) asks how many there are, not which."""
    with read.rows(column) as rows:
        counted = pa.Table.from_arrays([pa.nulls(rows.count())], names=["counted"])
        return Rows.from_table(counted.select([]), transaction=rows.transaction)


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    pairs = zip(batch.columns, schema, strict=True)
    columns = [each if each.type == field.type else each.cast(field.type) for each, field in pairs]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def spawns_tasks(physical: Any) -> bool:
    """Return whether a plan is run by several tasks, and not by the thread that asks for rows."""
    nodes = [physical]
    while nodes:
        node = nodes.pop()
        if node.partition_count != 1:
            return True
        nodes += node.children()
    names = node_names(physical)
    return any(name.startswith(("Analyze", "ScalarSubquery")) for name in names)
