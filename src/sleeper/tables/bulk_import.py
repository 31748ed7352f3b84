"""`Table.bulk_import`: chooses the engine, extends the tree, adds rows in one commit."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleeper.engine.inputs.input_files import InputFiles
from sleeper.engine.inputs.key_sample import KeySample, sample_files, sample_rows, samples_by_leaf
from sleeper.engine.inputs.sources import Source, can_repeat, open_source
from sleeper.engine.writing.data_file import write_settings
from sleeper.errors import StorageFailed
from sleeper.model.files import FileReference
from sleeper.ports.ids import given_job_id
from sleeper.ports.objects import Objects
from sleeper.spark.block_shuffle.frame_sample import sample_frame
from sleeper.spark.bulk_import import Imported, Target, import_files, import_frame
from sleeper.spark.progress import job_description
from sleeper.spark.session import local_session
from sleeper.state.added_files import SweepGuard, add_files, request_files
from sleeper.state.committed_jobs import CommittedJob, JobRecord
from sleeper.state.plans.bulk_imports import EngineAsked, EngineChoice, InputKind, choose_engine
from sleeper.state.plans.extend_tree import leaves_wanted
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.bulk_import_result import BulkImportResult, done_before, imported_locally
from sleeper.tables.extend_partitions import ExtendResult, ExtendSettings, extend_partitions
from sleeper.tables.handle import OpenedTable, TableHandle
from sleeper.tables.ingest_method import ingest, path_aside

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_MIN_LEAVES = "sleeper.table.bulk.import.min.leaf.partitions"
_SAMPLED_ROWS_PER_LEAF = 800

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The options of one bulk import."""

    job_id: str | None
    engine: EngineAsked
    spark: SparkSession | None
    master: str | None
    conf: Mapping[str, str]
    ignore_extra_columns: bool
    set_aside: Path | None
    progress: Callable[[int, int | None], None]
    send_commit: Callable[[AddFiles], None] | None


def bulk_import(
    self: TableHandle,
    data: object,
    job_id: str | None = None,
    *,
    engine: EngineAsked = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    ignore_extra_columns: bool = False,
    set_aside: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    send_commit: Callable[[AddFiles], None] | None = None,
) -> BulkImportResult:
    """Add many rows, all in one commit.

    A table with too few leaves for the input is split first, by a sample of the rows: to one leaf
    for each million rows or 128 MiB, up to 256, or to as many as the property
    `sleeper.table.bulk.import.min.leaf.partitions` requires. Rows are processed as in ingest.

    Args:
        data: As for `ingest`, or a Spark DataFrame. For a stream no leaf is split: it is read once.
        job_id, ignore_extra_columns, send_commit: As for `ingest`.
        engine: `local`, `spark`, or `auto` for the cheaper one that can import the input.
        spark: A session to use, classic or Connect; without it one is started and kept.
        master: Where to start Spark instead: `local[4]`, `spark://host:7077`, ...
        conf: Settings of the session that is started.
        set_aside: Where to write rows whose key is null; without it such input is refused. A new
            Parquet file for the local engine; for Spark a new folder that driver and workers share.
        progress: Called repeatedly with the estimated rows that are done, and of all rows.

    Raises:
        InputRefused: the input does not fit the table; no row of it is visible.
        InsufficientData: there are too few different keys for the required leaves.
        MissingExtra: Spark is needed and not installed.
        CommitContended, SplitAttemptsExceeded: other writers committed first each time; try again.
        CommitUnknown: storage gave no answer; run again with the job id that it names.
        StorageFailed, TableNotFound: as for `ingest`.

    Source: rules BLK-5, BLK-7 and BLK-10.
    """
    opened = self._current()
    request = _Request(
        job_id=given_job_id(job_id),
        engine=engine,
        spark=spark,
        master=master,
        conf=conf or {},
        ignore_extra_columns=ignore_extra_columns,
        set_aside=path_aside(set_aside),
        progress=progress,
        send_commit=send_commit,
    )
    started = self._context.now()
    state = opened.store.refresh()
    if request.job_id is not None and (done := state.jobs.find(request.job_id)) is not None:
        before = EngineChoice("local", "the job was committed before")
        return done_before(request.job_id, done, before, state.tree.leaf_count)
    run = _import_frame if _is_frame(data) else _import_source
    return run(self, opened, data, request, started)


