"""Bulk import: adds many rows in one commit, by this process or by Spark (BLK-5, BLK-7, BLK-10).

1. the engine is chosen: the local one, which is `ingest`, or Spark
2. a table with too few leaves is split first, by a sample of the rows (`extend_partitions`)
3. the rows are sorted and written, leaf by leaf
4. all files become visible in one transaction, with the job's id
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleeper.engine.inputs.input_files import InputFiles
from sleeper.engine.inputs.key_sample import KeySample, sample_files, sample_rows, samples_by_leaf
from sleeper.engine.inputs.sources import Source, can_repeat, open_source
from sleeper.engine.temp_folder import temp_file_failures, temp_folder
from sleeper.engine.writing.discard import discard_files
from sleeper.engine.writing.write_settings import write_settings
from sleeper.errors import BadRequest
from sleeper.html.values import NotebookHtml
from sleeper.model.csv_options import CsvOptions
from sleeper.model.files import FileReference
from sleeper.ports.ids import given_job_id
from sleeper.ports.objects import Objects
from sleeper.spark.block_shuffle.frame_sample import sample_frame
from sleeper.spark.bulk_import import (
    ImportOutput,
    Target,
    import_files,
    import_frame,
    known_frame,
    known_input,
)
from sleeper.spark.footers import read_footers
from sleeper.spark.frame_size import FrameSize, frame_size
from sleeper.spark.import_plan import FILES_READ_HERE, ImportInput, explained, plan_import
from sleeper.spark.progress import job_description
from sleeper.spark.submit.spark_settings import setting_failures
from sleeper.state.commit_changes import splits_max
from sleeper.state.new_files import SweepGuard, add_files, request_files
from sleeper.state.plans.bulk_imports import EngineAsked, EngineChoice, InputKind, choose_engine
from sleeper.state.plans.extend_tree import leaves_wanted
from sleeper.state.table_state import CommittedJob, JobRecord
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.extend_partitions import ExtendResult, ExtendSettings, extend_partitions
from sleeper.tables.ingest import (
    IngestResult,
    commit_if_unchanged,
    csv_for,
    ingest,
    path_aside,
)
from sleeper.tables.on_spark import spark_session
from sleeper.tables.open_table import OpenTable
from sleeper.tables.unchanged_since import UnchangedSince, check_committed_here
from sleeper.tables.upsert import commit_upsert
from sleeper.tables.upsert import upsert as upsert_rows

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql import SparkSession

_MIN_LEAVES = "sleeper.table.bulk.import.min.leaf.partitions"
_SAMPLED_ROWS_PER_LEAF = 800
_SAMPLED_ROWS_MAX = 8_000_000
_FRAME_GROWTH = 4  # rows may be several times as large as Spark estimates: files are compressed
_LEAVES_OF_ANY_FRAME = 256  # enough where Spark has no estimate
_ROWS_IN_MEMORY = 256_000_000  # where a source does not know how many it has

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkImportResult(NotebookHtml):
    """The result of a bulk import.

    Attributes:
        engine: `local` or `spark`.
        reason: Why this engine, as a clause.
        rows_read: Rows of the input, including rows that were set aside.
        rows_written: Rows added to the table; fewer than read if rows were set aside, or if
            the table filters or aggregates.
        rows_set_aside: Rows without a key, written to `set_aside`.
        files: The references that were added.
        transaction: The table's transaction number after the import.
        job_id: The job's id, given or made.
        already_committed: True if this job was committed before: nothing was added.
        is_committed: False when the commit was sent to a committer: `transaction` does not have it.
        leaves_before: Number of leaf partitions before.
        leaves_after: Number of leaf partitions to which rows were distributed.
        took_s: Seconds from the call to the commit.
    """

    engine: str
    reason: str
    rows_read: int
    rows_written: int
    rows_set_aside: int = 0
    files: tuple[FileReference, ...] = field(default=(), repr=False)
    transaction: int
    job_id: str
    already_committed: bool = False
    is_committed: bool = True
    leaves_before: int
    leaves_after: int
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The options of one bulk import."""

    job_id: str | None
    engine: EngineAsked
    spark: SparkSession | None
    master: str | None
    conf: Mapping[str, str]
    csv: CsvOptions | None
    ignore_extra_columns: bool
    set_aside: Path | None
    progress: Callable[[int, int | None], None]
    send_commit: Callable[[AddFiles], None] | None
    upsert: bool
    condition: UnchangedSince


