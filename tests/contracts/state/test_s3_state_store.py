"""A state in objects, named by an item of DynamoDB, keeps the contract of every state store."""

from __future__ import annotations

import pytest

from sleeper.storage.memory import MemoryObjects
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment
from tests.contracts.servers.s3 import bucket, s3_credentials, s3_server
from tests.contracts.state.places import RealClock, StatePlace
from tests.contracts.state.s3_revision_stores import FIRST, CountedObjects, add, names
from tests.contracts.state_store_contract import StateStoreContract

__all__ = ["bucket", "dynamo_endpoint", "dynamo_environment", "s3_credentials", "s3_server"]


class TestRevisionsOfObjectsInMemory(StateStoreContract):
    """A state in objects in memory, its item in DynamoDB."""

    @pytest.fixture
    def place(self, dynamo_environment):
        clock = RealClock()
        return StatePlace("S3StateStore", MemoryObjects(clock.now), clock)


@pytest.mark.parametrize("dynamo_endpoint", ["ministack"], indirect=True)
class TestRevisionsOfObjectsInABucket(StateStoreContract):
    """A state in objects in a bucket, its item in DynamoDB."""

    @pytest.fixture
    def place(self, s3_server, bucket, dynamo_environment):
        return StatePlace("S3StateStore", s3_server.objects(bucket), RealClock())


@pytest.mark.parametrize("dynamo_endpoint", ["ministack"], indirect=True)
def test_a_writer_that_lost_a_race_waits_as_long_as_a_commit_takes(dynamo_environment):
    """Short pauses would let eight writers of one table lose ten races in a row."""
    objects = CountedObjects(RealClock.now)
    objects.under = lambda prefix: objects
    place = StatePlace("S3StateStore", objects, RealClock())
    place.pause = (pauses := []).append
    place.open(is_new=True).commit(FIRST)
    rivals = ["rival-1", "rival-2"]

    def meet(moment, operation, key):
        if (moment, operation) == ("after", "put") and rivals:
            place.open().commit(add(rivals.pop()))

    objects.meet = meet
    pauses.clear()
    mine = place.open().commit(add("mine"))

    assert names(mine) == ["mine", "rival-1", "rival-2"]
    assert pauses == [5, 5]
