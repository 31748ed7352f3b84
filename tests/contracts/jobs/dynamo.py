"""DynamoDB for tests: tables of a prefix of their own, on the server of the test run."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import boto3
import pytest
from botocore.config import Config

from sleeper.storage.aws.dynamo_tables import DynamoTables
from tests.contracts.s3_server import CREDENTIALS, REGION


def dynamo_client(endpoint, attempts=3):
    """Return a client of its own, to hang hooks on."""
    return boto3.session.Session().client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"mode": "standard", "total_max_attempts": attempts}),
    )


def new_id():
    return str(uuid.uuid4())


def pause(attempt):
    time.sleep(0.001 * (1 + attempt % 5))


@pytest.fixture(scope="session")
def dynamo(s3_server):
    return dynamo_client(s3_server.endpoint)


class LastingTables(DynamoTables):
    """Tables whose items are never deleted: times of the tests are past, for the server."""

    def make(self, *tables):
        super().make(*(replace(table, expiry=None) for table in tables))


@pytest.fixture
def tables(dynamo):
    return LastingTables(lambda: dynamo, f"sleeper-{new_id()}-", pause=pause, new_id=new_id)
