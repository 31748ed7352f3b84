"""Lists what the transactions of a table did, from its log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final

from sleeper.errors import BadRequest
from sleeper.model.schema import Schema
from sleeper.notebook_html import NotebookHtml
from sleeper.ports.transaction_log import TransactionLog
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import Transaction
from sleeper.state.transaction_json import LogEntry
from sleeper.state.transactions import claims, files, moves, partitions
from sleeper.state.transactions import files as sweeps
from sleeper.state.transactions import moves as schemas
from sleeper.state.transactions import partitions as merges
from sleeper.tables.removed_rows import RemovedRows, StatesBefore, read_entries

_READ_AT_ONCE: Final = 100
"""So many entries are held in memory at once."""

_KINDS: Final[dict[type[Transaction], str]] = {
    files.AddFiles: "rows added",
    files.ReplaceFiles: "files compacted",
    files.SplitFileReferences: "references moved to leaves",
    files.DeleteFiles: "garbage deleted",
    files.ClearFiles: "table emptied",
    claims.ClaimFiles: "files claimed for compaction",
    claims.RenewClaims: "claims renewed",
    claims.ReleaseClaims: "claims released",
    partitions.InitialisePartitions: "partitions made",
    partitions.SplitPartition: "partition split",
    partitions.ExtendPartitionTree: "partitions added",
    merges.MergePartitions: "partitions merged",
    schemas.SetSchema: "schema recorded",
    moves.MoveState: "state moved to this store",
    sweeps.SweepOrphans: "orphans swept",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry(NotebookHtml):
    """What one transaction number of a table did.

    Attributes:
        number: The transaction number, for `as_of`.
        time: When it was committed, by the storage's clock (aware, UTC).
        kinds: What it did, in plain words, such as `rows added`; each once, in order.
        rows_added: Rows in files that it added. A compaction adds the rows that it wrote.
        rows_removed: Rows that it took out of the table, or that a compaction read; an estimate
            for files whose references were moved to leaves.
        files_added: Files that it added.
        files_removed: Files that it replaced, or whose deletion it recorded.
        job_ids: Ids of the ingest and compaction jobs that it committed.
    """

    number: int
    time: datetime
    kinds: tuple[str, ...]
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    job_ids: tuple[str, ...]


def read_history(store: StateStore, schema: Schema, limit: int | None) -> tuple[HistoryEntry, ...]:
    """Return what the last transactions did, the newest first.

    Entries of the log are read one after the other, from the last `limit` on; all without a limit.
    They are not replayed, unless one of them removed rows that nothing else tells the number of.

    Raises:
        BadRequest: the state store keeps no log.
        VersionNotFound: the state before a transaction is needed, and no longer kept.
        DataDamaged: an entry is missing, or cannot be read.
    """
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
    return tuple(reversed(found))


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
    kinds = dict.fromkeys(_KINDS[type(each)] for each in entry.transactions)
    return HistoryEntry(
        number=number,
        time=entry.at,
        kinds=tuple(kinds),
        rows_added=sum(each.rows_added for each in changes),
        rows_removed=sum(each.rows_removed for each in changes),
        files_added=sum(each.files_added for each in changes),
        files_removed=sum(each.files_removed for each in changes),
        job_ids=tuple(dict.fromkeys(chain.from_iterable(each.job_ids for each in changes))),
    )


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
            return _Changes(
                rows_added=sum(reference.row_count for reference in references),
                files_added=len(names) + len(unreferenced),
                job_ids=() if job is None else (job.job_id,),
            )
        case files.ReplaceFiles(job_id=job_id, inputs=inputs, output=output):
            names = {*inputs}
            return _Changes(
                rows_added=output.row_count,
                rows_removed=removed.of_files(names, output.partition_id, number),
                files_added=1,
                files_removed=len(names),
                job_ids=(job_id,),
            )
        case files.DeleteFiles(filenames=filenames):
            return _Changes(files_removed=len(filenames))
        case files.ClearFiles():
            rows, file_count = removed.of_all(number)
            return _Changes(rows_removed=rows, files_removed=file_count)
    return _Changes()
