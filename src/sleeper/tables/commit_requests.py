"""Commits that one process asks for, and another one makes: the committer.

1. a worker writes a message with the transaction (`request_commit`); a large one is stored in
   the table's folder first
2. the committer commits many requests of one table in one entry, and answers each
3. when all are answered, what was stored of them is deleted
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sleeper.errors import (
    CommitRefused,
    JobAlreadyCommitted,
    JobInvalid,
    SleeperError,
    TableNotFound,
)
from sleeper.html.values import NotebookHtml
from sleeper.model import paths
from sleeper.model.authors import author_now
from sleeper.model.schema import Schema
from sleeper.ports.objects import Objects
from sleeper.state.commit_request import (
    CommitRequest,
    body_text,
    refuse_other_names,
    transaction_of,
    with_body_at,
    write_commit_request,
)
from sleeper.state.commit_request import request_commit as new_request
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.open_table import OpenTable


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswer(NotebookHtml):
    """What became of one request.

    Attributes:
        request: The request.
        job_id: The ingest job whose files it adds; None for other transactions.
        files: How many files it adds.
        transaction: The table's transaction number that has it; None when it was refused.
        refusal: Why it was refused; None when it was committed, now or before.
    """

    request: CommitRequest
    job_id: str | None = None
    files: int = 0
    transaction: int | None = None
    refusal: SleeperError | None = None


def request_commit(
    table: OpenTable, transaction: Transaction, *, task_id: str | None, run_id: str | None
) -> str:
    """Return the message that asks for a commit (`Table.request_commit`)."""
    request_id = table.context.new_id()
    request = new_request(
        transaction.signed(author_now(table.context.user)),
        table.schema,
        table.record.table_id,
        request_id=request_id,
        task_id=task_id,
        run_id=run_id,
    )
    if request.is_large:
        key = paths.commit_request(request_id)
        table.files.put(key, body_text(request).encode())
        request = with_body_at(request, key)
    return write_commit_request(request)


def commit_requests(table: OpenTable, requests: Sequence[CommitRequest]) -> list[CommitAnswer]:
    """Commit all requests that the table's state does not forbid (`Table.commit_requests`).

    A request for a job that the log has is answered as committed: it was delivered twice, or the
    job was run twice.
    """
    read = [_transaction(request, table.files, table.schema) for request in requests]
    try:
        done = table.store.commit_group([each for each in read if isinstance(each, Transaction)])
    except TableNotFound:  # files of the requests may be there
        table.undo_commit_if_deleted()
        raise
    refusals = iter(done.refusals)
    answers = [
        CommitAnswer(request=request, job_id=request.job_id, refusal=transaction)
        if isinstance(transaction, JobInvalid)
        else _answer(request, transaction, next(refusals), done.state)
        for request, transaction in zip(requests, read, strict=True)
    ]
    table.undo_commit_if_deleted()
    return answers


def delete_requests(table: OpenTable, requests: Iterable[CommitRequest]) -> None:
    """Delete the stored bodies of answered requests (`Table.delete_requests`)."""
    keys = [request.body_key for request in requests if request.body_key is not None]
    if keys:
        table.files.delete(keys)


def _answer(
    request: CommitRequest,
    transaction: Transaction,
    refusal: CommitRefused | None,
    state: TableState,
) -> CommitAnswer:
    number = state.number if refusal is None else None
    if not isinstance(transaction, AddFiles) or transaction.job is None:
        return CommitAnswer(request=request, transaction=number, refusal=refusal)
    job_id = transaction.job.job_id
    if isinstance(refusal, JobAlreadyCommitted):
        known = state.jobs.find(job_id)
        number, refusal = (None if known is None else known.number), None
    return CommitAnswer(
        request=request,
        job_id=job_id,
        files=len({reference.filename for reference in transaction.references}),
        transaction=number,
        refusal=refusal,
    )


def _transaction(
    request: CommitRequest, files: Objects, schema: Schema
) -> Transaction | JobInvalid:
    key = request.body_key
    if key is not None and not paths.is_commit_request(key):
        return JobInvalid((f"bodyKey is {key[:200]!r}, which is no place for a transaction",))
    stored = None if key is None else files.read(key)
    try:
        transaction = transaction_of(request, schema, stored_body=stored)
        refuse_other_names(transaction)
    except JobInvalid as invalid:
        return invalid
    return transaction
