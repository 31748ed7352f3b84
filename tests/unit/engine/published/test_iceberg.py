"""Manifests of Iceberg: how files are cut into them, and when one is written anew."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pyarrow as pa
import pytest

from sleeper.engine.published import iceberg
from sleeper.engine.published.versions import FileTotals, NewVersion, PublishedTable
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.storage.memory import MemoryObjects

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
TABLE = PublishedTable(
    table_id="t1",
    name="t",
    schema=Schema(row_keys=(Field("key", Primitive.LONG),)),
    url="/data/t1",
)


@pytest.fixture(autouse=True)
def _small_manifests(monkeypatch):
    monkeypatch.setattr(iceberg, "_CUT_MASK", iceberg.np.uint64(15))


def files(numbers):
    """Files of one sequence, with names as ingest gives them."""
    names = [
        f"data/partition_p/{UUID(int=number * 0x9E3779B97F4A7C15)}.parquet" for number in numbers
    ]
    count = len(names)
    return pa.table(
        {
            "filename": pa.array(names, pa.large_string()),
            "size_bytes": pa.array([100] * count, pa.int64()),
            "keys": pa.array(["[1]\n[2]"] * count, pa.large_string()),
            "row_count": pa.array([10] * count, pa.int64()),
            "sequence": pa.array([7] * count, pa.int64()),
        }
    )


def publish(log, before, transaction, numbers):
    """Publish files, all as new ones."""
    table = files(numbers)
    new = NewVersion(
        transaction=transaction,
        at=NOON,
        files=lambda: table,
        added=table,
        removed=pa.array([], pa.large_string()),
        totals=FileTotals(files=len(numbers), size_bytes=100 * len(numbers), rows=0),
    )
    return log.publish(TABLE, before, new)


def manifests(objects):
    return {info.key for info in objects.listing("iceberg/metadata/0")}


def test_a_file_that_went_changes_its_manifest_alone():
    """Given files that are cut into many manifests, then one is written anew."""
    objects = MemoryObjects(now=lambda: NOON)
    log = iceberg.IcebergLog(objects)
    first = publish(log, None, 3, range(1, 400))
    before = manifests(objects)

    second = publish(log, first, 4, [number for number in range(1, 400) if number != 200])

    assert len(before) > 10
    assert len(manifests(objects) - before) == 1
    assert sorted(log.names(second).to_pylist()) == sorted(
        files([number for number in range(1, 400) if number != 200])["filename"].to_pylist()
    )


def test_another_file_in_its_place_is_noticed():
    """Given files that differ in their names alone, then no old manifest is taken for them."""
    objects = MemoryObjects(now=lambda: NOON)
    log = iceberg.IcebergLog(objects)
    first = publish(log, None, 3, [1])

    second = publish(log, first, 4, [2])

    assert log.names(second).to_pylist() == files([2])["filename"].to_pylist()


def test_a_version_that_is_taken_is_not_written_again():
    """Given a faster publisher, then the caller is told, and the version stays."""
    objects = MemoryObjects(now=lambda: NOON)
    log = iceberg.IcebergLog(objects)
    publish(log, None, 3, [1])

    assert publish(log, None, 4, [1, 2]) is None
    assert log.newest().transaction == 3
