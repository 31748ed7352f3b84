"""Exports by Spark: the rows in key order, processed, in parts; whole, or not there at all."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.engine.writing.export import ExportTarget, atomic_directory
from sleeper.errors import AlreadyExists, BadRequest, DataDamaged, QueryInvalid, StorageFailed
from sleeper.model.queries import region_from_request
from sleeper.spark.export import export_by_spark
from sleeper.state.plans.exports import plan_export
from sleeper.storage.local.folder import FolderObjects

SCHEMA = Schema(
    row_keys=[Field("id", Primitive.STRING)],
    sort_keys=[Field("at", Primitive.LONG)],
    values=[Field("n", Primitive.LONG), Field("text", Primitive.STRING)],
)
SUM = {"sleeper.table.aggregations": "sum(n), max(text)"}


def table_in(folder, properties=None):
    """Three leaves, which meet at g and p; two files' rows in each."""
    instance = sleeper.connect(folder / "instance", create=True)
    table = instance.create_table("t", SCHEMA, split_points=["g", "p"], properties=properties)
    for n, keys in enumerate(["zabhx", "aczhy"]):
        table.ingest([{"id": key, "at": 0, "n": n + 1, "text": f"{n}"} for key in keys])
    return table


def request_of(table, *ranges, columns=None, part_rows=1):
    """Table, plan and time of an export in small parts."""
    opened = table.open_for_spark()
    plan = plan_export(
        opened.store.refresh(),
        SCHEMA,
        [region_from_request(SCHEMA, each) for each in ranges or ({},)],
        columns=columns,
        part_rows=part_rows,
    )
    return opened.table_files, plan, opened.now_ms()


def export_to_objects(spark, request, place, **more):
    table, plan, now_ms = request
    target = ExportTarget(place=place, export_id="e1")
    return export_by_spark(spark, table, plan, target, title="export", now_ms=now_ms, **more)


def export_to_folder(spark, request, folder, **more):
    with atomic_directory(folder, "e1") as unfinished:
        return export_to_objects(spark, request, FolderObjects(unfinished), **more)


def parts_in(folder):
    return [pq.read_table(path) for path in sorted(Path(folder).glob("*.parquet"))]


def test_a_table_is_exported_in_key_order(spark, tmp_path):
    """Parts sort by name as their rows do by key; together they are what a query returns."""
    table = table_in(tmp_path)
    told = []

    exported = export_to_folder(
        spark,
        request_of(table),
        tmp_path / "out",
        progress=lambda *counts: told.append(counts),
    )

    parts = parts_in(tmp_path / "out")
    assert [part.num_rows for part in parts] == [4, 2, 4]
    assert pa.concat_tables(parts).equals(table.query().to_arrow())
    assert parts[0].schema.equals(table.arrow_schema)
    assert (exported.row_count, exported.transaction) == (10, table.state().number)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["instance", "out"]
    assert json.loads((tmp_path / "out" / "_SUCCESS").read_text()) == {
        "transaction": exported.transaction,
        "rows": 10,
        "parts": [
            {"name": "part-00000.parquet", "rows": 4},
            {"name": "part-00001.parquet", "rows": 2},
            {"name": "part-00002.parquet", "rows": 4},
        ],
    }
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "_SUCCESS",
        *(part.name for part in exported.parts),
    }


@pytest.mark.every_spark
def test_a_key_range_is_exported_processed(spark, tmp_path):
    """Rows of the range alone, united as queries unite them, with the columns asked for."""
    table = table_in(tmp_path, SUM)

    export_to_folder(
        spark,
        request_of(table, {"id": ("b", "x")}, {"id": ("z", None)}, columns=["n", "id"]),
        tmp_path / "out",
    )

    (rows,) = [pa.concat_tables(parts_in(tmp_path / "out")).to_pylist()]
    assert rows == [
        {"n": 1, "id": "b"},
        {"n": 2, "id": "c"},
        {"n": 3, "id": "h"},
        {"n": 3, "id": "z"},
    ]


def test_small_leaves_share_a_part(spark, tmp_path):
    """Neighbours are put together until a part has rows enough."""
    table = table_in(tmp_path)

    exported = export_to_folder(spark, request_of(table, part_rows=5), tmp_path / "out")

    assert [part.row_count for part in exported.parts] == [6, 4]
    assert pa.concat_tables(parts_in(tmp_path / "out")).equals(table.query().to_arrow())


