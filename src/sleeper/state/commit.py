"""Replays a table's log and commits transactions to it.

A commit replays what others appended, applies its transactions to exactly the state that they
will follow, and appends them by the commit loop in `append_entry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sleeper.errors import CommitRefused, DataDamaged
from sleeper.model.schema import Schema
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.append_entry import CommitWording, NextEntry, append_entry
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transaction_json import LogEntry, decode_entry, encode_entry
from sleeper.state.transactions.schemas import SetSchema

_WORDING = CommitWording(
    entry="transaction",
    when_contended="Try again, or commit through one committer.",
    when_unknown=(
        "Delete none of its files. When storage answers again, run it again with the same job "
        "id: if it was committed, that is found out, and nothing is added."
    ),
    attempts_source="sleeper.table.statestore.transactionlog.add.transaction.max.attempts",
)


@dataclass(frozen=True, slots=True)
class GroupCommitted:
    """What became of a group of transactions.

    Attributes:
        state: The state after them, and after whatever others had appended before.
        refusals: For each transaction, in order, why it was refused; None for a committed one.
    """

    state: TableState
    refusals: tuple[CommitRefused | None, ...]


def apply_entry(state: TableState, number: int, entry: LogEntry) -> TableState:
    """Return the state after entry `number` of the log. What was committed is not judged again.

    Raises:
        DataDamaged: the entry does not follow on `state`, or changes what is not there.
    """
    if number != state.number + 1:
        raise DataDamaged(
            f"the transaction log has no entry {state.number + 1}: after {state.number} comes "
            f"{number}. Restore the missing entries from a copy of the table's state."
        )
    applied = replace(state, number=number, at=entry.at)
    for transaction in entry.transactions:
        try:
            applied = transaction.fold(applied, entry.at)
        except (LookupError, ValueError) as error:
            raise DataDamaged(
                f"entry {number} of the transaction log does not fit the state before it: "
                f"{error}. Restore the table's state from a copy."
            ) from error
    return applied


def replay(state: TableState, entries: Iterable[tuple[int, bytes]], schema: Schema) -> TableState:
    """Return the state after `entries`, as a log's `read_after` yields them.

    Raises:
        DataDamaged: an entry is missing, unreadable, or does not fit.
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
) -> GroupCommitted:
    """Commit transactions in one entry, each checked against the state with those before it.

    A refused one is left out and gets its answer; the others are committed all the same.
    Nothing is written when all are refused, or none has anything to change. An entry on a state
    that does not know the table's schema sets it as well.

    Args:
        transactions: In the order they are to apply.
        log: The table's log.
        known: Any state of the table; the newer, the less there is to replay.
        schema: The table's.
        now: The storage's time (aware, UTC); asked once for each round.
        new_id: Makes a fresh entry id for each round.
        pause: Waits before another try; called with how many there were, from 0.
        attempts: How many rounds to try.

    Raises:
        CommitContended: others were faster in every round. Nothing was written.
        CommitUnknown: storage did not say what became of the entry.
        StorageFailed: storage failed. Nothing was written.
        DataDamaged, FormatTooNew: the log cannot be read. Nothing was written.
        BadRequest: a transaction holds a wrong value. Nothing was written.
    """

    def build() -> NextEntry[GroupCommitted]:
        nonlocal known
        known = replay(known, log.read_after(known.number), schema)
        at = known.next_entry_time(now())
        following = replace(known, number=known.number + 1, at=at)
        first = () if known.schemas else (SetSchema(schema_id=known.schema_id, schema=schema),)
        for missing in first:
            following = missing.fold(following, at)
        applied, accepted, refusals = _apply_each(transactions, following, at)
        if not accepted:
            return NextEntry(following.number, None, GroupCommitted(known, refusals))
        entry = LogEntry(entry_id=new_id(), at=at, transactions=(*first, *accepted))
        body = encode_entry(entry, schema)
        return NextEntry(following.number, body, GroupCommitted(applied, refusals))

    return append_entry(log, build, pause=pause, attempts=attempts, wording=_WORDING)


def commit(
    transaction: Transaction,
    log: TransactionLog,
    known: TableState,
    *,
    schema: Schema,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
    pause: Callable[[int], None],
    attempts: int = 10,
) -> TableState:
    """Commit one transaction and return the state after it: `commit_group` of one.

    Raises:
        CommitRefused: the latest state forbids the transaction. Nothing was written.
    """
    done = commit_group(
        (transaction,),
        log,
        known,
        schema=schema,
        now=now,
        new_id=new_id,
        pause=pause,
        attempts=attempts,
    )
    (refusal,) = done.refusals
    if refusal is not None:
        raise refusal
    return done.state


def _apply_each(
    transactions: Sequence[Transaction], state: TableState, at: datetime
) -> tuple[TableState, tuple[Transaction, ...], tuple[CommitRefused | None, ...]]:
    """Return the state after all that it accepts, those that change it, and the refusals."""
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
