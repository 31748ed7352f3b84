"""The adapter of object stores keeps every contract, on each server that speaks S3."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import boto3
import pytest

from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.table_index import object_table_index
from sleeper.storage.transaction_log import ObjectTransactionLog
from tests.contracts.followed_log_contract import FollowedLogContract
from tests.contracts.instance_properties_contract import InstancePropertiesContract
from tests.contracts.objects_contract import ObjectsContract
from tests.contracts.outputs_contract import OutputContract
from tests.contracts.s3_server import REGION
from tests.contracts.servers.s3 import bucket, s3_credentials, s3_server
from tests.contracts.snapshot_store_contract import SnapshotStoreContract
from tests.contracts.table_index_contract import TableIndexContract, short_pause
from tests.contracts.transaction_log_contract import TransactionLogContract

__all__ = ["bucket", "s3_credentials", "s3_server"]


@pytest.fixture
def objects(s3_server, bucket):
    return s3_server.objects(bucket).under("some/instance")


class TestBucketObjects(ObjectsContract, OutputContract):
    """Objects in a folder of a bucket."""


class TestVersionedBucketObjects(ObjectsContract, OutputContract):
    """Objects in a bucket that keeps what is replaced or deleted: nobody sees it."""

    @pytest.fixture
    def objects(self, s3_server, bucket):
        """A folder of such a bucket; of a server that keeps none, any."""
        client = boto3.client("s3", region_name=REGION, endpoint_url=s3_server.endpoint)
        with suppress(client.exceptions.ClientError):  # versitygw without a folder for versions
            client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        return s3_server.objects(bucket).under("some/instance")


class TestVersionedBucketTransactionLog(TransactionLogContract):
    """A log of objects in such a bucket."""

    objects = TestVersionedBucketObjects.objects

    @pytest.fixture
    def log(self, objects):
        return ObjectTransactionLog(objects)


class TestBucketTransactionLog(TransactionLogContract):
    """A log of objects in a bucket."""

    @pytest.fixture
    def log(self, objects):
        return ObjectTransactionLog(objects)


class TestBucketFollowedLog(FollowedLogContract):
    """A log in a bucket, as one process follows it."""


class TestBucketSnapshotStore(SnapshotStoreContract):
    """Snapshots as objects in a bucket."""

    @pytest.fixture
    def snapshots(self, objects):
        return ObjectSnapshotStore(objects)


class TestBucketTableIndex(TableIndexContract):
    """A table index of objects in a bucket."""

    @pytest.fixture
    def open_index(self, objects):
        numbers = count()
        return lambda: object_table_index(
            objects, new_id=lambda: f"id-{next(numbers)}", pause=short_pause
        )


class TestBucketInstanceProperties(InstancePropertiesContract):
    """Properties of an instance in a bucket."""
