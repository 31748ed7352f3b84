"""Faults of DynamoDB that no emulator makes, and what each state store that is kept there tells.

One table of faults for all of these stores. Whatever goes wrong, a commit is told truly: it is there
if it was acknowledged, and is not if it failed; run again afterwards, its job is there once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from sleeper.errors import (
    CommitUnknown,
    JobAlreadyCommitted,
    ObjectNotFound,
    SleeperError,
    StorageFailed,
    StorageReadOnly,
)
from sleeper.storage.aws import clients
from sleeper.storage.memory import MemoryObjects
from tests.contracts.fault_proxy import FaultProxy, fault_proxy
from tests.contracts.s3_server import aws_endpoint, bucket, s3_credentials, s3_server
from tests.contracts.servers.dynamo_answers import cancelled, done_without_a_reply, refused, reply
from tests.contracts.state.places import Clock, RealClock, StatePlace, at_once
from tests.contracts.state_store_contract import BEGIN, add, job, names, outcome_of

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]

CLASSES = ("DynamoDBTransactionLogStateStore", "DynamoDBStateStore", "S3StateStore")
READS = ("GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems")
WRITES = ("PutItem", "UpdateItem", "TransactWriteItems", "BatchWriteItem", "DeleteItem")


def conflict(request, operation, code="TransactionConflict"):
    """Refuse a write because of another, as Amazon does for each kind of write."""
    if operation != "TransactWriteItems":
        return refused(request, f"{code}Exception")
    return cancelled(request, {-1: code})


def no_connection(request, operation):
    raise EndpointConnectionError(endpoint_url=request.url)


def refusal(code, **more):
    return lambda request, operation: refused(request, code, **more)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        meet: Answers a request instead of the server.
        operations: Which requests meet it.
        times: How many of them; None for all.
        error: What a commit raises; None if it succeeds all the same.
        says: What the error says.
    """

    name: str
    meet: Callable[[Any, str], Any]
    operations: tuple[str, ...] = WRITES
    times: int | None = None
    error: type[SleeperError] | None = None
    says: str = ""

    def __str__(self) -> str:
        return self.name


FAULTS = (
    Fault("conflicts-for-a-while", conflict, times=3),
    Fault("throttled-for-a-while", refusal("ThrottlingException"), times=3),
    Fault("too-fast-for-a-while", refusal("ProvisionedThroughputExceededException"), times=3),
    Fault("a-lost-reply", lambda request, operation: done_without_a_reply(request), times=1),
    Fault("failures-of-the-server", refusal("InternalServerError", status=500), times=2),
    Fault("no-connection-once", no_connection, times=1),
    Fault("conflicts-without-end", conflict, error=CommitUnknown, says="Try again|run it again"),
    Fault(
        "throttled-without-end",
        refusal("ThrottlingException"),
        error=CommitUnknown,
        says="too many calls",
    ),
    Fault(
        "every-reply-lost",
        lambda request, operation: done_without_a_reply(request),
        operations=(*READS, *WRITES),
        error=StorageFailed,
        says="InternalServerError",
    ),
    Fault("writes-denied", refusal("AccessDeniedException"), error=StorageReadOnly, says="denied"),
    Fault(
        "wrong-credentials",
        refusal("UnrecognizedClientException"),
        operations=(*READS, *WRITES),
        error=StorageFailed,
        says="no valid credentials.*AWS_ACCESS_KEY_ID",
    ),
    Fault(
        "wrong-clock",
        refusal("RequestTimeTooSkewed"),
        operations=(*READS, *WRITES),
        error=StorageFailed,
        says="clock of this machine is wrong",
    ),
    Fault(
        "missing-table",
        refusal("ResourceNotFoundException"),
        operations=(*READS, *WRITES),
        error=ObjectNotFound,
        says="AWS_REGION",
    ),
    Fault(
        "endpoint-down",
        no_connection,
        operations=(*READS, *WRITES),
        error=StorageFailed,
        says="there is no answer",
    ),
)


class Met:
    """Requests of this process to DynamoDB, which may meet a fault."""

    def __init__(self):
        self.fault, self.left, self.seen = None, None, []
        self.down_from = None
        clients.aws_client("dynamodb").meta.events.register("before-send.dynamodb", self._send)

    def begin(self, fault):
        self.fault, self.left, self.seen = fault, fault.times, []

    def end(self):
        self.fault, self.down_from = None, None

    def _send(self, request, event_name, **_):
        operation = event_name.rpartition(".")[2]
        self.seen.append((operation, json.loads(request.body)))
        if self.down_from is not None and len(self.seen) > self.down_from:
            no_connection(request, operation)
        if self.fault is None or operation not in self.fault.operations or self.left == 0:
            return None
        self.left = None if self.left is None else self.left - 1
        return self.fault.meet(request, operation)


class Place(StatePlace):
    """A place whose writers do not wait."""

    pause = staticmethod(at_once)


@pytest.fixture(params=CLASSES)
def place(request, aws_endpoint, monkeypatch):
    monkeypatch.setattr(clients, "_ATTEMPTS_MAX", 1)
    clock = RealClock()
    return Place(request.param, MemoryObjects(clock.now), clock)


@pytest.fixture
def met(place):
    return Met()


@pytest.fixture
def store(place, met):
    opened = place.open(is_new=True)
    opened.commit(BEGIN)
    return opened


