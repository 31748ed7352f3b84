"""The handle of a table: its record and schema, its state, and its readers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Self

import pyarrow as pa

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.read_leaves import TableReader, open_table_reader
from sleeper.errors import StorageFailed, TableNotFound
from sleeper.late_imports import late_imports
from sleeper.model.known_properties.typed import SCHEMA, TableProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove, TableRecord
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.table.instance_context import InstanceContext
from sleeper.table.state_stores import delete_states, store_of
from sleeper.value_classes import dataclass

with late_imports():
    from sleeper.operations.tables import delete_table
    from sleeper.state import added_files

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTable:
    """The objects that one process has open for a table, for one version of its record.

    Attributes:
        pid: The process; a forked child opens its own.
        record: The version of the table's record.
        properties: The record's properties.
        files: The table's folder.
        store: The table's state.
        reader: The readers, which all reads share: page indexes, query engine, processing.
        open_reader: Opens another `reader`; may be pickled for another process.
    """

    pid: int
    record: TableRecord
    properties: TableProperties
    files: Objects
    store: StateStore
    reader: TableReader
    open_reader: Callable[[], TableReader]

    def sweep_guard(self) -> added_files.SweepGuard:
        """Return the guard that checks files of a job that begins now, before their commit."""
        return added_files.SweepGuard(
            files=self.files,
            started=self.store.time(),
            orphan_age=timedelta(minutes=self.properties.gc.orphan_age_minutes),
        )


class TableHandle:
    """The base of `Table`: it opens the table at first use, and again after a fork."""

    def __init__(self, record: TableRecord, context: InstanceContext) -> None:
        self._context = context
        self._record = record
        self._opened: OpenedTable | None = None
        self.schema = Schema.from_json(record.properties[SCHEMA])
        self._arrow_schema = to_arrow(self.schema)
        self._properties = TableProperties(record.properties, context.properties)

    @property
    def name(self) -> str:
        """The table's name, as this handle last read it."""
        return self._record.name

    @property
    def table_id(self) -> str:
        """The table's id: eight hex characters that never change."""
        return self._record.table_id

    @property
    def online(self) -> bool:
        """False if background operations skip the table (rule TBL-6)."""
        return self._record.online

    @property
    def properties(self) -> TableProperties:
        """The table's properties, as this handle last read them."""
        return self._properties

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema: row keys, sort keys, values."""
        return self._arrow_schema

    @property
    def last_commit_s(self) -> float | None:
        """How many seconds the last commit by this handle took; None before the first."""
        return None if self._opened is None else self._opened.store.commit_s

    def state(self) -> TableState:
        """Return the table's state after every commit so far."""
        return self._current().store.refresh()

    def refresh(self) -> int:
        """Read new commits, and return the table's transaction number."""
        return self.state().number

    def _current(self) -> OpenedTable:
        """Return the open objects for the newest record in the index.

        Every public method calls it first, so that none uses outdated properties.

        Raises:
            TableNotFound: the table was deleted; without this check its log would look empty.
        """
        record = self._context.index.by_id(self.table_id)
        if record is None:
            raise TableNotFound(
                f"table {self.name!r} ({self.table_id}) was deleted, with all its rows; "
                "open another table, or create it again"
            )
        return self._adopt(record)

    def _adopt(self, record: TableRecord) -> OpenedTable:
        """Use a new record. Objects that depend on changed properties are opened again."""
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            opened = self._open(record)
        elif opened.record.properties != record.properties:
            opened = self._open(record, before=opened)
        elif opened.record != record:
            opened = replace(opened, record=record)
        # Threads may adopt concurrently: each uses its own result.
        self._record, self._properties, self._opened = record, opened.properties, opened
        return opened

    def _open(self, record: TableRecord, before: OpenedTable | None = None) -> OpenedTable:
        properties = TableProperties(record.properties, self._context.properties)
        files = self._context.objects.under(record.table_id)
        open_reader = partial(
            open_table_reader,
            files,
            self.schema,
            properties.processing(self.schema).allowing(self._context.allow_functions),
            temp_folder=self._context.temp_folder,
            stores=self._context.inputs.settings,
        )
        if before is not None and _state_place(before.properties) == _state_place(properties):
            store = before.store
        else:
            store = store_of(record, self._context)
        return OpenedTable(
            pid=os.getpid(),
            record=record,
            properties=properties,
            files=files,
            store=store,
            reader=open_reader(),
            open_reader=open_reader,
        )

    def _undo_commit_if_deleted(self) -> None:
        """Undo a commit to a table that was deleted while it was made."""
        try:
            self._current()
        except StorageFailed as failure:  # the commit was made and must not be reported as failed
            _log.warning("whether table %s still exists is unknown: %s", self.name, failure)
            return
        except TableNotFound:
            try:
                delete_states(self._record, self._context)
                delete_table.delete_objects(self.table_id, self._context.objects)
            except StorageFailed as failure:
                _log.warning("files of deleted table %s are left behind: %s", self.name, failure)
            raise

    def close(self) -> None:
        """Close open objects. The next use opens them again."""
        self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        reopen, arguments = self._context.reopen
        return reopen, (*arguments, self.table_id)

    def __repr__(self) -> str:
        return f"<Table {self.name!r} ({self.table_id}) of {self._context.url}>"


def _state_place(properties: TableProperties) -> tuple[str, StateMove | None]:
    return properties.state_store, properties.state_move
