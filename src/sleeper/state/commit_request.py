"""Requests to the committer as messages: a transaction to add to a table's log.

    {"tableId": "0a1b2c3d", "transactionType": "ADD_FILES", "transaction": {...}}

Rule STS-21. A transaction that is too large for a message is stored as an object, and the message
has its key as `bodyKey`. The JSON of a transaction is that of the log (`state/transaction_json`),
without its type. `requestId`, `taskId`, `jobId` and `jobRunId` are ours: they identify the request,
for its answer and for a second delivery, and the run that it ends, for the tracker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sleeper.errors import CommitRefused, JobInvalid
from sleeper.model.formats.message_json import MessageFields, write_message
from sleeper.model.paths import is_data_file
from sleeper.model.schema import Schema
from sleeper.state.table_state import Transaction
from sleeper.state.transaction_json import transaction_from_json, transaction_to_json
from sleeper.state.transactions.deletes import DeleteKeys
from sleeper.state.transactions.files import AddFiles

BODY_CHARACTERS_MAX: Final = 204_800
"""A transaction whose JSON is at least this long is stored as an object."""

_NEVER_REQUESTED = ("MOVE_STATE",)
_NO_TRANSACTION = (TypeError, ValueError, LookupError, AttributeError, CommitRefused)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """A request to add a transaction to a table's log.

    Attributes:
        table_id: The table.
        type: The transaction's type, as the log names it.
        body: The transaction as JSON, without its type; None if it is stored as an object.
        body_key: The key of that object.
        request_id: Identifies the request.
        task_id: The task that sent it.
        job_id: The ingest job whose files it adds; None for other transactions, and in messages of
            earlier versions.
        run_id: The run of the job that it ends.
    """

    table_id: str
    type: str
    body: Mapping[str, Any] | None = None
    body_key: str | None = None
    request_id: str | None = None
    task_id: str | None = None
    job_id: str | None = None
    run_id: str | None = None

    @property
    def is_large(self) -> bool:
        """True if the transaction must be stored as an object, and is not yet."""
        return self.body is not None and len(body_text(self)) >= BODY_CHARACTERS_MAX


def request_commit(
    transaction: Transaction,
    schema: Schema,
    table_id: str,
    *,
    request_id: str | None = None,
    task_id: str | None = None,
    run_id: str | None = None,
) -> CommitRequest:
    """Return the request to add a transaction to a table's log."""
    document = transaction_to_json(transaction, schema)
    return CommitRequest(
        table_id=table_id,
        type=document.pop("type"),
        body=document,
        request_id=request_id,
        task_id=task_id,
        job_id=transaction.job.job_id
        if isinstance(transaction, AddFiles) and transaction.job
        else None,
        run_id=run_id,
    )


def body_text(request: CommitRequest) -> str:
    """Return the JSON to store as the object of a large transaction."""
    return json.dumps(request.body, ensure_ascii=False, separators=(",", ":"))


def with_body_at(request: CommitRequest, key: str) -> CommitRequest:
    """Return the request with its transaction in the object where `body_text` was stored."""
    return replace(request, body=None, body_key=key)


def write_commit_request(request: CommitRequest) -> str:
    """Return a request as JSON: one line, without fields that are not set."""
    return write_message(
        {
            "tableId": request.table_id,
            "transactionType": request.type,
            "transaction": request.body,
            "bodyKey": request.body_key,
            "requestId": request.request_id,
            "taskId": request.task_id,
            "jobId": request.job_id,
            "jobRunId": request.run_id,
        }
    )


def read_commit_request(text: str) -> CommitRequest:
    """Parse a request from a message; `transaction_of` decodes its transaction.

    Raises:
        JobInvalid: the text is not a request; lists every reason.
    """
    message = MessageFields(text)
    values = {name: message.text(name) for name in ("tableId", "transactionType", "bodyKey")}
    ours = {name: message.text(name) for name in ("requestId", "taskId", "jobId", "jobRunId")}
    body = message.object("transaction")
    failures = [*message.failures]
    failures += [
        f'Missing property "{name}"'
        for name in ("tableId", "transactionType")
        if not values[name] and not any(f" {name}: " in each for each in failures)
    ]
    if not failures and (body is None) == (values["bodyKey"] is None):
        failures.append('One of "transaction" and "bodyKey" is needed, and not both')
    if failures:
        raise JobInvalid(tuple(failures))
    return CommitRequest(
        table_id=str(values["tableId"]),
        type=str(values["transactionType"]),
        body=body,
        body_key=values["bodyKey"],
        request_id=ours["requestId"],
        task_id=ours["taskId"],
        job_id=ours["jobId"],
        run_id=ours["jobRunId"],
    )


def transaction_of(
    request: CommitRequest, schema: Schema, *, stored_body: str | bytes | None = None
) -> Transaction:
    """Return the transaction of a request.

    Args:
        request: The request.
        schema: The table's.
        stored_body: The object at `body_key`, if the request has one.
    """
    if request.type in _NEVER_REQUESTED:
        raise JobInvalid((f"a transaction {request.type!r} cannot be requested",))
    try:
        body = json.loads(stored_body or "null") if request.body is None else request.body
        return transaction_from_json({**body, "type": request.type}, schema)
    except _NO_TRANSACTION as error:
        reason = f"the request has no transaction {request.type[:100]!r} of this table: {error}"
        raise JobInvalid((reason[:1_000],)) from error


def refuse_other_names(transaction: Transaction) -> None:
    """Refuse files with names that no writer gives: queries would look for them, and fail.

    That is so for new files, and for those whose keys are deleted.

    Raises:
        JobInvalid: a file has such a name.
    """
    if not isinstance(transaction, AddFiles | DeleteKeys):
        return
    names = [reference.filename for reference in transaction.references]
    if isinstance(transaction, AddFiles):
        names += transaction.unreferenced
    for name in names:
        if not is_data_file(name):
            raise JobInvalid(
                (f"the request adds file {name[:200]!r}, which is no name of a data file",)
            )
