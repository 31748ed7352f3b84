"""The state store that replaces the whole state of a table by each commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final, Protocol

from sleeper.errors import (
    CommitRefused,
    CommitTooLarge,
    CommitUnknown,
    DataDamaged,
    SleeperError,
    StorageFailed,
    VersionNotFound,
)
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove
from sleeper.state.append import NextEntry, append_entry
from sleeper.state.commit import COMMIT_WORDING
from sleeper.state.log_entry import check_storable
from sleeper.state.moves import version_left_behind
from sleeper.state.state_store import GroupResult, SweepLimits, SweptStates, check_not_moved
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.deletes import DeleteKeys, DeleteRows
from sleeper.state.transactions.files import AddFiles, ClearFiles, UpsertFiles
from sleeper.state.transactions.partitions import ExtendPartitionTree, InitialisePartitions
from sleeper.state.transactions.schemas import missing_schema
from sleeper.state.value_json import time_from_json, time_to_json

_FEWER_FILES = "Commit fewer files at a time"
_FEWER_LEAVES = "Split the table into fewer leaves at a time"
_ADVICE: Final[Mapping[type[Transaction], str]] = {
    AddFiles: (
        "Add rows of fewer leaves at a time: an ingest writes a file for each leaf that gets many "
        "rows, or one shared file for few rows, with a reference for each leaf"
    ),
    ClearFiles: "Delete the table and create it again",
    DeleteRows: (
        "Compact the table, so that files obey the deletions that it has (`sleeper compact NAME "
        "--all-files`), delete ranges instead of single keys"
    ),
    DeleteKeys: "Compact the table, so that files obey its deletions",
    UpsertFiles: "Compact the table, so that files obey its upserts, or upsert fewer rows",
    ExtendPartitionTree: _FEWER_LEAVES,
    InitialisePartitions: _FEWER_LEAVES,
}


@dataclass(frozen=True, slots=True)
class _Applied:
    """Transactions that one commit holds, and how many of all were looked at."""

    state: TableState
    refusals: tuple[CommitRefused | None, ...]
    has_changes: bool


class RevisionStateStore:
    """A `StateStore` on revisions. Safe for many threads of one process.

    Commits of one store run one after the other; readers never wait for a commit.

    Args:
        revisions: The table's revisions.
        schema: The table's schema.
        storage_time: The clock of the storage, which dates commits (aware, UTC).
        ticks_s: A monotonic clock, in seconds.
        new_id: Makes an id for each commit.
        pause: Waits after a lost race; called with the number of races lost before.
        attempts: Maximum number of attempts of one commit.
        here: The move of the table's state to this store; None if it is the table's first.
        note_commit: Called after each commit, and after one of which nothing is known.

    Attributes:
        commit_s: Seconds that the last commit took, with lost races; None before the first.
    """

    log = None
    """There is no log."""

    snapshots = None
    """There are no snapshots."""

    def __init__(
        self,
        revisions: StateRevisions,
        schema: Schema,
        *,
        storage_time: Callable[[], datetime],
        ticks_s: Callable[[], float],
        new_id: Callable[[], str],
        pause: Callable[[int], None],
        attempts: int = 10,
        here: StateMove | None = None,
        note_commit: Callable[[], object] = lambda: None,
    ) -> None:
        self._revisions = revisions
        self._here = here
        self._schema = schema
        self._storage_time = storage_time
        self._ticks_s = ticks_s
        self._new_id = new_id
        self._pause = pause
        self._attempts = attempts
        self._note_commit = note_commit
        self.commit_s: float | None = None
        self._held: Revision | None = None
        self._swapping, self._committing = Lock(), Lock()

    @property
    def changes_max(self) -> int | None:
        """How many changes one commit may make; None for any number."""
        return self._revisions.changes_max

    def known(self) -> TableState | None:
        """Return the cached state, if there is one."""
        return None if self._held is None else self._held.state

    def begin(self) -> None:
        """Do nothing: the newest state is one read away."""

    def state(self) -> TableState:
        """Return the cached state; it is read at the first call."""
        return (self._held or self._refreshed()).state

    def refresh(self) -> TableState:
        """Return the newest state. Without a new commit this costs one read."""
        return self._refreshed().state

    def time(self) -> datetime:
        """Return the storage's time, or the last commit's if that is later."""
        now, last = self._storage_time(), self.state().at
        return now if last is None else max(now, last)

    def dates_stored_before(self, time: datetime) -> datetime:
        """Find out from the history when commits were stored.

        The first look at the newest commit is remembered: a later call then knows its time.
        """
        newest = self._refreshed()
        date = newest.state.at
        if date is not None and not newest.history.has_seen(date):
            seen = newest.history.looked_at(date, self._storage_time())
            newest = self._hold(Revision(newest.state, seen))
            self._revisions.remember(newest)
        return newest.history.dates_stored_before(time)

    def at(self, number: int) -> TableState:
        """Return the state after transaction `number`, if it is kept.

        It can be read even if the newest state is damaged. The one that this process holds as the
        newest is not looked for, as it is not by a store on a log.
        """
        if self._held is not None and self._held.state.number == number:
            return self._held.state
        try:
            newest = self.refresh()
        except DataDamaged:
            older = self._revisions.at(number)
            if older is None:
                raise
            return older
        if number == newest.number:
            return newest
        if not 0 <= number < newest.number:
            raise VersionNotFound(
                f"the table has no transaction {number}; the newest is {newest.number}"
            )
        found = self._revisions.at(number)
        if found is None or found.needs_more_than(newest):
            if self._here is not None and number < self._here.number:
                raise version_left_behind(number, self._here)
            raise VersionNotFound(
                f"the table's state at transaction {number} is no longer kept, or its files were "
                f"deleted; the newest is {newest.number}. Older versions are read from a "
                "TransactionLogStateStore or DynamoDBTransactionLogStateStore "
                "(`sleeper table migrate-state`), or the last ones from a S3StateStore "
                "(sleeper.table.statestore.s3.revisions.kept.min and .minutes)."
            )
        return found

    def state_after(self, number: int) -> TableState | None:
        """Return the state of a revision that is kept, even if its files were deleted."""
        newest = self.refresh()
        if number == newest.number:
            return newest
        return self._revisions.at(number) if 0 <= number < newest.number else None

    def time_of(self, number: int) -> datetime | None:
        """Return the date of a revision; None if it is not kept."""
        state = self.state_after(number)
        return None if state is None else state.at

    def begin_with(self, state: TableState) -> None:
        """Make the first revision (see the interface)."""
        self._revisions.begin(Revision(state, RevisionHistory((self._new_id(),))))

    def write_snapshot(self) -> None:
        """Do nothing: each revision is whole."""

    def sweep(self, limits: SweepLimits, *, delete: bool) -> SweptStates:
        """Sweep old revisions; the history tells when the ones that replaced them were stored."""
        dated = replace(limits, kept_since=self.dates_stored_before(limits.kept_since))
        return self._revisions.sweep(dated, delete=delete)

    def delete(self) -> None:
        """Delete what is kept outside of the table's folder."""
        self._revisions.delete()

    def commit(self, transaction: Transaction) -> TableState:
        """Commit one transaction (see the interface)."""
        return self.commit_group((transaction,)).of_one()

    def commit_group(
        self, transactions: Sequence[Transaction], *, together: bool = False
    ) -> GroupResult:
        """Commit transactions that are not refused: in one entry, or more where one is too small.

        Raises:
            CommitUnknown: also if some are committed, and the storage failed before the others.
        """
        with self._committing:
            begun_s = self._ticks_s()
            done = self._commit_next(transactions, together=together)
            refusals = done.refusals
            while len(refusals) < len(transactions):
                with _partly_committed():
                    done = self._commit_next(transactions[len(refusals) :])
                refusals += done.refusals
            self.commit_s = self._ticks_s() - begun_s
            return GroupResult(done.state, refusals)

    def _commit_next(
        self, transactions: Sequence[Transaction], *, together: bool = False
    ) -> GroupResult:
        """Commit as many transactions as fit in one entry; the result has refusals for those."""
        slot = _Slot(self._revisions, self._refreshed)

        def build() -> NextEntry[GroupResult]:
            known = self._refreshed()
            check_not_moved(known.state, transactions, self._here)
            now = self._storage_time()
            at = known.state.next_entry_time(now)
            # There are no entries, and so none that the next one could name.
            following = replace(known.state, number=known.state.number + 1, at=at, digest=None)
            missing = missing_schema(known.state, self._schema, transactions)
            if missing is not None:
                following = missing.fold(following, at)
            applied = self._apply_fitting(
                transactions, known.state, following, at, together=together
            )
            if not applied.has_changes:
                unchanged = GroupResult(known.state, applied.refusals)
                return NextEntry(following.number, None, unchanged)
            commit_id = self._new_id()
            history = known.history.followed_by(commit_id, before=known.state.at, now=now)
            slot.before, slot.after = known, Revision(applied.state, history)
            return NextEntry(
                following.number,
                commit_id.encode(),
                GroupResult(applied.state, applied.refusals),
            )

        try:
            done = append_entry(
                slot, build, pause=self._pause, attempts=self._attempts, wording=COMMIT_WORDING
            )
        finally:
            self._note_commit()
        if done.state is slot.after.state:
            self._hold(slot.after)
        return done

    def _apply_fitting(
        self,
        transactions: Sequence[Transaction],
        known: TableState,
        following: TableState,
        at: datetime,
        *,
        together: bool,
    ) -> _Applied:
        """Apply transactions in order until one does not fit beside those before it.

        If all are to be committed together, none of them is then, nor where one is refused.

        Raises:
            BadRequest: one has a value that no store can keep.
        """
        state, accepted = following, list[Transaction]()
        refusals: list[CommitRefused | None] = []
        for transaction in transactions:
            try:
                applied = transaction.apply(state, at)
            except CommitRefused as refusal:
                refusals.append(refusal)
                continue
            if applied is not state and not self._revisions.fits(known, applied):
                if together:
                    refused = (self._too_large(transaction),) * len(transactions)
                    return _Applied(known, refused, has_changes=False)
                if accepted:
                    break
                refusals.append(self._too_large(transaction))
                continue
            if applied is not state:
                accepted.append(transaction)
            refusals.append(None)
            state = applied
        if together and any(refusals):
            return _Applied(known, tuple(refusals), has_changes=False)
        check_storable(accepted, self._schema)
        return _Applied(state, tuple(refusals), bool(accepted))

    def _too_large(self, transaction: Transaction) -> CommitTooLarge:
        return CommitTooLarge(
            f"the table's state store cannot commit this {type(transaction).__name__} at once: "
            f"{self._revisions.limit}. Nothing was written. "
            f"{_ADVICE.get(type(transaction), _FEWER_FILES)}, or move the table's state to a store "
            "without this limit (`sleeper table migrate-state`)."
        )

    def _refreshed(self) -> Revision:
        return self._hold(self._revisions.refresh(self._held or Revision()))

    def _hold(self, revision: Revision) -> Revision:
        with self._swapping:
            if self._held is None or self._held.state.number <= revision.state.number:
                self._held = revision
            return self._held