def _import_source(
    self: TableHandle, opened: OpenedTable, data: object, request: _Request, started: datetime
) -> BulkImportResult:
    """Import from files, by either engine, or from rows in this process."""
    source = open_source(data, self._arrow_schema, self._context.inputs)
    source.check(ignore_extra_columns=request.ignore_extra_columns)
    if not isinstance(source, InputFiles):
        choice = _choose(self, request, "memory", 0)
        extended = _extend_by_rows(self, opened, source)
        return _import_locally(self, source, request, choice, extended)
    groups = source.row_groups()
    row_count = sum(group.row_count for group in groups)
    size_bytes = sum(group.size_bytes for group in groups)
    choice = _choose(self, request, "files", size_bytes)
    wanted = _leaves(opened, row_count, size_bytes)
    sample = cache(
        partial(
            sample_files,
            source,
            self.schema,
            self._arrow_schema,
            rows_wanted=wanted * _SAMPLED_ROWS_PER_LEAF,
            remote=self._context.inputs,
        )
    )
    extended = _extend(self, opened, sample, wanted)
    if choice.engine == "local":
        return _import_locally(self, source, request, choice, extended)
    spark = _session(self, request)
    tree = opened.store.state().tree
    guard = opened.sweep_guard()
    with job_description(spark, f"{_title(self, request)}: sort and write"):
        imported = import_files(
            spark,
            groups,
            samples_by_leaf(sample(), tree, self.schema) if row_count else {},
            _target(self, opened, started),
            ignore_extra_columns=request.ignore_extra_columns,
            set_aside=request.set_aside,
            progress=request.progress,
        )
    return _commit(self, opened, imported, request, choice, extended, started, guard)


def _import_frame(
    self: TableHandle, opened: OpenedTable, data: Any, request: _Request, started: datetime
) -> BulkImportResult:
    """Import a Spark DataFrame. Its keys are sampled only if the tree is to be extended."""
    choice = _choose(self, request, "frame", 0)
    spark, title = data.sparkSession, _title(self, request)

    @cache
    def sample() -> KeySample:
        with job_description(spark, f"{title}: sample the keys"):
            return sample_frame(data, self.schema)

    extended, known = _extend_by_frame(self, opened, sample)
    tree = opened.store.state().tree
    samples = None if known is None else samples_by_leaf(known, tree, self.schema)
    guard = opened.sweep_guard()
    with job_description(spark, f"{title}: sort and write"):
        imported = import_frame(
            data,
            _target(self, opened, started),
            samples=samples,
            row_count=None if known is None else known.row_count,
            ignore_extra_columns=request.ignore_extra_columns,
            set_aside=request.set_aside,
            progress=request.progress,
        )
    return _commit(self, opened, imported, request, choice, extended, started, guard)


def _import_locally(
    self: TableHandle, data: object, request: _Request, choice: EngineChoice, extended: ExtendResult
) -> BulkImportResult:
    result = ingest(
        self,
        data,
        request.job_id,
        ignore_extra_columns=request.ignore_extra_columns,
        set_aside=request.set_aside,
        progress=request.progress,
        send_commit=request.send_commit,
    )
    return imported_locally(result, choice, extended)


def _title(self: TableHandle, request: _Request) -> str:
    """Return the title of an import's jobs in Spark's web UI."""
    return f"sleeper: bulk import into {self.name}" + (
        f", job {request.job_id}" if request.job_id else ""
    )


def _choose(
    self: TableHandle, request: _Request, kind: InputKind, input_bytes: int
) -> EngineChoice:
    temp_folder = self._context.temp_folder or Path(tempfile.gettempdir())
    return choose_engine(
        request.engine,
        kind,
        input_bytes=input_bytes,
        free_bytes=shutil.disk_usage(temp_folder).free,
        spark_given=request.spark is not None or request.master is not None,
        spark_installed=find_spec("pyspark") is not None,
    )


def _leaves(opened: OpenedTable, row_count: int, size_bytes: int) -> int:
    """Return the wanted number of leaves: from the property, or from the input's size."""
    said = opened.properties.bulk_import.min_leaf_partitions
    if opened.properties.is_given(_MIN_LEAVES):
        return said
    return leaves_wanted(row_count, size_bytes, said)


def _extend_by_frame(
    self: TableHandle, opened: OpenedTable, sample: Callable[[], KeySample]
) -> tuple[ExtendResult, KeySample | None]:
    """Extend the tree for a DataFrame; return its sample too, if one was taken."""
    said = opened.properties.bulk_import.min_leaf_partitions
    if opened.store.state().tree.leaf_count >= said:
        return _extend(self, opened, sample, said), None
    known = sample()
    return _extend(self, opened, sample, _leaves(opened, known.row_count, 0)), known


