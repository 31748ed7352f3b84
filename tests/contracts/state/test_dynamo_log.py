"""A transaction log in DynamoDB keeps the contract, and makes no more requests than it says."""

from __future__ import annotations

import os
import zlib
from datetime import UTC, datetime, timedelta

import pytest

from sleeper.errors import DataDamaged, ObjectNotFound, StorageReadOnly
from sleeper.state.log_store import SnapshotRule
from sleeper.storage.aws.state import dynamo_log
from sleeper.storage.aws.state.dynamo_log import BODY_BYTES_MAX, LOG
from sleeper.storage.memory import MemoryObjects
from tests.contracts.servers.dynamo import dynamo, dynamo_endpoint, new_id, tables
from tests.contracts.servers.dynamo_answers import refused
from tests.contracts.state.dynamo_logs import (
    FIRST,
    Watched,
    add_file,
    log_of,
    real_time,
    store_on,
    tables_of,
)
from tests.contracts.transaction_log_contract import TransactionLogContract

__all__ = ["dynamo", "dynamo_endpoint", "tables"]

LATER = datetime(3000, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
LARGE = os.urandom(BODY_BYTES_MAX)


@pytest.fixture
def objects():
    return MemoryObjects(real_time)


@pytest.fixture
def log(tables, objects):
    return log_of(tables, objects)


@pytest.fixture
def watched(dynamo_endpoint):
    return Watched(dynamo_endpoint)


@pytest.fixture
def prefix():
    return f"sleeper-{new_id()}-"


def names(objects):
    return [info.key for info in objects.listing("")]


class TestDynamoTransactionLog(TransactionLogContract):
    """A log whose bodies are in its items."""

    racing_writers = 4


class TestDynamoTransactionLogOfLargeEntries(TransactionLogContract):
    """A log whose bodies are objects, each of them."""

    racing_writers = 4

    @pytest.fixture
    def log(self, tables, objects, monkeypatch):
        monkeypatch.setattr(dynamo_log, "BODY_BYTES_MAX", 0)
        return log_of(tables, objects)


class TestRequests:
    """What is asked of DynamoDB."""

    def test_a_commit_reads_once_and_writes_once(self, watched, prefix, objects):
        """A look at what others wrote, and the entry; the DynamoDB table is made at the first."""
        store = store_on(log_of(tables_of(watched.client, prefix), objects), objects)
        store.commit(FIRST)
        first = watched.requests()

        store.commit(add_file())

        assert watched.requests() == {"Query": 1, "PutItem": 1}
        assert first.pop("DescribeTable") >= 2
        assert first == {"Query": 2, "PutItem": 2, "CreateTable": 1}
        assert names(objects) == []

    def test_a_look_without_news_costs_one_query(self, watched, prefix, objects):
        """And one that finds entries costs one too, whatever their number."""
        log = log_of(tables_of(watched.client, prefix), objects)
        store, other = store_on(log, objects), store_on(log, objects)
        store.commit(FIRST)
        other.state()
        watched.requests()

        other.refresh()
        without = watched.requests()
        for _ in range(5):
            store.commit(add_file())
        watched.requests()
        other.refresh()

        assert without == {"Query": 1}
        assert watched.requests() == {"Query": 1}
        assert other.state().number == 6

    def test_a_table_with_a_snapshot_is_opened_by_one_query(self, watched, prefix, objects):
        """Only the entries after it are read; all of the older ones are not."""
        log = log_of(tables_of(watched.client, prefix), objects)
        writer = store_on(log, objects, SnapshotRule(entries_min=3))
        writer.commit(FIRST)
        for _ in range(4):
            writer.commit(add_file())
        watched.requests()

        opened = store_on(log, objects).state()

        assert opened.number == 5
        assert watched.requests() == {"Query": 1}
        assert watched.reads[-1]["ExpressionAttributeValues"][":after"] == {"N": "3"}

    def test_a_lost_race_costs_a_query_and_a_put_more(self, watched, prefix, objects):
        """The answer that the number is taken has the entry that took it."""
        log = log_of(tables_of(watched.client, prefix), objects)
        store, rival = store_on(log, objects), store_on(log, objects)
        store.commit(FIRST)
        rival.state()
        watched.requests()

        def overtake(operation, number, request):
            if operation == "PutItem" and number == 1:
                rival.commit(add_file())

        watched.meet = overtake
        store.commit(add_file())

        assert store.state().number == 3
        assert watched.requests() == {"Query": 3, "PutItem": 3}

    def test_many_entries_are_read_in_pages(self, watched, prefix, objects):
        """Amazon answers with a megabyte at once."""
        log = log_of(tables_of(watched.client, prefix), objects)
        bodies = [os.urandom(BODY_BYTES_MAX - 1000) for _ in range(8)]
        for number, body in enumerate(bodies, 1):
            log.append(number, body)
        watched.requests()

        assert [body for _, body in log.read_after(0)] == bodies
        assert watched.requests()["Query"] in (2, 3, 4)

    def test_every_read_asks_for_the_last_state(self, watched, prefix, objects):
        """An eventual read may lack an entry that was acknowledged."""
        log = log_of(tables_of(watched.client, prefix), objects)
        store = store_on(log, objects)
        store.commit(FIRST)
        log.append(1, b"another")
        log.append(2, LARGE)
        log.stored_at(1)
        log.read(1)
        log.sweep(LATER, delete=False)
        log.delete()

        assert len(watched.reads) == 6
        assert all(each["ConsistentRead"] for each in watched.reads)


class TestLargeBodies:
    """STS-16: bodies that no item may hold are objects in the table's folder."""

    def test_a_large_body_is_an_object_that_its_item_names(self, log, tables, objects, dynamo):
        """It is compressed; a large one that can be made small enough stays in the item."""
        log.append(1, LARGE)
        log.append(2, b"x" * 10_000_000)

        items = dynamo.scan(TableName=tables.name(LOG))["Items"]
        [key] = names(objects)
        assert {item["TRANSACTION_NUMBER"]["N"]: sorted(item) for item in items} == {
            "1": ["BODY_S3_KEY", "TABLE_ID", "TRANSACTION_NUMBER", "UPDATE_TIME"],
            "2": ["BODY", "TABLE_ID", "TRANSACTION_NUMBER", "UPDATE_TIME"],
        }
        assert [item["BODY_S3_KEY"]["S"] for item in items if "BODY_S3_KEY" in item] == [key]
        assert key.startswith("statestore/transactions/00000000000000000001-")
        assert zlib.decompress(objects.read(key)) == LARGE
        assert list(log.read_after(0)) == [(1, LARGE), (2, b"x" * 10_000_000)]

    def test_a_body_that_lost_the_race_is_deleted(self, log, objects):
        """One that its writer sends again too, for the log has it already."""
        log.append(1, LARGE)
        winner = names(objects)

        lost = log.append(1, LARGE[::-1])
        again = log.append(1, LARGE)

        assert (lost, again) == (False, True)
        assert names(objects) == winner

    def test_a_body_without_an_entry_is_left_over_once_its_number_is_taken(self, log, objects):
        """Before that its writer, however slow, may still put the item that names it."""
        ours = "statestore/transactions/00000000000000000001-dead.json.zlib"
        objects.put(ours, b"")
        objects.put("statestore/transactions/00000000000000000001.json", b"of another store")

        early, _ = log.sweep(LATER, delete=True)
        log.append(1, LARGE)

        assert early == []
        young, _ = log.sweep(NOON, delete=True)
        found, failures = log.sweep(LATER, delete=True)
        assert ([info.key for info in found], failures, young) == ([ours], {}, [])
        assert ours not in names(objects)

    def test_a_missing_body_is_damage(self, log, objects):
        """It names the object; a torn one too."""
        log.append(1, LARGE)
        [key] = names(objects)
        objects.put(key, b"torn")

        with pytest.raises(DataDamaged, match=r"entry 1 of table flights.* cannot be read"):
            log.read(1)
        objects.delete([key])
        with pytest.raises(DataDamaged, match=f"object {key} of the table's folder is missing"):
            list(log.read_after(0))


class TestTimes:
    """When entries were stored."""

    def test_an_entry_was_stored_when_the_next_ones_writer_looked(self, tables, objects):
        """Rounded up to the millisecond that DynamoDB keeps."""
        times = iter([NOON, NOON + timedelta(hours=1, microseconds=1)])
        log = log_of(tables, objects, now=lambda: next(times))
        log.append(1, b"one")
        log.append(2, b"two")

        assert log.stored_at(1) == NOON + timedelta(hours=1, milliseconds=1)

    def test_the_last_entry_was_stored_when_somebody_first_asked(self, tables, objects):
        """So the garbage that it left is collected, though nobody commits any more."""
        time = NOON
        log = log_of(tables, objects, now=lambda: time)
        log.append(1, b"one")
        time = NOON + timedelta(days=1)
        first = log.stored_at(1)
        time = NOON + timedelta(days=2)

        assert first == NOON + timedelta(days=1)
        assert log.stored_at(1) == first
        assert log.append(1, b"one")
        assert list(log.read_after(0)) == [(1, b"one")]

    def test_who_may_not_write_does_not_know_of_the_last_entry(self, watched, prefix, objects):
        """A look at what would be collected fails for nobody."""
        log = log_of(tables_of(watched.client, prefix), objects)
        log.append(1, b"one")
        watched.meet = lambda operation, number, request: (
            refused(request, "AccessDeniedException") if operation == "UpdateItem" else None
        )

        assert log.stored_at(1) is None
        with pytest.raises(StorageReadOnly, match="UpdateItem"):
            tables_of(watched.client, prefix).update(LOG, {"TABLE_ID": {"S": "a"}}, "", {})


class TestLogsOfManyTables:
    """One DynamoDB table has the logs of all tables of an instance."""

    def test_tables_do_not_see_each_others_entries(self, tables, objects):
        """Nor are those of another deleted with a table's."""
        one = log_of(tables, objects.under("1"), table_id="1")
        two = log_of(tables, objects.under("2"), table_id="2")
        for number in range(1, 31):
            one.append(number, b"one")
        two.append(1, b"two")

        one.delete()
        one.delete()

        assert list(one.read_after(0)) == []
        assert list(two.read_after(0)) == [(1, b"two")]

    def test_a_log_that_should_be_there_is_missed(self, tables, objects, log):
        """A region that the table was not made in would show it as empty, and begin another log."""
        elsewhere = log_of(tables, objects, is_new=False)
        with pytest.raises(ObjectNotFound, match="Check that AWS_REGION"):
            list(elsewhere.read_after(0))
        with pytest.raises(ObjectNotFound, match="entry 7 of table flights"):
            elsewhere.append(7, b"seven")
        with pytest.raises(ObjectNotFound, match="log is not there"):
            list(log.read_after(6))

        log.append(1, b"one")
        log_of(tables, objects, table_id="trains").append(1, b"one")

        assert list(elsewhere.read_after(0)) == [(1, b"one")]
        with pytest.raises(ObjectNotFound, match="entry 1 of table ships"):
            list(log_of(tables, objects, is_new=False, table_id="ships").read_after(0))

    def test_what_lies_behind_a_gap_is_not_read(self, log, dynamo, tables, caplog):
        """As with entries that are objects; it is told of."""
        for number in (1, 2, 3):
            log.append(number, b"entry")
        key = {"TABLE_ID": {"S": "flights"}, "TRANSACTION_NUMBER": {"N": "2"}}
        dynamo.delete_item(TableName=tables.name(LOG), Key=key)

        assert list(log.read_after(0)) == [(1, b"entry")]
        assert "entry 2 of table flights" in caplog.text
