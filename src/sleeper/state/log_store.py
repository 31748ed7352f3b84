"""The state store on a transaction log and snapshots.

A store caches the newest state that it has read. It has no thread and does not poll, so a table
that is not used makes no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from threading import Lock

from sleeper.errors import BadRequest, DataDamaged, ObjectNotFound, VersionNotFound
from sleeper.model.authors import author_now
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove
from sleeper.ports.transaction_log import SnapshotStore, TransactionLog
from sleeper.state.commit import commit_group, replay
from sleeper.state.file_references import FileReferences
from sleeper.state.kept_versions import files_deleted, first_kept
from sleeper.state.log_entry import entry_time
from sleeper.state.moves import MovedLog, version_left_behind
from sleeper.state.newest_copy import NewestCopies, NewestCopy, is_state_after
from sleeper.state.snapshot import snapshot_parts, state_from_parts
from sleeper.state.state_store import GroupResult, SweepLimits, SweptStates
from sleeper.state.stored_times import dates_stored_before
from sleeper.state.table_state import TableState, Transaction

ReadBeside = Callable[[Callable[[], bytes | None]], Callable[[], bytes | None]]
"""Begins a read, and returns what waits for it."""

_UNSEEN_MAX = timedelta(hours=1)
_LATELY_S = 10
_NEW_PARTITIONS_MAX = 10_000
"""An entry with more new partitions is followed by a snapshot, which is read in half the time."""
_BEHIND_MAX = 128
"""Whoever is so many entries behind looks for a snapshot that is further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRule:
    """When a committing store writes a snapshot, so that opening a table stays fast.

    Attributes:
        entries_min: Minimum number of entries after the last snapshot.
        changed_share: From then on, a snapshot is written when 1 in `changed_share` references
            has changed. The cost of a snapshot is proportional to the table, so a large table
            gets them less often.
        entries_max: A snapshot is always written after so many entries.
    """

    entries_min: int = 100
    changed_share: int = 20
    entries_max: int = 1000


