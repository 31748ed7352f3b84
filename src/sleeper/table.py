"""A table as its user holds it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.lookup.reader import LookupReader
from sleeper.engine.read import Scanner
from sleeper.engine.rows import Rows
from sleeper.engine.sort import SortSettings
from sleeper.engine.write import write_settings
from sleeper.errors import QueryInvalid, StorageFailed, TableNotFound
from sleeper.model.files import FileReference
from sleeper.model.partitions import split_points_of
from sleeper.model.properties import SCHEMA, InstanceProperties, TableProperties
from sleeper.model.queries import RegionRequest, region_from_request
from sleeper.model.schema import Schema
from sleeper.model.tables import TableRecord
from sleeper.operations.change_table import (
    rename_table,
    set_table_online,
    set_table_properties,
)
from sleeper.operations.delete_table import delete_objects
from sleeper.operations.ingest import IngestRequest, IngestResult, IngestSettings, ingest
from sleeper.operations.query import Reading, query_key, query_keys, query_regions
from sleeper.operations.reinitialise_table import reinitialise_table
from sleeper.operations.report import (
    FilesReport,
    PartitionReport,
    list_references,
    report_files,
    report_partitions,
)
from sleeper.state.state_store import TransactionLogStateStore
from sleeper.state.table_state import TableState
from sleeper.storage.object_log import ObjectSnapshotStore, ObjectTransactionLog
from sleeper.storage.ports import NewId, Objects, TableIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a table stands on: the instance's adapters, its clock and its source of ids.

    Attributes:
        objects: Everything the instance stores, by key.
        index: Which tables there are.
        properties: The instance's properties.
        temp_folder: Where sorting may spill; None for the system's temporary folder.
        now: The clock (aware, UTC).
        new_id: Fresh random ids.
        pause: Waits before another attempt at a commit, given the attempt's number.
        reopen: Called by a copy in another process: `reopen[0](*reopen[1], table_id)`.
    """

    objects: Objects
    index: TableIndex
    properties: InstanceProperties
    temp_folder: Path | None
    now: Callable[[], datetime]
    new_id: NewId
    pause: Callable[[int], None]
    reopen: tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Opened:
    """What one process has open for a table; a forked child opens its own."""

    pid: int
    store: TransactionLogStateStore
    reading: Reading


