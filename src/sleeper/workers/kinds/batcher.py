"""Submissions to the ingest batcher: files that wait until they make a job of a sensible size."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sleeper.errors import JobInvalid, SleeperError, StorageFailed, ends_process
from sleeper.html.values import NotebookHtml
from sleeper.instance.instance import Instance
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.csv_options import CsvOptions, text_of_csv
from sleeper.model.formats.batcher_submission import (
    BatcherSubmission,
    batcher_submission_failures,
    read_batcher_submission,
)
from sleeper.model.formats.ingest_job import IngestJob, write_ingest_job
from sleeper.model.jobs.kinds import QUEUES_OF_BATCHER, JobKind, QueueName
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.model.jobs.redelivery import chain_text
from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.model.known_properties.typed import TableProperties
from sleeper.workers.job import Job, JobOutcome, JobReader, MessageRejected, RunContext

# ---------------------------------------------------------------- file batches
#
# Which files of the ingest batcher become which jobs (rule BAT-4).

_CLOSED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When a table's files become jobs, and how large these are.

    Attributes:
        files_min: Fewer files wait, unless one has waited too long.
        files_max: Files in a job, at most.
        bytes_min: Fewer bytes wait, unless a file has waited too long.
        bytes_max: Bytes in a job, at most; a larger file is a job by itself.
        age_max: No file waits longer.
        queue: Where jobs are sent.
        kept: How long one can ask which job a file went to, from its submission on.
    """

    files_min: int
    files_max: int
    bytes_min: int
    bytes_max: int
    age_max: timedelta
    queue: QueueName
    kept: timedelta


def batch_limits(properties: TableProperties) -> BatchLimits:
    """Return a table's limits, by its properties `sleeper.table.ingest.batcher.*`."""
    batcher = properties.batcher
    return BatchLimits(
        files_min=batcher.job_min_files,
        files_max=batcher.job_max_files,
        bytes_min=batcher.job_min_bytes,
        bytes_max=batcher.job_max_bytes,
        age_max=timedelta(seconds=batcher.file_age_max_s),
        queue=QUEUES_OF_BATCHER[batcher.ingest_queue],
        kept=timedelta(minutes=min(batcher.tracking_minutes, 100 * 365 * 24 * 60)),
    )


def files_by_table(pending: Iterable[SubmittedFile]) -> dict[str, list[SubmittedFile]]:
    """Return the pending files of each table; tables and files in the order of the files."""
    by_table: dict[str, list[SubmittedFile]] = defaultdict(list)
    for file in pending:
        by_table[file.table_id].append(file)
    return dict(by_table)


def plan_batches(
    files: Sequence[SubmittedFile], limits: BatchLimits, now: datetime
) -> list[list[SubmittedFile]]:
    """Return which files of one table become a job together: all of them, or none yet.

    They become jobs when one was received before `now` less the greatest age, or when they are
    as many, and as many bytes, as a job waits for. Each file goes into the first job that has
    room for it, of files that are written in the same way and that all replace rows or all add
    them (rule BAT-4).

    Args:
        files: The table's pending files, oldest first.
        limits: The table's limits.
        now: The time (aware, UTC).
    """
    if not _is_due(files, limits, now):
        return []
    alike: dict[tuple[str, bool], list[SubmittedFile]] = {}
    for file in files:
        alike.setdefault((text_of_csv(file.csv), file.upsert), []).append(file)
    return [batch for some in alike.values() for batch in _first_fit(some, limits)]


def _is_due(files: Sequence[SubmittedFile], limits: BatchLimits, now: datetime) -> bool:
    oldest = min((file.received for file in files), default=now)
    if oldest < now - limits.age_max:
        return True
    enough_bytes = sum(file.size_bytes for file in files) >= limits.bytes_min
    return bool(files) and len(files) >= limits.files_min and enough_bytes


def _first_fit(files: Sequence[SubmittedFile], limits: BatchLimits) -> list[list[SubmittedFile]]:
    batches: list[list[SubmittedFile]] = []
    room = _Room()
    for file in files:
        size_bytes = file.size_bytes
        at = room.first_with(size_bytes)
        if at is None:
            batches.append([file])
            left = limits.bytes_max - size_bytes
            room.append(left if limits.files_max > 1 else _CLOSED)
        else:
            batch = batches[at]
            batch.append(file)
            is_full = len(batch) >= limits.files_max
            room.set(at, _CLOSED if is_full else room.of(at) - size_bytes)
    return batches


