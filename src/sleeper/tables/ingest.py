"""Ingest: adds rows to a table in one commit, in bounded memory.

Words: the source is what the caller gave, as batches; the intake reads it and checks each batch; a
group is a run of sorted rows for one or more leaves; a reference says that a leaf has rows of a
file; the guard refuses files that a sweep of orphans may have deleted.

1. a job that was committed before is answered from the state; no input is read
2. the input is opened, and its columns are compared with the schema
3. rows are checked and sorted, cut at leaf boundaries, and written to data files
4. all files become visible in one transaction, which contains the job's id, so a job that runs
   twice changes nothing the second time; if it is refused, the files are deleted
5. if the table was deleted meanwhile, the commit is undone

Rules ING-1, ING-2, ING-5, ING-6 and ING-8.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from sleeper.engine.inputs.sources import open_source
from sleeper.engine.inputs.validated_input import SetAside, ValidatedInput
from sleeper.engine.sorting.sort import SortSettings
from sleeper.engine.writing.leaf_files import LeafFiles, sorted_groups
from sleeper.engine.writing.write_settings import write_settings
from sleeper.errors import BadRequest
from sleeper.html.values import NotebookHtml
from sleeper.model.csv_options import CsvOptions
from sleeper.model.files import FileReference
from sleeper.model.schema import Schema
from sleeper.ports.ids import given_job_id
from sleeper.state.new_files import SweepGuard, add_files, request_files
from sleeper.state.table_state import CommittedJob, JobRecord, TableState
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.open_table import OpenTable
from sleeper.tables.unchanged_since import UnchangedSince, check_committed_here

Commit = Callable[[UnchangedSince, AddFiles], TableState]
"""Commits new files if what they rely on holds."""


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
        is_committed: False when the commit was sent to a committer: `transaction` does not have it.
        took_s: Seconds from the call to the commit.
    """

    rows_read: int
    rows_written: int
    rows_set_aside: int = 0
    files: tuple[FileReference, ...] = field(default=(), repr=False)
    transaction: int
    job_id: str
    already_committed: bool = False
    is_committed: bool = True
    took_s: float = 0.0


def ingest(
    table: OpenTable,
    data: object,
    job_id: str | None = None,
    *,
    csv: CsvOptions | Mapping[str, Any] | None = None,
    ignore_extra_columns: bool = False,
    set_aside: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    send_commit: Callable[[AddFiles], None] | None = None,
    commit: Commit | None = None,
    if_unchanged_since: int | None = None,
    state: TableState | None = None,
) -> IngestResult:
    """Add all rows of `data` in one commit (`Table.ingest`).

    For other verbs, `commit` commits the new files with what else belongs to them, given what they
    rely on. `state` is the newest known one.

    Raises:
        BadRequest: a committer is asked to commit if nothing has changed.
        RowsChanged: a leaf that gets rows has changed since. Nothing was added.
    """
    check_committed_here(if_unchanged_since, send_commit)
    rows_aside = path_aside(set_aside)
    clock = table.context.clock
    started = clock.now()
    state = state or table.newest_state()
    given_id = given_job_id(job_id)
    if given_id is not None and (done := state.jobs.find(given_id)) is not None:
        return _done_before(given_id, done)
    condition = UnchangedSince.of(table, if_unchanged_since)
    commit = partial(commit or partial(commit_if_unchanged, table), condition)
    options = csv_for(csv, table.schema)
    source = open_source(data, table.arrow_schema, table.context.inputs, options)
    source.check(ignore_extra_columns=ignore_extra_columns)
    guard = table.sweep_guard()
    intake = ValidatedInput(
        source,
        table.schema,
        table.arrow_schema,
        ignore_extra_columns=ignore_extra_columns,
        set_aside=None if rows_aside is None else SetAside(rows_aside),
        progress=progress,
    )
    leaf_files = _leaf_files(table)
    try:
        _write(intake, leaf_files, table, state, started)
        intake.finish()
    except BaseException:
        intake.abandon()
        leaf_files.discard()
        raise
    result = IngestResult(
        rows_read=intake.rows_read,
        rows_written=leaf_files.rows_written,
        rows_set_aside=intake.rows_set_aside,
        files=tuple(leaf_files.references),
        transaction=state.number,
        job_id=given_id or table.context.new_id(),
    )
    if result.files or given_id is not None:
        result = _commit(result, table, leaf_files, intake, guard, send_commit, commit)
    result = replace(result, took_s=(clock.now() - started).total_seconds())
    table.undo_commit_if_deleted()
    return result


