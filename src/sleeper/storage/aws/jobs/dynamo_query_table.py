"""The table in which upstream's clients look for the state of a query (rule QRY-15).

An item a query, as upstream writes it for a query as a whole. A failure after which the query is
tried again is QUEUED there, because clients give up at FAILED.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.query_statuses import QueryState
from sleeper.storage.aws.dynamo_making import DynamoTable
from sleeper.storage.aws.dynamo_tables import Item
from sleeper.storage.aws.jobs.dynamo_items import (
    PARTITION_KEY_BYTES_MAX,
    as_microseconds,
    key_text,
    number,
    text,
)

QUERY_STATES: Final = DynamoTable(
    "query-tracking-table", (("queryId", "S"), ("subQueryId", "S")), "expiryDate"
)

_WHOLE = "-"
"""The sub-query id of a query as a whole."""
_ERRORS_MAX = 4_000
_NEW = "attribute_not_exists(queryId) OR expiryDate < :now"
_NOT_COMPLETED = f"{_NEW} OR lastKnownState <> :completed"


def query_state_put(
    table_name: str, events: Sequence[JobEvent], now: datetime, expires: datetime
) -> Item:
    """Return the part of a transaction that tells clients what happened to a query last.

    A query that is completed stays so, whatever else is told of it later. That it was accepted
    changes nothing: the sender may tell so after the worker has told more.

    Args:
        table_name: The table's full name.
        events: What happened, in order; one at least.
        now: The clock (aware, UTC).
        expires: When the item may be deleted.
    """
    event = events[-1]
    state, seconds = _state(event), as_microseconds(now) // 1_000_000
    item = {
        "queryId": text(key_text(event.job_id, PARTITION_KEY_BYTES_MAX)),
        "subQueryId": text(_WHOLE),
        "lastKnownState": text(state.value),
        "lastUpdateTime": number(seconds),
        "rowCount": number(event.rows_written or 0),
        "expiryDate": number(-(-as_microseconds(expires) // 1_000_000)),
    }
    if event.reasons:
        item["errors"] = text("; because: ".join(event.reasons)[:_ERRORS_MAX])
    put: Item = {"TableName": table_name, "Item": item}
    if event.type is JobEventType.ACCEPTED:
        put["ConditionExpression"] = _NEW
        put["ExpressionAttributeValues"] = {":now": number(seconds)}
    elif state is not QueryState.COMPLETED:
        put["ConditionExpression"] = _NOT_COMPLETED
        put["ExpressionAttributeValues"] = {
            ":now": number(seconds),
            ":completed": text(QueryState.COMPLETED.value),
        }
    return {"Put": put}


def _state(event: JobEvent) -> QueryState:
    match event.type:
        case JobEventType.FINISHED:
            return QueryState.COMPLETED
        case JobEventType.STARTED:
            return QueryState.IN_PROGRESS
        case JobEventType.REJECTED:
            return QueryState.FAILED
        case JobEventType.FAILED if event.is_final:
            return QueryState.PARTIALLY_FAILED if event.rows_written else QueryState.FAILED
        case _:
            return QueryState.QUEUED