def bulk_import(
    table: OpenTable,
    data: object,
    job_id: str | None,
    *,
    engine: EngineAsked,
    spark: SparkSession | None,
    master: str | None,
    conf: Mapping[str, str] | None,
    csv: CsvOptions | Mapping[str, Any] | None,
    ignore_extra_columns: bool,
    set_aside: str | os.PathLike[str] | None,
    progress: Callable[[int, int | None], None],
    send_commit: Callable[[AddFiles], None] | None,
    upsert: bool,
    if_unchanged_since: int | None,
) -> BulkImportResult:
    """Add many rows in one commit (`Table.bulk_import`)."""
    started = table.context.clock.now()
    state, job_id = table.store.refresh(), given_job_id(job_id)
    if job_id is not None and (done := state.jobs.find(job_id)) is not None:
        before = EngineChoice("local", "the job was committed before")
        return _done_before(job_id, done, before, state.tree.leaf_count)
    request = _Request(
        job_id=job_id,
        engine=engine,
        spark=spark,
        master=master,
        conf=conf or {},
        csv=csv_for(csv, table.schema),
        ignore_extra_columns=ignore_extra_columns,
        set_aside=path_aside(set_aside),
        progress=progress,
        send_commit=send_commit,
        upsert=upsert,
        condition=UnchangedSince.of(table, if_unchanged_since),
    )
    if upsert:
        _check_upsert(table, request)
    check_committed_here(if_unchanged_since, send_commit)
    if wrong := [f"{name} {reason}" for name, reason in setting_failures(request.conf)]:
        raise BadRequest("; ".join(wrong))
    if request.csv is not None and _is_frame(data):
        raise BadRequest("csv is for files of CSV, and not for a DataFrame of Spark")
    run = _import_frame if _is_frame(data) else _import_source
    return run(table, data, request, started)


def explain_bulk_import(
    table: OpenTable,
    data: Any,
    *,
    cores: int,
    csv: CsvOptions | Mapping[str, Any] | None,
    ignore_extra_columns: bool,
) -> str:
    """Return the plan of a bulk import on Spark as text (`Table.explain_bulk_import`)."""
    if cores < 1:
        raise BadRequest(f"cores must be 1 or more, not {cores}")
    table.store.refresh()
    target = _target(table, table.context.clock.now())
    if _is_frame(data):
        known = known_frame(frame_size(data), target, None, cores=cores)
    else:
        source = open_source(
            data, table.arrow_schema, table.context.inputs, csv_for(csv, table.schema)
        )
        if not isinstance(source, InputFiles):
            raise BadRequest(
                "rows in this process are imported without Spark, in one task: explain an import "
                "of Parquet files or of a Spark DataFrame"
            )
        source.check(ignore_extra_columns=ignore_extra_columns)
        known = _known_files(table, source, target, cores)
    if table.properties.is_given(_MIN_LEAVES):
        known = replace(known, min_leaves=table.properties.bulk_import.min_leaf_partitions)
    return explained(known, plan_import(known))


def _known_files(table: OpenTable, source: InputFiles, target: Target, cores: int) -> ImportInput:
    """Return what is known of files; their keys are sampled if the table is not split first."""
    known = known_input(source.row_groups(), target, {}, cores=cores)
    leaves = _leaves(table, known.row_count, known.size_bytes)
    if not known.row_count or known.leaves < leaves:
        return known
    sample = _sample_of(table, source, known.leaves)
    samples = samples_by_leaf(sample, table.store.state().tree, table.schema)
    return known_input(source.row_groups(), target, samples, cores=cores)