class _Slot:
    """The next revision, for the commit loop: its number is taken once, by one commit id."""

    def __init__(self, revisions: StateRevisions, refreshed: Callable[[], Revision]) -> None:
        self._revisions = revisions
        self._refreshed = refreshed
        self.before, self.after = Revision(), Revision()

    def append(self, number: int, body: bytes) -> bool:
        """Replace the revision; find out from the history if it was replaced before."""
        return self._revisions.replace(self.before, self.after) or self.read(number) == body

    def read(self, number: int) -> bytes | None:
        """Return the id of a commit; None if there is none yet."""
        newest = self._refreshed()
        if newest.state.number < number:
            return None
        commit_id = newest.history.commit_id(number, newest.state.number)
        if commit_id is None:
            raise StorageFailed(
                f"which writer committed transaction {number} is no longer known: there were "
                f"{newest.state.number - number} after it"
            )
        return commit_id.encode()

    @contextmanager
    def writer_lock(self, meanwhile: Callable[[], object]) -> Iterator[None]:
        """Hold nothing."""
        yield


@contextmanager
def _partly_committed() -> Iterator[None]:
    try:
        yield
    except CommitUnknown:
        raise
    except SleeperError as error:
        raise CommitUnknown(
            f"some transactions of the group were committed, and the others were not: {error} Run "
            "it again with the same job ids, which adds only what is missing."
        ) from error


