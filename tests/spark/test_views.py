"""Tables as temporary views, for SQL."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.errors import TableNotFound
from sleeper.spark.data_source.schema import to_spark_schema

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


ORDERS = pa.schema(
    [
        pa.field("amount", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("odd, `name`", pa.string()),
        pa.field("part", pa.int64(), nullable=False),
    ]
)
"""Three columns of integers, of which the last two are row keys; the sort key is the second."""

ORDER = [1000, datetime(2024, 6, 1, 12, tzinfo=UTC), Decimal("9.50"), 7, "x", 3]


@pytest.fixture
def orders(tmp_path):
    """A table whose columns are in another order than its keys."""
    instance = sleeper.connect(tmp_path / "orders", create=True)
    keys = {"row_keys": ["id", "part"], "sort_keys": ["at"]}
    return instance.create_table("orders", ORDERS, **keys, split_points=[5])


INSERTS = {
    "select": lambda spark: spark.sql("INSERT INTO orders_in SELECT * FROM source"),
    "insertInto": lambda spark: spark.table("source").write.insertInto("orders_in"),
    "values": lambda spark: spark.sql(
        "INSERT INTO orders_in VALUES (1000, TIMESTAMP '2024-06-01 12:00:00Z', 9.50, 7, 'x', 3)"
    ),
}


@pytest.mark.every_spark
@pytest.mark.parametrize("insert", INSERTS.values(), ids=INSERTS)
def test_an_insert_by_position_fills_the_columns_as_the_table_shows_them(spark, orders, insert):
    """
    Spark puts the first column into the first one and so on, whatever their names. Keys are first
    in data files alone (SCH-10).
    """
    source = spark.createDataFrame(
        [tuple(ORDER)], "a long, b timestamp, c decimal(9,2), d long, e string, f long"
    )
    source.createOrReplaceTempView("source")
    options = f"instance '{orders._context.url}', table 'orders'"
    spark.sql(f"CREATE OR REPLACE TEMP VIEW orders_in USING sleeper OPTIONS ({options})")

    insert(spark)

    assert orders.query().to_pylist() == [dict(zip(ORDERS.names, ORDER, strict=True))]


@pytest.mark.every_spark
def test_a_table_is_selected_into_another_by_position(spark, orders):
    """Frames, views and the data source have the table's order; other tools insert by it too."""
    orders.ingest([dict(zip(ORDERS.names, ORDER, strict=True))])
    options = f"instance '{orders._context.url}', table 'orders'"
    spark.sql(f"CREATE OR REPLACE TEMP VIEW orders_in USING sleeper OPTIONS ({options})")
    with sleeper.connect(orders._context.url) as instance:
        sleeper.spark.register(spark, instance)

    for frame in (
        *(orders.to_spark(spark), orders.to_spark(spark, key=(7, 3))),
        *(spark.table("orders"), spark.table("orders_in"), spark.sql("SELECT * FROM orders")),
    ):
        assert frame.columns == ORDERS.names
        row = frame.withColumn("at", F.date_format("at", "HH")).collect()[0]
        assert [*row][2:] == ORDER[2:]
        assert row["amount"] == 1000
    spark.sql("INSERT INTO orders_in SELECT * FROM orders")
    assert orders.query().to_pylist() == [dict(zip(ORDERS.names, ORDER, strict=True))] * 2


def test_a_frame_is_saved_by_name(spark, orders):
    """`save` finds columns by their names, in whatever order the DataFrame has them."""
    source = spark.createDataFrame([tuple(ORDER)], to_spark_schema(orders.schema))
    mixed = source.select(*(f"`{name.replace('`', '``')}`" for name in sorted(ORDERS.names)))

    named = {"instance": orders._context.url, "table": "orders"}
    mixed.write.format("sleeper").options(**named).mode("append").save()

    assert orders.query().to_pylist() == [dict(zip(ORDERS.names, ORDER, strict=True))]
