"""A table whose state is Parquet objects beside its data, named by an item in DynamoDB."""

from __future__ import annotations

import re
import uuid

import boto3
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import DataDamaged, ObjectNotFound, TableNotFound, VersionNotFound
from sleeper.workers.maintenance import OnlineTable
from sleeper.workers.stop_signal import StopSignal
from tests.contracts.s3_server import REGION, aws_endpoint, bucket, s3_credentials, s3_server
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
KEPT = "sleeper.table.statestore.s3.revisions.kept"
PROPERTIES = {
    "sleeper.table.statestore.classname": "sleeper.statestore.s3.S3StateStore",
    f"{KEPT}.min": 1,
    f"{KEPT}.minutes": 0,
    "sleeper.table.partition.splitting.threshold": 8,
}


@pytest.fixture
def instance_id():
    return f"s3s-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def instance(aws_endpoint, bucket, instance_id):
    return sleeper.create_instance(f"s3://{bucket}/demo", {"sleeper.id": instance_id})


@pytest.fixture
def table(instance):
    return instance.create_table("numbers", SCHEMA, row_keys=["id"], properties=PROPERTIES)


@pytest.fixture
def dynamo(aws_endpoint):
    return boto3.client("dynamodb", region_name=REGION, endpoint_url=aws_endpoint)


def rows(*numbers):
    return [{"id": f"{n:04d}", "n": n} for n in numbers]


def items(dynamo, instance_id):
    return dynamo.scan(TableName=f"sleeper-{instance_id}-table-revisions")["Items"]


def parts(instance, table):
    files = instance._context.objects.under(table.table_id)
    return [info.key for info in files.listing("statestore/")]


def test_from_its_first_row_to_its_end(instance, instance_id, table, dynamo):
    """It is filled, asked, compacted, split, collected, swept and deleted like any other."""
    first = table.ingest(rows(1, 5)).transaction
    for n in (2, 3, 4):
        table.ingest(rows(n, n + 4))
    everything = rows(*range(1, 9))
    assert table.query().to_pylist() == everything

    table.compact()
    table.split_partitions()
    table.collect_garbage(force=True)
    with sleeper.connect(instance.url) as elsewhere:
        other = elsewhere.table("numbers")
        assert other.query().to_pylist() == everything
        assert other.query(key="0007").to_pylist() == rows(7)
        assert len(other.state().leaf_partitions()) == 2
        with pytest.raises(VersionNotFound, match="no longer kept, or its files were"):
            other.query(as_of=first)
    assert len(items(dynamo, instance_id)) == table.refresh() + 1

    before = parts(instance, table)
    swept = table.sweep_orphans()
    table.sweep_orphans()  # by now a look has found the newest

    assert {info.key for info in swept.orphans} <= set(before)
    assert len(parts(instance, table)) < len(before) / 2
    assert len(items(dynamo, instance_id)) < 5
    assert table.query().to_pylist() == everything

    instance.delete_table("numbers")
    assert items(dynamo, instance_id) == []
    assert [*instance._context.objects.listing(f"{table.table_id}/")] == []
    with pytest.raises(TableNotFound):
        table.query()


def test_older_versions_are_read_while_they_are_kept(instance, table):
    """Given as many as the property says, the ones before are refused after a sweep."""
    instance.table("numbers").set_properties({f"{KEPT}.min": 2})
    numbers = [table.ingest(rows(n)).transaction for n in range(1, 5)]

    assert [table.query(as_of=number).to_arrow().num_rows for number in numbers] == [1, 2, 3, 4]
    found = table.orphans()
    table.sweep_orphans()

    assert found.deleted is False
    assert table.query(as_of=numbers[-2]).to_pylist() == rows(1, 2, 3)
    for number in numbers[:2]:
        with pytest.raises(VersionNotFound, match="no longer kept"):
            table.query(as_of=number)


def test_the_time_of_versions_counts_too(table):
    """The longer of both: `sleeper.table.versions.kept.minutes` keeps files and states."""
    table.set_properties({"sleeper.table.versions.kept.minutes": 60})
    first = table.ingest(rows(1)).transaction
    table.ingest(rows(2))

    assert table.sweep_orphans().orphans == ()
    assert table.query(as_of=first).to_pylist() == rows(1)


def test_the_command_line_sweeps_it(instance, table):
    """With what it would delete, and what it has."""
    for n in range(4):
        table.ingest(rows(n))

    told = command("sweep", "numbers", "--dry-run", env={"SLEEPER_INSTANCE": instance.url}).output
    done = command("sweep", "numbers", env={"SLEEPER_INSTANCE": instance.url}).output

    assert "statestore/files/" in told
    assert "would delete 0 files of numbers that no commit names" in told
    assert "would delete 6 parts of old states of numbers\n" in told
    # Two more if a second has passed: the first look at the newest state then is old enough.
    assert re.search("deleted [68] parts of old states of numbers\n", done)


def test_serve_sweeps_it(table):
    """And tells what was deleted."""
    for n in range(4):
        table.ingest(rows(n))
    served = OnlineTable(table, StopSignal())

    steps = [served.maintain("sweep") for _ in range(3)]

    assert [step and step.done for step in steps] == [
        "deleted 6 parts of old states",
        "deleted 2 parts of old states",  # the newest is known to be there since the first sweep
        None,
    ]


def test_in_a_folder_only_the_item_is_elsewhere(aws_endpoint, tmp_path, instance_id):
    """The objects are files of the folder."""
    properties = {"sleeper.id": instance_id}
    with sleeper.create_instance(tmp_path / "here", properties) as instance:
        table = instance.create_table("t", SCHEMA, row_keys=["id"], properties=PROPERTIES)
        table.ingest(rows(1))

    assert sleeper.connect(tmp_path / "here").table("t").query().to_pylist() == rows(1)
    assert len([*tmp_path.glob("here/*/statestore/files/*-files.parquet")]) == 2


def test_a_wrong_region_is_no_empty_table(aws_endpoint, tmp_path, instance_id, monkeypatch):
    """It says where it has looked."""
    with sleeper.create_instance(tmp_path / "here", {"sleeper.id": instance_id}) as instance:
        instance.create_table("t", SCHEMA, row_keys=["id"], properties=PROPERTIES)
    monkeypatch.setenv("AWS_REGION", "eu-west-2")

    with (
        sleeper.connect(instance.url) as elsewhere,
        pytest.raises(ObjectNotFound, match=r"is not in sleeper-.*AWS_REGION"),
    ):
        elsewhere.table("t").query()


def test_a_damaged_newest_state_leaves_the_older_ones(instance, table):
    """The error names the object, and what to do."""
    first = table.ingest(rows(1)).transaction
    table.ingest(rows(2))
    files = instance._context.objects.under(table.table_id)
    newest = max(info.key for info in files.listing("statestore/files/"))
    files.put(newest, files.read(newest)[:-20])

    with sleeper.connect(instance.url) as elsewhere:
        other = elsewhere.table("numbers")
        with pytest.raises(DataDamaged, match=rf"(?s){newest}.*as_of"):
            other.query()
        assert other.query(as_of=first).to_pylist() == rows(1)