# ---------------------------------------------------------------- revisions
#
# Revisions: the whole state of a table, which each commit replaces.


_COMMITS_KEPT = 32
_LOOKS_KEPT = 32
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RevisionHistory:
    """What a revision remembers of the commits before it. A store keeps it as JSON.

    Attributes:
        commit_ids: The ids of the last commits, the newest last.
        looks: Pairs of a time by the storage's clock and a date: every commit that is dated up to
            this date was stored before that time. Ascending; the older they are, the fewer.
    """

    commit_ids: tuple[str, ...] = ()
    looks: tuple[tuple[datetime, datetime], ...] = ()

    def followed_by(
        self, commit_id: str, *, before: datetime | None, now: datetime
    ) -> RevisionHistory:
        """Return the history after one more commit.

        Args:
            commit_id: Its id.
            before: The date of the commit before it, which its writer has read; None for none.
            now: The storage's time, at which its writer looked after that.
        """
        looked = self if before is None else self.looked_at(before, now)
        return RevisionHistory((*self.commit_ids, commit_id)[-_COMMITS_KEPT:], looked.looks)

    def looked_at(self, date: datetime, now: datetime) -> RevisionHistory:
        """Return the history with one more look, which found the commit of this date.

        Clocks differ by seconds, and the storage's may be set back. Older looks at a later time,
        at an older commit, prove nothing that this one does not prove, so they are dropped.
        """
        proving = (look for look in self.looks if look[0] < now or look[1] > date)
        return RevisionHistory(self.commit_ids, _thinned((*proving, (now, date))))

    def has_seen(self, date: datetime) -> bool:
        """Return whether a look has found the commit of this date."""
        return any(date <= seen for _, seen in self.looks)

    def commit_id(self, number: int, newest: int) -> str | None:
        """Return the id of commit `number`, if `newest` is the last one; None if it is not kept."""
        back = newest - number
        return self.commit_ids[-1 - back] if 0 <= back < len(self.commit_ids) else None

    def dates_stored_before(self, time: datetime) -> datetime:
        """Return a date: every commit that is dated before it was stored before `time`."""
        dates = [date for looked, date in self.looks if looked <= time]
        return min(time, max(dates) + _MOMENT) if dates else datetime.min.replace(tzinfo=UTC)

    def to_json(self) -> str:
        """Return it as JSON."""
        looks = [[time_to_json(looked), time_to_json(date)] for looked, date in self.looks]
        return json.dumps({"commits": self.commit_ids, "looks": looks}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RevisionHistory:
        """Parse what `to_json` wrote.

        Raises:
            DataDamaged: it is something else.
        """
        try:
            found = json.loads(text)
            looks = (
                (time_from_json(looked), time_from_json(date)) for looked, date in found["looks"]
            )
            return cls(tuple(found["commits"]), tuple(looks))
        except (ValueError, TypeError, LookupError) as error:
            raise DataDamaged(f"the history of a table's revisions is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class Revision:
    """The state of a table after a commit, with the history up to it.

    Attributes:
        state: The state; its number is the revision's number.
        history: The commits before it, and its own.
    """

    state: TableState = field(default_factory=TableState.empty)
    history: RevisionHistory = field(default_factory=RevisionHistory)


class StateRevisions(Protocol):
    """The interface of a store of revisions of one table; `storage.aws.state` has adapters."""

    @property
    def changes_max(self) -> int | None:
        """How many changes one commit may make, as `StateStore` counts them; None for any."""
        ...

    @property
    def limit(self) -> str | None:
        """What one commit may hold at most, as a clause for errors; None for no limit."""
        ...

    def refresh(self, known: Revision) -> Revision:
        """Return the newest revision: `known` itself if it is, which costs one read.

        If only the history is another, the state is that of `known`.

        Raises:
            DataDamaged: it cannot be read.
            StorageFailed: the storage did not answer.
        """
        ...

    def fits(self, before: TableState, after: TableState) -> bool:
        """Return whether one commit can replace `before` by `after`. Reads nothing."""
        ...

    def replace(self, before: Revision, after: Revision) -> bool:
        """Make `after` the newest revision if `before` is; return False if it is not.

        All or nothing, durably. The last commit id of `after` is its own, so that the call can be
        repeated after a lost reply.

        Raises:
            StorageFailed: there was no answer; it may or may not be the newest.
        """
        ...

    def begin(self, first: Revision) -> None:
        """Make the first revision of a table whose state comes from another state store.

        There is no revision yet, and nobody else reads or writes them before this returns, so it
        need not be all or nothing: a state of any size may be written in many requests. What tells
        `refresh` the revision is written last. It keeps its number, which may be any.

        Raises:
            StorageFailed: it may be there in part. It is not begun again, only deleted.
        """
        ...

    def remember(self, known: Revision) -> None:
        """Replace the history of a revision, if it is the newest, and not its state.

        Raises:
            StorageFailed: there was no answer.
        """
        ...

    def at(self, number: int) -> TableState | None:
        """Return the state of an older revision; None if it is not kept."""
        ...

    def sweep(self, limits: SweepLimits, *, delete: bool) -> SweptStates:
        """Delete old revisions, and what killed writers left, as `StateStore.sweep` says.

        Here a revision was replaced before `limits.kept_since` if the next one is dated before it.
        """
        ...

    def delete(self) -> None:
        """Delete all revisions, as far as they are not objects in the table's folder."""
        ...


def _thinned(
    looks: tuple[tuple[datetime, datetime], ...],
) -> tuple[tuple[datetime, datetime], ...]:
    """Drop one look if there are too many: the one whose neighbours are closest, for its age."""
    if len(looks) <= _LOOKS_KEPT:
        return looks
    newest = looks[-1][0]

    def gap(n: int) -> float:
        age = max(newest - looks[n][0], timedelta()) + timedelta(seconds=1)
        return (looks[n + 1][0] - looks[n - 1][0]) / age

    dropped = min(range(1, len(looks) - 1), key=gap)
    return looks[:dropped] + looks[dropped + 1 :]