def _extend_by_rows(self: TableHandle, opened: OpenedTable, source: Source) -> ExtendResult:
    """Extend the tree for rows in this process; not for a stream, which can be read only once."""
    state = opened.store.state()
    most = opened.properties.bulk_import.min_leaf_partitions
    if not can_repeat(source) or state.tree.leaf_count >= most:
        leaves = state.tree.leaf_count
        return ExtendResult(
            leaves_before=leaves, leaves_after=leaves, attempts=0, transaction=state.number
        )

    @cache
    def sample() -> KeySample:
        return sample_rows(
            source, self.schema, self._arrow_schema, rows_wanted=most * _SAMPLED_ROWS_PER_LEAF
        )

    count = source.row_count
    return _extend(
        self, opened, sample, _leaves(opened, sample().row_count if count is None else count, 0)
    )


def _extend(
    self: TableHandle, opened: OpenedTable, sample: Callable[[], KeySample], wanted: int
) -> ExtendResult:
    bulk_import, splitting = opened.properties.bulk_import, opened.properties.splitting
    return extend_partitions(
        sample,
        self.schema,
        ExtendSettings(
            min_leaves=wanted,
            required=opened.properties.is_given(_MIN_LEAVES),
            attempts=bulk_import.splitting_attempts,
            min_rows=splitting.min_rows,
            min_distribution_percent=splitting.min_distribution_percent,
        ),
        store=opened.store,
        new_id=self._context.new_id,
    )


def _session(self: TableHandle, request: _Request) -> SparkSession:
    if request.spark is not None:
        return request.spark
    return local_session(
        conf=request.conf,
        master=request.master,
        temp_folder=str(self._context.temp_folder) if self._context.temp_folder else None,
        environment=self._context.environment,
        python=sys.executable,
    )


def _target(self: TableHandle, opened: OpenedTable, started: datetime) -> Target:
    return Target(
        files=opened.files,
        schema=self.schema,
        leaves=tuple(opened.store.state().tree.leaves()),
        write=write_settings(opened.properties.parquet),
        processing=opened.reader.processing,
        memory_bytes=opened.properties.ingest.memory_bytes,
        temp_folder=self._context.temp_folder,
        now_ms=int(started.timestamp() * 1000),
        new_id=self._context.new_id,
        inputs=self._context.inputs,
    )


def _commit(
    self: TableHandle,
    opened: OpenedTable,
    imported: Imported,
    request: _Request,
    choice: EngineChoice,
    extended: ExtendResult,
    started: datetime,
    guard: SweepGuard,
) -> BulkImportResult:
    kept = timedelta(days=opened.properties.statestore.job_id_retention_days)
    job = CommittedJob(
        job_id=request.job_id or self._context.new_id(),
        keep_until=opened.store.time() + kept,
        rows_read=imported.rows_read,
        rows_written=imported.rows_written,
    )
    number: int | JobRecord = opened.store.state().number
    is_needed = bool(imported.references) or request.job_id is not None
    is_sent = is_needed and request.send_commit is not None
    if is_needed and request.send_commit is not None:
        request_files(
            imported.references, job, store=opened.store, guard=guard, send=request.send_commit
        )
    elif is_needed:
        number = add_files(
            imported.references,
            job,
            store=opened.store,
            guard=guard,
            discard=partial(_delete_files, imported.references, opened.files, request.set_aside),
        )
    if isinstance(number, JobRecord):
        return done_before(job.job_id, number, choice, extended.leaves_after)
    self._undo_commit_if_deleted()
    return BulkImportResult(
        engine=choice.engine,
        reason=choice.reason,
        rows_read=imported.rows_read,
        rows_written=imported.rows_written,
        rows_set_aside=imported.rows_set_aside,
        files=imported.references,
        transaction=number,
        job_id=job.job_id,
        is_committed=not is_sent,
        leaves_before=extended.leaves_before,
        leaves_after=extended.leaves_after,
        took_s=(self._context.now() - started).total_seconds(),
    )


def _delete_files(
    references: Sequence[FileReference], files: Objects, set_aside: Path | None
) -> None:
    """Delete data files and rows set aside. Files that remain are orphans."""
    if set_aside is not None:
        _log.info("deleting the rows set aside in %s: the import was not committed", set_aside)
        shutil.rmtree(set_aside, ignore_errors=True)
    try:
        files.delete([reference.filename for reference in references])
    except StorageFailed as failure:
        _log.warning("files that will not be committed stay until a sweep: %s", failure)


def _is_frame(data: object) -> bool:
    """Return whether `data` is a Spark DataFrame (classic or Connect), without importing Spark."""
    kind = type(data)
    return kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame"
