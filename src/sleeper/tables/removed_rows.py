"""How many rows compactions read, and a table had when it was emptied.

The log does not say it. A compaction's files are mostly added by an entry not long before; only
otherwise entries are replayed, which takes far longer than to read them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Final

from sleeper.errors import DataDamaged, VersionNotFound
from sleeper.model.schema import Schema
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.commit import replay
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState
from sleeper.state.transaction_json import LogEntry, decode_entry
from sleeper.state.transactions import claims, files, moves, partitions
from sleeper.state.transactions import files as sweeps

_MOVE_NOTHING: Final = (
    files.AddFiles,
    files.ReplaceFiles,
    files.DeleteFiles,
    claims.ClaimFiles,
    claims.RenewClaims,
    claims.ReleaseClaims,
    partitions.InitialisePartitions,
    partitions.SplitPartition,
    moves.SetSchema,
    sweeps.SweepOrphans,
)
"""Transactions after which each reference that remains has the partition and rows it had before."""


def read_entries(
    log: TransactionLog, schema: Schema, first: int, last: int
) -> list[tuple[int, LogEntry]]:
    """Return some entries of a log, with their numbers.

    Raises:
        DataDamaged: one is missing, or cannot be read.
    """
    read = takewhile(lambda entry: entry[0] <= last, log.read_after(first - 1))
    entries = [
        (number, decode_entry(body, schema, f"entry {number} of the transaction log"))
        for number, body in read
    ]
    numbers = [number for number, _ in entries]
    for expected in range(first, last + 1):
        if expected - first >= len(numbers) or numbers[expected - first] != expected:
            raise DataDamaged(
                f"the transaction log has no entry {expected}, of {last}. Restore the missing "
                "entries from a copy of the table's state."
            )
    return entries


class StatesBefore:
    """The states before transactions, replayed only if one is asked for; in ascending order."""

    def __init__(self, store: StateStore, log: TransactionLog, schema: Schema) -> None:
        self._store = store
        self._log = log
        self._schema = schema
        self._state: TableState | None = None

    def of(self, number: int) -> TableState:
        """Return the state before a transaction.

        Raises:
            VersionNotFound: it is no longer kept.
        """
        wanted = number - 1
        if self._state is None:
            self._state = self._store.state_after(wanted)
        if self._state is None:
            raise VersionNotFound(
                f"the table's state before transaction {number} is no longer kept"
            )
        entries = self._log.read_after(self._state.number) if self._state.number < wanted else ()
        self._state = replay(
            self._state, takewhile(lambda entry: entry[0] <= wanted, entries), self._schema
        )
        return self._state


class RemovedRows:
    """The rows that some entries removed.

    Args:
        entries: The entries, without a gap.
        states: The states before them and before later ones.
    """

    def __init__(self, entries: Sequence[tuple[int, LogEntry]], states: StatesBefore) -> None:
        transactions = [each for _, entry in entries for each in entry.transactions]
        self._first = entries[0][0] if entries else 0
        self._states = states
        self._are_told = all(isinstance(each, _MOVE_NOTHING) for each in transactions)
        self._added: dict[tuple[str, str], int] = {}
        if not any(isinstance(each, files.ReplaceFiles) for each in transactions):
            return
        for each in transactions:
            if isinstance(each, files.AddFiles):
                for reference in each.references:
                    key = (reference.filename, reference.partition_id)
                    self._added[key] = reference.row_count
            elif isinstance(each, files.ReplaceFiles):
                self._added[each.output.filename, each.output.partition_id] = each.output.row_count

    def of_files(self, filenames: Collection[str], partition_id: str, number: int) -> int:
        """Return how many rows of a partition were in files that transaction `number` replaced.

        Raises:
            VersionNotFound: an earlier state tells, and is no longer kept.
        """
        rows = 0
        if not self._are_told:
            before = self._states.of(number)
            known: dict[tuple[str, str], int] = {}
        else:
            known = self._added
            is_told = all((name, partition_id) in known for name in filenames)
            before = TableState.empty() if is_told else self._states.of(self._first)
        for name in filenames:
            count = known.get((name, partition_id))
            if count is None:
                reference = before.files.reference(name, partition_id)
                count = 0 if reference is None else reference.row_count
            rows += count
        return rows

    def of_all(self, number: int) -> tuple[int, int]:
        """Return the rows and files of the table before transaction `number`.

        Raises:
            VersionNotFound: the state before it is no longer kept.
        """
        before = self._states.of(number)
        return sum(each.rows for each in before.files.totals().values()), before.files.file_count
