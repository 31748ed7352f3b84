"""Verbs whose work over files is done in tasks of Spark: the same results as in this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.errors import BadRequest
from sleeper.state.findings import FindingKind
from sleeper.state.plans.exports import leaves_to_cut
from sleeper.storage.local.folder import FolderObjects

SCHEMA = Schema(row_keys=[Field("id", Primitive.LONG)], values=[Field("n", Primitive.LONG)])
SMALL = {"sleeper.table.partition.splitting.threshold": "40"}


def table_in(folder, name="t"):
    """Two leaves, which meet at 100: one of three files with 30 rows each, one of 20 rows."""
    instance = sleeper.connect(folder / "instance", create=True)
    table = instance.create_table(name, SCHEMA, split_points=[100], properties=SMALL)
    for n in range(3):
        table.ingest([{"id": 3 * key + n, "n": n} for key in range(30)])
    table.ingest([{"id": key, "n": 9} for key in range(200, 220)])
    return table


def path_of(table, filename):
    return Path(table.open_for_spark().table_files.files.url(filename))


@pytest.mark.every_spark
def test_files_are_checked_by_tasks(spark, tmp_path):
    """Each is read there; what they find at fault is looked at once more and told as here."""
    table = table_in(tmp_path)
    sound = table.verify(spark=spark)
    damaged, missing = (each.filename for each in table.references()[:2])
    body = bytearray(path_of(table, damaged).read_bytes())
    body[len(body) // 3] ^= 4
    path_of(table, damaged).write_bytes(bytes(body))
    path_of(table, missing).unlink()
    told = []

    found = table.verify(spark=spark, progress=lambda *counts: told.append(counts))

    assert sound.clean
    assert (sound.files, sound.rows) == (4, 110)
    here = table.verify()
    assert {each.kind for each in found.findings} >= {FindingKind.FILE_MISSING}
    assert sorted(map(repr, found.findings)) == sorted(map(repr, here.findings))
    assert (found.files, found.rows, found.size_bytes) == (here.files, here.rows, here.size_bytes)
    assert told[-1] == (4, 4)


def test_a_folder_that_workers_do_not_reach_is_no_fault(spark, tmp_path, monkeypatch):
    """Files that no worker finds are checked by this process, which finds them."""
    table = table_in(tmp_path)
    elsewhere = FolderObjects(tmp_path / "elsewhere")
    monkeypatch.setattr("sleeper.tables.verify.files_for_spark", lambda _: elsewhere)

    assert table.verify(spark=spark, quick=True).clean


@pytest.mark.every_spark
def test_leaves_are_cut_where_this_process_would(spark, tmp_path):
    """Tasks read the sketches, and the driver commits each split."""
    tables = [table_in(tmp_path, name) for name in ("here", "there")]

    here, there = tables[0].split_partitions(), tables[1].split_partitions(spark=spark)

    assert [(each.field, each.point, each.reason) for each in there] == [("id", 45, None)]
    assert [(each.field, each.point) for each in here] == [("id", 45)]
    assert tables[1].split_points() == tables[0].split_points() == [45, 100]
    assert tables[1].query().to_pylist() == tables[0].query().to_pylist()


@pytest.mark.every_spark
def test_garbage_is_deleted_by_tasks(spark, tmp_path):
    """The driver forgets what is gone; rows stay."""
    table = table_in(tmp_path)
    before = table.query().to_pylist()
    old = {each.filename for each in table.references()}
    table.compact(all_files=True)
    unwanted = old - {each.filename for each in table.references()}
    told = []

    done = table.collect_garbage(force=True, spark=spark, progress=told.append)

    assert set(done.deleted) == unwanted
    assert done.failures == {}
    assert told == [len(unwanted)]
    assert not any(path_of(table, name).exists() for name in unwanted)
    assert table.garbage(force=True) == []
    assert done.transaction == table.state().number
    assert table.query().to_pylist() == before


def test_garbage_that_workers_do_not_reach_stays_known(spark, tmp_path, monkeypatch):
    """To delete what is not there is no failure of a task, but the file is there."""
    table = table_in(tmp_path)
    table.compact(all_files=True)
    unwanted = table.garbage(force=True)
    folder = table.open_for_spark().table_files.files
    elsewhere = FolderObjects(tmp_path / "elsewhere")
    monkeypatch.setattr(
        "sleeper.tables.garbage.delete_data_files",
        partial(_delete_elsewhere, objects_there=elsewhere),
    )

    done = table.collect_garbage(force=True, spark=spark)

    assert sorted(done.failures) == sorted(unwanted)
    assert all("do not reach it" in reason for reason in done.failures.values())
    assert table.garbage(force=True) == unwanted
    assert all(folder.size(name) for name in unwanted)


def _delete_elsewhere(names, objects, objects_there):
    objects_there.delete(names)
    return {}


@pytest.mark.every_spark
def test_a_large_leaf_is_exported_by_several_tasks(spark, tmp_path, monkeypatch):
    """Its files are in key order, and those that this process would write."""
    monkeypatch.setattr("sleeper.tables.export.leaves_to_cut", partial(leaves_to_cut, cut_rows=30))
    table = table_in(tmp_path)

    there = table.export(tmp_path / "there", spark=spark)
    here = table.export(tmp_path / "here")

    assert there.files == here.files
    parts = [pq.read_table(tmp_path / "there" / name) for name in there.files]
    assert [part.num_rows for part in parts] == [30, 30, 30, 20]
    ids = [number for part in parts for number in part["id"].to_pylist()]
    assert ids == [*range(90), *range(200, 220)]


def test_an_instance_in_memory_is_refused(spark):
    """Before anything is read or changed."""
    table = sleeper.connect("memory://").create_table("t", SCHEMA)

    for verb in (table.verify, table.split_partitions, table.collect_garbage):
        with pytest.raises(BadRequest, match="memory://"):
            verb(spark=spark)
