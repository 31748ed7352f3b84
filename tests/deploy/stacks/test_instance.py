"""The stacks that every deployment has are what `sleeper init aws://` makes."""

from __future__ import annotations

import pytest

from sleeper.model.jobs.kinds import QueueName
from sleeper.storage.aws.deployment.table_index import ALL_TABLES
from sleeper.storage.aws.dynamo_tables import DynamoTable


def keys_of(key):
    return [
        {"AttributeName": name, "KeyType": kind}
        for (name, _), kind in zip(key, ("HASH", "RANGE"), strict=False)
    ]


def test_each_table_has_the_keys_that_the_code_makes_it_with(default):
    """Keys, indexes, expiry; paid by the request; nothing turned off that encrypts it."""
    made = {
        each.properties["TableName"]: each for each in default.resources("AWS::DynamoDB::Table")
    }

    assert made.keys() == {default.settings.names.table(table) for table in ALL_TABLES}
    for table in ALL_TABLES:
        found = made[default.settings.names.table(table)]
        check_table(table, found.properties)
        assert found.whole["DeletionPolicy"] == "Retain"


def check_table(table: DynamoTable, found):
    assert found["KeySchema"] == keys_of(table.key)
    kinds = {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]}
    assert kinds == dict(
        part for key in (table.key, *(k for _, k in table.indexes)) for part in key
    )
    assert found["BillingMode"] == "PAY_PER_REQUEST"
    assert "ProvisionedThroughput" not in found
    assert "SSESpecification" not in found  # a key of DynamoDB's own, which it always uses
    expiry = found.get("TimeToLiveSpecification")
    assert expiry == (table.expiry and {"AttributeName": table.expiry, "Enabled": True})
    indexes = found.get("GlobalSecondaryIndexes", [])
    assert [(each["IndexName"], each["KeySchema"]) for each in indexes] == [
        (name, keys_of(key)) for name, key in table.indexes
    ]
    assert all(each["Projection"] == {"ProjectionType": "ALL"} for each in indexes)


def test_each_queue_of_jobs_delivers_as_its_properties_say(synthesised):
    """Visibility, order and receives are those of the queues that the code makes."""
    given = {
        "sleeper.ingest.queue.visibility.timeout.seconds": "1234",
        "sleeper.jobs.receives.max": "7",
    }
    deployed = synthesised(given | {"sleeper.optional.stacks": "QueryStack"})
    names = deployed.settings.names

    for queue in QueueName:
        settings = deployed.settings.queue(queue)
        found = deployed.resource("AWS::SQS::Queue", names.queue(queue)).properties
        assert found["VisibilityTimeout"] == settings.visibility_s
        assert found["MessageRetentionPeriod"] == 14 * 24 * 3600
        assert found.get("FifoQueue", False) is settings.fifo
        assert found["RedrivePolicy"]["maxReceiveCount"] == settings.receives_max
    ingest = deployed.resource("AWS::SQS::Queue", "-IngestJobQ").properties
    assert ingest["VisibilityTimeout"] == 1234
    assert ingest["RedrivePolicy"]["maxReceiveCount"] == 7


def lifecycle_days(bucket):
    rules = bucket.properties["LifecycleConfiguration"]["Rules"]
    assert {rule["Status"] for rule in rules} == {"Enabled"}
    return [rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule]


def test_results_are_deleted_after_the_days_of_the_properties(synthesised):
    """Seven, unless another number is given; data is never deleted by AWS."""
    own = {
        "sleeper.optional.stacks": "QueryStack",
        "sleeper.query.results.bucket.expiry.days": "3",
        "sleeper.bulk.export.results.bucket.expiry.days": "40",
    }
    for deployed, query, export in ((synthesised(), [7], [7]), (synthesised(own), [3], [40])):
        buckets = deployed.settings.names.buckets
        days = {each.name: lifecycle_days(each) for each in deployed.resources("AWS::S3::Bucket")}
        assert days.pop(buckets.query_results_bucket) == query
        assert days.pop(buckets.bulk_export_bucket) == export
        assert set(map(tuple, days.values())) == {()}


INDEX = {"table-index-by-id", "table-index-by-name"}
REVISIONS = {"table-revisions"}
STATES = {"transaction-log", "active-files", "file-ref-count", "partitions", "state-commits"}
RECOVERS = "pointintimerecovery"


def tables_where(deployed, is_so):
    """The tables whose properties are so, without the instance's prefix."""
    prefix = deployed.settings.names.prefix
    tables = deployed.resources("AWS::DynamoDB::Table")
    return {each.name.removeprefix(prefix) for each in tables if is_so(each.properties)}


def is_recovered(table):
    return table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]


def is_protected(table):
    return table["DeletionProtectionEnabled"]


@pytest.mark.parametrize(
    ("off", "tables"),
    [
        ([], INDEX | STATES | REVISIONS),
        ([f"sleeper.statestore.dynamo.{RECOVERS}"], INDEX | REVISIONS),
        ([f"sleeper.statestore.s3.dynamo.{RECOVERS}"], INDEX | STATES | REVISIONS),
        ([f"sleeper.tables.index.dynamo.{RECOVERS}"], STATES | REVISIONS),
        ([f"sleeper.statestore.{each}{RECOVERS}" for each in ("dynamo.", "s3.dynamo.")], INDEX),
    ],
)
def test_tables_can_be_restored_to_any_second_unless_a_property_says_no(synthesised, off, tables):
    """Each property of upstream is for some tables; revisions are for two kinds of states."""
    given = dict.fromkeys(off, "false")

    deployed = synthesised({"sleeper.optional.stacks": "QueryStack", **given})

    assert tables_where(deployed, is_recovered) == tables


PROTECTS = "sleeper.deploy.deletion.protection"
RETAINS = "sleeper.retain.infra.after.destroy"


@pytest.mark.parametrize(
    ("given", "tables"),
    [
        ({}, INDEX | STATES | REVISIONS),
        ({RETAINS: "false"}, set()),
        ({PROTECTS: "false"}, set()),
        ({RETAINS: "false", PROTECTS: "true"}, INDEX | STATES | REVISIONS),
    ],
)
def test_tables_of_records_and_states_cannot_be_deleted_by_mistake(synthesised, given, tables):
    """As data is kept or not, unless the property of its own says otherwise; never those of jobs."""
    deployed = synthesised({"sleeper.optional.stacks": "QueryStack", **given})

    assert tables_where(deployed, is_protected) == tables


@pytest.mark.parametrize(("given", "days"), [(None, 7), ("30", 30), ("0", None)])
def test_buckets_of_properties_and_tables_keep_old_versions_for_some_days(synthesised, given, days):
    """Seven days, or as many as are given, or none; results and exports are kept as they were."""
    own = {} if given is None else {"sleeper.deploy.old.versions.days": given}

    deployed = synthesised({"sleeper.optional.stacks": "QueryStack", **own})

    buckets = deployed.settings.names.buckets
    for bucket in deployed.resources("AWS::S3::Bucket"):
        rules = bucket.properties["LifecycleConfiguration"]["Rules"]
        old = [each for each in rules if "NoncurrentVersionExpiration" in each]
        keeps = days is not None and bucket.name in (buckets.config_bucket, buckets.data_bucket)
        versioning = bucket.properties.get("VersioningConfiguration")
        assert versioning == ({"Status": "Enabled"} if keeps else None), bucket.name
        assert len(old) == keeps, bucket.name
        for rule in old:
            assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": days}
            assert rule["ExpiredObjectDeleteMarker"] is True