class _Room:
    """The bytes that are left in each of a list of batches; finds the first with enough.

    A complete binary tree in a list: each node has the greatest of the two beneath it, so that
    finding, changing and adding one take a step for each level.
    """

    def __init__(self) -> None:
        self._leaves = 1
        self._tree = [_CLOSED, _CLOSED]  # node n is above nodes 2n and 2n + 1; the root is 1
        self._count = 0

    def of(self, at: int) -> int:
        """Return what is left in a batch."""
        return self._tree[self._leaves + at]

    def first_with(self, wanted: int) -> int | None:
        """Return the first batch that has as much left; None without one."""
        tree, leaves = self._tree, self._leaves
        if tree[1] < wanted:
            return None
        node = 1
        while node < leaves:
            node *= 2
            if tree[node] < wanted:
                node += 1
        return node - leaves

    def append(self, left: int) -> None:
        """Add a batch at the end."""
        if self._count == self._leaves:
            self._double()
        self._count += 1
        self.set(self._count - 1, left)

    def set(self, at: int, left: int) -> None:
        """Change what is left in a batch."""
        tree = self._tree
        node = self._leaves + at
        tree[node] = left
        while node > 1:
            other = tree[node ^ 1]
            node //= 2
            most = max(other, left)
            if tree[node] == most:
                return
            tree[node] = left = most

    def _double(self) -> None:
        levels = [self._tree[self._leaves :] + [_CLOSED] * self._leaves]
        while len(levels[-1]) > 1:
            beneath = levels[-1]
            levels.append(list(map(max, beneath[::2], beneath[1::2])))
        self._leaves *= 2
        self._tree = [_CLOSED, *(value for level in reversed(levels) for value in level)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionWork(Job):
    """Files to be taken by the batcher. It reports files, so the tracker has only their jobs.

    Attributes:
        instance: Where their table is.
        paths: Files and folders, as they were submitted.
        csv: How files of CSV are written.
        upsert: Whether their rows replace those of the same row keys.
        received: When they were submitted (aware, UTC).
    """

    instance: Instance
    paths: tuple[str, ...]
    csv: CsvOptions | None
    upsert: bool
    received: datetime

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
                csv=self.csv,
                upsert=self.upsert,
            )


class SubmissionReader(JobReader):
    """Reads messages of the batcher's queue (rule BAT-1).

    Args:
        instance: For whose tables files are submitted.
    """

    kind = JobKind.INGEST
    is_tracked = False

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.jobs.tables)
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
            job_id=message.message_id,
            table_id=checked.table_id,
            input_files=len(submission.paths),
            is_tracked=False,
            instance=self._instance,
            paths=tuple(submission.paths),
            csv=CsvOptions.from_json(submission.csv) if submission.csv else None,
            upsert=submission.upsert,
            received=message.sent,
        )


def open_reader(instance: Instance, queue: QueueName) -> SubmissionReader:
    """Return what reads the messages of the queue."""
    return SubmissionReader(instance)


# ---------------------------------------------------------------- file batcher
#
# The ingest batcher: makes jobs of a sensible size of the files that were submitted.

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherRound(NotebookHtml):
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
    next round sends it (rules BAT-4, BAT-5). A table that fails does not keep others waiting. For a
    table that is offline jobs are made as well: ingest goes on there.

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
    for table_id, files in files_by_table(store.pending()).items():
        try:
            limits = batch_limits(jobs.tables.properties(table_id))
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
        csv = {} if job.csv is None else job.csv.to_json()
        message = IngestJob(
            id=job.job_id, table_id=job.table_id, files=job.paths, csv=csv, upsert=job.upsert
        )
        message_id = jobs.send_message(job.queue, write_ingest_job(message))
        jobs.record_accepted(
            JobKind.INGEST, job.table_id, job.job_id, len(job.paths), message_id=message_id
        )
        jobs.stores.batcher.note_sent(job.job_id)
        _log.info(
            "sent %s %s of %d files to the %s queue",
            "upsert" if job.upsert else "job",
            job.job_id,
            len(job.paths),
            job.queue,
        )
        sent.append(len(job.paths))
    return sent
