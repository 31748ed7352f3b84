"""An open table: its record and schema, its state, and the parts that reading it needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Self

import pyarrow as pa

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.read_leaves import TableReader, open_table_reader
from sleeper.errors import StorageFailed, TableNotFound
from sleeper.model.known_properties.typed import SCHEMA, TableProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import TableRecord
from sleeper.operations.delete_table import delete_objects
from sleeper.ports.objects import Objects
from sleeper.state.added_files import SweepGuard
from sleeper.state.state_store import TransactionLogStateStore
from sleeper.state.table_state import TableState
from sleeper.storage.checked_log import open_log
from sleeper.storage.object_log import ObjectSnapshotStore
from sleeper.table.instance_context import InstanceContext

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTable:
    """What one process has open for a table, by one record of it.

    Attributes:
        pid: The process; a forked child opens its own.
        record: The table's record that all of this was opened by.
        properties: The record's properties.
        files: The table's folder.
        store: The table's state.
        reader: What reads share: page indexes, a query engine, the table's processing.
        open_reader: Opens what `reader` is once more; may be pickled for another process.
    """

    pid: int
    record: TableRecord
    properties: TableProperties
    files: Objects
    store: TransactionLogStateStore
    reader: TableReader
    open_reader: Callable[[], TableReader]

    def sweep_guard(self) -> SweepGuard:
        """Return what checks the files of a job that begins now, before they are committed."""
        return SweepGuard(
            files=self.files,
            started=self.store.time(),
            orphan_age=timedelta(minutes=self.properties.gc.orphan_age_minutes),
        )


class TableHandle:
    """What every part of a `Table` stands on: opened at first use, and again after a fork."""

    def __init__(self, record: TableRecord, context: InstanceContext) -> None:
        self._context = context
        self._record = record
        self._opened: OpenedTable | None = None
        self.schema = Schema.from_json(record.properties[SCHEMA])
        self._arrow_schema = to_arrow(self.schema)
        self._properties = TableProperties(record.properties, context.properties)

    @property
    def name(self) -> str:
        """The table's name, as this handle last knew it."""
        return self._record.name

    @property
    def table_id(self) -> str:
        """The table's id: eight hex characters that never change."""
        return self._record.table_id

    @property
    def online(self) -> bool:
        """False when background operations leave the table alone (rule TBL-6)."""
        return self._record.online

    @property
    def properties(self) -> TableProperties:
        """The table's properties, as this handle last knew them."""
        return self._properties

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema as Arrow has it: row keys, sort keys, values."""
        return self._arrow_schema

    def state(self) -> TableState:
        """Return the table's state after every commit so far."""
        return self._current().store.refresh()

    def refresh(self) -> int:
        """See what others committed, and return the table's transaction number."""
        return self.state().number

    def _current(self) -> OpenedTable:
        """Return what is open, by the record that the index has now.

        Every public method begins with it, so none goes on with properties that were changed.

        Raises:
            TableNotFound: the table was deleted; without this its log would look empty.
        """
        record = self._context.index.by_id(self.table_id)
        if record is None:
            raise TableNotFound(
                f"table {self.name!r} ({self.table_id}) was deleted, with all its rows; "
                "open another table, or make it again"
            )
        return self._adopt(record)

    def _adopt(self, record: TableRecord) -> OpenedTable:
        """Go on with a record. What hangs on changed properties is opened anew."""
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            opened = self._open(record)
        elif opened.record.properties != record.properties:
            opened = self._open(record, store=opened.store)
        elif opened.record != record:
            opened = replace(opened, record=record)
        # Threads may adopt side by side: each goes on with what it returns.
        self._record, self._properties, self._opened = record, opened.properties, opened
        return opened

    def _open(
        self, record: TableRecord, store: TransactionLogStateStore | None = None
    ) -> OpenedTable:
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
        return OpenedTable(
            pid=os.getpid(),
            record=record,
            properties=properties,
            files=files,
            store=store or open_state_store(files, self.schema, properties, self._context),
            reader=open_reader(),
            open_reader=open_reader,
        )

    def _undo_commit_if_deleted(self) -> None:
        """Undo a commit to a table that was deleted while it was made."""
        try:
            self._current()
        except StorageFailed as failure:  # the commit was made; nobody may take it for failed
            _log.warning("whether table %s still exists is unknown: %s", self.name, failure)
            return
        except TableNotFound:
            try:
                delete_objects(self.table_id, self._context.objects)
            except StorageFailed as failure:
                _log.warning("files of deleted table %s are left behind: %s", self.name, failure)
            raise

    def close(self) -> None:
        """Let go of what this handle has open. Using it again opens it again."""
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


def open_state_store(
    files: Objects, schema: Schema, properties: TableProperties, context: InstanceContext
) -> TransactionLogStateStore:
    """Open the state store of the table whose folder is `files`. Nothing is read yet."""
    return TransactionLogStateStore(
        open_log(files, checks=context.commit_checks),
        ObjectSnapshotStore(files),
        schema,
        now=context.now,
        storage_time=context.storage_time,
        new_id=context.new_id,
        pause=context.pause,
        attempts=properties.statestore.commit_attempts,
    )
