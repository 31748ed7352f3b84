"""Every state store keeps one contract, on every server that it can use."""

from __future__ import annotations

from collections import defaultdict

import pytest

from sleeper.storage.aws import clients
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.memory import MemoryObjects
from tests.contracts.s3_server import REGION
from tests.contracts.servers.dynamo import dynamo_endpoint
from tests.contracts.servers.s3 import bucket, s3_credentials, s3_server
from tests.contracts.state.places import (
    MemoryRevisionsPlace,
    RealClock,
    StatePlace,
    memory_place,
)
from tests.contracts.state_store_contract import StateStoreContract
from tests.unit.state.memory_revisions import MemoryRevisions

__all__ = ["bucket", "dynamo_endpoint", "s3_credentials", "s3_server"]

CLIENTS = defaultdict(dict)


@pytest.fixture
def in_dynamo(dynamo_endpoint, s3_credentials, monkeypatch):
    """Return a function that opens a place whose state is in DynamoDB, on each of its servers."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamo_endpoint)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setattr(clients, "_clients", CLIENTS[dynamo_endpoint])
    clock = RealClock()
    return lambda class_name: StatePlace(class_name, MemoryObjects(clock.now), clock)


class TestLogInMemory(StateStoreContract):
    """A log of objects in memory."""

    @pytest.fixture
    def place(self):
        return memory_place()


class TestLogInAFolder(StateStoreContract):
    """A log of files."""

    @pytest.fixture
    def place(self, tmp_path):
        return StatePlace("TransactionLogStateStore", FolderObjects(tmp_path), RealClock())


class TestLogInABucket(StateStoreContract):
    """A log of objects in a bucket, on each server of S3."""

    @pytest.fixture
    def place(self, s3_server, bucket):
        objects = s3_server.objects(bucket)
        return StatePlace("TransactionLogStateStore", objects, RealClock())


class TestItemsInDynamo(StateStoreContract):
    """Upstream's three tables of items."""

    @pytest.fixture
    def place(self, in_dynamo):
        return in_dynamo("DynamoDBStateStore")


class TestRevisionsInMemory(StateStoreContract):
    """Whole states without a limit."""

    @pytest.fixture
    def place(self):
        return MemoryRevisionsPlace()


class TestSmallRevisionsInMemory(StateStoreContract):
    """Whole states, of which one commit may change 20 references."""

    @pytest.fixture
    def place(self):
        return MemoryRevisionsPlace(revisions=MemoryRevisions(files_max=20))
