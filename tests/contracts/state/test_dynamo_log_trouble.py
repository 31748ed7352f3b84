"""Trouble with a log in DynamoDB: lost replies, killed writers, throttling, tables that are gone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count

import pytest

from sleeper.errors import CommitUnknown, ObjectNotFound, StorageFailed
from sleeper.storage.aws.state import dynamo_log
from sleeper.storage.aws.state.dynamo_log import LOG
from sleeper.storage.memory import MemoryObjects
from tests.contracts.servers.dynamo import (
    dynamo,
    dynamo_client,
    dynamo_endpoint,
    new_id,
    on_one_server,
    tables,
    without_backoff,
)
from tests.contracts.servers.dynamo_answers import refused, reply, sent
from tests.contracts.servers.running import free_port
from tests.contracts.state.dynamo_logs import (
    FIRST,
    Watched,
    add_file,
    log_of,
    real_time,
    store_on,
    tables_of,
)

__all__ = ["dynamo", "dynamo_endpoint", "tables", "without_backoff"]

LATER = datetime(3000, 1, 1, tzinfo=UTC)
WRITES = ("CreateTable", "PutItem")
THROTTLED = ("ProvisionedThroughputExceededException", "ThrottlingException")


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def prefix():
    return f"sleeper-{new_id()}-"


@pytest.fixture
def objects():
    return MemoryObjects(real_time)


@pytest.fixture(params=[300_000, 0], ids=["in items", "in objects"])
def bodies(request, monkeypatch):
    """Where bodies are kept."""
    monkeypatch.setattr(dynamo_log, "BODY_BYTES_MAX", request.param)


class FaultAtWrite:
    """Something that happens at the write of this number, counted from 1, and once."""

    def __init__(self, kind, number):
        self.kind, self.number, self.writes = kind, number, 0

    def __call__(self, operation, _, request):
        if operation not in WRITES:
            return None
        self.writes += 1
        if self.writes != self.number:
            return None
        if self.kind == "killed before":
            raise Killed
        if self.kind != "not done":
            assert sent(request).status_code in (200, 400)
        if self.kind == "killed after":
            raise Killed
        return refused(request, "InternalServerError", 500)


def commit_four(watched, prefix, objects):
    """Commit four times by a store of its own."""
    store = store_on(log_of(tables_of(watched.client, prefix), objects), objects)
    for transaction in (FIRST, add_file(), add_file(), add_file()):
        store.commit(transaction)
    return store


def entries(client, prefix, objects):
    """Return the files that others read, and check that no entry is there twice."""
    log = log_of(tables_of(client, prefix), objects)
    state = store_on(log, objects).state()
    names = [each.filename for each in state.references()]
    assert state.number == len(list(log.read_after(0)))
    assert len(names) == len(set(names))
    return names


def without_an_entry(log, objects):
    """Return the bodies that no entry names, and check that all others are named."""
    left = {info.key for info in log.sweep(LATER, delete=False)[0]}
    kept = [info.key for info in objects.listing("") if info.key not in left]
    assert len(kept) in (0, len(list(log.read_after(0))))
    return left


@on_one_server
@pytest.mark.parametrize(
    ("kind", "attempts"),
    [("lost", 1), ("lost", 3), ("not done", 1)],
    ids=["lost", "lost and sent again by boto3", "not done"],
)
@pytest.mark.usefixtures("without_backoff")
def test_a_lost_reply_of_any_write_neither_doubles_nor_loses_an_entry(
    dynamo_endpoint, dynamo, objects, bodies, kind, attempts
):
    """The entry that is there is the writer's own, whoever finds that out."""
    watched = Watched(dynamo_endpoint, attempts)
    for number in count(1):
        prefix, place = f"sleeper-{new_id()}-", objects.under(str(number))
        watched.meet = fault = FaultAtWrite(kind, number)

        store = commit_four(watched, prefix, place)

        assert store.state().number == 4
        assert len(entries(dynamo, prefix, place)) == 3
        assert len(without_an_entry(store.log, place)) <= 1
        if fault.writes < number:
            break
    assert number > 5


