"""The DataFusion context of one statement: its tables, its memory and its reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.rows import Rows
from sleeper.engine.scan.merge import node_names
from sleeper.engine.scan.session import datafusion
from sleeper.engine.sql.failures import translated
from sleeper.engine.sql.plans import ROWS_MAX, STORED, conditions_of, direct_read
from sleeper.engine.sql.scanned_table import NarrowedRead, ScannedTable
from sleeper.engine.sql.streams import OpenScans
from sleeper.engine.sql.table_dataset import Read, TableDataset
from sleeper.planning.key_conditions import UNKNOWN

MEMORY_BYTES: Final = 1 << 30
"""Memory for sorting, grouping and joining in one statement; more is spilled to the temp folder."""

_PARTITIONS_MAX: Final = 4
_CATALOG, _SCHEMA = "sleeper", "tables"
_SETTINGS: Final = {
    # Names are written as they are in the table; functions and key words in either case.
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.catalog.information_schema": "false",
}


class SqlSession:
    """Plans one statement or condition over some tables, and runs it.

    Args:
        tables: The tables, by name.
        in_order: True if rows must stay in the order in which they are read.
        temp_folder: Where sorting and grouping spill; None for the system's temp folder.

    Attributes:
        scans: The reads of the statement.
        reads: What is read of each table, once the statement is planned.
    """

    def __init__(
        self, tables: Mapping[str, ScannedTable], *, in_order: bool, temp_folder: Path | None
    ) -> None:
        self.scans = OpenScans()
        self.reads: dict[str, NarrowedRead] = {}
        self._tables = tables
        self._schemas = {name: table.arrow_schema for name, table in tables.items()}
        one_partition = in_order or any(table.may_merge for table in tables.values())
        partitions = 1 if one_partition else min(_PARTITIONS_MAX, os.cpu_count() or 1)
        self.context = _new_context(partitions, temp_folder)
        self._datasets: dict[str, TableDataset] = {}
        self._views = self._register()

    @property
    def columns(self) -> list[str]:
        """The names of all columns of all tables."""
        return [*dict.fromkeys(name for schema in self._schemas.values() for name in schema.names)]

    def view(self, name: str) -> Any:
        """Return a table as a frame of DataFusion."""
        return self._views[name]

    def plan(self, frame: Any) -> Any:
        """Return the optimized plan of a frame, and note what it reads of each table."""
        plan = frame.optimized_logical_plan()
        for name, condition in conditions_of(plan, self._schemas).items():
            self.reads[name] = self._tables[name].narrowed(condition)
        return plan

    def columns_read(self, name: str) -> list[str]:
        """Return the columns that the planned scans of a table need, one at least."""
        asked = self._datasets[name].columns_asked
        return [each for each in self._schemas[name].names if each in asked] or (
            self._schemas[name].names[:1]
        )

    def direct(self, plan: Any) -> NarrowedRead | None:
        """Return the read whose rows are the result of a plan, if there is nothing else to do."""
        found = direct_read(plan, self._schemas)
        if found is None:
            return None
        read = self.reads[found.table]
        return read if found.condition is None or read.is_exact else None

    def physical_plan(self, frame: Any) -> Any:
        """Return the physical plan of a frame, with one partition."""
        physical = frame.execution_plan()
        if physical.partition_count != 1:
            physical = frame.limit(ROWS_MAX).execution_plan()
        return physical

    def batches(self, physical: Any, schema: pa.Schema, what: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a physical plan; closing the iterator stops all reads.

        Args:
            physical: The plan.
            schema: The names and types of its columns.
            what: The statement, for messages.
        """
        try:
            with translated(what, self.columns, self.scans):
                for batch in self.context.execute(physical, 0):
                    yield _with_schema(batch.to_pyarrow(), schema)
        finally:
            self.scans.close()

    def _register(self) -> dict[str, Any]:
        module = datafusion()
        catalog = self.context.catalog(_CATALOG)
        catalog.register_schema(STORED, module.catalog.Schema.memory_schema())
        stored, named = catalog.schema(STORED), catalog.schema(_SCHEMA)
        views = {}
        for name, table in self._tables.items():
            dataset = TableDataset(table.arrow_schema, self._reader(name), self.scans)
            self._datasets[name] = dataset
            stored.register_table(name, module.catalog.Table(dataset))
            place = f'{STORED}."{name.replace(chr(34), chr(34) * 2)}"'
            views[name] = self.context.table(place).limit(ROWS_MAX)
            named.register_table(name, module.catalog.Table(views[name]))
        return views

    def _reader(self, name: str) -> Read:
        def rows(columns: Sequence[str]) -> Rows:
            if name not in self.reads:  # a scan that was not found in the plan
                self.reads[name] = self._tables[name].narrowed(UNKNOWN)
            return self.reads[name].rows(columns)

        return rows


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


def _new_context(partitions: int, temp_folder: Path | None) -> Any:
    module = datafusion()
    settings = (
        module.SessionConfig()
        .with_target_partitions(partitions)
        .with_create_default_catalog_and_schema(enabled=True)
        .with_default_catalog_and_schema(_CATALOG, _SCHEMA)
    )
    for name, value in _SETTINGS.items():
        settings = settings.set(name, value)
    runtime = module.RuntimeEnvBuilder().with_fair_spill_pool(MEMORY_BYTES)
    if temp_folder is None:
        runtime = runtime.with_disk_manager_os()
    else:
        runtime = runtime.with_disk_manager_specified(str(temp_folder))
    return module.SessionContext(settings, runtime)
