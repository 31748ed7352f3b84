"""The state store of a table: its interface, and commits that are planned from the newest state.

The implementations are in `state.log_store` and `state.revision_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from sleeper.errors import CommitRefused, DataDamaged, StateMoved
from sleeper.model.tables import StateMove
from sleeper.ports.objects import ObjectInfo
from sleeper.ports.transaction_log import SnapshotStore, TransactionLog
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.moves import MoveState

_PLANS_MAX = 5

Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of committing a group of transactions.

    Attributes:
        state: The state after them, and after what other writers committed before.
        refusals: For each transaction, in order, why it was refused; None if it was committed.
    """

    state: TableState
    refusals: tuple[CommitRefused | None, ...]

    def of_one(self) -> TableState:
        """Return the state after a group of one transaction.

        Raises:
            CommitRefused: it was refused.
        """
        (refusal,) = self.refusals
        if refusal is not None:
            raise refusal
        return self.state

    def of_all(self) -> TableState:
        """Return the state after transactions that were committed together.

        Raises:
            CommitRefused: one was refused, the first of those that were. Nothing was committed.
        """
        for refusal in self.refusals:
            if refusal is not None:
                raise refusal
        return self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLimits:
    """What a sweep of old states leaves.

    Attributes:
        versions_min: How many of the last states are kept, whatever their age.
        kept_since: A state that was the newest at this time or later is kept.
        orphans_before: An object that no state names, since a writer was killed, is kept if it was
            stored at this time or later.
    """

    versions_min: int
    kept_since: datetime
    orphans_before: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptStates:
    """The result of a sweep of old states.

    Attributes:
        objects: Objects in the table's folder that were deleted, or would be.
        failures: Why some could not be deleted, by name.
    """

    objects: tuple[ObjectInfo, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


class StateStore(Protocol):
    """The state of one table: read at any time, changed by transactions only."""

    @property
    def log(self) -> TransactionLog | None:
        """The table's transaction log; None for a store that keeps none."""
        ...

    @property
    def snapshots(self) -> SnapshotStore | None:
        """Snapshots of the state after some entries of the log; None for a store without a log."""
        ...

    @property
    def changes_max(self) -> int | None:
        """How many changes one request to the storage makes; None for any number.

        Each reference, tracked file, partition, merged leaf, job and claim that a commit adds,
        alters or removes is one change. Plans keep to it, as a larger commit takes many requests,
        or is refused by CommitTooLarge.
        """
        ...

    @property
    def commit_s(self) -> float | None:
        """Seconds that this store's last commit took, with lost races; None before the first."""
        ...

    def known(self) -> TableState | None:
        """Return the cached state, which may be old; None before the first read. Reads nothing."""
        ...

    def begin(self) -> None:
        """Make a state `known` by one read, if the store keeps a copy of one that is new.

        Raises:
            StorageFailed: the storage cannot be read.
        """
        ...

    def state(self) -> TableState:
        """Return the cached state, which may be old. Reads storage only at the first call."""
        ...

    def refresh(self) -> TableState:
        """Return the state after every commit that was acknowledged before this call."""
        ...

    def time(self) -> datetime:
        """Return the current time (aware, UTC) by the clock of the storage.

        It is never before the table's last entry. For writers: storage is asked for its time by
        a small write, at most once in ten minutes in a process.

        Raises:
            ClockTooFarAhead: the clock of this machine is too far ahead of the storage's.
            StorageFailed: the storage cannot be written.
        """
        ...

    def dates_stored_before(self, time: datetime) -> datetime:
        """Return a date: every entry that is dated before it was stored before `time`.

        By the clock of the storage: a writer may store its entry much later than it dated it.
        """
        ...

    def at(self, number: int) -> TableState:
        """Return the state after transaction `number`; 0 is before the first.

        Raises:
            VersionNotFound: there is no such transaction yet, or its state is no longer kept.
        """
        ...

    def state_after(self, number: int) -> TableState | None:
        """Return the state after transaction `number`, even if its files were deleted.

        None if it is not kept, or there is no such transaction yet.
        """
        ...

    def time_of(self, number: int) -> datetime | None:
        """Return when transaction `number` was committed (aware, UTC); None if it is not kept.

        Times ascend with the numbers.
        """
        ...

    def commit(self, transaction: Transaction) -> TableState:
        """Commit one transaction and return the state after it.

        Raises:
            CommitRefused: the newest state does not allow it. Nothing was written.
            CommitContended, StorageFailed: nothing was written; try again.
            CommitUnknown: it may have been committed.
        """
        ...

    def commit_group(
        self, transactions: Sequence[Transaction], *, together: bool = False
    ) -> GroupResult:
        """Commit all transactions that are not refused, in order, in one entry.

        A store that takes only so much at once commits them in several entries, where one is too
        small for all.

        Args:
            transactions: The transactions.
            together: Whether one entry has to hold them all: nothing is committed where one is
                refused, and all are refused (CommitTooLarge) where one entry is too small.

        Raises:
            CommitContended, StorageFailed: nothing was written; try again.
            StateMoved: the table's state is in another store. Nothing was written.
            CommitUnknown: they may have been committed, all or some of them.
        """
        ...

    def begin_with(self, state: TableState) -> None:
        """Make the first state of an empty store that nobody else uses, whatever its size.

        The state keeps its number, and the next commit follows it. Nobody reads the store before
        the table's record names it, so this may take many requests. What an interrupted one leaves
        is only ever deleted, by `delete`.

        Raises:
            StorageFailed: it may be there in part.
        """
        ...

    def write_snapshot(self) -> None:
        """Write the newest state so that it can be read without the log's entries before it.

        A store without a log does nothing: its state is whole.

        Raises:
            BadRequest: the store keeps no snapshots.
            StorageFailed: it could not be written.
        """
        ...

    def sweep(self, limits: SweepLimits, *, delete: bool) -> SweptStates:
        """Delete old states that need not be kept, and what killed writers left of others.

        A store whose states need no sweep does nothing.

        Args:
            limits: What is left.
            delete: False to only find them.

        Raises:
            StorageFailed: the storage cannot be read or written. Deletions of objects that fail
                are in the result.
        """
        ...

    def delete(self) -> None:
        """Delete what the store keeps outside of the table's folder.

        For a table that was deleted, or a store that the table's state was not moved to after all.
        It may be repeated.
        """
        ...


def check_not_moved(
    state: TableState, transactions: Sequence[Transaction], here: StateMove | None
) -> None:
    """Check that a store may commit: that the table's state is here, or arrives by this commit.

    Args:
        state: The newest state of the store.
        transactions: What is to be committed.
        here: The move that the store was opened for; None if it is the table's first.

    Raises:
        StateMoved: the state was moved to another store.
    """
    if state.moved == here:
        return
    if all(isinstance(each, MoveState) and each.move == here for each in transactions):
        return
    if state.moved is None or (here is not None and state.number < here.number):
        raise DataDamaged(
            f"the state store holds transaction {state.number}, and not the later one that moved "
            "the table's state there. Restore the table's state from a copy."
        )
    raise StateMoved(
        f"the table's state was moved to {state.moved.class_name} by transaction "
        f"{state.moved.number}, so nothing is committed here, and nothing was written. Try again: "
        "each call looks where the state is. If this stays so, the move was interrupted: complete "
        f"it by `sleeper table migrate-state NAME --to {state.moved.class_name}`. Queries work "
        "meanwhile."
    )


def commit_planned(
    store: StateStore, plan: Callable[[TableState], tuple[Plan, Transaction | None]]
) -> tuple[Plan, TableState]:
    """Plan a transaction from the newest state and commit it; plan again if it is refused.

    Args:
        store: The table's state.
        plan: Returns a plan with its transaction, or None for one that changes nothing.

    Returns:
        The plan that was committed, and the state after it.

    Raises:
        CommitRefused, CommitContended: other writers changed the same in every attempt; try again.
        CommitUnknown: it may have been committed.
    """
    for attempt in range(1, _PLANS_MAX + 1):
        state = store.refresh()
        planned, transaction = plan(state)
        if transaction is None:
            return planned, state
        try:
            return planned, store.commit(transaction)
        except CommitRefused:  # another writer was faster
            if attempt == _PLANS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")