@on_one_server
@pytest.mark.parametrize("kind", ["killed before", "killed after"])
def test_a_writer_that_is_killed_at_any_write_leaves_a_whole_log(
    dynamo_endpoint, dynamo, objects, bodies, kind
):
    """Its last entry is there or not; its body without an entry is found by a sweep."""
    watched = Watched(dynamo_endpoint)
    for number in count(1):
        prefix, place = f"sleeper-{new_id()}-", objects.under(str(number))
        watched.meet = FaultAtWrite(kind, number)
        try:
            commit_four(watched, prefix, place)
        except Killed:
            pass
        else:
            break
        log = log_of(tables_of(dynamo, prefix), place)
        store = store_on(log, place)
        before = store.state().number
        bodies_before = len(list(place.listing("")))
        store.commit(add_file() if before else FIRST)

        # Writes 1 to 3: one that finds no table, the making of it, and the first entry.
        assert before == max(number - 2 - (kind == "killed before"), 0)
        assert len(without_an_entry(log, place)) == max(bodies_before - before, 0)
    assert number > 5


@pytest.mark.parametrize("code", [*THROTTLED, "TransactionConflictException"])
def test_a_write_that_is_refused_for_a_while_is_sent_again(
    dynamo_endpoint, prefix, objects, caplog, code
):
    """After a pause; the log tells of it."""
    watched, pauses = Watched(dynamo_endpoint), []
    log = log_of(tables_of(watched.client, prefix, pauses.append), objects)
    log.append(1, b"one")
    pauses.clear()
    watched.seen.clear()
    watched.meet = lambda operation, number, request: (
        refused(request, code) if operation == "PutItem" and number < 3 else None
    )

    with caplog.at_level("INFO"):
        assert log.append(2, b"two")

    assert pauses == [0, 1]
    assert code in caplog.text


def test_throttling_without_end_is_told(dynamo_endpoint, prefix, objects):
    """Of writes, after which it is not known what was done, and of reads."""
    watched = Watched(dynamo_endpoint)
    log = log_of(tables_of(watched.client, prefix), objects)
    store = store_on(log, objects)
    store.commit(FIRST)
    throttled = ["PutItem"]
    watched.meet = lambda operation, number, request: (
        refused(request, THROTTLED[0]) if operation in throttled else None
    )

    watched.requests()
    with pytest.raises(CommitUnknown, match="there are too many calls"):
        store.commit(add_file())
    assert watched.requests()["PutItem"] == 9
    throttled.append("Query")
    with pytest.raises(StorageFailed, match=r"too many calls .*Try again later"):
        store.refresh()


def test_conflicts_without_end_are_told(dynamo_endpoint, prefix, objects):
    """Somebody writes the same item by transactions, all the time."""
    watched = Watched(dynamo_endpoint)
    log = log_of(tables_of(watched.client, prefix), objects)
    log.append(1, b"one")
    watched.meet = lambda operation, number, request: refused(
        request, "TransactionConflictException"
    )

    watched.requests()
    with pytest.raises(
        StorageFailed, match=r"cannot write to table .*TransactionConflictException"
    ):
        log.append(2, b"two")
    assert watched.requests() == {"PutItem": 20}


def test_wrong_credentials_are_told(dynamo_endpoint, prefix, objects):
    """Before anything is written."""
    watched = Watched(dynamo_endpoint)
    watched.meet = lambda operation, number, request: refused(
        request, "UnrecognizedClientException"
    )
    store = store_on(log_of(tables_of(watched.client, prefix), objects), objects)

    with pytest.raises(StorageFailed, match=r"no valid credentials.*Set AWS_ACCESS_KEY_ID"):
        store.commit(FIRST)
    assert set(watched.requests()) == {"Query"}


