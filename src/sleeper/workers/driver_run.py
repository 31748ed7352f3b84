"""A run of a bulk import in a driver, as the tracker shows it on every platform."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from sleeper.errors import PropertiesInvalid
from sleeper.instance.instance import Instance
from sleeper.jobs.event_recorder import RunEvents
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.jobs.events import JobEvent
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.redelivery import reasons_of
from sleeper.tables.bulk_import import BulkImportResult

_log = logging.getLogger(__name__)

_PLATFORM = "spark driver"


@contextmanager
def reported_run(
    instance: Instance,
    table_id: str,
    job: BulkImportJob,
    place: str | None,
    *,
    has_worker: bool = False,
) -> Iterator[Callable[[BulkImportResult], None]]:
    """Record that a run started, and in the end what it did, or why it failed.

    Where the instance's tracker cannot be reached from here, that is logged, and the table's log
    alone shows that the job is done.

    Args:
        instance: The instance.
        table_id: The job's table.
        job: The job.
        place: Where the job was saved, whose name ends in the run's id; None for a job that was
            given as it is.
        has_worker: Whether a worker waits for the driver, and reports a failure itself.

    Yields:
        What takes the result when the job is done.
    """
    try:
        jobs: InstanceJobs = instance.jobs
    except PropertiesInvalid as failure:
        _log.warning("job %s is not tracked: %s", job.id, failure)
        yield lambda result: None
        return
    run_id = run_id_of(job, place) or jobs.new_id()
    events = RunEvents(
        kind=JobKind.INGEST,
        table_id=table_id,
        job_id=job.id or run_id,
        run_id=run_id,
        task_id=run_id,
        input_files=len(job.paths),
    )
    now = jobs.recorder.now
    jobs.recorder.record(events.accepted(now()), events.started(now(), platform=_PLATFORM))
    done: list[BulkImportResult] = []
    try:
        yield done.append
    except BaseException as failure:
        if has_worker:
            raise
        jobs.recorder.record(events.failed(now(), reasons_of(failure), is_final=True))
        raise
    jobs.recorder.record(*(_finished(events, now(), result) for result in done))


def _finished(events: RunEvents, at: datetime, result: BulkImportResult) -> JobEvent:
    return events.finished(
        at,
        files=len({reference.filename for reference in result.files}),
        rows_read=result.rows_read,
        rows_written=result.rows_written,
        transaction=result.transaction if result.is_committed else None,
        platform=_PLATFORM,
        is_committed=result.is_committed,
    )


def run_id_of(job: BulkImportJob, place: str | None) -> str | None:
    """Return the run's id from `bulk_import/<job id>-<run id>.json`; None without a place."""
    if place is None:
        return None
    name = place.rpartition("/")[2].removesuffix(".json")
    return name.removeprefix(f"{job.id}-") or None
