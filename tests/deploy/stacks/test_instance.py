"""The stacks that every deployment has are what `sleeper init aws://` makes."""

from __future__ import annotations

import pytest

from sleeper.model.jobs.messages import QueueName
from sleeper.storage.aws.deployment.made_tables import ALL_TABLES
from sleeper.storage.aws.dynamo_making import DynamoTable

pytestmark = pytest.mark.xdist_group("cdk")


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
