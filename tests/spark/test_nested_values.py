"""Structs, and lists and maps of others, in Spark: by both readers, and from DataFrames."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import sleeper

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 7, UTC)
PLACE = pa.struct([("x", pa.float64()), ("at", pa.timestamp("us", "UTC")), ("b", pa.binary())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("place", PLACE),
        ("grid", pa.list_(pa.list_(pa.int32()))),
        ("by_name", pa.map_(pa.string(), pa.list_(pa.struct([("n", pa.int64())])))),
    ]
)
ROWS = [
    {
        "id": 1,
        "place": {"x": 0.5, "at": MOMENT, "b": b"\xff"},
        "grid": [[1, None], None],
        "by_name": {"a": [{"n": 7}, None]},
    },
    {"id": 2, "place": None, "grid": None, "by_name": None},
    {"id": 3, "place": {"x": None, "at": None, "b": None}, "grid": [[]], "by_name": {}},
]


@pytest.fixture
def table(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        made = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[2])
        made.ingest(ROWS)
        yield made


def rows_of(frame):
    return frame.orderBy("id").toArrow().cast(SCHEMA).to_pylist(maps_as_pydicts="lossy")


def test_are_read_and_written(table, spark):
    """By Spark's reader, by ours, and from a DataFrame."""
    assert rows_of(table.to_spark(spark)) == ROWS
    assert rows_of(table.to_spark(spark, key=3)) == ROWS[2:]
    assert table.to_spark(spark).where("place.x > 0").count() == 1

    frame = spark.sql(
        "SELECT 5L AS id, named_struct('x', 1.5D, 'at', TIMESTAMP '2026-01-31 00:00:00Z', 'b', X'00')"
        " AS place, array(array(1), null) AS grid, map('k', array(named_struct('n', 2L))) AS by_name"
    )
    table.bulk_import(frame, engine="spark", spark=spark)

    assert table.query(key=5).to_pylist() == [
        {
            "id": 5,
            "place": {"x": 1.5, "at": datetime(2026, 1, 31, tzinfo=UTC), "b": b"\0"},
            "grid": [[1], None],
            "by_name": {"k": [{"n": 2}]},
        }
    ]


def test_the_data_source_reads_and_writes_them(table, spark):
    """By the format `sleeper`, as other types."""
    options = {"instance": table._context.url, "table": "t"}

    assert rows_of(spark.read.format("sleeper").options(**options).load()) == ROWS

    more = table.to_spark(spark).where("id < 3").selectExpr("id + 10 AS id", *SCHEMA.names[1:])
    more.write.format("sleeper").options(**options).mode("append").save()

    later = [{**row, "id": row["id"] + 10} for row in ROWS[:2]]
    assert table.query(range={"id": (10, 20)}).to_pylist() == later
