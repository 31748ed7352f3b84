"""Lengths of time in Spark: its intervals of days to seconds, which have microseconds as well."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import sleeper

US = pa.duration("us")
SCHEMA = pa.schema([("id", pa.int64()), ("took", US), ("laps", pa.list_(US))])
ROWS = [
    {"id": 1, "took": timedelta(hours=36, microseconds=7), "laps": [timedelta(0)]},
    {"id": 2, "took": None, "laps": None},
    {"id": 3, "took": -timedelta(days=106_751_991), "laps": []},
]


@pytest.fixture
def table(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        made = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[2])
        made.ingest(ROWS)
        yield made


def test_are_read_and_written(table, spark):
    """By Spark's reader, by ours, by SQL with days, and from a DataFrame."""
    frame = table.to_spark(spark)
    assert [row.asDict() for row in frame.orderBy("id").collect()] == ROWS
    assert [row.asDict() for row in table.to_spark(spark, key=3).collect()] == ROWS[2:]
    longer = frame.where("took > INTERVAL '1' DAY").collect()
    assert [row.id for row in longer] == [1]

    written = spark.sql(
        "SELECT 5L AS id, INTERVAL '1 02:03:04.5' DAY TO SECOND AS took, "
        "array(INTERVAL '2' HOUR) AS laps"
    )
    table.bulk_import(written, engine="spark", spark=spark)

    took = timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    wanted = {"id": 5, "took": took, "laps": [timedelta(hours=2)]}
    assert table.query(key=5).to_pylist() == [wanted]
