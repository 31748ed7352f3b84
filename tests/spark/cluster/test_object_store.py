"""The object store of a bulk import goes dead while a task writes: no row is visible, then all."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import StorageFailed
from tests.contracts.fault_proxy import FaultProxy, fault_proxy
from tests.contracts.s3_server import REGION, bucket, s3_credentials, s3_server
from tests.spark.test_bulk_import import MIN_LEAVES

__all__ = ["bucket", "s3_credentials", "s3_server"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("noise", pa.binary(), False)])
ROW_COUNT = 60_000


class DyingLine(FaultProxy):
    """A line to a store that goes dead with the second part of an upload, for good."""

    @property
    def dead(self) -> bool:
        return sum("partNumber=" in path for _, path in self.seen.requests) > 1

    @dead.setter
    def dead(self, value: bool) -> None:
        assert not value, "it dies by itself"


@pytest.fixture
def inputs(tmp_path):
    """Rows that no codec makes smaller: a file of them goes to a bucket in two parts."""
    noise = random.Random(7)
    rows = pa.table(
        {"id": range(ROW_COUNT), "noise": [noise.randbytes(200) for _ in range(ROW_COUNT)]}, SCHEMA
    )
    pq.write_table(rows, tmp_path / "in.parquet")
    return rows, tmp_path / "in.parquet"


def test_a_store_that_goes_dead_in_the_middle_of_a_file(
    cluster, s3_server, bucket, inputs, monkeypatch
):
    """
    Once the attempts of its task are used up, the import fails with the error of the storage.
    When the store is back, no row is visible, and the same job id adds each row once.
    """
    rows, path = inputs
    url = f"s3://{bucket}/instance"
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    instance = sleeper.connect(url, create=True)
    direct = instance.create_table("t", SCHEMA, row_keys=["id"], properties={MIN_LEAVES: "1"})

    with fault_proxy(s3_server.endpoint, DyingLine) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.endpoint)
        far = sleeper.connect(url).table("t")
        with pytest.raises(StorageFailed, match=rf"cannot write {url}/.*/data/") as failed:
            far.bulk_import(path, "job", engine="spark", spark=cluster)
        assert line.dead

    assert "Traceback" not in str(failed.value)
    data = s3_server.objects(bucket).under(f"instance/{direct.table_id}/data")
    left = {info.key for info in data.listing()}  # what could not be deleted either
    assert [key for key in left if key.endswith(".parquet")] == []
    assert direct.references() == []
    assert direct.query().count() == 0

    again = direct.bulk_import(path, "job", engine="spark", spark=cluster)

    assert not again.already_committed
    assert direct.query().to_arrow().equals(rows)
    assert {info.key for info in data.listing()} - left == {
        reference.filename.removeprefix("data/") for reference in direct.references()
    }
