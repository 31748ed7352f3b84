"""Files that were submitted to the ingest batcher: what became of them, and how they come again.

A file is pending, then in a job, and then it is what its job is. A job that was rejected, or failed
for good, is sent again under its own id: so if its old message comes once more, from the dead
letters for instance, its rows are still added once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from sleeper.errors import BadRequest, JobNotFound, TableNotFound
from sleeper.jobs.arguments import job_ids_of
from sleeper.jobs.jobs_handle import JobsHandle
from sleeper.jobs.reports import job
from sleeper.model.jobs.kinds import QUEUES_OF_BATCHER
from sleeper.model.jobs.statuses import JobState
from sleeper.model.jobs.submitted_files import FileState, RetriedFiles, SubmittedFile

_log = logging.getLogger(__name__)

_JOBS_REMEMBERED: Final = 1_000
_ENDED: Final = (FileState.REJECTED, FileState.FAILED)


def submitted_files(self: JobsHandle, *, pending: bool = False) -> Iterator[SubmittedFile]:
    """Yield the files that the batcher knows, newest first, with their state and their jobs.

    Args:
        pending: Only those that are in no job yet.

    Raises:
        StorageFailed: the store or the tracker cannot be reached.

    Source: rule BAT-6.
    """

    @lru_cache(maxsize=_JOBS_REMEMBERED)
    def of_job(job_id: str, table_id: str) -> tuple[FileState, tuple[str, ...]]:
        return _state_of(self, job_id, table_id)

    for file in self.stores.batcher.newest():
        if file.job_id is None:
            yield replace(file, state=FileState.PENDING)
        elif not pending:
            state, reasons = of_job(file.job_id, file.table_id)
            yield replace(file, state=state, reasons=reasons)


def retry_files(self: JobsHandle, job_ids: Iterable[str] | None = None) -> RetriedFiles:
    """Have jobs of the batcher that were rejected, or failed for good, be sent again.

    The next round of the batcher sends each under its id, so nothing is added twice. Files that
    are there no longer are left out of their job; a job that has none left stays as it is.

    Args:
        job_ids: The jobs; None for all.

    Raises:
        BadRequest: one of these jobs has no files, or has not ended so.
        StorageFailed: the store, the tracker or the input cannot be reached; some may be sent
            again.

    Source: rule BAT-7.
    """
    wanted = job_ids_of(job_ids)
    of_jobs: dict[str, list[SubmittedFile]] = {}
    for file in submitted_files(self):
        is_wanted = wanted is None or file.job_id in wanted
        if file.job_id is not None and file.state in _ENDED and is_wanted:
            of_jobs.setdefault(file.job_id, []).append(file)
    unknown = [each for each in wanted or () if each not in of_jobs]
    if unknown:
        raise BadRequest(
            f"no job of submitted files {unknown[0]!r:.100} was rejected or has failed for good: "
            "see sleeper batcher report"
        )
    counts, gone = [], []
    for job_id, files in of_jobs.items():
        paths = [file.path for file in files]
        missing = self.tables.missing(paths)
        try:
            properties = self.tables.properties(files[0].table_id)
        except TableNotFound as deleted:
            _log.info("job %s of submitted files is not sent again: %s", job_id, deleted)
            continue
        queue = QUEUES_OF_BATCHER[properties.batcher.ingest_queue]
        there = [path for path in paths if path not in missing]
        counts.append(self.stores.batcher.reopen(job_id, there, queue))
        gone += missing
    sent = [count for count in counts if count]
    return RetriedFiles(jobs=len(sent), files=sum(sent), missing=tuple(gone))


def _state_of(self: JobsHandle, job_id: str, table_id: str) -> tuple[FileState, tuple[str, ...]]:
    try:
        status = job(self, job_id, table=table_id)
    except (JobNotFound, TableNotFound):  # it was not sent yet, or long ago
        return FileState.BATCHED, ()
    if status.state is JobState.FINISHED:
        return FileState.FINISHED, ()
    if not status.is_over:
        return FileState.BATCHED, ()
    state = FileState.REJECTED if status.state is JobState.REJECTED else FileState.FAILED
    return state, status.reasons
