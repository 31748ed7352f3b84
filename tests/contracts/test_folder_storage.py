"""The folder adapters keep every contract."""

from __future__ import annotations

import os
from itertools import count

import pytest

from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.table_index import object_table_index
from sleeper.storage.transaction_log import ObjectTransactionLog
from tests.contracts.followed_log_contract import FollowedLogContract
from tests.contracts.instance_properties_contract import InstancePropertiesContract
from tests.contracts.objects_contract import ObjectsContract
from tests.contracts.outputs_contract import OutputContract, PathUrlContract
from tests.contracts.snapshot_store_contract import SnapshotStoreContract
from tests.contracts.table_index_contract import TableIndexContract, short_pause
from tests.contracts.transaction_log_contract import TransactionLogContract


@pytest.fixture
def objects(tmp_path):
    return FolderObjects(tmp_path / "instance")


class TestFolderObjects(ObjectsContract, OutputContract, PathUrlContract):
    """Objects in a folder."""

    def test_a_writer_that_is_stopped_before_it_names_its_file_stores_it_later(
        self, objects, monkeypatch
    ):
        """Given a file whose bytes were written long before the file got its name."""
        link = os.link

        def link_much_later(unfinished, path):
            os.utime(unfinished, (0, 0))
            link(unfinished, path)

        monkeypatch.setattr(os, "link", link_much_later)
        before = objects.storage_time()

        objects.create("log/1", b"entry")

        assert objects.stored_at("log/1") >= before


class TestFolderTransactionLog(TransactionLogContract):
    """A log of objects in a folder."""

    @pytest.fixture
    def log(self, objects):
        return ObjectTransactionLog(objects)


class TestFolderFollowedLog(FollowedLogContract):
    """A log in a folder, as one process follows it."""

    is_dated = True


class TestFolderSnapshotStore(SnapshotStoreContract):
    """Snapshots as objects in a folder."""

    @pytest.fixture
    def snapshots(self, objects):
        return ObjectSnapshotStore(objects)


class TestFolderTableIndex(TableIndexContract):
    """A table index of objects in a folder."""

    @pytest.fixture
    def open_index(self, objects):
        numbers = count()
        return lambda: object_table_index(
            objects, new_id=lambda: f"id-{next(numbers)}", pause=short_pause
        )


class TestFolderInstanceProperties(InstancePropertiesContract):
    """Properties of an instance in a folder."""
