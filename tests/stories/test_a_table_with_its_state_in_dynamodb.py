"""A table whose state is in DynamoDB: its whole life, and what its state store does not keep."""

from __future__ import annotations

import json
import uuid

import boto3
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import (
    ObjectNotFound,
    PropertiesInvalid,
    TableAlreadyExists,
    TableNotFound,
    VersionNotFound,
)
from tests.contracts.s3_server import REGION, aws_endpoint, s3_credentials, s3_server
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["aws_endpoint", "s3_credentials", "s3_server"]

STORE = "sleeper.table.statestore.classname"
SCHEMA = pa.schema([("n", pa.int64()), ("v", pa.string())])
TABLES = ("active-files", "file-ref-count", "partitions", "state-commits")


@pytest.fixture
def instance_id():
    return f"story-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def instance(aws_endpoint, instance_id, tmp_path):
    """An instance in a folder, with a table whose state is in DynamoDB."""
    opened = sleeper.create_instance(tmp_path / "instance", {"sleeper.id": instance_id})
    properties = {
        STORE: "DynamoDBStateStore",
        "sleeper.table.partition.splitting.threshold": 10,
        "sleeper.table.compaction.files.batch.size": 200,
    }
    opened.create_table("numbers", SCHEMA, row_keys=["n"], properties=properties)
    return opened


@pytest.fixture
def dynamo(aws_endpoint):
    """A client of DynamoDB as any program has it."""
    return boto3.client("dynamodb", region_name=REGION, endpoint_url=aws_endpoint)


def rows(*keys):
    return [{"n": key, "v": f"v{key}"} for key in keys]


def keys_of(table):
    return [row["n"] for row in table.query().to_pylist()]


def test_a_table_lives_in_dynamodb_from_its_creation_to_its_end(instance, instance_id, dynamo):
    """Given two processes, then both see what each did, and at the end nothing is left."""
    ours = instance.table("numbers")
    theirs = sleeper.connect(instance.url).table("numbers")

    ours.ingest(rows(*range(0, 20, 2)), job_id="even")
    theirs.ingest(rows(*range(1, 20, 2)), job_id="odd")
    assert keys_of(ours) == keys_of(theirs) == [*range(20)]
    assert ours.query(key=7).to_pylist() == rows(7)
    assert theirs.ingest(rows(99), job_id="even").transaction == 2  # it was committed before

    [split] = ours.split_partitions()
    assert split.reason is None
    assert theirs.compact(all_files=True).failed == ()
    assert len(ours.state().references()) == 2
    assert keys_of(ours) == [*range(20)]

    theirs.set_properties({"sleeper.table.partition.splitting.threshold": 1_000})
    [merged] = theirs.merge_partitions(rows_below=1_000)
    assert merged.reason is None
    assert len(ours.collect_garbage(force=True).deleted) == 2
    assert keys_of(theirs) == [*range(20)]

    assert ours.reinitialise() == theirs.state().number
    assert keys_of(theirs) == []
    theirs.ingest(rows(5), job_id="even")
    assert keys_of(ours) == [5]
    assert [*ours._context.objects.listing(f"{ours.table_id}/statestore/")] == []

    instance.delete_table("numbers")
    for name in TABLES:
        assert dynamo.scan(TableName=f"sleeper-{instance_id}-{name}")["Items"] == []


def test_a_compaction_has_as_many_inputs_as_a_commit_may_replace(instance):
    """Given more files than that, and a property that allows more, then jobs are smaller."""
    table = instance.table("numbers")
    for key in range(60):
        table.ingest(rows(key))

    plan = table.plan_compaction(all_files=True)
    summary = table.compact(all_files=True)

    assert [len(job.inputs) for job in plan.jobs] == [48, 12]
    assert "the table's state store replaces at most 48 files at once" in plan.leaves[0].reason
    assert summary.failed == ()
    assert len(table.state().references()) == 1
    assert keys_of(table) == [*range(60)]


