"""History: lists what the transactions of a table did, from its log.

    1. entries of the log are read, a hundred at a time
    2. each entry is described: what it did, and the rows and files that it added and removed

An entry says how many rows a compaction read, or a table had when it was emptied, except those of
earlier versions. The files of a compaction are mostly added by an entry not long before; only
otherwise entries are replayed, which takes far longer than to read them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final

from sleeper.errors import BadRequest, DataDamaged, VersionNotFound
from sleeper.html.values import NotebookHtml, NotebookTuple
from sleeper.model.queries import checked_limit
from sleeper.model.schema import Schema
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.commit import replay
from sleeper.state.log_entry import LogEntry, authors_of, decode_entry, entry_time
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions import deletes, files, formats, moves, partitions, schemas
from sleeper.tables.open_table import OpenTable

_READ_AT_ONCE: Final = 100
"""So many entries are held in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysRemoved(Transaction):
    """Stands for a transaction that cannot be read any more, as it lacks keys of purged rows."""

    def check(self, state: TableState) -> None:
        """Refuse nothing."""

    def fold(self, state: TableState, at: datetime) -> TableState:
        """Change nothing: nobody commits it."""
        return state


_KINDS: Final[dict[type[Transaction], str]] = {
    files.AddFiles: "rows added",
    files.UpsertFiles: "rows added or replaced",
    files.ReplaceFiles: "files compacted",
    files.SplitFileReferences: "references moved to leaves",
    files.DeleteFiles: "garbage deleted",
    deletes.DeleteRows: "rows deleted",
    deletes.DeleteKeys: "rows of many keys deleted",
    files.ClearFiles: "table emptied",
    files.ClaimFiles: "files claimed for compaction",
    files.RenewClaims: "claims renewed",
    files.ReleaseClaims: "claims released",
    partitions.InitialisePartitions: "partitions made",
    partitions.SplitPartition: "partition split",
    partitions.ExtendPartitionTree: "partitions added",
    partitions.MergePartitions: "partitions merged",
    schemas.SetSchema: "schema recorded",
    formats.SetFormat: "format set",
    moves.MoveState: "state moved to this store",
    files.SweepOrphans: "orphans swept",
    KeysRemoved: "keys of purged rows removed",
}