def _sample_of(table: OpenTable, source: InputFiles, leaves: int) -> KeySample:
    return sample_files(
        source,
        table.schema,
        table.arrow_schema,
        rows_wanted=sampled_rows(leaves),
        remote=table.context.inputs,
    )


def _import_source(
    table: OpenTable, data: object, request: _Request, started: datetime
) -> BulkImportResult:
    """Import from files, by either engine, or from rows in this process."""
    source = open_source(data, table.arrow_schema, table.context.inputs, request.csv)
    if isinstance(source, InputFiles) and len(source.files) > FILES_READ_HERE:
        _read_footers_by_spark(table, source, request)
    source.check(ignore_extra_columns=request.ignore_extra_columns)
    if not isinstance(source, InputFiles):
        choice = _choose(table, request, "memory", 0)
        extended = _extend_by_rows(table, source)
        return _import_locally(table, source, request, choice, extended)
    groups = source.row_groups()
    row_count = sum(group.row_count for group in groups)
    size_bytes = sum(group.size_bytes for group in groups)
    choice = _choose(table, request, "files", size_bytes)
    wanted = _leaves(table, row_count, size_bytes)
    sample = cache(partial(_sample_of, table, source, wanted))
    extended = _extend(table, sample, wanted)
    if choice.engine == "local":
        return _import_locally(table, source, request, choice, extended)
    spark = _session(table, request)
    tree = table.store.state().tree
    guard = table.sweep_guard()
    with job_description(spark, f"{_title(table, request)}: sort and write"):
        imported = import_files(
            spark,
            groups,
            samples_by_leaf(sample(), tree, table.schema) if row_count else {},
            _target(table, started),
            ignore_extra_columns=request.ignore_extra_columns,
            set_aside=request.set_aside,
            progress=request.progress,
        )
    return _commit(table, imported, request, choice, extended, started, guard)


def _read_footers_by_spark(table: OpenTable, source: InputFiles, request: _Request) -> None:
    """Have Spark read the footers of many files, if it is certain to do the import."""
    wants_spark = request.spark is not None or request.master is not None
    if request.engine == "spark" or (request.engine == "auto" and wants_spark):
        spark = _session(table, request)
        with job_description(spark, f"{_title(table, request)}: read footers"):
            groups = read_footers(
                spark,
                source.files,
                table.arrow_schema,
                table.context.inputs,
                ignore_extra_columns=request.ignore_extra_columns,
            )
        source.accept(groups)


def _import_frame(
    table: OpenTable, data: Any, request: _Request, started: datetime
) -> BulkImportResult:
    """Import a Spark DataFrame. Its keys are sampled only if the table has too few leaves."""
    choice = _choose(table, request, "frame", 0)
    spark, title = data.sparkSession, _title(table, request)

    @cache
    def sample() -> KeySample:
        with job_description(spark, f"{title}: sample the keys"):
            return sample_frame(data, table.schema)

    size = frame_size(data)
    extended, known = _extend_by_frame(table, size, sample)
    tree = table.store.state().tree
    samples = None if known is None else samples_by_leaf(known, tree, table.schema)
    if known is not None:
        size = replace(size, row_count=known.row_count)
    guard = table.sweep_guard()
    with job_description(spark, f"{title}: sort and write"):
        imported = import_frame(
            data,
            _target(table, started),
            size=size,
            samples=samples,
            ignore_extra_columns=request.ignore_extra_columns,
            set_aside=request.set_aside,
            progress=request.progress,
        )
    return _commit(table, imported, request, choice, extended, started, guard)


def _import_locally(
    table: OpenTable, data: object, request: _Request, choice: EngineChoice, extended: ExtendResult
) -> BulkImportResult:
    add = upsert_rows if request.upsert else partial(ingest, send_commit=request.send_commit)
    result = add(
        table,
        data,
        request.job_id,
        ignore_extra_columns=request.ignore_extra_columns,
        set_aside=request.set_aside,
        progress=request.progress,
        if_unchanged_since=request.condition.number,
    )
    return _imported_locally(result, choice, extended)


