"""Commits transactions to a table, and replays its log.

Words:

- An entry is a numbered object of a log; a number is taken once, by whoever creates it first.
- A transaction is one change of a table; an entry holds one or more of them.
- The state is what all entries up to a number make of a table. `replay` makes it newer.
- A sweep deletes files that no entry names; its guard refuses files that it may have deleted.

Steps of an ingest, a bulk import or a compaction whose files are written:

1. `add_files` or `replace_files` (`new_files.py`) asks the guard whether all files are there
2. the state store calls `commit_group` with the transaction, and those of others that wait
3. `append_entry` (`append.py`) takes the lock of the log, if it has one, and reads new entries
4. each transaction is applied to that state; a refused one is left out, with its reason
5. the entry with the others is created if its number is free; if it is not, back to 3
6. a lost reply is cleared up by reading; files of a commit that certainly failed are deleted

The table index (`table_index.py`) commits by `append_entry` as well, with changes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby

from sleeper.errors import CommitRefused, DataDamaged
from sleeper.model.schema import Schema
from sleeper.model.tables import StateMove
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.append import CommitWording, NextEntry, append_entry
from sleeper.state.log_entry import LogEntry, decode_entry, encode_entry, entry_digest
from sleeper.state.state_store import GroupResult, check_not_moved
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.files import AddFiles, fold_added
from sleeper.state.transactions.schemas import missing_schema

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
    if state.digest is not None and entry.prev != state.digest:
        raise DataDamaged(
            f"entry {number} of the transaction log was written after another entry "
            f"{state.number} than the one that is there: one of the two was changed or replaced. "
            "Restore the table's state from a copy; `sleeper verify --chain` names every one."
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
    added = [each for each in transactions if type(each) is AddFiles]
    return fold_added(added, state, at) if added else transactions[0].fold(state, at)


def replay(state: TableState, entries: Iterable[tuple[int, bytes]], schema: Schema) -> TableState:
    """Return the state after `entries`, as a log's `read_after` yields them.

    Raises:
        DataDamaged: an entry is missing, unreadable, or does not fit the state.
        FormatTooNew: a newer Sleeper wrote one of them.
    """
    for number, body in entries:
        entry = decode_entry(body, schema, f"entry {number} of the transaction log")
        state = _chained(apply_entry(state, number, entry), body)
    return state


def _chained(state: TableState, body: bytes) -> TableState:
    """Return the state after an entry with the digest of it that the next entry names."""
    return state if state.format == 1 else replace(state, digest=entry_digest(body))


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
    together: bool = False,
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
        together: Whether nothing is committed if one transaction is refused.
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
    planned = partial(
        _planned, transactions, here, schema=schema, now=now, new_id=new_id, together=together
    )

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
    together: bool,
) -> NextEntry[GroupResult]:
    """Return the entry after a state; one without a body if it would change nothing."""
    check_not_moved(known, transactions, here)
    at = known.next_entry_time(now())
    following = replace(known, number=known.number + 1, at=at)
    missing = missing_schema(known, schema, transactions)
    first = () if missing is None else (missing,)
    if missing is not None:
        following = missing.fold(following, at)
    applied, accepted, refusals = _apply_each(transactions, following, at)
    if not accepted or (together and any(refusals)):
        return NextEntry(following.number, None, GroupResult(known, refusals))
    entry = LogEntry(
        entry_id=new_id(),
        at=at,
        transactions=(*first, *accepted),
        format=max(known.format, applied.format),
        prev=known.digest,
    )
    body = encode_entry(entry, schema, new_id=new_id)
    return NextEntry(following.number, body, GroupResult(_chained(applied, body), refusals))


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
            accepted.append(transaction.recorded(state))
            state = applied
    return state, tuple(accepted), tuple(refusals)
