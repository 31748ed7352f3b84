"""Tables of DynamoDB, as the code of their users declares them."""

from __future__ import annotations

from typing import Final

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb

from sleeper.storage.aws.dynamo_making import DynamoTable, Keys

_KINDS: Final = {
    "S": dynamodb.AttributeType.STRING,
    "N": dynamodb.AttributeType.NUMBER,
    "B": dynamodb.AttributeType.BINARY,
}


def add_table(stack: Stack, name: str, table: DynamoTable, *, retain: bool, recovers: bool) -> None:
    """Add a table that is paid by the request. DynamoDB encrypts it by a key of its own.

    Args:
        stack: Where.
        name: Its full name.
        table: Its keys, indexes and expiry.
        retain: Whether it stays when the stack is deleted.
        recovers: Whether it can be restored to any second of the last 35 days.
    """
    made = dynamodb.Table(
        stack,
        name,
        table_name=name,
        **_keys(table.key),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute=table.expiry,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=recovers
        ),
        removal_policy=RemovalPolicy.RETAIN if retain else RemovalPolicy.DESTROY,
    )
    for index, key in table.indexes:
        made.add_global_secondary_index(index_name=index, **_keys(key))


def _keys(key: Keys) -> dict[str, dynamodb.Attribute]:
    names = ("partition_key", "sort_key")
    return {
        name: dynamodb.Attribute(name=attribute, type=_KINDS[kind])
        for name, (attribute, kind) in zip(names, key, strict=False)
    }