def test_an_empty_range_is_one_part_without_rows(spark, tmp_path):
    """Whoever reads the export finds its columns."""
    table = sleeper.connect(tmp_path / "i", create=True).create_table("t", SCHEMA)

    exported = export_to_folder(spark, request_of(table), tmp_path / "out")

    (part,) = parts_in(tmp_path / "out")
    assert part.num_rows == exported.row_count == 0
    assert part.schema.equals(table.arrow_schema)


def test_a_failed_export_leaves_nothing(spark, tmp_path):
    """Where one leaf cannot be read there is no folder, no marker, and no part."""
    table = table_in(tmp_path)
    lost = table.references()[-1].filename
    request = request_of(table)
    request[0].files.delete([lost])
    bucket = FolderObjects(tmp_path / "bucket")

    with pytest.raises(DataDamaged, match="is missing"):
        export_to_folder(spark, request, tmp_path / "out")
    with pytest.raises(DataDamaged, match="is missing"):
        export_to_objects(spark, request, bucket)

    assert [path.name for path in tmp_path.iterdir() if path.name != "bucket"] == ["instance"]
    assert [*bucket.listing()] == []


def test_an_export_replaces_nothing(spark, tmp_path):
    """A folder that has something in it is left alone, and so is a place that cannot be."""
    request = request_of(table_in(tmp_path))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()

    with pytest.raises(AlreadyExists, match="out is there already"):
        export_to_folder(spark, request, tmp_path / "out")
    with pytest.raises(AlreadyExists, match="mine is there already"):
        export_to_objects(spark, request, FolderObjects(tmp_path / "out"))
    with pytest.raises(StorageFailed):
        export_to_folder(spark, request, tmp_path / "out" / "mine" / "x")
    with pytest.raises(QueryInvalid, match="no column"):
        export_to_folder(
            spark,
            request_of(table_in(tmp_path / "2"), columns=["none"]),
            tmp_path / "other",
        )

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_bucket_gets_the_marker_last(spark, tmp_path):
    """Where folders cannot be renamed, `_SUCCESS` says that all parts are there."""
    table = table_in(tmp_path)
    bucket = FolderObjects(tmp_path / "bucket").under("exports/june")

    exported = export_to_objects(spark, request_of(table), bucket)

    names = [info.key for info in bucket.listing()]
    assert names == ["_SUCCESS", *(part.name for part in exported.parts)]
    folder = tmp_path / "bucket" / "exports" / "june"
    assert pa.concat_tables(parts_in(folder)).equals(table.query().to_arrow())
    newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert newest.name == "_SUCCESS"


@pytest.mark.every_spark
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"range": {"id": ("b", "x")}, "columns": ["n", "id"]},
        {"regions": [{"id": ("z", None)}, {"id": ("a", "c")}], "as_of": 2},
        {"prefix": {"id": "b"}},
    ],
    ids=["all", "range", "regions", "prefix"],
)
def test_spark_writes_what_this_process_writes(spark, tmp_path, asked):
    """`Table.export` with a session and without one: the same rows in the same files."""
    table = table_in(tmp_path, SUM)

    by_spark = table.export(tmp_path / "by spark", spark=spark, **asked)
    alone = table.export(tmp_path / "alone", **asked)

    assert (by_spark.files, by_spark.rows) == (alone.files, alone.rows)
    assert by_spark.transaction == alone.transaction
    for name in alone.files:
        written = [pq.read_table(tmp_path / place / name) for place in ("by spark", "alone")]
        assert written[0].equals(written[1])
    manifests = [(tmp_path / place / "_SUCCESS").read_text() for place in ("by spark", "alone")]
    assert manifests[0] == manifests[1]
    copy = sleeper.connect(tmp_path / "instance").create_table("copy", SCHEMA)
    if not asked:
        copy.ingest(tmp_path / "by spark")
        assert copy.query().to_arrow().equals(table.query().to_arrow())


def test_a_table_in_memory_is_not_exported_by_spark(spark, tmp_path):
    """Other processes cannot read it, which is said before anything is made."""
    table = sleeper.connect("memory://").create_table("t", SCHEMA)

    with pytest.raises(BadRequest, match="use a folder"):
        table.export(tmp_path / "out", spark=spark)

    assert [*tmp_path.iterdir()] == []
