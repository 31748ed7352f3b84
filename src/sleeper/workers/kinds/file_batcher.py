"""The ingest batcher: makes jobs of a sensible size of the files that were submitted."""

from __future__ import annotations

import logging
from datetime import datetime

from sleeper.errors import SleeperError, StorageFailed
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.language.failures import ends_process
from sleeper.language.value_classes import dataclass
from sleeper.model.formats.ingest_job import IngestJob, write_ingest_job
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import NewMessage
from sleeper.model.jobs.redelivery import chain_text
from sleeper.workers.kinds.file_batches import batch_limits, files_by_table, plan_batches

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherRound:
    """What one round of the batcher did.

    Attributes:
        jobs: Jobs that were sent to their queues.
        files: Files in them.
        dropped: Files of deleted tables, and files that expired, which were deleted.
    """

    jobs: int
    files: int
    dropped: int


def run_batcher(jobs: InstanceJobs, now: datetime) -> BatcherRound:
    """Make jobs of the files that are due, and send those that were made and not sent yet.

    A job is made in one durable step with its files, and sent after that. Killed in between, the
    next round sends it (rules BAT-4, BAT-5). A table that fails does not keep others waiting.

    Args:
        jobs: The instance's jobs.
        now: The time (aware, UTC).

    Raises:
        StorageFailed: the store or a queue cannot be reached; the next round continues there.
    """
    store = jobs.stores.batcher
    tables = jobs.tables.all()
    dropped = store.delete_tables_except({record.table_id for record in tables})
    dropped += store.delete_expired(now)
    online = {record.table_id for record in tables if record.online}
    for table_id, files in files_by_table(store.pending()).items():
        if table_id not in online:
            continue
        try:
            limits = batch_limits(jobs.tables.table(table_id).properties)
            for batch in plan_batches(files, limits, now):
                store.assign(jobs.new_id(), batch, limits.queue)
        except StorageFailed:
            raise
        except BaseException as failure:
            if ends_process(failure):
                raise
            _log.error(
                "no jobs are made of %d files of table %s: %s",
                len(files),
                table_id,
                chain_text(failure),
                exc_info=None if isinstance(failure, SleeperError) else failure,
            )
    sent = _send_unsent(jobs)
    if dropped:
        _log.info("dropped %d files that expired or whose table was deleted", dropped)
    return BatcherRound(jobs=len(sent), files=sum(sent), dropped=dropped)


def _send_unsent(jobs: InstanceJobs) -> list[int]:
    """Send every job that was made and not sent; return how many files each has."""
    sent = []
    for job in jobs.stores.batcher.unsent():
        message = IngestJob(id=job.job_id, table_id=job.table_id, files=job.paths)
        jobs.stores.queue(job.queue).send([NewMessage(body=write_ingest_job(message))])
        jobs.record_accepted(JobKind.INGEST, job.table_id, job.job_id, len(job.paths))
        jobs.stores.batcher.note_sent(job.job_id)
        _log.info("sent job %s of %d files to the %s queue", job.job_id, len(job.paths), job.queue)
        sent.append(len(job.paths))
    return sent
