"""A table whose transaction log is in DynamoDB: used, copied, missed, and deleted."""

from __future__ import annotations

import uuid

import boto3
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import ObjectNotFound, PropertiesInvalid, TableNotFound
from sleeper.model.ranges import whole_region
from sleeper.model.tables import SCHEMA as SCHEMA_PROPERTY
from sleeper.spark.data_source.reader import StreamRequest
from sleeper.spark.data_source.stream_reader import open_stream_reader
from sleeper.storage.aws.state import dynamo_log
from sleeper.storage.aws.state.dynamo_log import DynamoTransactionLog
from tests.contracts.s3_server import (
    REGION,
    aws_endpoint,
    bucket,
    free_port,
    s3_credentials,
    s3_server,
)
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("n", pa.int64(), nullable=False)])
STORE = "sleeper.table.statestore.classname"
DEFAULT_STORE = "sleeper.default.table.statestore.classname"
IN_DYNAMO = "DynamoDBTransactionLogStateStore"
ALONE = "DynamoDBTransactionLogStateStoreNoSnapshots"


@pytest.fixture
def dynamo(aws_endpoint):
    """A client of DynamoDB as any program has it."""
    return boto3.client("dynamodb", region_name=REGION, endpoint_url=aws_endpoint)


@pytest.fixture
def instance(tmp_path, aws_endpoint):
    """An instance in a folder."""
    properties = {"sleeper.id": f"story-{uuid.uuid4().hex[:8]}"}
    return sleeper.create_instance(tmp_path / "instance", properties)


@pytest.fixture
def table(instance):
    """A table of two leaves, without rows."""
    return make(instance)


def make(instance, name="letters", store=IN_DYNAMO):
    return instance.create_table(
        name, SCHEMA, row_keys=["id"], split_points=["m"], properties={STORE: store}
    )


def add(table, *letters):
    rows = [{"id": letter, "n": ord(letter)} for letter in letters]
    return table.ingest(pa.Table.from_pylist(rows, schema=SCHEMA))


def ids_in(table, as_of=None):
    return "".join(row["id"] for row in table.query(as_of=as_of).to_pylist())


def items(dynamo, instance):
    """Return the numbers of the entries in DynamoDB, by table id."""
    name = f"sleeper-{instance.instance_id}-transaction-log"
    found = {}
    for item in dynamo.scan(TableName=name, ConsistentRead=True)["Items"]:
        numbers = found.setdefault(item["TABLE_ID"]["S"], [])
        numbers.append(int(item["TRANSACTION_NUMBER"]["N"]))
    return {table_id: sorted(numbers) for table_id, numbers in found.items()}


def state_objects(instance, table):
    """Return the objects of a table's state in its folder."""
    return [info.key for info in folder_of(instance, table).listing("statestore/")]


def folder_of(instance, table):
    return instance._context.objects.under(table.table_id)


@pytest.mark.parametrize("store", [IN_DYNAMO, f"sleeper.statestore.transactionlog.{ALONE}"])
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_a_table_is_used_as_any_other(place, store, instance, bucket, dynamo):
    """Given a table, when it is filled and cared for, then it answers, at each of its versions."""
    if place == "bucket":
        instance = sleeper.create_instance(
            f"s3://{bucket}/demo", {"sleeper.id": f"story-{uuid.uuid4().hex[:8]}"}
        )
    table = make(instance, store=store)
    first = add(table, "a", "n").transaction
    table.set_properties({"sleeper.table.partition.splitting.threshold": 2})
    add(table, "b", "o")
    add(table, "c", "p")

    compacted = table.compact(all_files=True)
    split = table.split_partitions()
    kept = table.collect_garbage()
    collected = table.collect_garbage(force=True)

    assert (compacted.failed, [each.reason for each in split]) == ((), [None, None])
    assert (len(kept.deleted), len(collected.deleted)) == (0, 6)
    assert ids_in(table) == "abcnop"
    assert ids_in(table, as_of=1) == ""
    with pytest.raises(sleeper.errors.VersionNotFound, match="were deleted"):
        table.query(as_of=first)
    with sleeper.connect(instance.url) as elsewhere:
        assert ids_in(elsewhere.table("letters")) == "abcnop"
    assert items(dynamo, instance) == {table.table_id: list(range(1, table.refresh() + 1))}
    assert state_objects(instance, table) == []


def test_a_table_may_be_emptied(instance, table):
    """Given rows, when the table is made anew, then they are gone, and others see that."""
    version = add(table, "a", "z").transaction

    table.reinitialise(split_points=["b", "c"])

    assert ids_in(table) == ""
    assert table.split_points() == ["b", "c"]
    assert table.refresh() > version


