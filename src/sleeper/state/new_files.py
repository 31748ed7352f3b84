"""Commits new files of a job to a table, once, and discards them if the commit fails.

Every commit of new files is made here, because here is checked that no sweep of orphans has
deleted the files, or can delete them before the commit.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sleeper.errors import (
    CommitContended,
    CommitRefused,
    CommitUnknown,
    InputRefused,
    JobAlreadyCommitted,
    NewFilesTooOld,
    StorageFailed,
    TableNotFound,
)
from sleeper.model.files import FileReference
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import CommittedJob, JobRecord, TableState
from sleeper.state.transactions.files import AddFiles, ReplaceFiles

_LOOK_AFTER_SHARE = 1 / 2
_OLDEST_SHARE = 3 / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepGuard:
    """Refuses to commit files that a sweep of orphans may have deleted or may soon delete.

    For a job that began recently no file is checked, because its files are younger than the job.

    Attributes:
        files: The table's folder.
        started: When the job began, before its first file, by the storage's clock (aware, UTC).
        orphan_age: The age from which on a sweep deletes files that no transaction names.
    """

    files: Objects
    started: datetime
    orphan_age: timedelta

    def check(self, filenames: Iterable[str], now: datetime) -> datetime:
        """Check each file if the job began long ago; return a time before all were written.

        Raises:
            NewFilesTooOld: a file was deleted, or is nearly as old as the orphan age.
            StorageFailed: the storage cannot be listed.
        """
        if now - self.started <= self.orphan_age * _LOOK_AFTER_SHARE:
            return self.started
        written_since = now
        oldest = now - self.orphan_age * _OLDEST_SHARE
        for filename in dict.fromkeys(filenames):
            modified = self._first_written(filename)
            if modified is None or modified < oldest:
                found = "is gone" if modified is None else f"was written at {modified}"
                raise NewFilesTooOld(
                    f"{filename!r} {found}, and a sweep deletes files that no commit names once "
                    f"they are {self.orphan_age} old. The job began at {self.started} and "
                    f"commits at {now}: nothing was committed. Run it again, in smaller "
                    "jobs or with a larger sleeper.table.gc.orphan.age.minutes."
                )
            written_since = min(written_since, modified)
        return written_since

    def _first_written(self, filename: str) -> datetime | None:
        """Return when a file was written; None if it is missing."""
        listed = self.files.listing(filename)
        return next((info.modified for info in listed if info.key == filename), None)


def add_files(
    references: Sequence[FileReference],
    job: CommittedJob,
    *,
    store: StateStore,
    guard: SweepGuard,
    now: datetime,
    discard: Callable[[], None],
    commit: Callable[[AddFiles], TableState] | None = None,
) -> int | JobRecord:
    """Commit references to new files, and return the transaction's number.

    If another process has committed the same job in the meantime, return the record of that.

    Args:
        references: References to files that are written and durable.
        job: The job that wrote them; it is committed once.
        store: The table's state.
        guard: Checks that no sweep deletes the files.
        now: The store's time.
        discard: Deletes the files; called if they are certainly not in the table.
        commit: Commits them, with what else belongs to them; without it they are committed alone.

    Raises:
        CommitRefused, CommitContended, StorageFailed: the table is unchanged.
        TableNotFound: it was deleted.
        CommitUnknown: they may be in the table, so they are not deleted. The error names the job
            id to run again.
    """
    try:
        return (commit or store.commit)(_checked(references, job, guard, now)).number
    except JobAlreadyCommitted:
        discard()
        done = store.refresh().jobs.find(job.job_id)
        assert done is not None
        return done
    except CommitUnknown as error:
        raise type(error)(  # CommitOverwritten is kept as it is
            f"{error} Its job id is {job.job_id}: run it again with job_id={job.job_id!r}, on the "
            f"command line --job-id {shlex.quote(job.job_id)}."
        ) from error
    except (CommitRefused, CommitContended, InputRefused, StorageFailed, TableNotFound):
        discard()
        raise


def request_files(
    references: Sequence[FileReference],
    job: CommittedJob,
    *,
    store: StateStore,
    guard: SweepGuard,
    now: datetime,
    send: Callable[[AddFiles], None],
) -> None:
    """Have a committer commit references to new files.

    Args:
        references, job, store, guard, now: As for `add_files`.
        send: Sends the transaction. Where that fails it may have been sent, so the files stay.

    Raises:
        NewFilesTooOld: the files cannot be committed any more.
        StorageFailed: the transaction may or may not have been sent. Run the job again.
    """
    send(_checked(references, job, guard, now))


def _checked(
    references: Sequence[FileReference],
    job: CommittedJob,
    guard: SweepGuard,
    now: datetime,
) -> AddFiles:
    """Return the transaction for new files that no sweep has deleted."""
    since = guard.check((reference.filename for reference in references), now)
    return AddFiles(references=tuple(references), job=job, written_since=since)


def replace_files(
    transactions: Sequence[ReplaceFiles], *, store: StateStore, guard: SweepGuard
) -> list[TableState | CommitRefused]:
    """Commit the outputs of compaction jobs together, but for those that are refused.

    Returns:
        For each transaction, in order, the state after all of them, or why it was refused.

    Raises:
        CommitContended, StorageFailed: the table is unchanged.
        CommitUnknown: they may have been committed, so the files are not deleted.
    """
    outcomes: dict[int, TableState | CommitRefused] = {}
    now = store.time()
    for number, transaction in enumerate(transactions):
        try:
            guard.check([transaction.output.filename], now)
        except NewFilesTooOld as refusal:
            outcomes[number] = refusal
    to_commit = [number for number in range(len(transactions)) if number not in outcomes]
    if to_commit:
        done = store.commit_group([transactions[number] for number in to_commit])
        committed = (refusal or done.state for refusal in done.refusals)
        outcomes |= zip(to_commit, committed, strict=True)
    return [outcomes[number] for number in range(len(transactions))]
