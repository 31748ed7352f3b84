"""What Spark's processes need of a table.

The driver, which plans reads and commits writes, has the open table. Workers, which read and write
rows, have its files only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

from sleeper.engine.reading.read_leaves import TableReader, open_table_reader
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import QueryInvalid
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.model.processing import Processing
from sleeper.model.schema import Schema
from sleeper.ports.ids import NewId
from sleeper.ports.objects import Objects
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles

_TABLES_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """What a worker needs to read a table's files. Small, and picklable.

    Attributes:
        url: Where the files are; with schema and processing, the key of the cache of readers.
        files: The table's folder, as every worker reaches it.
        schema: The table's schema.
        processing: The filters and aggregations to apply.
        temp_folder: Where merges of very many files spill; None for the system's folder.
        stores: How DataFusion reaches files whose URL names a bucket.
    """

    url: str
    files: Objects = field(compare=False)
    schema: Schema
    processing: Processing
    temp_folder: Path | None
    stores: ObjectStoreSettings | None = field(default=None, compare=False)

    def as_of(self, state: TableState, store: StateStore) -> TableFiles:
        """Return what reads an old version, with the columns that the table had then.

        Args:
            state: The version.
            store: The table's state.

        Raises:
            QueryInvalid: filters or aggregations of the table name columns of later.
        """
        schema = state.schema_then(self.schema, store.known())
        if schema is self.schema:
            return self
        later = {*self.processing.needed_fields} - {*schema.names}
        if later or (self.processing.needs_all_fields and schema.names != self.schema.names):
            raise QueryInvalid(
                f"filters, aggregations or the function of the table fit its columns of now, and "
                f"not those of transaction {state.number}, {[*schema.columns]}: read a later one"
            )
        return replace(self, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable:
    """An open table, in the process that plans reads and commits writes.

    Attributes:
        table_files: What workers get.
        store: The table's state.
        log: Its transactions, one by one; None if its state store keeps none.
        write: How data files are written.
        memory_bytes: What a task's sort may hold.
        file_writing: How rows are divided into files, as the table's property says.
        job_id_kept: How long a job id is remembered.
        orphan_age: How old a file must be that a sweep deletes.
        now: The clock (aware, UTC).
        new_id: Fresh random ids; also called in workers.
        check_exists: Raises `TableNotFound` when the table was deleted.
        undo_commit_if_deleted: The same after a commit, which is undone.
        check_upsert: Raises `BadRequest` where rows cannot be replaced.
        commit_upsert: Commits new files, and the deletion of rows that have their keys.
    """

    table_files: TableFiles
    store: StateStore
    log: TransactionLog | None
    write: WriteSettings
    memory_bytes: int
    file_writing: str
    job_id_kept: timedelta
    orphan_age: timedelta
    now: Callable[[], datetime]
    new_id: NewId
    check_exists: Callable[[], object]
    undo_commit_if_deleted: Callable[[], None]
    check_upsert: Callable[[], None]
    commit_upsert: Callable[[AddFiles], TableState]

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        return self.table_files.schema

    def now_ms(self) -> int:
        """Return the present in milliseconds since 1970."""
        return int(self.now().timestamp() * 1000)


@lru_cache(maxsize=_TABLES_KEPT)
def cached_table_reader(table: TableFiles) -> TableReader:
    """Return the readers of a table, the same ones for as long as this process lives."""
    return open_table_reader(
        table.files,
        table.schema,
        table.processing,
        temp_folder=table.temp_folder,
        stores=table.stores,
    )
