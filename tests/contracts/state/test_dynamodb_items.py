"""A state as items of DynamoDB keeps the contract of every state store, on each server."""

from __future__ import annotations

import pytest

from sleeper.storage.memory import MemoryObjects
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment
from tests.contracts.state.places import RealClock, StatePlace
from tests.contracts.state_store_contract import StateStoreContract

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]


class TestItemsInDynamoDB(StateStoreContract):
    """An item of DynamoDB for each reference, file, partition, job and claim."""

    @pytest.fixture
    def place(self, dynamo_environment):
        clock = RealClock()
        return StatePlace("DynamoDBStateStore", MemoryObjects(clock.now), clock)
