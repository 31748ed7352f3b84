"""Times of day in Spark, which has them where a setting of the session says so."""

from __future__ import annotations

from datetime import time

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest

SETTING = "spark.sql.timeType.enabled"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", pa.time64("us")), ("more", pa.list_(pa.time64("us")))]
)
ROWS = [
    {"id": 1, "at": time(8, 30, 0, 7), "more": [time(0)]},
    {"id": 2, "at": None, "more": None},
    {"id": 3, "at": time(23, 59, 59, 999999), "more": []},
]


@pytest.fixture
def table(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        made = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[2])
        made.ingest(ROWS)
        yield made


@pytest.fixture
def times(spark):
    """A session that has times of day, and the same as before afterwards."""
    before = spark.conf.get(SETTING, "false")
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.set(SETTING, before)


def test_are_read_and_written(table, times):
    """By Spark's reader, by ours, and from a DataFrame."""
    assert [row.asDict() for row in table.to_spark(times).orderBy("id").collect()] == ROWS
    assert [row.asDict() for row in table.to_spark(times, key=3).collect()] == ROWS[2:]

    frame = times.sql("SELECT 5L AS id, TIME '01:02:03.5' AS at, array(TIME '04:00:00') AS more")
    table.bulk_import(frame, engine="spark", spark=times)

    wanted = {"id": 5, "at": time(1, 2, 3, 500_000), "more": [time(4)]}
    assert table.query(key=5).to_pylist() == [wanted]


def test_are_refused_where_the_session_has_none(table, times):
    """The message names the setting."""
    times.conf.set(SETTING, "false")

    with pytest.raises(BadRequest, match=r"'at' .*spark.conf.set\(\"spark.sql.timeType.enabled"):
        table.to_spark(times)