@pytest.mark.parametrize("leaves", [50, 130])
def test_an_import_and_a_reinitialisation_may_be_larger_than_a_transaction(instance, leaves):
    """A file for each leaf, and then none, with other partitions: each is one commit."""
    properties = {STORE: "sleeper.statestore.dynamodb.DynamoDBStateStore"}
    properties["sleeper.table.ingest.file.writing.strategy"] = "one_file_per_leaf"
    narrow = instance.create_table(
        "narrow", SCHEMA, row_keys=["n"], split_points=[*range(1, leaves)], properties=properties
    )
    other = sleeper.connect(instance.url).table("narrow")

    assert narrow.ingest(rows(*range(leaves)), job_id="all").transaction == 2
    assert len(other.state().references()) == leaves
    assert other.ingest(rows(*range(leaves)), job_id="all").already_committed
    assert keys_of(other) == [*range(leaves)]
    assert other.reinitialise(split_points=[*range(0, 10 * leaves, 10)]) == 3
    assert keys_of(narrow) == []
    assert len([*narrow.state().tree.leaves()]) == leaves + 1
    assert narrow.ingest(rows(7), job_id="all").transaction == 4
    assert keys_of(other) == [7]


@pytest.mark.parametrize("split_points", [48, 49, 50, 59, 260])
def test_a_new_table_has_any_number_of_leaves(instance, split_points):
    """What one commit cannot hold is written in several, before the table can be seen.

    Given a name that is taken then, or a table that is used as any other, then all is as it was
    with few leaves.
    """
    points = [10 * n for n in range(split_points)]
    properties = {STORE: "DynamoDBStateStore"}
    table = instance.create_table(
        "wide", SCHEMA, row_keys=["n"], split_points=points, properties=properties
    )

    assert len([*table.state().tree.leaves()]) == split_points + 1
    assert table.state().number == 1
    assert sleeper.connect(instance.url).table("wide").state().tree == table.state().tree
    assert table.ingest(rows(*points[:40]), job_id="first").transaction == 2
    assert table.ingest(rows(*points[:40]), job_id="first").already_committed
    assert keys_of(sleeper.connect(instance.url).table("wide")) == points[:40]
    assert table.properties.state_store == "DynamoDBStateStore"
    with pytest.raises(TableAlreadyExists):
        instance.create_table(
            "wide", SCHEMA, row_keys=["n"], split_points=points, properties=properties
        )
    instance.delete_table("wide")
    with pytest.raises(TableNotFound):
        table.count()


@pytest.mark.parametrize("leaves", [97, 98])
def test_few_rows_of_many_leaves_are_committed_as_one_file(instance, leaves):
    """Rows of 97 leaves in a file that they share are 97 references, a file and a job: 99 items.

    Given a table whose state was moved here, then one leaf more is one commit as well.
    """
    properties = {
        "sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf",
        "sleeper.table.statestore.classname": "TransactionLogStateStore",
    }
    table = instance.create_table(
        "many", SCHEMA, row_keys=["n"], split_points=[*range(1, 120)], properties=properties
    )
    table.ingest(rows(*range(60)), job_id="before the move")
    table.migrate_state("DynamoDBStateStore")

    table.ingest(rows(*range(leaves)), job_id="after the move")

    assert sorted(keys_of(table)) == sorted([*range(60), *range(leaves)])
    assert len({each.filename for each in table.state().references()}) == 2


def test_older_versions_are_not_kept(instance):
    """It is said which stores keep them."""
    table = instance.table("numbers")
    table.ingest(rows(1))
    table.ingest(rows(2))

    with pytest.raises(VersionNotFound, match="TransactionLogStateStore"):
        table.query(as_of=2)
    assert keys_of(table) == [1, 2]


def test_a_table_is_not_looked_for_in_another_region(instance, monkeypatch, s3_server):
    """Its state would look empty there."""
    table = instance.table("numbers")
    table.ingest(rows(1))
    monkeypatch.setenv("AWS_REGION", "eu-west-2")

    with pytest.raises(ObjectNotFound, match="AWS_REGION"):
        sleeper.connect(instance.url).table("numbers").query().to_pylist()


def test_commands_work_on_it(instance, tmp_path):
    """As on any table."""
    instance.table("numbers").ingest(rows(1, 2))

    shown = command("report", "files", "numbers", "--json", "--instance", instance.url)
    planned = command("compact", "numbers", "--explain", "--instance", instance.url)

    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)
    assert planned.exit_code == 0, planned.output


def test_the_state_of_a_table_cannot_be_changed_to_dynamodb_by_its_property(instance):
    """Its rows would be gone; `sleeper table migrate-state` moves a state."""
    other = instance.create_table("log", SCHEMA, row_keys=["n"])
    other.ingest(rows(1))

    with pytest.raises(PropertiesInvalid, match="migrate-state"):
        other.set_properties({STORE: "DynamoDBStateStore"})
    assert keys_of(other) == [1]
