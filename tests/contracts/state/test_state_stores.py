"""Every state store keeps one contract, on every server that it can use."""

from __future__ import annotations

import pytest

from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.memory import MemoryObjects
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment
from tests.contracts.servers.s3 import bucket, s3_credentials, s3_server
from tests.contracts.state.places import (
    MemoryRevisionsPlace,
    RealClock,
    StatePlace,
    memory_place,
)
from tests.contracts.state_store_contract import StateStoreContract
from tests.unit.state.memory_revisions import MemoryRevisions

__all__ = ["bucket", "dynamo_endpoint", "dynamo_environment", "s3_credentials", "s3_server"]


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


class TestLogInDynamo(StateStoreContract):
    """A log of items in DynamoDB, with snapshots in a folder."""

    @pytest.fixture
    def place(self, dynamo_environment, tmp_path):
        return StatePlace("DynamoDBTransactionLogStateStore", FolderObjects(tmp_path), RealClock())


class TestLogInDynamoAlone(StateStoreContract):
    """STS-24: a log of items in DynamoDB, without snapshots, of an instance in memory."""

    @pytest.fixture
    def place(self, dynamo_environment):
        clock = RealClock()
        name = "DynamoDBTransactionLogStateStoreNoSnapshots"
        return StatePlace(name, MemoryObjects(clock.now), clock)


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
