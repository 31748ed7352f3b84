"""Tables whose columns were changed, in Spark: by both readers, as of before, and from DataFrames."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper

SCHEMA = pa.schema([("n", pa.int32()), ("id", pa.int64()), ("note", pa.string())])


@pytest.fixture
def table(tmp_path):
    """Two leaves with rows of before a change: `n` becomes `m` and wider, `note` another column."""
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        made = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[5])
        made.ingest([{"n": i, "id": i, "note": f"old {i}"} for i in range(10)])
        yield made


def changed(table):
    before = table.refresh()
    table.alter(
        rename={"n": "m"},
        widen={"n": pa.int64()},
        drop=["note"],
        add=[pa.field("note", pa.string()), pa.field("kind", pa.string(), nullable=False)],
        defaults={"kind": "old"},
    )
    return before


def rows_of(frame):
    return frame.orderBy("id").toArrow().to_pylist()


OLD = [{"m": i, "id": i, "note": None, "kind": "old"} for i in range(10)]


@pytest.mark.every_spark
def test_rows_of_before_and_of_now_are_read_together(table, spark):
    """By key, by range and whole; conditions on new columns see their defaults."""
    changed(table)
    table.ingest([{"m": 2**40, "id": 20, "note": "new", "kind": "new"}])
    new = [{"m": 2**40, "id": 20, "note": "new", "kind": "new"}]

    assert rows_of(table.to_spark(spark)) == OLD + new
    assert rows_of(table.to_spark(spark, key=3)) == OLD[3:4]
    assert rows_of(table.to_spark(spark, range={"id": (8, None)})) == OLD[8:] + new
    assert table.to_spark(spark).where("kind = 'old' AND note IS NULL").count() == 10
    assert rows_of(table.to_spark(spark, columns=["kind", "id"]))[0] == {"kind": "old", "id": 0}


def test_files_of_now_alone_are_read_by_spark_itself(table, spark):
    """Once they were compacted."""
    changed(table)
    ours = table.to_spark(spark)
    table.compact(all_files=True)

    theirs = table.to_spark(spark)

    assert rows_of(theirs) == rows_of(ours) == OLD
    assert "parquet" in theirs._jdf.queryExecution().toString().lower()
    assert "parquet" not in ours._jdf.queryExecution().toString().lower()


def test_a_version_of_before_has_its_columns(table, spark):
    """By `to_spark`, and by the data source."""
    before = changed(table)
    expected = [{"n": i, "id": i, "note": f"old {i}"} for i in range(10)]

    assert rows_of(table.to_spark(spark, as_of=before)) == expected
    options = {"instance": table._context.url, "table": "t", "as_of": str(before)}
    assert rows_of(spark.read.format("sleeper").options(**options).load()) == expected


def test_a_dataframe_with_the_columns_of_now_is_imported(table, spark):
    """By a bulk import, and by the data source."""
    changed(table)
    frame = spark.sql("SELECT 7L AS m, 30L AS id, 'x' AS note, 'k' AS kind")

    table.bulk_import(frame, engine="spark", spark=spark)
    options = {"instance": table._context.url, "table": "t"}
    frame.selectExpr("m", "id + 1 AS id", "note", "kind").write.format("sleeper").options(
        **options
    ).mode("append").save()

    assert table.query(range={"id": (30, None)}).to_pylist() == [
        {"m": 7, "id": n, "note": "x", "kind": "k"} for n in (30, 31)
    ]
    assert {each.schema_id for each in table.references() if each.row_count == 1} == {2}
    assert table.verify(spark=spark).findings == ()


def test_verbs_on_spark_write_the_columns_of_now(table, spark):
    """A compaction and an export by Spark's workers."""
    changed(table)

    table.compact(all_files=True, spark=spark)

    assert {each.schema_id for each in table.references()} == {2}
    assert table.query().to_pylist() == OLD
