"""The plan of one statement: its context, what it reads of each table, and its rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.engine.scan.merge import node_names
from sleeper.engine.sql.contexts import IDLE, SqlContext
from sleeper.engine.sql.failures import translated
from sleeper.engine.sql.plans import conditions_of, direct_read
from sleeper.engine.sql.scans.scanned_table import NarrowedRead, ScannedTable
from sleeper.engine.sql.scans.streams import OpenScans, ScanStream
from sleeper.state.plans.key_conditions import UNKNOWN

_PARTITIONS_MAX: Final = 4


class SqlSession:
    """Plans one statement or condition over some tables, and runs it.

    Args:
        tables: The tables, by name.
        in_order: True if rows must stay in the order in which they are read.
        temp_folder: Where sorting and grouping spill; None for the system's temp folder.
        keep_limits, joins_lists: As for `SqlContext`.

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
    ) -> None:
        self.scans = OpenScans()
        self.reads: dict[str, NarrowedRead] = {}
        self._tables = tables
        self._schemas = {name: table.arrow_schema for name, table in tables.items()}
        self._columns_read: dict[str, set[str]] = {name: set() for name in tables}
        one_partition = in_order or any(table.may_merge for table in tables.values())
        partitions = 1 if one_partition else min(_PARTITIONS_MAX, os.cpu_count() or 1)
        options = {"keep_limits": keep_limits, "joins_lists": joins_lists}
        self._kind = (tuple(self._schemas.items()), partitions, temp_folder, *options.values())
        make = partial(SqlContext, self._schemas, partitions, temp_folder, **options)
        self._context: SqlContext | None = IDLE.take(self._kind, make)
        self._context.use(self._open_scan)

    @property
    def context(self) -> Any:
        """The context of DataFusion."""
        assert self._context is not None, "the statement has ended"
        return self._context.context

    @property
    def columns(self) -> list[str]:
        """The names of all columns of all tables."""
        return [*dict.fromkeys(name for schema in self._schemas.values() for name in schema.names)]

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
        context, self._context = self._context, None
        if context is not None:
            IDLE.give_back(self._kind, context)

    def plan(self, frame: Any) -> Any:
        """Return the optimized plan of a frame, and note what it reads of each table."""
        plan = frame.optimized_logical_plan()
        for name, condition in conditions_of(plan, self._schemas).items():
            self.reads[name] = self._tables[name].narrowed(condition)
        return plan

    def columns_read(self, name: str) -> list[str]:
        """Return the columns that the planned scans of a table need, one at least."""
        names = self._schemas[name].names
        return [each for each in names if each in self._columns_read[name]] or [
            self._tables[name].key
        ]

    def direct(self, plan: Any) -> NarrowedRead | None:
        """Return the read whose rows are the result of a plan, if there is nothing else to do."""
        found = direct_read(plan, self._schemas)
        if found is None:
            return None
        read = self.reads[found.table]
        return read if found.condition is None or read.is_exact else None

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

        return partial(self.scans.open, rows)


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
