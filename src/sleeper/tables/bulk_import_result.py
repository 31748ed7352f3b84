"""The result of a bulk import."""

from __future__ import annotations

from dataclasses import dataclass, field

from sleeper.model.files import FileReference
from sleeper.notebook_html import NotebookHtml
from sleeper.state.committed_jobs import JobRecord
from sleeper.state.plans.bulk_imports import EngineChoice
from sleeper.tables.extend_partitions import ExtendResult
from sleeper.tables.ingest import IngestResult


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


def imported_locally(
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


def done_before(
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
