"""Spark counts rows once where they come in, and runs a table's function in its workers."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.errors import TableFunctionFailed

SCHEMA = Schema(
    row_keys=[Field("id", Primitive.LONG)],
    sort_keys=[Field("at", Primitive.LONG)],
    values=[
        Field("word", Primitive.STRING, nullable=True),
        Field("n", Primitive.LONG, nullable=True),
    ],
)
NAMES = count()


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True, allow_functions=["*"])


def made(instance, points=(3, 6), **properties):
    """A table of three leaves unless told, and as many as bulk import wants."""
    given = {f"sleeper.table.{name}": text for name, text in properties.items()}
    given["sleeper.table.bulk.import.min.leaf.partitions"] = "1"
    name = f"t{next(NAMES)}"
    return instance.create_table(name, SCHEMA, split_points=points, properties=given)


def readings(low, high):
    """For each of ten ids a row at each time; every third has no number."""
    return [
        {"id": n, "at": at, "word": f"{n} at {at}" if at % 2 else None, "n": at if at % 3 else None}
        for at in range(low, high)
        for n in range(10)
    ]


def test_the_last_of_many_rows_and_their_count_are_those_of_standard_ingest(
    spark, instance, tmp_path
):
    """Bulk import and Spark's writer count rows once; DataFrames show what queries show."""
    table = made(instance, aggregations="last(word),count(n)")
    other = made(instance, aggregations="last(word),count(n)")
    (tmp_path / "in").mkdir()
    for number, rows in enumerate((readings(0, 4), readings(2, 7))):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / f"{number}.parquet")
        other.ingest(rows)
    more = [tuple(row.values()) for row in readings(7, 9)]
    other.ingest(readings(7, 9))

    table.bulk_import(tmp_path / "in", engine="spark", spark=spark)
    frame = spark.createDataFrame(more, "id long, at long, word string, n long")
    options = {"instance": table._context.url, "table": table.name}
    frame.write.format("sleeper").options(**options).mode("append").save()

    found = table.query().to_pylist()
    assert found == other.query().to_pylist()
    assert {row["n"] for row in found} == {7}
    by_spark = [row.asDict() for row in table.to_spark(spark, columns=["n", "id"]).collect()]
    assert sorted(row["id"] for row in by_spark) == [*range(10)]
    assert {row["n"] for row in by_spark} == {7}


def test_a_function_that_fails_in_a_worker_raises_its_own_error(spark, instance, tmp_path):
    """A class of ours with the whole message; the table has nothing new. A good one works."""
    pq.write_table(pa.Table.from_pylist(readings(0, 3)), tmp_path / "in.parquet")
    table = made(instance, function="json:loads")

    with pytest.raises(TableFunctionFailed, match=r"json:loads.*raised TypeError"):
        table.bulk_import(tmp_path / "in.parquet", engine="spark", spark=spark)
    table.set_properties({"sleeper.table.function": "builtins:iter"})
    table.bulk_import(tmp_path / "in.parquet", engine="spark", spark=spark)

    assert table.query().count() == table.to_spark(spark).count() == 30


def test_spark_runs_no_function_that_its_reader_does_not_allow(spark, instance, tmp_path):
    """
    Whoever opens the instance says which modules may run, for Spark's workers too: DataFrames, SQL,
    bulk import and compaction refuse others, and the table has nothing new.
    """
    pq.write_table(pa.Table.from_pylist(readings(0, 3)), tmp_path / "in.parquet")
    table = made(instance, points=(), function="builtins:iter")
    table.bulk_import(tmp_path / "in.parquet", engine="spark", spark=spark)
    table.bulk_import(tmp_path / "in.parquet", engine="local")
    wary = sleeper.connect(tmp_path / "instance").table(table.name)
    options = {"instance": table._context.url, "table": table.name}
    source = spark.read.format("sleeper").options(**options)

    with pytest.raises(PySparkException, match="allow_functions"):
        wary.to_spark(spark).count()
    with pytest.raises(PySparkException, match="allow_functions"):
        source.load().count()
    with pytest.raises(TableFunctionFailed, match="allow_functions"):
        wary.bulk_import(tmp_path / "in.parquet", engine="spark", spark=spark)
    refused = wary.compact(all_files=True, spark=spark)

    assert len(refused.failed) == len(refused.jobs) == 1
    assert source.option("allow_functions", "builtins").load().count() == 60
    assert table.query().count() == 60


def test_a_function_that_always_fails_stops_a_compaction_on_spark(spark, instance):
    """After three jobs the others are cancelled or not begun, and no claim is left."""
    table = instance.create_table("many", SCHEMA, split_points=[*range(1, 10)])
    for at in range(2):
        table.ingest(readings(at, at + 1))
    table.set_properties({"sleeper.table.function": "no_such_module:clean"})

    run = table.compact(all_files=True, spark=spark)

    assert run.stopped
    assert len(run.jobs) == len(run.failed) == 3
    assert "no_such_module:clean" in str(run.failed[0].failure)
    assert table.claims() == ()