def test_a_server_that_is_down_is_told(prefix, objects):
    """When it is asked for the first time."""
    client = dynamo_client(f"http://127.0.0.1:{free_port()}", attempts=1)
    store = store_on(log_of(tables_of(client, prefix), objects), objects)

    with pytest.raises(StorageFailed, match="there is no answer"):
        store.commit(FIRST)


def test_a_table_that_is_deleted_is_missed_and_not_begun_again(
    dynamo_endpoint, prefix, objects, bodies
):
    """Another log under the number that comes next would be no log."""
    client = dynamo_client(dynamo_endpoint)
    log = log_of(tables_of(client, prefix), objects)
    store = store_on(log, objects)
    store.commit(FIRST)
    client.delete_table(TableName=prefix + LOG.name)

    with pytest.raises(ObjectNotFound, match=r"entry 2 .*because the log is not there"):
        store.refresh()
    with pytest.raises(ObjectNotFound, match="restore it from a copy"):
        store.commit(add_file())
    elsewhere = log_of(tables_of(client, prefix), objects)
    for each in (log, elsewhere):
        with pytest.raises(ObjectNotFound, match="entry 2"):
            each.append(2, b"two")
    assert len([info for info in objects.listing("") if "000002-" in info.key]) == 0
    assert log.stored_at(1) is None
    assert prefix + LOG.name not in client.list_tables()["TableNames"]


def test_a_table_of_another_shape_is_told(dynamo_endpoint, prefix, objects):
    """Its keys, and those that it should have."""
    client = dynamo_client(dynamo_endpoint)
    client.create_table(
        TableName=prefix + LOG.name,
        KeySchema=[{"AttributeName": "Id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "Id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    log = log_of(tables_of(client, prefix), objects)

    told = r"has the keys Id \(S\), and should have TABLE_ID \(S\), TRANSACTION_NUMBER \(N\)"
    with pytest.raises(StorageFailed, match=told):
        list(log.read_after(0))
    with pytest.raises(StorageFailed, match=told):
        log.append(1, b"one")


def test_a_refusal_without_the_item_that_is_there_is_looked_into(dynamo_endpoint, prefix, objects):
    """Not every server tells it; it may be gone when it is read."""
    watched = Watched(dynamo_endpoint)
    log = log_of(tables_of(watched.client, prefix), objects)
    log.append(1, b"one")
    watched.meet = lambda operation, number, request: (
        refused(request, "ConditionalCheckFailedException") if operation == "PutItem" else None
    )

    assert log.append(1, b"one")
    assert not log.append(1, b"another")
    assert not log.append(2, b"two")


def test_items_that_amazon_did_not_delete_yet_are_deleted_again(dynamo_endpoint, prefix, objects):
    """Until there are none; without end that is an error."""
    watched = Watched(dynamo_endpoint)
    log = log_of(tables_of(watched.client, prefix), objects)
    for number in range(1, 31):
        log.append(number, b"entry")

    def keep_some(operation, number, request):
        if operation != "BatchWriteItem" or number > kept_times:
            return None
        asked = json.loads(request.body)["RequestItems"][prefix + LOG.name]
        request.body = json.dumps({"RequestItems": {prefix + LOG.name: asked[:1]}})
        request.headers["Content-Length"] = str(len(request.body))
        sent(request)
        left = {"UnprocessedItems": {prefix + LOG.name: asked[1:]} if asked[1:] else {}}
        return reply(request, 200, left)

    watched.meet = keep_some
    kept_times = 3
    watched.requests()
    log.delete()
    assert watched.requests() == {"Query": 1, "BatchWriteItem": 5}
    assert list(log.read_after(0)) == []

    for number in range(1, 31):
        log.append(number, b"entry")
    kept_times = 1000
    with pytest.raises(StorageFailed, match=r"cannot delete items of .*too many calls"):
        log.delete()
