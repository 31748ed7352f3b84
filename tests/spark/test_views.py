"""Tables as temporary views, for SQL."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.errors import TableNotFound

SCHEMA = Schema(
    row_keys=[Field("id", Primitive.STRING)],
    values=[Field("n", Primitive.LONG), Field("other", Primitive.STRING)],
)


@pytest.fixture
def instance(tmp_path):
    """Two tables, one of which adds up its rows."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    flights = instance.create_table("flights", SCHEMA, split_points=["m"])
    flights.ingest([{"id": key, "n": 1, "other": "x"} for key in "abyz"])
    counts = instance.create_table(
        "my-counts",
        Schema(row_keys=[Field("id", Primitive.STRING)], values=[Field("n", Primitive.LONG)]),
        properties={"sleeper.table.aggregations": "sum(n)"},
    )
    for _ in range(2):
        counts.ingest([{"id": "a", "n": 2}])
    return instance


@pytest.mark.every_spark
def test_sql_finds_every_table(spark, instance):
    """
    Each table is a view of its own name; queries with several filters on one view, and joins,
    have the right rows.
    """
    names = sleeper.spark.register(spark, instance)

    assert sorted(names) == ["flights", "my-counts"]
    both = "SELECT id FROM flights WHERE id < 'b' UNION ALL SELECT id FROM flights WHERE id > 'y'"
    assert sorted(row.id for row in spark.sql(both).collect()) == ["a", "z"]
    joined = "SELECT c.n FROM flights f JOIN `my-counts` c ON f.id = c.id"
    assert [row.n for row in spark.sql(joined).collect()] == [4]


def test_spark_prunes_columns_and_pushes_filters_and_shows_it(spark, instance, capsys):
    """EXPLAIN shows the columns that are read and the filters that Parquet is read with."""
    sleeper.spark.register(spark, instance, ["flights"])

    spark.table("flights").filter(F.col("id") == "a").select("n").explain()

    plan = capsys.readouterr().out
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,a)]" in plan
    assert "ReadSchema: struct<id:string,n:bigint>" in plan


def test_a_view_is_made_anew_for_newer_rows(spark, instance):
    """A view shows its table as it was when it was made, until it is made again."""
    sleeper.spark.register(spark, instance, ["flights"])
    instance.table("flights").ingest([{"id": "k", "n": 1, "other": "x"}])

    before = spark.table("flights").count()
    sleeper.spark.register(spark, instance, ["flights"])

    assert (before, spark.table("flights").count()) == (4, 5)


def test_a_table_that_is_not_there_is_named(spark, instance):
    """No view is made when one of the tables is missing."""
    with pytest.raises(TableNotFound, match="did you mean 'flights'"):
        sleeper.spark.register(spark, instance, ["flight"])
