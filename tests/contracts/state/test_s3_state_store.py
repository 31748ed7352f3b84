"""A state in objects, named by an item of DynamoDB, keeps the contract of every state store."""

from __future__ import annotations

import pytest

from sleeper.storage.memory import MemoryObjects
from tests.contracts.s3_server import REGION, bucket, s3_credentials, s3_server
from tests.contracts.servers.dynamo import dynamo_endpoint
from tests.contracts.state.places import RealClock, StatePlace
from tests.contracts.state_store_contract import StateStoreContract

__all__ = ["bucket", "dynamo_endpoint", "s3_credentials", "s3_server"]


class TestRevisionsOfObjectsInMemory(StateStoreContract):
    """The item on each server of DynamoDB."""

    @pytest.fixture
    def place(self, dynamo_endpoint, s3_credentials, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamo_endpoint)
        monkeypatch.setenv("AWS_REGION", REGION)
        clock = RealClock()
        return StatePlace("S3StateStore", MemoryObjects(clock.now), clock)


class TestRevisionsOfObjectsInABucket(StateStoreContract):
    """All of it on one server."""

    @pytest.fixture
    def place(self, s3_server, bucket, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", s3_server.endpoint)
        monkeypatch.setenv("AWS_REGION", REGION)
        return StatePlace("S3StateStore", s3_server.objects(bucket), RealClock())