def commit(store):
    """Commit a job; return how that failed."""
    try:
        store.commit(add("mine", job=job("job")))
    except SleeperError as error:
        return error
    return None


def check_once(place, store, error):
    """Without a fault: the commit is told truly, and run again it is there once."""
    found = names(place.open().state())
    assert found == ["mine"] if error is None else found in ([], ["mine"])
    if error is not None and not isinstance(error, CommitUnknown):
        assert found == []
    for each in (store, place.open()):
        _, refusal = outcome_of(lambda: each.commit(add("mine", job=job("job"))))  # noqa: B023
        assert refusal is None or (type(refusal), refusal.number) == (JobAlreadyCommitted, 2)
    assert place.open().state().number == store.refresh().number == 2
    assert names(store.state()) == ["mine"]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_in_a_commit_is_told_truly(place, met, store, fault):
    """Given a fault, when a process commits, then it succeeds, or says what to do."""
    met.begin(fault)
    error = commit(store)
    sent = [operation for operation, _ in met.seen]
    met.end()

    if fault.error is None:
        assert error is None
    else:
        with pytest.raises(fault.error, match=fault.says):
            raise error
    assert "CreateTable" not in sent
    check_once(place, store, error)


def test_an_endpoint_that_goes_down_at_any_request_of_a_commit_is_told_truly(place, met, store):
    """Nobody is told that nothing was written when something was."""
    errors = []
    for number in count():
        there = place.another_table()
        writer = there.open(is_new=True)
        writer.commit(BEGIN)
        met.seen, met.down_from = [], number
        error = commit(writer)
        met.end()
        check_once(there, writer, error)
        errors.append(type(error))
        if error is None:
            break

    assert errors[0] is StorageFailed
    assert CommitUnknown in errors


@pytest.mark.parametrize("class_name", CLASSES)
def test_throttling_for_a_minute_delays_a_commit(class_name, aws_endpoint, monkeypatch):
    """Given a minute without writes, when a job is run every 15 seconds, then it is there once."""
    monkeypatch.setattr(clients, "_ATTEMPTS_MAX", 1)
    clock = Clock()
    place = Place(class_name, MemoryObjects(clock.now), clock)
    wait_s = lambda attempt: min(1.0, 0.002 * 2**attempt)  # noqa: E731 - as long as writers do
    place.pause = lambda attempt: clock.advance(timedelta(seconds=wait_s(attempt)))
    store, met = place.open(is_new=True), Met()
    store.commit(BEGIN)
    over = clock.time + timedelta(minutes=1)

    def throttle(request, operation):
        return None if clock.time > over else refused(request, "ThrottlingException")

    met.begin(Fault("throttled-for-a-minute", throttle))
    errors = []
    for _ in range(6):
        errors.append(commit(store))
        clock.advance(timedelta(seconds=15))
    met.end()

    assert {type(error) for error in errors} <= {CommitUnknown, JobAlreadyCommitted, type(None)}
    assert errors[-1] is None or isinstance(errors[-1], JobAlreadyCommitted)
    check_once(place, store, None)


def test_every_read_of_a_state_is_consistent(place, met, store):
    """An eventual read could miss a commit that was acknowledged."""
    store.commit(add("a"))
    other = place.open()
    other.refresh()
    other.commit(add("b"))
    store.dates_stored_before(store.time())
    store.refresh()
    store.delete()

    reads = [request for operation, request in met.seen if operation in READS]
    assert len(reads) >= 4
    assert all(request.get("ConsistentRead") is True for request in reads)
    assert not any(operation in ("BatchGetItem", "TransactGetItems") for operation, _ in met.seen)


def test_items_that_are_left_over_by_a_deletion_are_deleted_again(place, met, store):
    """UnprocessedItems is what Amazon calls them."""
    store.commit(add("a", "b"))
    times = count()

    def leave_all(request, operation):
        if next(times) > 2:
            return None
        left = json.loads(request.body)["RequestItems"]
        return reply(request, 200, {"UnprocessedItems": left})

    met.begin(Fault("unprocessed", leave_all, operations=("BatchWriteItem",)))
    store.delete()
    met.end()

    with pytest.raises(ObjectNotFound, match="AWS_REGION"):
        place.open().state()
    assert next(times) > 3


class ConflictProxy(FaultProxy):
    """A proxy that answers 409 to the next requests to create an object if it is absent."""

    conflicts = 0

    def fault_for(self, method, path, operation):
        """Refuse a few entries."""
        if self.conflicts and method == "PUT" and "transactions" in path:
            self.conflicts -= 1
            return Conflict
        return None


class Conflict:
    """What S3 answers while another creates or deletes the same object."""

    kind = "conflict"


def test_a_conflict_of_conditions_in_a_bucket_is_no_lost_race(s3_server, bucket):
    """Given 409 ConditionalRequestConflict, when an entry is created, then it is sent again."""
    with fault_proxy(s3_server.endpoint, ConflictProxy) as proxy:
        objects = s3_server.objects(bucket, proxy.endpoint)
        place = Place("TransactionLogStateStore", objects, RealClock())
        store = place.open(is_new=True)
        store.commit(BEGIN)

        proxy.conflicts = 2
        error = commit(store)

        assert error is None
        assert proxy.conflicts == 0
        check_once(place, store, error)
