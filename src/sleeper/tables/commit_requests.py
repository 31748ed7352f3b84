"""Commits what others ask to be committed: many transactions of one table in one entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.errors import CommitRefused, JobAlreadyCommitted, JobInvalid, SleeperError
from sleeper.model import paths
from sleeper.model.schema import Schema
from sleeper.notebook_html import NotebookHtml
from sleeper.ports.objects import Objects
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import TableState, Transaction
from sleeper.state.transactions.commit_request import CommitRequest, transaction_of
from sleeper.state.transactions.files import AddFiles


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


def commit_requests(
    requests: Sequence[CommitRequest], *, store: StateStore, files: Objects, schema: Schema
) -> list[CommitAnswer]:
    """Commit all requests that the table's state does not forbid, in one entry, in order.

    A request for a job that the log has is answered as committed: it was delivered twice, or the
    job was run twice.

    Args:
        requests: Of one table.
        store: The table's state.
        files: The table's folder, which has the bodies of large requests.
        schema: The table's.

    Raises:
        CommitContended, StorageFailed: nothing was committed; ask again.
        CommitUnknown: they may have been committed; ask again, and the log answers.
    """
    read = [_transaction(request, files, schema) for request in requests]
    done = store.commit_group([each for each in read if isinstance(each, Transaction)])
    refusals = iter(done.refusals)
    return [
        CommitAnswer(request=request, refusal=transaction)
        if isinstance(transaction, JobInvalid)
        else _answer(request, transaction, next(refusals), done.state)
        for request, transaction in zip(requests, read, strict=True)
    ]


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
        return JobInvalid((f"bodyKey is {key!r}, which is no place for a transaction",))
    stored = None if key is None else files.read(key)
    try:
        return transaction_of(request, schema, stored_body=stored)
    except JobInvalid as invalid:
        return invalid
