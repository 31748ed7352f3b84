"""Submissions to the ingest batcher: files that wait until they make a job of a sensible size."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sleeper.errors import JobInvalid
from sleeper.instance.instance import Instance
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.language.value_classes import dataclass
from sleeper.model.formats.batcher_submission import (
    BatcherSubmission,
    batcher_submission_failures,
    read_batcher_submission,
)
from sleeper.model.jobs.events import JobKind
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.workers.job import JobOutcome, MessageRejected, RunContext
from sleeper.workers.kinds.file_batches import batch_limits


@dataclass(frozen=True, slots=True)
class SubmissionWork:
    """Files to be taken by the batcher.

    Attributes:
        instance: Where their table is.
        table_id: The table.
        job_id: The message's id.
        paths: Files and folders, as they were submitted.
        received: When they were submitted (aware, UTC).
    """

    instance: Instance
    table_id: str
    job_id: str
    paths: tuple[str, ...]
    received: datetime

    @property
    def input_files(self) -> int:
        """How many paths were submitted."""
        return len(self.paths)

    @property
    def input_hash(self) -> None:
        """It is not compared with others."""
        return

    @property
    def is_tracked(self) -> bool:
        """The batcher reports files; the tracker has the jobs that are made of them."""
        return False

    @property
    def has_driver(self) -> bool:
        """It is run by the worker itself."""
        return False

    def done_before(self) -> None:
        """Nobody remembers submissions: files that are pending are replaced by themselves."""
        return

    def run(self, run: RunContext) -> JobOutcome:
        """Note every file, with its size (rules BAT-1 and BAT-2)."""
        jobs = self.instance.jobs
        files = list(self._files())
        run.check()
        jobs.stores.batcher.save(files)
        return JobOutcome(files=len(files))

    def _files(self) -> Iterator[SubmittedFile]:
        jobs = self.instance.jobs
        properties = jobs.tables.table(self.table_id).properties
        expires = self.received + batch_limits(properties).kept
        for path, size_bytes in jobs.tables.sized_files(self.paths).items():
            yield SubmittedFile(
                table_id=self.table_id,
                path=path,
                size_bytes=size_bytes,
                received=self.received,
                expires=expires,
            )


class SubmissionReader:
    """Reads messages of the batcher's queue (rule BAT-1).

    Args:
        instance: For whose tables files are submitted.
    """

    kind = JobKind.INGEST

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def read(self, message: ReceivedMessage) -> SubmissionWork:
        """Return what a message submits.

        Raises:
            MessageRejected: it is no submission, or one of its paths names nothing: then none of
                its files is taken, and the message becomes a dead letter.
            StorageFailed: the instance or the input cannot be looked at now.
        """
        try:
            submission = self._instance.jobs.tables.located(read_batcher_submission(message.body))
        except JobInvalid as invalid:
            raise MessageRejected(
                message.message_id, invalid.failures, is_dead_letter=True
            ) from None
        return self._checked(submission, message)

    def _checked(self, submission: BatcherSubmission, message: ReceivedMessage) -> SubmissionWork:
        jobs: InstanceJobs = self._instance.jobs
        checked = jobs.tables.checked(submission, batcher_submission_failures)
        if checked.failures:
            raise MessageRejected(message.message_id, checked.failures, is_dead_letter=True)
        return SubmissionWork(
            self._instance,
            checked.table_id,
            message.message_id,
            tuple(submission.paths),
            message.sent,
        )