def _title(table: OpenTable, request: _Request) -> str:
    """Return the title of an import's jobs in Spark's web UI."""
    return f"sleeper: bulk import into {table.name}" + (
        f", job {request.job_id}" if request.job_id else ""
    )


def _check_upsert(table: OpenTable, request: _Request) -> None:
    """Check that rows can be replaced as is asked.

    Raises:
        BadRequest: they cannot.
    """
    table.reader.processing.check_upsert(table.name)
    if request.send_commit is not None:
        raise BadRequest("leave out send_commit: no committer replaces rows")


def _choose(table: OpenTable, request: _Request, kind: InputKind, input_bytes: int) -> EngineChoice:
    folder = temp_folder(table.context.temp_folder)
    with temp_file_failures(folder, "an import by this machine sorts there"):
        free_bytes = shutil.disk_usage(folder).free
    return choose_engine(
        request.engine,
        kind,
        input_bytes=input_bytes,
        free_bytes=free_bytes,
        spark_given=request.spark is not None or request.master is not None,
        spark_installed=find_spec("pyspark") is not None,
    )


def sampled_rows(leaves: int) -> int:
    """Return how many row keys of an input are sampled for so many leaves: 800 each, to 8 million.

    From 10,000 leaves on each gets fewer, so that their sizes differ more: with 80, by a tenth.
    """
    return min(_SAMPLED_ROWS_MAX, leaves * _SAMPLED_ROWS_PER_LEAF)


def _leaves(table: OpenTable, row_count: int, size_bytes: int) -> int:
    """Return the wanted number of leaves: from the property, or from the input's size.

    If the property does not say it, they are no more than the state store can make in one commit.
    """
    if table.properties.is_given(_MIN_LEAVES):
        return table.properties.bulk_import.min_leaf_partitions
    wanted, changes_max = leaves_wanted(row_count, size_bytes), table.store.changes_max
    if changes_max is None:
        return wanted
    return min(wanted, table.store.state().tree.leaf_count + splits_max(changes_max))


def _extend_by_frame(
    table: OpenTable, size: FrameSize, sample: Callable[[], KeySample]
) -> tuple[ExtendResult, KeySample | None]:
    """Extend the tree for a DataFrame; return its sample too, if one was taken.

    A sample evaluates the keys of all rows once more. So none is taken where the table has leaves
    enough for several times the size that Spark estimates.
    """
    enough = _leaves(table, 0, _FRAME_GROWTH * size.size_bytes)
    if not size.is_estimated and not table.properties.is_given(_MIN_LEAVES):
        enough = _LEAVES_OF_ANY_FRAME
    if table.store.state().tree.leaf_count >= enough:
        return _extend(table, sample, 1), None
    known = sample()
    return _extend(table, sample, _leaves(table, known.row_count, 0)), known


def _extend_by_rows(table: OpenTable, source: Source) -> ExtendResult:
    """Extend the tree for rows in this process; not for a stream, which can be read only once."""
    state = table.store.state()
    most = _leaves(table, source.row_count or _ROWS_IN_MEMORY, 0)
    if not can_repeat(source) or state.tree.leaf_count >= most:
        leaves = state.tree.leaf_count
        return ExtendResult(
            leaves_before=leaves, leaves_after=leaves, attempts=0, transaction=state.number
        )

    @cache
    def sample() -> KeySample:
        return sample_rows(source, table.schema, table.arrow_schema, rows_wanted=sampled_rows(most))

    count = source.row_count
    return _extend(table, sample, _leaves(table, sample().row_count if count is None else count, 0))


def _extend(table: OpenTable, sample: Callable[[], KeySample], wanted: int) -> ExtendResult:
    bulk_import, splitting = table.properties.bulk_import, table.properties.splitting
    return extend_partitions(
        sample,
        table.schema,
        ExtendSettings(
            min_leaves=wanted,
            required=table.properties.is_given(_MIN_LEAVES),
            attempts=bulk_import.splitting_attempts,
            min_rows=splitting.min_rows,
            min_distribution_percent=splitting.min_distribution_percent,
        ),
        store=table.store,
        new_id=table.context.new_id,
    )