def _leaf_files(table: OpenTable) -> LeafFiles:
    """Return what writes the data files of an ingest."""
    return LeafFiles(
        table.files,
        table.schema,
        table.arrow_schema,
        write_settings(table.properties.parquet),
        table.context.new_id,
    )


def csv_for(csv: CsvOptions | Mapping[str, Any] | None, schema: Schema) -> CsvOptions | None:
    """Return how files of CSV are written for a table, whose columns they have without a header.

    Raises:
        BadRequest: an option is unknown, or its value is not allowed.
    """
    options = CsvOptions.of(csv)
    return None if options is None else options.for_columns(schema.columns)


def path_aside(set_aside: object) -> Path | None:
    """Check `set_aside` and return it as a path; None if such rows are refused.

    Raises:
        BadRequest: it is not a path.
    """
    if set_aside is None:
        return None
    if not isinstance(set_aside, str | os.PathLike) or not os.fspath(set_aside):
        raise BadRequest(f"set_aside must be the path of a new file, not {set_aside!r}")
    return Path(set_aside)


def _write(
    intake: ValidatedInput,
    leaf_files: LeafFiles,
    table: OpenTable,
    state: TableState,
    started: datetime,
) -> None:
    """Write the valid rows, sorted, to files of their leaves."""
    properties = table.properties.ingest
    groups = sorted_groups(
        intake.batches(),
        state.tree.leaf_groups(),
        table.schema,
        table.arrow_schema,
        table.reader.processing,
        SortSettings(memory_bytes=properties.memory_bytes, temp_folder=table.context.temp_folder),
        now_ms=int(started.timestamp() * 1000),
    )
    with closing(groups):
        leaf_files.write(properties.file_writing_strategy, state.tree.root_id, groups)


def _commit(
    result: IngestResult,
    table: OpenTable,
    leaf_files: LeafFiles,
    intake: ValidatedInput,
    guard: SweepGuard,
    send_commit: Callable[[AddFiles], None] | None,
    commit: Callable[[AddFiles], TableState],
) -> IngestResult:
    """Commit the written files, or ask for it; delete them if the commit certainly failed."""

    def discard() -> None:
        intake.abandon()
        leaf_files.discard()

    store, now = table.store, table.store.time()
    job = CommittedJob(
        job_id=result.job_id,
        keep_until=now + table.job_id_kept(),
        rows_read=result.rows_read,
        rows_written=result.rows_written,
    )
    if send_commit is not None:
        request_files(result.files, job, store=store, guard=guard, now=now, send=send_commit)
        return replace(result, is_committed=False)
    added = add_files(
        result.files, job, store=store, guard=guard, now=now, discard=discard, commit=commit
    )
    if isinstance(added, JobRecord):
        return _done_before(result.job_id, added)
    return replace(result, transaction=added)


def commit_if_unchanged(table: OpenTable, condition: UnchangedSince, added: AddFiles) -> TableState:
    """Commit new files, and what they rely on.

    Raises:
        RowsChanged: a leaf that gets rows has changed since the version that they rely on.
        CommitRefused, CommitContended, CommitUnknown, StorageFailed: as by `StateStore.commit`.
    """
    store = table.store
    if condition.number is None:
        return store.commit(added)
    relies_on = condition.under(added, store.refresh())
    return store.commit_group([*relies_on, added], together=True).of_all()


def _done_before(job_id: str, done: JobRecord) -> IngestResult:
    return IngestResult(
        rows_read=done.rows_read,
        rows_written=done.rows_written,
        transaction=done.number,
        job_id=job_id,
        already_committed=True,
    )
