"""What the worker loop needs to know of a kind of job: how a message is read, and run."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from sleeper.errors import StorageFailed
from sleeper.jobs.job_tables import JobTables
from sleeper.model.formats.message_json import table_in_message
from sleeper.model.jobs.events import UNKNOWN_TABLE
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.messages import ReceivedMessage
from sleeper.state.table_state import JobRecord

_log = logging.getLogger(__name__)


class JobDeferred(Exception):
    """A job cannot be run now, though nothing failed. Its message waits, uncounted.

    Attributes:
        delay_s: Seconds after which it comes again.
    """

    def __init__(self, reason: str, delay_s: float) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


class MessageRejected(Exception):
    """A message is no job that can be run.

    Attributes:
        job_id: Its job, if it names one, else the message's id.
        table_id: Its table; `UNKNOWN_TABLE` where there is no such table.
        reasons: All reasons, in upstream's words (rules ING-10, BLK-2).
        is_dead_letter: True for a message that becomes a dead letter; others are deleted, as the
            tracker has their text.
    """

    def __init__(
        self,
        job_id: str,
        reasons: tuple[str, ...],
        *,
        table_id: str = UNKNOWN_TABLE,
        is_dead_letter: bool = False,
    ) -> None:
        super().__init__("; ".join(reasons))
        self.job_id = job_id
        self.table_id = table_id
        self.reasons = reasons
        self.is_dead_letter = is_dead_letter


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What a run of a job did.

    Attributes:
        rows_read: Rows that it read.
        rows_written: Rows that it wrote.
        files: Files that it wrote.
        transaction: The table's transaction number with its result; None where there is none.
        locations: Where results are.
        platform: Where a bulk import ran.
        commit_s: Seconds that its commit took; None where it is not known.
        is_committed: False when the commit was handed to a committer.
        is_finished: False when a driver reports the run's end, or has done so.
    """

    rows_read: int = 0
    rows_written: int = 0
    files: int = 0
    transaction: int | None = None
    locations: tuple[str, ...] = ()
    platform: str | None = None
    commit_s: float | None = None
    is_committed: bool = True
    is_finished: bool = True

    @classmethod
    def of_record(cls, record: JobRecord | None, *, platform: str | None = None) -> Self | None:
        """Return what an ingest did that a table's log has; None where it does not have it."""
        if record is None:
            return None
        return cls(
            rows_read=record.rows_read,
            rows_written=record.rows_written,
            files=record.files,
            transaction=record.number,
            platform=platform,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One attempt to do a job.

    Attributes:
        run_id: Names the attempt.
        task_id: Names the worker.
        check: Called now and then while the job runs; raises `Interrupted` when it is to end.
    """

    run_id: str
    task_id: str
    check: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ABC):
    """A job that was read from a message and can be run. Each kind has a class of its own.

    Attributes:
        job_id: Names the work.
        table_id: The table it is for.
        input_files: How many files it reads; None where that says nothing.
        input_hash: Tells its input from that of another job with its id; None where it has none.
        is_tracked: False for messages that no tracker shows, such as a submission to the batcher.
        has_driver: True where another process does the work, and reports that it has started.
    """

    job_id: str
    table_id: str
    input_files: int | None = None
    input_hash: str | None = None
    is_tracked: bool = True
    has_driver: bool = False

    @abstractmethod
    def done_before(self) -> JobOutcome | None:
        """Return what an earlier run did, if the table's log has it; None where the job is new."""

    @abstractmethod
    def run(self, run: RunContext) -> JobOutcome:
        """Do the job.

        Raises:
            Interrupted: the worker is to end; nothing was committed.
            JobDeferred: there is no room for it now; nothing was started.
            SleeperError: it failed; `retryable` says whether the same job may succeed later.
        """


class JobReader(ABC):
    """Reads the messages of one kind of job.

    Attributes:
        kind: What the jobs do.
        is_tracked: Whether the tracker shows them.

    Args:
        tables: The tables that messages are for.
    """

    kind: ClassVar[JobKind]
    is_tracked: ClassVar[bool] = True

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables

    def table_id_of(self, message: ReceivedMessage) -> str | None:
        """Return the table that a message is for; None where there is none, or nobody can tell."""
        table_id, name = table_in_message(message.body)
        try:
            record = self._tables.find(table_id=table_id, table_name=name)
        except StorageFailed as failure:
            _log.warning("the table of message %s is unknown: %s", message.message_id, failure)
            return None
        return None if record is None else record.table_id

    @abstractmethod
    def read(self, message: ReceivedMessage) -> Job:
        """Return the job in a message. One without an id gets the message's.

        Raises:
            MessageRejected: it is none, or cannot be run.
            JobDeferred: there is no room for it now.
            StorageFailed: the instance cannot be read now.
        """
