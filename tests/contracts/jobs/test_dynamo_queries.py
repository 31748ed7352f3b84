"""The state of a query in DynamoDB, where upstream's clients look for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ClientError

from sleeper.errors import StorageFailed
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from sleeper.storage.aws.jobs.dynamo_tracker import QUERY_STATES, DynamoTracker
from tests.contracts.jobs.clock import Clock
from tests.contracts.jobs.job_tracker_contract import NOON
from tests.contracts.servers.dynamo import dynamo, dynamo_endpoint, pause, tables

__all__ = ["dynamo", "dynamo_endpoint", "tables"]

KEPT = timedelta(days=1)
ACCEPTED, STARTED = JobEventType.ACCEPTED, JobEventType.STARTED
FINISHED, FAILED = JobEventType.FINISHED, JobEventType.FAILED
REJECTED = JobEventType.REJECTED


def event(type_, second=0, **values):
    """Return an event of query `q`, so many seconds after noon."""
    at = NOON + timedelta(seconds=second)
    return JobEvent(kind=JobKind.QUERY, table_id="flights", job_id="q", type=type_, at=at, **values)


@pytest.fixture
def clock():
    clock = Clock()
    clock.time = NOON
    return clock


@pytest.fixture
def tracker(tables, clock):
    return DynamoTracker(tables, now=clock.now, pause=pause)


@pytest.fixture
def state_of(dynamo, tables):
    """Return what a client of upstream finds: it asks by these two attributes."""

    def found(query_id="q"):
        answer = dynamo.query(
            TableName=tables.name(QUERY_STATES),
            KeyConditionExpression="queryId = :query AND subQueryId = :whole",
            ExpressionAttributeValues={":query": {"S": query_id}, ":whole": {"S": "-"}},
        )
        read = TypeDeserializer().deserialize
        items = [{name: read(value) for name, value in item.items()} for item in answer["Items"]]
        assert len(items) < 2
        return items[0] if items else None

    return found


def recorded(tracker, *events):
    for each in events:
        tracker.record([each], expires=NOON + KEPT)


def test_an_item_is_upstreams(tracker, tables, state_of, clock):
    """By its name, and with its attributes; times are whole seconds (QRY-15)."""
    assert tables.name(QUERY_STATES).endswith("-query-tracking-table")
    clock.time = NOON + timedelta(seconds=2)

    recorded(tracker, event(FINISHED, rows_written=7))

    seconds = int(NOON.timestamp())
    assert state_of() == {
        "queryId": "q",
        "subQueryId": "-",
        "lastKnownState": "COMPLETED",
        "lastUpdateTime": seconds + 2,
        "rowCount": 7,
        "expiryDate": seconds + 86_400 + 1,
    }


@pytest.mark.parametrize(
    ("last", "state", "errors"),
    [
        (event(ACCEPTED), "QUEUED", None),
        (event(STARTED), "IN_PROGRESS", None),
        (event(FINISHED), "COMPLETED", None),
        (event(REJECTED, reasons=("no table", "no key")), "FAILED", "no table; because: no key"),
        (event(FAILED, reasons=("x",), is_final=True), "FAILED", "x"),
        (event(FAILED, reasons=("x",), is_final=True, rows_written=3), "PARTIALLY_FAILED", "x"),
        (event(FAILED, reasons=("x",)), "QUEUED", "x"),
    ],
)
def test_what_happened_last_says_the_state(tracker, state_of, last, state, errors):
    """A failure is QUEUED while the query is tried again: clients give up at FAILED (QRY-15)."""
    recorded(tracker, last)

    found = state_of()
    assert found["lastKnownState"] == state
    assert found.get("errors") == errors


def test_events_of_one_call_leave_the_last(tracker, state_of):
    """As a worker tells that it accepted and started a query."""
    tracker.record([event(ACCEPTED), event(STARTED, 1)], expires=NOON + KEPT)

    assert state_of()["lastKnownState"] == "IN_PROGRESS"


@pytest.mark.parametrize("late", [ACCEPTED, STARTED, FAILED, REJECTED])
def test_a_query_that_is_completed_stays_so(tracker, state_of, late):
    """Its rows are there, whatever another delivery of its message does; its event is kept."""
    recorded(tracker, event(FINISHED, rows_written=7), event(late, 5, is_final=late is FAILED))

    assert state_of()["lastKnownState"] == "COMPLETED"
    assert state_of()["rowCount"] == 7
    assert [each.type for each in tracker.events_of_job(JobKind.QUERY, "q")] == [FINISHED, late]


@pytest.mark.parametrize("before", [STARTED, FAILED])
def test_a_sender_who_is_late_changes_nothing(tracker, state_of, before):
    """It tells that it sent the message when a worker has told more."""
    recorded(tracker, event(before, 5, is_final=True))
    state = state_of()["lastKnownState"]

    recorded(tracker, event(ACCEPTED))

    assert state_of()["lastKnownState"] == state


def test_the_reason_of_an_earlier_failure_goes(tracker, state_of):
    """A query that was tried again and did it has no errors."""
    recorded(tracker, event(FAILED, reasons=("busy",)), event(FINISHED, 5))

    assert "errors" not in state_of()


def test_an_item_that_has_expired_counts_no_more(tracker, state_of, clock):
    """Amazon deletes it some days later, and the query may be asked again before."""
    recorded(tracker, event(FINISHED))
    clock.time = NOON + KEPT + timedelta(seconds=2)

    tracker.record([event(ACCEPTED, 90_000)], expires=clock.time + KEPT)

    assert state_of()["lastKnownState"] == "QUEUED"


def test_a_long_reason_is_cut(tracker, state_of):
    """An item has 400 KB at most."""
    recorded(tracker, event(FAILED, reasons=("x" * 90_000,), is_final=True))

    assert len(state_of()["errors"]) == 4_000


def test_other_jobs_have_no_item(tracker, tables, dynamo):
    """Not even the table is made for them."""
    recorded(tracker, replace(event(FINISHED), kind=JobKind.EXPORT))

    with pytest.raises(ClientError, match="ResourceNotFound"):
        dynamo.describe_table(TableName=tables.name(QUERY_STATES))


def test_a_table_that_was_deleted_is_told(tracker, tables, dynamo):
    """The recorder logs it, and the query goes on."""
    recorded(tracker, event(STARTED))
    dynamo.delete_table(TableName=tables.name(QUERY_STATES))

    with pytest.raises(StorageFailed):
        recorded(tracker, event(FINISHED, 5))


def test_a_query_costs_two_requests_for_each_time_it_is_told_of(tracker, dynamo):
    """A look at its job and one transaction; the state comes with them."""
    recorded(tracker, event(ACCEPTED))
    calls = Counter()

    def count(model, **_):
        calls[model.name] += 1

    dynamo.meta.events.register("before-call.dynamodb", count)
    try:
        tracker.record([event(ACCEPTED, 1), event(STARTED, 2)], expires=NOON + KEPT)
        tracker.record([event(FINISHED, 3)], expires=NOON + KEPT)
    finally:
        dynamo.meta.events.unregister("before-call.dynamodb", count)

    assert calls == {"GetItem": 2, "TransactWriteItems": 2}