class Table:
    """One table of an instance: ingest into it, query it, look at it.

    A handle is cheap: files and state are opened at first use, and nothing is asked of the
    storage while it is idle. It is safe in threads and may be pickled. A forked process may look
    up keys; it may read ranges and ingest if its parent had not. Every query first looks for new
    commits (in a folder that is one look at the file system).

    >>> import sleeper
    >>> instance = sleeper.connect("memory://")
    >>> schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    >>> table = instance.create_table("numbers", schema, row_keys=["id"])
    >>> table.ingest([{"id": "b", "n": 2}, {"id": "a", "n": 1}]).rows_written
    2
    >>> table.query(key="a").to_pylist()
    [{'id': 'a', 'n': 1}]
    """

    def __init__(self, record: TableRecord, surroundings: Surroundings) -> None:
        self._record = record
        self._surroundings = surroundings
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

    # -- rows -------------------------------------------------------------------------------

    def ingest(
        self,
        data: object,
        job_id: str | None = None,
        *,
        ignore_extra_columns: bool = False,
        set_aside: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
    ) -> IngestResult:
        """Add rows, all of them in one commit, or none.

        Args:
            data: A path or list of paths (Parquet files, or folders of them), an Arrow table or
                reader, anything with the Arrow C stream (polars, DuckDB), a pandas DataFrame, or
                an iterable of dicts. It is read once, in batches; memory is bounded by
                `sleeper.table.ingest.memory`.
            job_id: Names this work. Repeating a job that was committed changes nothing.
            ignore_extra_columns: Leave out columns that the table does not have.
            set_aside: A Parquet file to make for rows whose key is null; without it such input
                is refused.
            progress: Called after each batch with the rows read so far, and their total if known.

        Raises:
            InputRefused: the input does not fit the table; nothing was changed.
            CommitContended: others kept committing; try again.
            CommitUnknown: storage gave no answer; run the same job id again.
            StorageFailed: the storage did not do its part; nothing was changed.
            TableNotFound: the table was deleted.

        Source: spec ING-1 to ING-8.
        """
        self._current_record()
        opened = self._open()
        request = IngestRequest(
            job_id=job_id,
            ignore_extra_columns=ignore_extra_columns,
            set_aside=None if set_aside is None else Path(set_aside),
            progress=progress,
        )
        result = ingest(
            data,
            request,
            self._ingest_settings(),
            store=opened.store,
            files=opened.reading.files,
            schema=self.schema,
            now=self._surroundings.now,
            new_id=self._surroundings.new_id,
        )
        self._check_commit_counts()
        return result

    def query(
        self,
        *,
        key: object = None,
        keys: Any = None,
        range: RegionRequest | None = None,  # noqa: A002 - the field's own word
        regions: Sequence[RegionRequest] | None = None,
        columns: Sequence[str] | None = None,
        as_of: int | None = None,
    ) -> Rows:
        """Read rows by key or key range, in key order; everything without either.

        Args:
            key: One row key: a value, a tuple for composite keys, or {field: value}. A prefix
                of a composite key finds all rows that start with it.
            keys: Many whole row keys: a list, or an Arrow or NumPy array.
            range: {field: (min, max)}, meaning [min, max), or {field: (min, min_inclusive, max,
                max_inclusive)}; None is no limit. Any of the row key fields.
            regions: Several such ranges at once; a row in two of them comes once.
            columns: The columns to return, in this order; all without it.
            as_of: A transaction number: the table as it was then.

        Returns:
            Rows with exactly the columns asked for; iterate it, or `.to_arrow()`,
            `.to_pandas()`, `.to_polars()`, `.to_pylist()`. Ranges are read as you iterate.

        Raises:
            QueryInvalid: a field, value, range or column does not fit the schema.
            VersionNotFound: there is no transaction `as_of`.
            DataDamaged: a file of the table is missing or wrong.
            TableNotFound: the table was deleted.

        Source: spec QRY-1 to QRY-6.
        """
        if sum(asked is not None for asked in (key, keys, range, regions)) > 1:
            raise QueryInvalid("ask by one of key, keys, range and regions, not by several")
        self._current_record()
        opened = self._open()
        state = opened.store.refresh() if as_of is None else opened.store.at(as_of)
        now_ms = int(self._surroundings.now().timestamp() * 1000)
        if key is not None:
            return query_key(opened.reading, state, key, columns, now_ms)
        if keys is not None:
            return query_keys(opened.reading, state, keys, columns, now_ms)
        requests = regions if regions is not None else [range or {}]
        asked = [region_from_request(self.schema, request) for request in requests]
        return query_regions(opened.reading, state, asked, columns, now_ms)

    # -- the table itself -------------------------------------------------------------------

    def state(self) -> TableState:
        """Return the table's state after every commit so far."""
        self._current_record()
        return self._open().store.refresh()

    def refresh(self) -> int:
        """See what others committed, and return the table's transaction number."""
        self._take(self._current_record())
        return self._open().store.refresh().number

    def split_points(self) -> list[Any]:
        """Return where leaves meet on the first row key, ascending (spec TBL-11)."""
        return split_points_of(self.state().tree)

    def report_partitions(self) -> list[PartitionReport]:
        """Describe every partition, leaves in key order first (spec ADM-6)."""
        threshold = self.properties.splitting.threshold_rows
        return report_partitions(self.state(), self.schema, splitting_threshold=threshold)

    def report_files(self) -> FilesReport:
        """Count the table's files, references and rows (spec ADM-5)."""
        return report_files(self.state())

    def references(self) -> list[FileReference]:
        """Return every file reference, by partition in key order."""
        return list_references(self.state())

    def rename(self, name: str) -> None:
        """Give the table another name. Its id, data and open handles stay (spec TBL-3).

        Raises:
            TableAlreadyExists: another table has this name.
        """
        self._take(rename_table(self.table_id, name, index=self._surroundings.index))

    def set_online(self, *, online: bool) -> None:
        """Let background operations work on the table, or keep them off it (spec TBL-6)."""
        index = self._surroundings.index
        self._take(set_table_online(self.table_id, online=online, index=index))

    def set_properties(self, changes: Mapping[str, str | None]) -> None:
        """Set properties by their full names; None goes back to the default.

        Raises:
            PropertiesInvalid: a value is not allowed, or the property cannot be changed.
        """
        index = self._surroundings.index
        self._take(set_table_properties(self.table_id, changes, index=index))

    def reinitialise(self, split_points: Sequence[Any] | None = None) -> int:
        """Remove all rows, and return the new transaction number (spec TBL-5).

        Args:
            split_points: New partitions; None keeps them, an empty list makes one.

        Raises:
            SplitPointsInvalid: split points of the wrong type, or not strictly ascending.
        """
        self._current_record()
        opened = self._open()
        number = reinitialise_table(
            self.schema,
            store=opened.store,
            files=opened.reading.files,
            new_id=self._surroundings.new_id,
            split_points=split_points,
        )
        self._check_commit_counts()
        return number

    def _current_record(self) -> TableRecord:
        """What the index has now. A deleted table is told at once: its log would look empty."""
        record = self._surroundings.index.by_id(self.table_id)
        if record is None:
            raise TableNotFound(
                f"table {self.name!r} ({self.table_id}) was deleted, with all its rows; "
                "open another table, or make it again"
            )
        return record

    def _check_commit_counts(self) -> None:
        """Undo a commit to a table that was deleted while it was made."""
        try:
            self._current_record()
        except StorageFailed:
            return  # the commit was made; nobody may take it for failed
        except TableNotFound:
            with suppress(StorageFailed):
                delete_objects(self.table_id, self._surroundings.objects)
            raise

    def _take(self, record: TableRecord) -> None:
        """Go on with another record; whatever hangs on changed properties is opened anew."""
        changed = record.properties != self._record.properties
        self._record = record
        if changed:
            self.properties = TableProperties(record.properties, self._surroundings.properties)
            self._opened = None

    def _open(self) -> _Opened:
        opened = self._opened
        if opened is not None and opened.pid == os.getpid():
            return opened
        around = self._surroundings
        files = around.objects.under(self.table_id)
        store = open_state_store(files, self.schema, self.properties, around)
        reading = Reading(
            files=files,
            schema=self.schema,
            arrow_schema=self._arrow_schema,
            lookup=LookupReader(files),
            scanner=Scanner(self.schema, temp_folder=around.temp_folder),
            processing=self.properties.processing(self.schema),
        )
        self._opened = opened = _Opened(os.getpid(), store, reading)
        return opened

    def _ingest_settings(self) -> IngestSettings:
        ingest_properties = self.properties.ingest
        return IngestSettings(
            one_file_per_leaf=ingest_properties.file_writing_strategy == "one_file_per_leaf",
            sort=SortSettings(
                memory_bytes=ingest_properties.memory_bytes,
                temp_folder=self._surroundings.temp_folder,
            ),
            write=write_settings(self.properties.parquet),
            processing=self.properties.processing(self.schema),
            job_id_kept=timedelta(days=self.properties.statestore.job_id_retention_days),
        )

    def close(self) -> None:
        """Let go of what this handle has open. Using it again opens it again."""
        self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        reopen, arguments = self._surroundings.reopen
        return reopen, (*arguments, self.table_id)

    def __repr__(self) -> str:
        return f"<Table {self.name!r} ({self.table_id}) of {self._surroundings.reopen[1][0].url}>"


def open_state_store(
    files: Objects, schema: Schema, properties: TableProperties, around: Surroundings
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