def _session(table: OpenTable, request: _Request) -> SparkSession:
    if request.spark is not None:
        return request.spark
    return spark_session(table.context, master=request.master, conf=request.conf)


def _target(table: OpenTable, started: datetime) -> Target:
    return Target(
        files=table.files,
        schema=table.schema,
        leaves=tuple(table.store.state().tree.leaves()),
        write=write_settings(table.properties.parquet),
        processing=table.reader.processing,
        memory_bytes=table.properties.ingest.memory_bytes,
        temp_folder=table.context.temp_folder,
        now_ms=int(started.timestamp() * 1000),
        new_id=table.context.new_id,
        inputs=table.context.inputs,
    )


def _commit(
    table: OpenTable,
    imported: ImportOutput,
    request: _Request,
    choice: EngineChoice,
    extended: ExtendResult,
    started: datetime,
    guard: SweepGuard,
) -> BulkImportResult:
    now = table.store.time()
    job = CommittedJob(
        job_id=request.job_id or table.context.new_id(),
        keep_until=now + table.job_id_kept(),
        rows_read=imported.rows_read,
        rows_written=imported.rows_written,
    )
    commit = commit_upsert if request.upsert else commit_if_unchanged
    number: int | JobRecord = table.store.state().number
    is_needed = bool(imported.references) or request.job_id is not None
    is_sent = is_needed and request.send_commit is not None
    if is_needed and request.send_commit is not None:
        request_files(
            imported.references,
            job,
            store=table.store,
            guard=guard,
            now=now,
            send=request.send_commit,
        )
    elif is_needed:
        number = add_files(
            imported.references,
            job,
            store=table.store,
            guard=guard,
            now=now,
            discard=partial(_delete_files, imported.references, table.files, request.set_aside),
            commit=partial(commit, table, request.condition),
        )
    if isinstance(number, JobRecord):
        return _done_before(job.job_id, number, choice, extended.leaves_after)
    table.undo_commit_if_deleted()
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
        took_s=(table.context.clock.now() - started).total_seconds(),
    )


def _delete_files(
    references: Sequence[FileReference], files: Objects, set_aside: Path | None
) -> None:
    """Delete data files and rows set aside. Files that remain are orphans."""
    if set_aside is not None:
        _log.info("deleting the rows set aside in %s: the import was not committed", set_aside)
        shutil.rmtree(set_aside, ignore_errors=True)
    discard_files((each.filename for each in references), files)


def _is_frame(data: object) -> bool:
    """Return whether `data` is a Spark DataFrame (classic or Connect), without importing Spark."""
    kind = type(data)
    return kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame"


def _imported_locally(
    result: IngestResult, choice: EngineChoice, extended: ExtendResult
) -> BulkImportResult:
    """Return the result of an import by the local engine, which is an ingest.

    Args:
        result: That of the ingest.
        choice: The engine of the result.
        extended: What was done to the tree before.
    """
    return BulkImportResult(
        engine=choice.engine,
        reason=choice.reason,
        rows_read=result.rows_read,
        rows_written=result.rows_written,
        rows_set_aside=result.rows_set_aside,
        files=result.files,
        transaction=result.transaction,
        job_id=result.job_id,
        already_committed=result.already_committed,
        is_committed=result.is_committed,
        leaves_before=extended.leaves_before,
        leaves_after=extended.leaves_after,
        took_s=result.took_s,
    )


def _done_before(
    job_id: str, done: JobRecord, choice: EngineChoice, leaves: int
) -> BulkImportResult:
    """Return the result of a job that was committed before.

    Args:
        job_id: Its id.
        done: The table's record of it.
        choice: The engine of the result.
        leaves: The number of leaves.
    """
    return BulkImportResult(
        engine=choice.engine,
        reason=choice.reason,
        rows_read=done.rows_read,
        rows_written=done.rows_written,
        transaction=done.number,
        job_id=job_id,
        already_committed=True,
        leaves_before=leaves,
        leaves_after=leaves,
    )
