"""Commits: how an entry gets into a log, transactions into a table, and new files with their job.

Words:

- An entry is a numbered object of a log; a number is taken once, by whoever creates it first.
- A transaction is one change of a table; an entry holds one or more of them.
- The state is what all entries up to a number make of a table. `replay` makes it newer.
- A sweep deletes files that no entry names; its guard refuses files that it may have deleted.

Steps of an ingest, a bulk import or a compaction whose files are written:

1. `add_files` or `replace_files` asks the guard whether all files are still there
2. the state store calls `commit_group` with the transaction, and those of others that wait
3. `append_entry` takes the log's lock, as far as it has one, and reads the entries of others
4. each transaction is applied to that state; a refused one is left out, with its reason
5. the entry with the others is created if its number is free; if it is not, back to 3
6. a lost reply is cleared up by reading; files of a commit that certainly failed are deleted

The table index commits by `append_entry` as well, with changes of its own.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count, groupby
from typing import Generic, Protocol, TypeVar

from sleeper.errors import (
    CommitContended,
    CommitRefused,
    CommitUnknown,
    DataDamaged,
    InstanceLost,
    JobAlreadyCommitted,
    NewFilesTooOld,
    StorageFailed,
    StorageFull,
    StorageReadOnly,
    TableNotFound,
)
from sleeper.model.files import FileReference
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove
from sleeper.ports.objects import Objects
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.moves import SetSchema
from sleeper.state.state_store import GroupResult, StateStore, check_not_moved
from sleeper.state.table_state import CommittedJob, JobRecord, TableState, Transaction
from sleeper.state.transaction_json import LogEntry, decode_entry, encode_entry
from sleeper.state.transactions.files import AddFiles, ReplaceFiles, fold_added

T = TypeVar("T")

_SENDS = 3  # how often one entry is sent if storage does not confirm the result
_LOOKS_PER_CALL = 10  # looks at the writers' lock for one call of `meanwhile`


class Entries(Protocol):
    """What takes numbered entries, such as a `TransactionLog`, which describes the methods."""

    def append(self, number: int, body: bytes) -> bool:
        """Store entry `number` if that number is free."""
        ...

    def read(self, number: int) -> bytes | None:
        """Return the body of entry `number`, or None if there is none."""
        ...

    def writer_lock(self, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
        """Hold an advisory lock among writers of this machine."""
        ...


@dataclass(frozen=True, slots=True)
class NextEntry(Generic[T]):
    """The entry that one attempt appends, and the result for the caller.

    Attributes:
        number: The entry's number: one more than the last one read.
        body: Its body, different from any other writer's; None if there is nothing to append.
        result: What `append_entry` returns once the log holds the entry.
    """

    number: int
    body: bytes | None
    result: T


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWording:
    """Words of error messages about an entry.

    Attributes:
        entry: The word before the entry's number.
        when_contended: What to do after losing every race.
        when_unknown: What to do if it is unknown whether the entry was written.
        attempts_source: The setting of the number of attempts.
    """

    entry: str
    when_contended: str
    when_unknown: str
    attempts_source: str


def append_entry(
    log: Entries,
    build: Callable[[], NextEntry[T]],
    *,
    pause: Callable[[int], None],
    attempts: int,
    wording: CommitWording,
    meanwhile: Callable[[], object] = lambda: None,
) -> T:
    """Append the entry that `build` returns, in at most `attempts` attempts; return its result.

    Args:
        log: The log.
        build: Reads new entries of the log and builds the next one; called in each attempt. An
            error that it raises ends the commit.
        pause: Waits before another attempt; called with the number of attempts before, from 0.
        attempts: Maximum number of attempts if other writers take the number first.
        wording: Words of error messages.
        meanwhile: Called now and then while other writers of this machine have the log's lock, to
            read their entries: whoever has the lock then holds others up for less time.

    Raises:
        CommitContended: other writers were faster in every attempt. Nothing was written.
        CommitUnknown: storage did not confirm whether the entry was written.
        StorageFailed: storage failed. Nothing was written.
        InstanceLost: the log is not the one that was read before. Nothing was written.
    """
    if attempts < 1:
        raise CommitContended(
            f"no attempt to commit was made: {wording.attempts_source} is {attempts}. Nothing "
            "was written. Set it to 1 or more."
        )
    looks = count()

    def wait_for_lock() -> None:
        if next(looks) % _LOOKS_PER_CALL == 0:
            meanwhile()
        pause(0)

    for attempt in range(attempts):
        with log.writer_lock(wait_for_lock):
            entry = build()
            if entry.body is None or _append(log, entry.number, entry.body, pause, wording):
                return entry.result
        if attempt + 1 < attempts:
            pause(attempt)
    raise CommitContended(
        f"other writers were faster in {attempts} attempts, the last time for {wording.entry} "
        f"{entry.number}. Nothing was written. {wording.when_contended}"
    )


def _append(
    log: Entries,
    number: int,
    body: bytes,
    pause: Callable[[int], None],
    wording: CommitWording,
) -> bool:
    """Append an entry; if the reply is lost, read the log to find out the result.

    Returns:
        True if `number` is our entry, False if it is another writer's.

    Raises:
        StorageFull, StorageReadOnly, InstanceLost: the entry was not written.
        CommitUnknown: the entry may be written, now or later.
    """
    certain = True  # every failure so far was a refusal: no request can still be executed later
    failure: StorageFailed
    for send in range(_SENDS):
        if send:
            pause(send - 1)
        try:
            return log.append(number, body)
        except InstanceLost as error:
            if certain:
                raise
            failure = error  # the entry may be where the instance was moved to
            break
        except StorageFailed as error:
            failure = error
            certain = certain and isinstance(error, StorageFull | StorageReadOnly)
        try:
            found = log.read(number)
        except StorageFailed:
            certain = False
            continue
        if found is not None:
            return found == body
        if certain:
            raise failure
    raise CommitUnknown(
        f"storage did not say whether {wording.entry} {number} was committed: {failure} "
        f"{wording.when_unknown}"
    ) from failure


# ---------------------------------------------------------------- commit
#
# Replays a table's log and commits transactions to it.
#
# A commit replays entries of other writers, applies its transactions to the newest state, and
# appends them by the commit loop in `append_entry`.

COMMIT_WORDING = CommitWording(
    entry="transaction",
    when_contended="Try again, or commit through one committer.",
    when_unknown=(
        "Do not delete its files. When storage answers again, run it again with the same job "
        "id: if it was committed, nothing is added."
    ),
    attempts_source="sleeper.table.statestore.transactionlog.add.transaction.max.attempts",
)
"""Words of errors about a commit."""


def apply_entry(state: TableState, number: int, entry: LogEntry) -> TableState:
    """Return the state after entry `number` of the log. Its transactions are not checked again.

    Raises:
        DataDamaged: the entry does not follow `state`, or changes something that does not exist.
    """
    if number != state.number + 1:
        raise DataDamaged(
            f"the transaction log has no entry {state.number + 1}: after {state.number} comes "
            f"{number}. Restore the missing entries from a copy of the table's state."
        )
    applied = replace(state, number=number, at=entry.at)
    for transactions in _runs(entry.transactions):
        try:
            applied = _fold(transactions, applied, entry.at)
        except (LookupError, ValueError) as error:
            raise DataDamaged(
                f"entry {number} of the transaction log does not fit the state before it: "
                f"{error}. Restore the table's state from a copy."
            ) from error
    return applied


def _runs(transactions: Iterable[Transaction]) -> Iterator[list[Transaction]]:
    """Yield transactions in order: those that add files together, each other by itself."""
    for adds_files, run in groupby(transactions, lambda each: type(each) is AddFiles):
        if adds_files:
            yield [*run]
        else:
            yield from ([each] for each in run)


def _fold(transactions: list[Transaction], state: TableState, at: datetime) -> TableState:
    """Return the state after one of the runs of `_runs`."""
    added = [each for each in transactions if isinstance(each, AddFiles)]
    return fold_added(added, state, at) if added else transactions[0].fold(state, at)


def replay(state: TableState, entries: Iterable[tuple[int, bytes]], schema: Schema) -> TableState:
    """Return the state after `entries`, as a log's `read_after` yields them.

    Raises:
        DataDamaged: an entry is missing, unreadable, or does not fit the state.
        FormatTooNew: a newer Sleeper wrote one of them.
    """
    for number, body in entries:
        entry = decode_entry(body, schema, f"entry {number} of the transaction log")
        state = apply_entry(state, number, entry)
    return state


def commit_group(
    transactions: Sequence[Transaction],
    log: TransactionLog,
    known: TableState,
    *,
    schema: Schema,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
    pause: Callable[[int], None],
    attempts: int = 10,
    here: StateMove | None = None,
    is_known_newest: bool = False,
) -> GroupResult:
    """Commit transactions in one entry; each is checked against the state after those before it.

    A refused transaction is left out, and its reason is in the result; the others are committed.
    Nothing is written if all are refused, or none changes anything. If the state has no schema
    yet, the entry also sets the table's schema.

    Args:
        transactions: The transactions, in the order in which they are applied.
        log: The table's log.
        known: Any state of the table; a newer one has fewer entries to replay.
        schema: The table's schema.
        now: Returns the storage's time (aware, UTC); called once in each attempt.
        new_id: Makes an entry id for each attempt.
        pause: Waits before another attempt; called with the number of attempts before, from 0.
        attempts: Maximum number of attempts.
        here: The move of the table's state that the log was opened for; None for the first store.
        is_known_newest: Whether `known` is probably the newest state: then the log is read only if
            the next number is taken, or `known` allows nothing.

    Raises:
        StateMoved: the table's state is in another store. Nothing was written.
        CommitContended: other writers were faster in every attempt. Nothing was written.
        CommitUnknown: storage did not confirm whether the entry was written.
        StorageFailed: storage failed. Nothing was written.
        DataDamaged, FormatTooNew: the log cannot be read. Nothing was written.
        BadRequest: a transaction has an invalid value. Nothing was written.
    """
    planned = partial(_planned, transactions, here, schema=schema, now=now, new_id=new_id)

    def catch_up() -> None:
        nonlocal known
        known = replay(known, log.read_after(known.number), schema)

    def build() -> NextEntry[GroupResult]:
        nonlocal is_known_newest
        if is_known_newest:
            is_known_newest = False
            entry = planned(known)
            if entry.body is not None:  # if its number is free, `known` is the newest state
                return entry
        catch_up()
        return planned(known)

    more = 1 if is_known_newest and attempts > 0 else 0
    given = partial(append_entry, log, build, pause=pause, wording=COMMIT_WORDING)
    return given(attempts=attempts + more, meanwhile=catch_up)


def _planned(
    transactions: Sequence[Transaction],
    here: StateMove | None,
    known: TableState,
    *,
    schema: Schema,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
) -> NextEntry[GroupResult]:
    """Return the entry after a state; one without a body if it would change nothing."""
    check_not_moved(known, transactions, here)
    at = known.next_entry_time(now())
    following = replace(known, number=known.number + 1, at=at)
    first = (
        () if known.schemas else (SetSchema(schema_id=known.schema_id, schema=schema.as_stored()),)
    )
    for missing in first:
        following = missing.fold(following, at)
    applied, accepted, refusals = _apply_each(transactions, following, at)
    if not accepted:
        return NextEntry(following.number, None, GroupResult(known, refusals))
    entry = LogEntry(entry_id=new_id(), at=at, transactions=(*first, *accepted))
    body = encode_entry(entry, schema)
    return NextEntry(following.number, body, GroupResult(applied, refusals))


def _apply_each(
    transactions: Sequence[Transaction], state: TableState, at: datetime
) -> tuple[TableState, tuple[Transaction, ...], tuple[CommitRefused | None, ...]]:
    """Return the state after the accepted transactions, those that change it, and the refusals."""
    accepted: list[Transaction] = []
    refusals: list[CommitRefused | None] = []
    for transaction in transactions:
        try:
            applied = transaction.apply(state, at)
        except CommitRefused as refusal:
            refusals.append(refusal)
            continue
        refusals.append(None)
        if applied is not state:
            accepted.append(transaction)
            state = applied
    return state, tuple(accepted), tuple(refusals)


# ---------------------------------------------------------------- new files
#
# Commits new files of a job to a table, once, and discards them if the commit fails.
#
# Every commit of new files is made here, because here is checked that no sweep of orphans has
# deleted the files, or can delete them before the commit.


# A sweep deletes files older than the orphan age. The difference to these shares of it is time for
# a slow commit, and for a sweep that has listed files and not yet deleted them.
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

    Raises:
        CommitRefused, CommitContended, StorageFailed: the table is unchanged.
        TableNotFound: it was deleted.
        CommitUnknown: they may be in the table, so they are not deleted. The error names the job
            id to run again.
    """
    try:
        return store.commit(_checked(references, job, store.state(), guard, now)).number
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
    except (CommitRefused, CommitContended, StorageFailed, TableNotFound):
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
    send(_checked(references, job, store.state(), guard, now))


def _checked(
    references: Sequence[FileReference],
    job: CommittedJob,
    state: TableState,
    guard: SweepGuard,
    now: datetime,
) -> AddFiles:
    """Return the transaction for new files that no sweep has deleted, with the table's schema."""
    since = guard.check((reference.filename for reference in references), now)
    added = tuple(replace(reference, schema_id=state.schema_id) for reference in references)
    return AddFiles(references=added, job=job, written_since=since)


def replace_files(transaction: ReplaceFiles, *, store: StateStore, guard: SweepGuard) -> TableState:
    """Commit the output of a compaction job, and return the state after it.

    Raises:
        CommitRefused, CommitContended, StorageFailed: the table is unchanged.
        CommitUnknown: it may have been committed, so the file is not deleted.
    """
    guard.check([transaction.output.filename], store.time())
    return store.commit(transaction)