class TransactionLogStateStore:
    """A `StateStore` on a log and snapshots. Safe for many threads of one process.

    Commits of one store run one after the other; readers never wait for a commit.

    Args:
        log: The table's log.
        snapshots: Its snapshots. If one is damaged, an older one is used.
        schema: The table's schema.
        now: The local clock (aware, UTC).
        storage_time: The clock of the storage, which dates entries; `now` without it.
        ticks_s: A monotonic clock, in seconds; `now` without it.
        new_id: Makes an id for each log entry.
        pause: Waits after a lost race; called with the number of races lost before.
        attempts: Maximum number of attempts of one commit.
        snapshot_rule: When to write snapshots.
        here: The move of the table's state to this store; None if it is the table's first. The log
            begins with it, after a snapshot of the state that was moved.
        is_remote: Whether a look costs as much as a lost race: then a commit that comes soon after
            a look is tried without another one.
        note_commit: Called after each commit, and after one that may have been made.
        user: Who commits, unless a block of `committing` says somebody else.
        read_beside: Begins a read beside others, as `Objects.beside`. Given where the store is not
            trusted: a copy of the state is then compared with the log before it is relied on.

    Attributes:
        log: The table's log. It refuses to read entries from before the state was moved here.
        snapshots: As given.
        commit_s: Seconds that the last commit took, with lost races, and with a snapshot if it
            wrote one; None before the first.
        snapshot_failure: Why the last snapshot could not be written; None if it was. The commit
            succeeds anyway.
    """

    changes_max = None
    """A commit may make any number of changes."""

    def __init__(
        self,
        log: TransactionLog,
        snapshots: SnapshotStore,
        schema: Schema,
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        pause: Callable[[int], None],
        attempts: int = 10,
        snapshot_rule: SnapshotRule | None = None,
        storage_time: Callable[[], datetime] | None = None,
        ticks_s: Callable[[], float] | None = None,
        here: StateMove | None = None,
        note_commit: Callable[[], object] = lambda: None,
        is_remote: bool = False,
        user: str | None = None,
        read_beside: ReadBeside | None = None,
    ) -> None:
        self.log: TransactionLog = log if here is None else MovedLog(log, here)
        self._here = here
        self.snapshots: SnapshotStore = snapshots
        self._copies = NewestCopies(snapshots, schema, are_compared=read_beside is not None)
        self._read_beside = read_beside
        self._uncompared: TableState | None = None  # of a copy, as long as it is held
        self._schema = schema
        self._now = now
        self._storage_time = storage_time or now
        self._ticks_s = ticks_s or (lambda: now().timestamp())
        self.commit_s: float | None = None
        self._new_id = new_id
        self._pause = pause
        self._attempts = attempts
        self._note_commit = note_commit
        self._is_remote = is_remote
        self._user = user
        self._looked_s = float("-inf")  # when the last look or commit began
        self._rule = snapshot_rule or SnapshotRule()
        self.snapshot_failure: Exception | None = None
        self._held: TableState | None = None
        self._seen = now()
        self._loading, self._swapping, self._committing = Lock(), Lock(), Lock()
        # Guarded by _committing: how much has changed since the last snapshot.
        self._snapshot_number, self._changed = 0, 0
        self._measured = TableState.empty()

    def known(self) -> TableState | None:
        """Return the cached state, if there is one; it may be a copy that was not compared yet."""
        return self._held

    def compared(self) -> TableState | None:
        """Return the cached state, if there is one that may be relied on."""
        held = self._held
        return None if held is self._uncompared else held

    def state(self) -> TableState:
        """Return the cached state without reading storage."""
        held = self._held
        if held is None:
            return self._loaded() or self.state()
        return self.refresh() if held is self._uncompared else held

    def begin(self) -> None:
        """Hold the copy of a new state, if there is one; `refresh` goes on from it."""
        with self._loading:
            if self._held is None and (copy := self._copies.load()) is not None:
                self._hold_copy(copy)

    def refresh(self) -> TableState:
        """Replay new entries and return the state. Without new entries this costs one read."""
        begun_s = self._ticks_s()
        while (held := self._held) is None:
            if (loaded := self._loaded()) is not None:
                self._looked_s = begun_s
                return loaded
        state = self._hold(self._caught_up(self._recent(held)))
        self._looked_s = begun_s
        return state

    def time(self) -> datetime:
        """Return the storage's time, or the last entry's if that is later."""
        now, last = self._storage_time(), self.state().at
        return now if last is None else max(now, last)

    def dates_stored_before(self, time: datetime) -> datetime:
        """Find out from the log when its entries were stored."""
        return dates_stored_before(time, self.refresh(), self.log)

    def at(self, number: int) -> TableState:
        """Return the state after transaction `number`, from the newest snapshot before it."""
        newest = self.state()
        if number > newest.number:
            newest = self.refresh()
        if number == newest.number:
            return newest
        if not 0 <= number < newest.number:
            raise VersionNotFound(
                f"the table has no transaction {number}; the newest is {newest.number}"
            )
        if self._here is not None and number < self._here.number:
            raise version_left_behind(number, self._here)
        found, newest = self._version(number, newest), self.refresh()
        if found.needs_more_than(newest):
            raise files_deleted(number, first_kept(newest, self.state_after, unkept=number))
        return found

    def state_after(self, number: int) -> TableState | None:
        """Return the state after a transaction, even if its files were deleted."""
        newest, first = self.state(), 0 if self._here is None else self._here.number - 1
        if number == newest.number:
            return newest
        if not first <= number < newest.number:
            return None
        try:
            return self._version(number, newest)
        except VersionNotFound:  # entries before it lack keys of purged rows
            return None

    def time_of(self, number: int) -> datetime | None:
        """Return the date of an entry, which is read."""
        body = self.log.read(number) if number else None
        where = f"entry {number} of the transaction log"
        return None if body is None else entry_time(body, where)

    def _version(self, number: int, newest: TableState) -> TableState:
        """Return the state after a transaction, even if its files were deleted."""
        before, _ = self._snapshot(self.snapshots.numbers(), up_to=number)
        entries = self.log.read_after(before.number, up_to=number)
        found = before if before.number == number else replay(before, entries, self._schema)
        if found.number != number:
            raise VersionNotFound(
                f"the table's state at transaction {number} is no longer kept: the log ends at "
                f"{found.number} there. Request a later one, up to {newest.number}."
            )
        return found

    def commit(self, transaction: Transaction) -> TableState:
        """Commit one transaction (see the interface)."""
        return self.commit_group((transaction,)).of_one()

    def commit_group(
        self, transactions: Sequence[Transaction], *, together: bool = False
    ) -> GroupResult:
        """Commit transactions that are not refused in one entry; write a snapshot if it is due."""
        author = author_now(self._user)
        transactions = [each.signed(author) for each in transactions]
        with self._committing:
            begun_s = self._ticks_s()
            known = self._recent(self.state())
            try:
                done = self._commit_after(known, transactions, together=together)
            except (DataDamaged, VersionNotFound):
                known_again = self._reload_past_corrupt_entry(known)
                done = self._commit_after(known_again, transactions, together=together)
            finally:
                self._note_commit()
            is_alone = done.state.number == known.number + 1  # after a lost race, look first
            self._looked_s = begun_s if is_alone else float("-inf")
            self._hold(done.state)
            self._save_snapshot_if_due(done.state)
            self._copies.save_if_due(
                done.state, snapshot=self._snapshot_number, changed=self._changed
            )
            self.commit_s = self._ticks_s() - begun_s
            return done

    def begin_with(self, state: TableState) -> None:
        """Write a snapshot, which the log's first entry follows (see the interface)."""
        self._save_folded(state)

    def write_snapshot(self) -> None:
        """Write a snapshot of the newest state, though none may be due."""
        with self._committing:
            state = self.refresh()
            self._save_folded(state)
            newest = max(self.snapshots.numbers(), default=-1)  # a purge leaves a later one
            if newest < state.number:
                raise BadRequest(
                    "this table's state store keeps no snapshots, so whoever reads it must know "
                    "every entry of its log. Move its state to a store that keeps some first "
                    "(`sleeper table migrate-state`)"
                )
            self._snapshot_number, self._changed = state.number, 0

    def sweep(self, limits: SweepLimits, *, delete: bool) -> SweptStates:
        """Sweep what killed writers left: the log has every state."""
        objects, failures = self.log.sweep(limits.orphans_before, delete=delete)
        return SweptStates(objects=tuple(objects), failures=failures)

    def delete(self) -> None:
        """Delete the entries, as far as they are not objects in the table's folder."""
        self.log.delete()

    def _commit_after(
        self, known: TableState, transactions: Sequence[Transaction], *, together: bool
    ) -> GroupResult:
        return commit_group(
            transactions,
            self.log,
            known,
            schema=self._schema,
            now=self._storage_time,
            new_id=self._new_id,
            pause=self._pause,
            attempts=self._attempts,
            here=self._here,
            together=together,
            is_known_newest=self._is_remote and self._looked_lately(),
        )

    def _looked_lately(self) -> bool:
        return 0 <= self._ticks_s() - self._looked_s <= _LATELY_S

    def _loaded(self) -> TableState | None:
        """Load the newest state and return it; None if another thread has loaded one meanwhile."""
        with self._loading:
            if self._held is not None:
                return None
            if (copy := self._copies.load()) is not None:
                return self._hold(self._caught_up(self._hold_copy(copy)))
            return self._hold(self._measured_load())

    def _measured_load(self) -> TableState:
        """Load the newest state from snapshots and the log."""
        self._measured, loaded = self._load()
        self._snapshot_number, self._changed = self._measured.number, 0
        return loaded

    def _hold_copy(self, copy: NewestCopy) -> TableState:
        self._measured = copy.state
        self._snapshot_number, self._changed = copy.snapshot, copy.changed
        with self._swapping:
            if self._held is None:
                self._held = copy.state
                self._uncompared = None if self._read_beside is None else copy.state
            return self._held

    def _load(self) -> tuple[TableState, TableState]:
        """Return the state of the newest readable snapshot, and the state at the log's end.

        A purge may write a newer snapshot meanwhile, and take keys out of entries before it.
        """
        numbers = self.snapshots.numbers()
        while True:
            try:
                return self._load_after(numbers)
            except (DataDamaged, VersionNotFound):
                newer = self.snapshots.numbers()
                if newer[-1:] <= numbers[-1:]:
                    raise
                numbers = newer

    def _load_after(self, numbers: Sequence[int]) -> tuple[TableState, TableState]:
        before, damage = self._snapshot(numbers)
        loaded = replay(before, self.log.read_after(before.number), self._schema)
        if numbers and loaded.number < numbers[-1]:
            raise DataDamaged(
                f"the transaction log ends at {loaded.number}, but there is a snapshot of "
                f"transaction {numbers[-1]}, which cannot be read: {damage}"
            ) from damage
        return before, loaded

    def _snapshot(
        self, numbers: Sequence[int], up_to: int | None = None
    ) -> tuple[TableState, Exception | None]:
        """Return the state of the newest readable snapshot, and the first damage of newer ones."""
        damage: Exception | None = None
        for number in reversed(numbers if up_to is None else [n for n in numbers if n <= up_to]):
            try:
                return self._load_snapshot(number), damage
            except (DataDamaged, ObjectNotFound) as error:
                damage = damage or error
        if self._here is not None:
            raise self._first_snapshot_missing(self._here) from damage
        return TableState.empty(), damage

    @staticmethod
    def _first_snapshot_missing(here: StateMove) -> DataDamaged:
        return DataDamaged(
            f"transaction {here.number} moved the table's state to {here.class_name}, and no "
            "snapshot from then on can be read, so its log cannot be replayed. Restore snapshot "
            f"{here.number - 1} of move {here.move_id} from a copy."
        )

    def _load_snapshot(self, number: int) -> TableState:
        return state_from_parts(
            number, lambda part: self.snapshots.load(number, part), self._schema
        )

    def _caught_up(self, known: TableState) -> TableState:
        """Return the state after new entries, or the log's if `known` is a copy of a lost one."""
        if self._read_beside is None or known is not self._uncompared:
            return self._gone_on(known)
        entry = self._read_beside(partial(self.log.read, known.number))
        state = self._gone_on(known)
        is_in_log = is_state_after(known, entry())
        with self._swapping:
            if self._uncompared is known:
                self._uncompared = None
                if not is_in_log and self._held is known:
                    self._held = None
        if is_in_log:
            return state
        self.snapshots.note_failure(
            "the copy of the newest state is not used",
            DataDamaged(f"its entry {known.number} is not the one in the log"),
        )
        return self._measured_load()

    def _gone_on(self, known: TableState) -> TableState:
        try:
            near = islice(self.log.read_after(known.number), _BEHIND_MAX)
            state = replay(known, near, self._schema)
            if state.number < known.number + _BEHIND_MAX:
                return state
            numbers = self.snapshots.numbers()
            if numbers and numbers[-1] > state.number:
                return self._load()[1]
            return replay(state, self.log.read_after(state.number), self._schema)
        except (DataDamaged, VersionNotFound):
            return self._reload_past_corrupt_entry(known)

    def _reload_past_corrupt_entry(self, known: TableState) -> TableState:
        """Load a snapshot that is newer than the unreadable entry, if there is one.

        An entry of which keys were taken out may be one that nobody can replay any more.
        """
        _, loaded = self._load()
        return loaded if loaded.number > known.number else known

    def _recent(self, held: TableState) -> TableState:
        """Return the cached state `held`, or a newer one if storage was not read for a long time.

        Entries before a snapshot may be deleted after some time. A store that did not read for
        longer would find no entry after its state, and take the gap for the log's end.
        """
        at = self._now()
        if abs(at - self._seen) > _UNSEEN_MAX:
            numbers = self.snapshots.numbers()
            if numbers and numbers[-1] > held.number:
                _, loaded = self._load()
                held = self._hold(loaded)
        self._seen = at
        return held

    def _hold(self, state: TableState) -> TableState:
        with self._swapping:
            if self._held is None or self._held.number < state.number:
                self._held = state
            return self._held

    def _save_snapshot_if_due(self, state: TableState) -> None:
        self._changed += _change(self._measured.files, state.files)
        has_grown = _partition_count(state) - _partition_count(self._measured) > _NEW_PARTITIONS_MAX
        self._measured = state
        if not has_grown and not self._is_due(state):
            return
        try:
            self._save_snapshot(state)
        except Exception as error:  # noqa: BLE001 - the commit has succeeded, and must be reported
            self.snapshot_failure = error
            self._snapshot_number = state.number  # no other attempt for `entries_min` entries

    def _is_due(self, state: TableState) -> bool:
        entries = state.number - self._snapshot_number
        changed = self._changed * self._rule.changed_share >= state.files.reference_count
        return entries >= self._rule.entries_max or (entries >= self._rule.entries_min and changed)

    def _save_snapshot(self, state: TableState) -> None:
        numbers = self.snapshots.numbers()
        newest = numbers[-1] if numbers else 0
        if newest > self._snapshot_number:  # written by another store
            self._snapshot_number, self._changed = newest, 0
            if not self._is_due(state):
                return
        folded = self._measured = self._save_folded(state)
        self._snapshot_number, self._changed = state.number, 0
        self.snapshot_failure = None
        with self._swapping:  # later changes are based on the folded files
            if self._held is not None and self._held.number == folded.number:
                self._held = folded

    def _save_folded(self, state: TableState) -> TableState:
        """Write a snapshot of a state, and return the state as the snapshot has it."""
        folded = replace(state, files=state.files.folded())
        self.snapshots.save(state.number, snapshot_parts(folded, self._schema))
        return folded


def _partition_count(state: TableState) -> int:
    return 0 if state.partitions is None else len(state.partitions)


def _change(before: FileReferences, after: FileReferences) -> int:
    """Estimate how many references differ; too low if the files were folded in between."""
    return max(
        abs(after.reference_count - before.reference_count),
        after.overlay_size - before.overlay_size,
    )