def test_large_commits_are_objects_in_the_folder(instance, table, dynamo, monkeypatch):
    """Given a writer that dies between object and item, then a sweep finds what it left."""
    monkeypatch.setattr(dynamo_log, "BODY_BYTES_MAX", 0)
    add(table, "a")
    [named] = state_objects(instance, table)
    left = named.rpartition("-")[0] + "-dead.json.zlib"
    folder_of(instance, table).put(left, b"half of a commit")

    young = table.orphans()
    told = command("sweep", "letters", "--instance", instance.url, "--dry-run", "--force")
    swept = table.sweep_orphans(force=True)

    assert young.orphans == ()
    assert told.exit_code == 0, told.output
    assert left in told.output
    assert [info.key for info in swept.orphans] == [left]
    assert state_objects(instance, table) == [named]
    with sleeper.connect(instance.url) as elsewhere:
        assert ids_in(elsewhere.table("letters")) == "a"


def test_a_copy_needs_no_dynamodb(instance, table, tmp_path, monkeypatch):
    """Given a table with a log in DynamoDB, when copied, then the copy's log is in its folder."""
    version = add(table, "a").transaction
    add(table, "b")

    copied = command("backup", instance.url, str(tmp_path / "copy"))

    assert copied.exit_code == 0, copied.output
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with sleeper.connect(tmp_path / "copy") as opened:
        copy = opened.table("letters")
        assert ids_in(copy) == "ab"
        assert ids_in(copy, as_of=version) == "a"
        assert copy.properties.state_store == "TransactionLogStateStore"
        add(copy, "c")
        assert ids_in(copy) == "abc"
    assert table.properties.state_store == IN_DYNAMO


def test_a_deleted_table_leaves_nothing_in_dynamodb(instance, table, dynamo):
    """Given two tables, when one is deleted, then the items of the other stay."""
    other = make(instance, "others")
    add(table, "a")
    add(other, "z")

    instance.delete_table("letters")

    assert items(dynamo, instance) == {other.table_id: [1, 2]}
    assert ids_in(other) == "z"
    with pytest.raises(TableNotFound):
        add(table, "b")
    assert list(folder_of(instance, table).listing("")) == []


def test_a_commit_to_a_table_that_is_deleted_meanwhile_is_undone(
    instance, table, dynamo, monkeypatch
):
    """Given an ingest that commits after the deletion, then no item of the table is left."""
    append = DynamoTransactionLog.append

    def late(self, number, body):
        instance.delete_table("letters")
        return append(self, number, body)

    with monkeypatch.context() as patched:
        patched.setattr(DynamoTransactionLog, "append", late)
        with pytest.raises(TableNotFound, match="was deleted"):
            add(table, "a")

    assert items(dynamo, instance) == {}


def test_a_table_keeps_the_store_that_it_was_made_with(instance, table, dynamo):
    """Given another default, or the wish for another store, then its state stays where it is."""
    add(table, "a")
    instance.set_properties({DEFAULT_STORE: ALONE})
    second = instance.create_table("second", SCHEMA, row_keys=["id"])
    add(second, "b")
    instance.set_properties({DEFAULT_STORE: None})
    third = instance.create_table("third", SCHEMA, row_keys=["id"])

    with sleeper.connect(instance.url) as elsewhere:
        found = {each.name: elsewhere.table(each.name) for each in elsewhere.tables()}
        assert {name: ids_in(each) for name, each in found.items()} == {
            "letters": "a",
            "second": "b",
            "third": "",
        }
    assert items(dynamo, instance) == {table.table_id: [1, 2], second.table_id: [1, 2]}
    for one, store in ((table, None), (table, "TransactionLogStateStore"), (third, ALONE)):
        with pytest.raises(PropertiesInvalid, match="Move the table's state"):
            one.set_properties({STORE: store})


def test_a_table_is_not_begun_again_where_its_log_is_not(instance, table, monkeypatch, dynamo):
    """Given another region in the environment, then reads and writes fail, and say why."""
    add(table, "a")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")

    with sleeper.connect(instance.url) as elsewhere:
        for use in (ids_in, lambda found: add(found, "b")):
            with pytest.raises(ObjectNotFound, match="Check that AWS_REGION"):
                use(elsewhere.table("letters"))

    assert ids_in(table) == "a"


def test_a_table_of_broken_properties_can_be_deleted(instance, table, caplog):
    """Given a record that somebody broke, then the log tells what may be left."""
    index = instance._context.index
    record = index.by_id(table.table_id)
    broken = {**record.properties, STORE: "Nonsense"}
    index.replace(record, type(record)(record.table_id, record.name, record.online, broken))

    instance.delete_table("letters")

    assert instance.tables() == ()
    assert f"the state of deleted table {table.table_id} may be left behind" in caplog.text
    assert SCHEMA_PROPERTY in record.properties


def test_a_stream_of_spark_follows_the_log(instance, table):
    """Given a stream, when rows are added, then it finds their files in DynamoDB's log."""
    add(table, "a")
    request = StreamRequest(regions=(whole_region(table.schema),), start="latest")
    stream = open_stream_reader(table.open_for_spark, request, table.arrow_schema)
    start = stream.initialOffset()
    last = add(table, "b").transaction

    end = stream.latestOffset()

    assert end == {"transaction": last}
    [partition] = stream.partitions(start, end)
    found = [row for batch in stream.read(partition) for row in batch.to_pylist()]
    assert found == [{"id": "b", "n": ord("b")}]
