"""The memory adapters keep every contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from sleeper.storage.followed_log import CommitChecks, open_log
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.table_index import object_table_index
from sleeper.storage.transaction_log import ObjectTransactionLog
from tests.contracts.followed_log_contract import FollowedLogContract
from tests.contracts.instance_properties_contract import InstancePropertiesContract
from tests.contracts.objects_contract import ObjectsContract
from tests.contracts.outputs_contract import OutputContract, PathUrlContract
from tests.contracts.replaced_instance_contract import RemoteObjects
from tests.contracts.snapshot_store_contract import SnapshotStoreContract
from tests.contracts.table_index_contract import TableIndexContract, short_pause
from tests.contracts.transaction_log_contract import TransactionLogContract


@pytest.fixture
def objects():
    hours = count()
    noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    objects = MemoryObjects(lambda: noon + timedelta(hours=next(hours)))
    yield objects
    objects.close()


class TestMemoryObjects(ObjectsContract, OutputContract, PathUrlContract):
    """Objects in a dictionary."""


class TestMemoryTransactionLog(TransactionLogContract):
    """A log of objects in a dictionary."""

    @pytest.fixture
    def log(self, objects):
        return ObjectTransactionLog(objects)


class TestCheckedTransactionLog(TransactionLogContract):
    """A log whose entries are read back."""

    @pytest.fixture
    def log(self, objects):
        return open_log(objects, "statestore/transactions/", CommitChecks(read_back=True))


class TestMemoryFollowedLog(FollowedLogContract):
    """A log in memory, as one process follows it."""


class TestRemoteMemoryFollowedLog(FollowedLogContract):
    """A log in memory, as one process follows it that counts each read as a request."""

    @pytest.fixture
    def objects(self):
        return RemoteObjects(lambda: datetime(2026, 3, 4, tzinfo=UTC))


class TestMemorySnapshotStore(SnapshotStoreContract):
    """Snapshots as objects in a dictionary."""

    @pytest.fixture
    def snapshots(self, objects):
        return ObjectSnapshotStore(objects)


class TestMemoryTableIndex(TableIndexContract):
    """A table index of objects in a dictionary."""

    @pytest.fixture
    def open_index(self, objects):
        numbers = count()
        return lambda: object_table_index(
            objects, new_id=lambda: f"id-{next(numbers)}", pause=short_pause
        )


class TestMemoryInstanceProperties(InstancePropertiesContract):
    """Properties of an instance in a dictionary."""