_MOVE_NOTHING: Final = (
    files.AddFiles,
    files.ReplaceFiles,
    files.DeleteFiles,
    files.ClaimFiles,
    files.RenewClaims,
    files.ReleaseClaims,
    partitions.InitialisePartitions,
    partitions.SplitPartition,
    schemas.SetSchema,
    deletes.DeleteRows,
    deletes.DeleteKeys,
    formats.SetFormat,
    files.SweepOrphans,
)
"""Transactions after which each reference that remains has the partition and rows it had before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry(NotebookHtml):
    """What one transaction number of a table did.

    Attributes:
        number: The transaction number, for `as_of`.
        time: When it was committed, by the storage's clock (aware, UTC).
        kinds: What it did, in plain words, such as `rows added`; each once, in order.
        rows_added: Rows in files that it added. A compaction adds the rows that it wrote.
        rows_removed: Rows that it took out of the table, or that a compaction read; an estimate
            for files whose references were moved to leaves. Rows of which only entries told that
            lack keys of purged rows are left out.
        files_added: Files that it added.
        files_removed: Files that it replaced, or whose deletion it recorded.
        job_ids: Ids of the ingest and compaction jobs that it committed.
        by: Who committed it, such as `ann@build7`; several if a committer joined their requests.
            Earlier versions did not record it.
        reasons: Why, in the words of whoever asked for it.
    """

    number: int
    time: datetime
    kinds: tuple[str, ...]
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    job_ids: tuple[str, ...]
    by: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def history(table: OpenTable, limit: int | None) -> tuple[HistoryEntry, ...]:
    """Return what the last transactions did, the newest first (`Table.history`).

    Entries of the log are read one after the other, from the last `limit` on; all without a limit.
    They are not replayed, unless one of them removed rows that nothing else tells the number of.

    Raises:
        BadRequest: the state store keeps no log.
        DataDamaged: an entry is missing, or cannot be read.
    """
    limit, store, schema = checked_limit(limit), table.store, table.schema
    newest = store.refresh()
    log = log_of(store)
    first = 1 if newest.moved is None else newest.moved.number
    if limit is not None:
        first = max(first, newest.number - limit + 1)
    states = StatesBefore(store, log, schema)
    found: list[HistoryEntry] = []
    for start in range(first, newest.number + 1, _READ_AT_ONCE):
        last = min(start + _READ_AT_ONCE - 1, newest.number)
        entries = read_entries(log, schema, start, last)
        removed = RemovedRows(entries, states)
        found += [_described(number, entry, removed) for number, entry in entries]
    return NotebookTuple(reversed(found))


def log_of(store: StateStore) -> TransactionLog:
    """Return the log of a state store.

    Raises:
        BadRequest: it keeps none.
    """
    if store.log is None:
        raise BadRequest(
            "this table's state store keeps no log of transactions: it replaces the table's state "
            "by each commit. TransactionLogStateStore and DynamoDBTransactionLogStateStore keep "
            "one, from the move on (`sleeper table migrate-state`)"
        )
    return store.log


def _described(number: int, entry: LogEntry, removed: RemovedRows) -> HistoryEntry:
    changes = [_changes(each, number, removed) for each in entry.transactions]
    kinds = dict.fromkeys(map(_kind, entry.transactions))
    authors = [each.author for each in entry.transactions if each.author is not None]
    return HistoryEntry(
        number=number,
        time=entry.at,
        kinds=tuple(kinds),
        rows_added=sum(each.rows_added for each in changes),
        rows_removed=sum(each.rows_removed for each in changes),
        files_added=sum(each.files_added for each in changes),
        files_removed=sum(each.files_removed for each in changes),
        job_ids=tuple(dict.fromkeys(chain.from_iterable(each.job_ids for each in changes))),
        by=tuple(dict.fromkeys(each.by for each in authors if each.by is not None)),
        reasons=tuple(dict.fromkeys(each.reason for each in authors if each.reason is not None)),
    )


def _kind(transaction: Transaction) -> str:
    """Return what a transaction did, in plain words."""
    if isinstance(transaction, schemas.SetSchema) and transaction.schema_id > 1:
        return "columns changed"
    return _KINDS[type(transaction)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """What one transaction of an entry changed, as in `HistoryEntry`."""

    rows_added: int = 0
    rows_removed: int = 0
    files_added: int = 0
    files_removed: int = 0
    job_ids: tuple[str, ...] = ()


def _changes(transaction: Transaction, number: int, removed: RemovedRows) -> _Changes:
    match transaction:
        case files.AddFiles(references=references, unreferenced=unreferenced, job=job):
            names = {reference.filename for reference in references}
            rows = sum(reference.row_count for reference in references)
            return _Changes(
                rows_added=rows,
                files_added=len(names) + len(unreferenced),
                job_ids=() if job is None else (job.job_id,),
            )
        case files.ReplaceFiles(job_id=job_id, inputs=inputs, output=output, rows_removed=recorded):
            names = {*inputs}
            if recorded is None:
                recorded = removed.of_files(names, output.partition_id, number)
            return _Changes(
                rows_added=output.row_count,
                rows_removed=recorded,
                files_added=1,
                files_removed=len(names),
                job_ids=(job_id,),
            )
        case files.DeleteFiles(filenames=filenames):
            return _Changes(files_removed=len(filenames))
        case files.ClearFiles(rows_removed=recorded, files_removed=file_count):
            if recorded is None or file_count is None:
                recorded, file_count = removed.of_all(number)
            return _Changes(rows_removed=recorded, files_removed=file_count)
    return _Changes()


def read_entries(
    log: TransactionLog, schema: Schema, first: int, last: int
) -> list[tuple[int, LogEntry]]:
    """Return some entries of a log, with their numbers.

    Raises:
        DataDamaged: one is missing, or cannot be read.
    """
    read = log.read_after(first - 1, up_to=last)
    entries = [(number, _entry(number, body, schema)) for number, body in read]
    numbers = [number for number, _ in entries]
    for expected in range(first, last + 1):
        if expected - first >= len(numbers) or numbers[expected - first] != expected:
            raise DataDamaged(
                f"the transaction log has no entry {expected}, of {last}. Restore the missing "
                "entries from a copy of the table's state."
            )
    return entries


def _entry(number: int, body: bytes, schema: Schema) -> LogEntry:
    where = f"entry {number} of the transaction log"
    try:
        return decode_entry(body, schema, where)
    except VersionNotFound:
        left = tuple(KeysRemoved(author=each) for each in authors_of(body))
        return LogEntry(entry_id="", at=entry_time(body, where), transactions=left)


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
        if self._state.number < wanted:
            entries = self._log.read_after(self._state.number, up_to=wanted)
            self._state = replay(self._state, entries, self._schema)
        return self._state


class RemovedRows:
    """The rows that some entries removed that do not say it themselves.

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
        """Return how many rows of a partition were in files that transaction `number` replaced."""
        rows = 0
        if not self._are_told:
            before = self._before(number)
            known = self._added if before.number < number - 1 else {}
        else:
            known = self._added
            is_told = all((name, partition_id) in known for name in filenames)
            before = TableState.empty() if is_told else self._before(self._first)
        for name in filenames:
            count = known.get((name, partition_id))
            if count is None:
                reference = before.files.reference(name, partition_id)
                count = 0 if reference is None else reference.row_count
            rows += count
        return rows

    def of_all(self, number: int) -> tuple[int, int]:
        """Return the rows and files of the table before transaction `number`."""
        before = self._before(number)
        return sum(each.rows for each in before.files.totals().values()), before.files.file_count

    def _before(self, number: int) -> TableState:
        """Return the state before a transaction; an empty one where it is no longer kept."""
        try:
            return self._states.of(number)
        except VersionNotFound:
            return TableState.empty()
