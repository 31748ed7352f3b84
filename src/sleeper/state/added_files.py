"""Files that a job has written become part of the table, once, or are given up.

Every commit of new files goes through here, because here it is made sure that no sweep of orphans
has deleted them, or will before they are committed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sleeper.errors import (
    CommitContended,
    CommitRefused,
    CommitUnknown,
    JobAlreadyCommitted,
    NewFilesTooOld,
    StorageFailed,
)
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.ports.objects import Objects
from sleeper.state.committed_jobs import CommittedJob, JobRecord
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles, ReplaceFiles

# A sweep deletes files of the whole orphan age. What lies between these shares and the whole is
# time for a commit that is slow, and for a sweep that has listed files and not yet deleted them.
_LOOK_AFTER_SHARE = 1 / 2
_OLDEST_SHARE = 3 / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepGuard:
    """Refuses to commit files that a sweep of orphans may have deleted, or is about to.

    A job that began lately commits without a look at storage: its files are younger still.

    Attributes:
        files: The table's folder.
        started: When the job began, before its first file, by the storage's clock (aware, UTC).
        orphan_age: How old a file must be that a sweep deletes.
    """

    files: Objects
    started: datetime
    orphan_age: timedelta

    def check(self, filenames: Iterable[str], now: datetime) -> datetime:
        """Look at each file, if the job began long ago, and return since when they were written.

        Raises:
            NewFilesTooOld: a file is gone, or nearly as old as the orphan age.
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
                    f"they are {self.orphan_age} old. The job began at {self.started} and comes "
                    f"to its commit at {now}: nothing was committed. Run it again, in smaller "
                    "jobs or with a larger sleeper.table.gc.orphan.age.minutes."
                )
            written_since = min(written_since, modified)
        return written_since

    def _first_written(self, filename: str) -> datetime | None:
        """When a file or its sketch was written, which comes first; None where one is gone."""
        wanted = {filename, paths.sketch_file(filename)}
        listed = self.files.listing(filename.removesuffix(".parquet"))
        found = {info.key: info.modified for info in listed if info.key in wanted}
        return min(found.values()) if found.keys() == wanted else None


def add_files(
    references: Sequence[FileReference],
    job: CommittedJob,
    *,
    store: StateStore,
    guard: SweepGuard,
    discard: Callable[[], None],
) -> int | JobRecord:
    """Commit references to new files, and return the transaction's number.

    Where the same job was committed meanwhile by somebody faster, return the record of that.

    Args:
        references: Of files that are written and durable.
        job: The job that wrote them; its work is done once.
        store: The table's state.
        guard: Makes sure that the files are there and stay.
        discard: Deletes the files; called when they are certainly not in the table.

    Raises:
        CommitRefused, CommitContended, StorageFailed: the table is as it was.
        CommitUnknown: they may be in the table, so they stay where they are. The error names the
            job id that finds out.
    """
    try:
        since = guard.check((reference.filename for reference in references), store.time())
        schema_id = store.state().schema_id
        added = tuple(replace(reference, schema_id=schema_id) for reference in references)
        return store.commit(AddFiles(references=added, job=job, written_since=since)).number
    except JobAlreadyCommitted:
        discard()
        done = store.refresh().jobs.find(job.job_id)
        assert done is not None
        return done
    except CommitUnknown as error:
        raise type(error)(  # CommitOverwritten stays what it is
            f"{error} Its job id is {job.job_id}: run it again with job_id={job.job_id!r}, on the "
            f"command line --job-id {shlex.quote(job.job_id)}."
        ) from error
    except (CommitRefused, CommitContended, StorageFailed):
        discard()
        raise


def request_files(
    references: Sequence[FileReference],
    job: CommittedJob,
    *,
    store: StateStore,
    guard: SweepGuard,
    send: Callable[[AddFiles], None],
) -> None:
    """Have a committer commit references to new files.

    Args:
        references, job, store, guard: As for `add_files`.
        send: Sends the transaction. Where that fails it may have been sent, so the files stay.

    Raises:
        NewFilesTooOld: the files cannot be committed any more.
        StorageFailed: the transaction may or may not have been sent. Run the job again.
    """
    since = guard.check((reference.filename for reference in references), store.time())
    schema_id = store.state().schema_id
    added = tuple(replace(reference, schema_id=schema_id) for reference in references)
    send(AddFiles(references=added, job=job, written_since=since))


def replace_files(transaction: ReplaceFiles, *, store: StateStore, guard: SweepGuard) -> TableState:
    """Commit what a compaction job wrote, and return the state after it.

    Raises:
        CommitRefused, CommitContended, StorageFailed: the table is as it was.
        CommitUnknown: it may have been committed, so the file stays.
    """
    guard.check([transaction.output.filename], store.time())
    return store.commit(transaction)
