"""Standard ingest: adds rows to a table in one commit, in bounded memory.

It reads, checks and sorts rows, cuts them at leaf boundaries, writes files and commits. All files
of a job become visible in one transaction that contains the job's id, so a job that runs twice
changes nothing the second time (rules ING-1, ING-2, ING-5, ING-6 and ING-8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.inputs.sources import open_source
from sleeper.engine.inputs.validated_input import SetAside, ValidatedInput
from sleeper.engine.sorting.sort import SortSettings
from sleeper.engine.writing.data_file import WriteSettings
from sleeper.engine.writing.leaf_files import LeafFiles, sorted_groups
from sleeper.errors import StorageFailed
from sleeper.model.files import FileReference
from sleeper.model.processing import Processing
from sleeper.model.schema import Schema
from sleeper.notebook_html import NotebookHtml
from sleeper.ports.ids import NewId, given_job_id
from sleeper.ports.objects import InputStore, Objects
from sleeper.state.added_files import SweepGuard, add_files, request_files
from sleeper.state.committed_jobs import CommittedJob, JobRecord
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult(NotebookHtml):
    """The result of an ingest.

    Attributes:
        rows_read: Rows of the input, including rows that were set aside.
        rows_written: Rows added to the table; fewer than read if rows were set aside, or if
            the table filters or aggregates.
        rows_set_aside: Rows without a key, written to the file `set_aside`.
        files: The references that were added.
        transaction: The table's transaction number after the ingest.
        job_id: The job's id, given or made.
        already_committed: True if this job was committed before: nothing was added.
        took_s: Seconds from the call to the commit.
    """

    rows_read: int
    rows_written: int
    rows_set_aside: int = 0
    files: tuple[FileReference, ...] = ()
    transaction: int
    job_id: str
    already_committed: bool = False
    is_committed: bool = True
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """Settings of an ingest, from the table's properties.

    Attributes:
        file_writing: How rows are divided into files: the table's property
            `ingest.file.writing.strategy` (rules ING-5, ING-6).
        sort: Memory and temp folder of the sort.
        write: Settings of data files.
        processing: The table's filters and aggregations.
        job_id_kept: How long a job id is remembered.
        orphan_age: The age from which on a sweep deletes files that no transaction names.
    """

    file_writing: str
    sort: SortSettings
    write: WriteSettings
    processing: Processing
    job_id_kept: timedelta
    orphan_age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """The options of one ingest.

    Attributes:
        job_id: Identifies the job, so that it is committed once; made if None or blank.
        ignore_extra_columns: True to drop columns that the table does not have.
        set_aside: Parquet file for rows with a null key; None refuses such input.
        progress: Called after each batch with the rows read so far, and their total if known.
        send_commit: Sends the transaction to a committer; None commits it here.
    """

    job_id: str | None = None
    ignore_extra_columns: bool = False
    set_aside: Path | None = None
    progress: Callable[[int, int | None], None] = lambda done, total: None
    send_commit: Callable[[AddFiles], None] | None = None


def ingest(
    data: object,
    request: IngestRequest,
    settings: IngestSettings,
    *,
    store: StateStore,
    files: Objects,
    schema: Schema,
    now: Callable[[], datetime],
    new_id: NewId,
    remote: InputStore | None = None,
    state: TableState | None = None,
) -> IngestResult:
    """Add all rows of `data` to a table in one commit; `remote` reads input by URL.

    Of a job that was committed before no input is read. `state` is what the caller has looked up.

    Raises:
        InputRefused, AlreadyExists: the input does not fit, or the file `set_aside` exists.
        CommitRefused, CommitContended, ClockTooFarAhead: the table is unchanged.
        CommitUnknown: storage gave no answer; run again with the job id that the error names.
        StorageFailed: the table is unchanged; written files were deleted if possible.
    """
    started = now()
    state = state or store.refresh()
    given_id = given_job_id(request.job_id)
    if given_id is not None and (done := state.jobs.find(given_id)) is not None:
        return _done_before(given_id, done)
    arrow_schema = to_arrow(schema)
    source = open_source(data, arrow_schema, remote)
    source.check(ignore_extra_columns=request.ignore_extra_columns)
    guard = SweepGuard(files=files, started=store.time(), orphan_age=settings.orphan_age)
    intake = ValidatedInput(
        source,
        schema,
        arrow_schema,
        ignore_extra_columns=request.ignore_extra_columns,
        set_aside=None if request.set_aside is None else SetAside(request.set_aside),
        progress=request.progress,
    )
    leaf_files = LeafFiles(files, schema, arrow_schema, settings.write, new_id)
    try:
        _write(intake, leaf_files, state, schema, settings, started)
        intake.finish()
    except BaseException:
        intake.abandon()
        _delete(leaf_files)
        raise
    result = IngestResult(
        rows_read=intake.rows_read,
        rows_written=leaf_files.rows_written,
        rows_set_aside=intake.rows_set_aside,
        files=tuple(leaf_files.references),
        transaction=state.number,
        job_id=given_id or new_id(),
    )
    if result.files or given_id is not None:
        keep_until = store.time() + settings.job_id_kept
        result = _commit(result, store, leaf_files, intake, guard, keep_until, request.send_commit)
    return replace(result, took_s=(now() - started).total_seconds())


def _write(
    intake: ValidatedInput,
    leaf_files: LeafFiles,
    state: TableState,
    schema: Schema,
    settings: IngestSettings,
    started: datetime,
) -> None:
    """Write the valid rows, sorted, to files of their leaves."""
    groups = sorted_groups(
        intake.batches(),
        state.tree.leaf_groups(),
        schema,
        to_arrow(schema),
        settings.processing,
        settings.sort,
        now_ms=int(started.timestamp() * 1000),
    )
    with closing(groups):
        leaf_files.write(settings.file_writing, state.tree.root_id, groups)


def _commit(
    result: IngestResult,
    store: StateStore,
    leaf_files: LeafFiles,
    intake: ValidatedInput,
    guard: SweepGuard,
    keep_until: datetime,
    send_commit: Callable[[AddFiles], None] | None,
) -> IngestResult:
    """Commit the written files, or ask for it; delete them if the commit certainly failed."""

    def discard() -> None:
        intake.abandon()
        _delete(leaf_files)

    job = CommittedJob(
        job_id=result.job_id,
        keep_until=keep_until,
        rows_read=result.rows_read,
        rows_written=result.rows_written,
    )
    if send_commit is not None:
        request_files(result.files, job, store=store, guard=guard, send=send_commit)
        return replace(result, is_committed=False)
    added = add_files(result.files, job, store=store, guard=guard, discard=discard)
    if isinstance(added, JobRecord):
        return _done_before(result.job_id, added)
    return replace(result, transaction=added)


def _delete(leaf_files: LeafFiles) -> None:
    """Delete files that will not be committed; if that fails too, they stay as orphans."""
    try:
        leaf_files.delete_written()
    except StorageFailed as failure:
        _log.warning("files that will not be committed stay until a sweep: %s", failure)


def _done_before(job_id: str, done: JobRecord) -> IngestResult:
    return IngestResult(
        rows_read=done.rows_read,
        rows_written=done.rows_written,
        transaction=done.number,
        job_id=job_id,
        already_committed=True,
    )
