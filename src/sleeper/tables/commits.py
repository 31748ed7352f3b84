"""Commits that one process asks for and another one does: the committer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sleeper.errors import TableNotFound
from sleeper.model import paths
from sleeper.state.table_state import Transaction
from sleeper.state.transactions.commit_request import (
    CommitRequest,
    body_text,
    with_body_at,
    write_commit_request,
)
from sleeper.state.transactions.commit_request import request_commit as new_request
from sleeper.tables import commit_requests as committing
from sleeper.tables.commit_requests import CommitAnswer
from sleeper.tables.handle import TableHandle


def request_commit(
    self: TableHandle,
    transaction: Transaction,
    *,
    task_id: str | None = None,
    run_id: str | None = None,
) -> str:
    """Return the message that asks a committer to commit a transaction.

    A transaction that is too large for a message is stored first, in the table's folder.

    Args:
        transaction: What is to be committed.
        task_id: The worker that asks.
        run_id: The run of a job that it ends.

    Raises:
        StorageFailed: a large transaction cannot be stored.
    """
    request_id = self._context.new_id()
    request = new_request(
        transaction,
        self.schema,
        self.table_id,
        request_id=request_id,
        task_id=task_id,
        run_id=run_id,
    )
    if request.is_large:
        key = paths.commit_request(request_id)
        self._current().files.put(key, body_text(request).encode())
        request = with_body_at(request, key)
    return write_commit_request(request)


def commit_requests(self: TableHandle, requests: Sequence[CommitRequest]) -> list[CommitAnswer]:
    """Commit requests of this table in one entry, and return what became of each, in order.

    One that the table's state forbids is refused, and the others are committed all the same.

    Raises:
        CommitContended, StorageFailed: nothing was committed; ask again.
        CommitUnknown: they may have been committed; ask again, and the log answers.
        TableNotFound: the table was deleted.
    """
    opened = self._current()
    try:
        answers = committing.commit_requests(
            requests, store=opened.store, files=opened.files, schema=self.schema
        )
    except TableNotFound:  # files of the requests may be there
        self._undo_commit_if_deleted()
        raise
    self._undo_commit_if_deleted()
    return answers


def delete_requests(self: TableHandle, requests: Iterable[CommitRequest]) -> None:
    """Delete what was stored of requests that were answered, and are delivered no more.

    Raises:
        StorageFailed: it cannot be deleted; it does no harm.
    """
    keys = [request.body_key for request in requests if request.body_key is not None]
    if keys:
        self._current().files.delete(keys)
