"""An open table: its record and schema, its state, and the parts that reading it needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.read_leaves import TableReader, open_table_reader
from sleeper.errors import StorageFailed, TableNotFound
from sleeper.model.properties import SCHEMA, InstanceProperties, TableProperties
from sleeper.model.schema import Schema
from sleeper.model.tables import TableRecord
from sleeper.operations.delete_table import delete_objects
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.ports.table_index import TableIndex
from sleeper.state.state_store import TransactionLogStateStore
from sleeper.state.table_state import TableState
from sleeper.storage.object_log import ObjectSnapshotStore, ObjectTransactionLog
from sleeper.storage.objectstore.inputs import BucketInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceContext:
    """What a table stands on: the instance's adapters, its clock and its source of ids.

    Attributes:
        objects: Everything the instance stores, by key.
        index: Which tables there are.
        properties: The instance's properties.
        temp_folder: Where sorting may spill; None for the system's temporary folder.
        now: The clock (aware, UTC).
        new_id: Fresh random ids.
        pause: Waits before another attempt at a commit, given the attempt's number.
        inputs: Reads input files by URL, and knows how buckets are reached.
        environment: Environment variables, where Spark and its Java are looked for.
        reopen: Called by a copy in another process: `reopen[0](*reopen[1], table_id)`.
    """

    objects: Objects
    index: TableIndex
    properties: InstanceProperties
    temp_folder: Path | None
    now: Callable[[], datetime]
    new_id: NewId
    pause: Callable[[int], None]
    inputs: BucketInputs
    environment: Mapping[str, str]
    reopen: tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Opened:
    """What one process has open for a table; a forked child opens its own.

    `open_readers` opens what `reading` is once more, and may be pickled for another process.
    """

    pid: int
    files: Objects
    store: TransactionLogStateStore
    reading: TableReader
    open_readers: Callable[[], TableReader]


class TableHandle:
    """What every part of a `Table` stands on: opened at first use, and again after a fork."""

    def __init__(self, record: TableRecord, surroundings: InstanceContext) -> None:
        self._record = record
        self._context = surroundings
        self._opened: _Opened | None = None
        self.properties = TableProperties(record.properties, surroundings.properties)
        self.schema = Schema.from_json(record.properties[SCHEMA])
        self._arrow_schema = to_arrow(self.schema)

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
        """False when background operations leave the table alone (spec TBL-6)."""
        return self._record.online

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema as Arrow has it: row keys, sort keys, values."""
        return self._arrow_schema

    def state(self) -> TableState:
        """Return the table's state after every commit so far."""
        self._current_record()
        return self._open().store.refresh()

    def refresh(self) -> int:
        """See what others committed, and return the table's transaction number."""
        self._take(self._current_record())
        return self._open().store.refresh().number

    def _current_record(self) -> TableRecord:
        """What the index has now. A deleted table is told at once: its log would look empty."""
        record = self._context.index.by_id(self.table_id)
        if record is None:
            raise TableNotFound(
                f"table {self.name!r} ({self.table_id}) was deleted, with all its rows; "
                "open another table, or make it again"
            )
        return record

    def _undo_commit_if_deleted(self) -> None:
        """Undo a commit to a table that was deleted while it was made."""
        try:
            self._current_record()
        except StorageFailed:
            return  # the commit was made; nobody may take it for failed
        except TableNotFound:
            with suppress(StorageFailed):
                delete_objects(self.table_id, self._context.objects)
            raise

    def _take(self, record: TableRecord) -> None:
        """Go on with another record; whatever hangs on changed properties is opened anew."""
        changed = record.properties != self._record.properties
        self._record = record
        if changed:
            self.properties = TableProperties(record.properties, self._context.properties)
            self._opened = None

    def _open(self) -> _Opened:
        opened = self._opened
        if opened is not None and opened.pid == os.getpid():
            return opened
        around = self._context
        files = around.objects.under(self.table_id)
        store = open_state_store(files, self.schema, self.properties, around)
        open_readers = partial(
            open_table_reader,
            files,
            self.schema,
            self.properties.processing(self.schema),
            temp_folder=around.temp_folder,
            stores=around.inputs.settings,
        )
        self._opened = opened = _Opened(os.getpid(), files, store, open_readers(), open_readers)
        return opened

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
        return f"<Table {self.name!r} ({self.table_id}) of {self._context.reopen[1][0].url}>"


def open_state_store(
    files: Objects, schema: Schema, properties: TableProperties, around: InstanceContext
) -> TransactionLogStateStore:
    """Open the state store of the table whose folder is `files`. Nothing is read yet."""
    return TransactionLogStateStore(
        ObjectTransactionLog(files),
        ObjectSnapshotStore(files),
        schema,
        now=around.now,
        new_id=around.new_id,
        pause=around.pause,
        attempts=properties.statestore.commit_attempts,
    )
