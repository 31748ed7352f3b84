"""Jobs of standard ingest: files that a message names become rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sleeper.errors import JobInvalid
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.formats.ingest_job import IngestJob, ingest_job_failures, read_ingest_job
from sleeper.model.jobs.events import JobKind, hash_of_paths
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.ports.ids import given_job_id
from sleeper.state.committed_jobs import JobRecord
from sleeper.workers.job import JobOutcome, MessageRejected, RunContext


@dataclass(frozen=True, slots=True)
class IngestWork:
    """An ingest job that can be run.

    Attributes:
        jobs: Where its table is found.
        table_id: The table.
        job_id: The job's id, given or made.
        paths: Its files.
        before: What the table's log said of the job when its message was read.
    """

    jobs: InstanceJobs
    table_id: str
    job_id: str
    paths: tuple[str, ...]
    before: JobRecord | None

    @property
    def input_files(self) -> int:
        """How many paths it names."""
        return len(self.paths)

    @property
    def input_hash(self) -> str:
        """Tells its files from others."""
        return hash_of_paths(self.paths)

    @property
    def is_tracked(self) -> bool:
        """Ingest jobs are tracked."""
        return True

    @property
    def has_driver(self) -> bool:
        """It is run by the worker itself."""
        return False

    def done_before(self) -> JobOutcome | None:
        """Return what the table's log said of the job when its message was read."""
        return JobOutcome.of_record(self.before)

    def run(self, run: RunContext) -> JobOutcome:
        """Ingest the files in one commit, here or by the committer (rule ING-13)."""
        table = self.jobs.tables.table(self.table_id)
        send = None
        if table.properties.async_commits.ingest:
            send = partial(self.jobs.send_commit, table, task_id=run.task_id, run_id=run.run_id)
        result = table.ingest(
            list(self.paths),
            self.job_id,
            progress=lambda done, total: run.check(),
            send_commit=send,
        )
        return JobOutcome(
            rows_read=result.rows_read,
            rows_written=result.rows_written,
            files=len({reference.filename for reference in result.files}),
            transaction=result.transaction if result.is_committed else None,
            commit_s=table.last_commit_s if result.is_committed else None,
            is_committed=result.is_committed,
        )


class IngestReader:
    """Reads messages of the ingest queue (rules ING-9 to ING-11).

    Args:
        jobs: The jobs of the instance whose tables are ingested into.
    """

    kind = JobKind.INGEST

    def __init__(self, jobs: InstanceJobs) -> None:
        self._jobs = jobs

    def read(self, message: ReceivedMessage) -> IngestWork:
        """Return the job in a message. Without an id it gets the message's, so it is done once.

        Raises:
            MessageRejected: it is none, or cannot be run, for all the reasons that it names.
            StorageFailed: the instance or the input cannot be looked at now.
        """
        try:
            job = self._jobs.tables.located(read_ingest_job(message.body))
        except JobInvalid as invalid:
            raise MessageRejected(message.message_id, invalid.failures) from None
        return self._checked(job, given_job_id(job.id) or message.message_id)

    def _checked(self, job: IngestJob, job_id: str) -> IngestWork:
        checked = self._jobs.tables.checked(job, ingest_job_failures, job_id=job_id)
        if checked.failures:
            raise MessageRejected(job_id, checked.failures, table_id=checked.table_id)
        return IngestWork(self._jobs, checked.table_id, job_id, tuple(job.paths), checked.before)
