"""Zeros with a sign and NaN of any bits compare in SQL as they do in polars and DuckDB."""

from __future__ import annotations

import math
import struct

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import QueryInvalid

NAN, INF = math.nan, math.inf
SIGNED_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
NUMBERS = [-0.0, 0.0, NAN, SIGNED_NAN, INF, -INF, None, 1.5]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("small", pa.float32()),
        ("list", pa.list_(pa.field("element", pa.float64(), False))),
        ("map", pa.map_(pa.int32(), pa.field("value", pa.float64(), False))),
    ]
)
ROWS = [
    {
        "id": place,
        "x": number,
        "small": number,
        "list": [] if number is None else [number],
        "map": {} if number is None else {1: number},
    }
    for place, number in enumerate(NUMBERS)
]
ZEROS, NANS = [0, 1], [2, 3]
X = pl.col("x")
CONDITIONS = [
    ("x = 0.0", X == 0.0, ZEROS),
    ("x = -0.0", X == -0.0, ZEROS),
    ("x <> 0.0", X != 0.0, [2, 3, 4, 5, 7]),
    ("x < 0.0", X < 0.0, [5]),
    ("x <= -0.0", X <= -0.0, [0, 1, 5]),
    ("x > 0.0", X > 0.0, [2, 3, 4, 7]),
    ("x >= 0.0", X >= 0.0, [0, 1, 2, 3, 4, 7]),
    ("NOT x >= 0.0", ~(X >= 0.0), [5]),
    ("NOT (NOT (x >= 0.0)) IS TRUE", None, [0, 1, 2, 3, 4, 6, 7]),
    ("x BETWEEN 0.0 AND 2", X.is_between(0.0, 2.0), [0, 1, 7]),
    ("x > 'infinity'::DOUBLE", X > INF, NANS),
    ("x < '-infinity'::DOUBLE", X < -INF, []),
    ("x = 'nan'::DOUBLE", X == NAN, NANS),
    ("x >= 'nan'::DOUBLE", X >= NAN, NANS),
    ("x < 'nan'::DOUBLE", X < NAN, [0, 1, 4, 5, 7]),
    ("isnan(x)", X.is_nan(), NANS),
    ("x IN (0.0)", X.is_in([0.0]), ZEROS),
    ("x IN (0.0, 1.5, 2.5, 3.5, 4.5)", X.is_in([0.0, 1.5, 2.5, 3.5, 4.5]), [0, 1, 7]),
    ("x IN ('nan'::DOUBLE, 1, 2, 3, 4)", X.is_in([NAN, 1.0, 2.0, 3.0, 4.0]), NANS),
    ("x NOT IN (0.0, 1.5, 2.5, 3.5, 4.5)", ~X.is_in([0.0, 1.5, 2.5, 3.5, 4.5]), [2, 3, 4, 5]),
    ("x = 0.0 OR x = 2 OR x = 3 OR x = 4 OR x = 5", None, ZEROS),
    ("CASE x WHEN 0.0 THEN 1 WHEN 1.5 THEN 2 ELSE 0 END = 1", None, ZEROS),
    ("nullif(x, 0.0) IS NULL AND x IS NOT NULL", None, ZEROS),
    ("x IS DISTINCT FROM 0.0", None, [2, 3, 4, 5, 6, 7]),
    ("small >= 0.0", pl.col("small") >= 0.0, [0, 1, 2, 3, 4, 7]),
    ("small IN (0.0, 1, 2, 3, 4)", pl.col("small").is_in([0.0, 1.0, 2.0, 3.0, 4.0]), ZEROS),
    ("list[1] >= 1.5", None, [2, 3, 4, 7]),
    ("list = [0.0]", None, ZEROS),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table with a row for each number, in four files."""
    instance = sleeper.connect(tmp_path_factory.mktemp("numbers"), create=True)
    made = instance.create_table("t", SCHEMA, row_keys=["id"])
    for row in (ROWS[:5], ROWS[5:6], ROWS[6:7], ROWS[7:]):
        made.ingest(row)
    return made


def bits(numbers):
    return [None if number is None else struct.pack("<d", number) for number in numbers]


@pytest.mark.parametrize(("condition", "polars", "ids"), CONDITIONS)
def test_a_condition_finds_the_same_rows_whichever_engine_asks(table, condition, polars, ids):
    """By where=, in a statement, by polars, and by DuckDB, which reads the table or has a copy."""
    connection = duckdb.connect()
    table.to_duckdb(connection)
    statement = f"SELECT id FROM t WHERE {condition} ORDER BY id"

    found = {
        "where": [row["id"] for row in table.query(where=condition).to_pylist()],
        "count": list(range(table.count(where=condition))),
        "statement": [row["id"] for row in table.sql(statement).to_pylist()],
        "DuckDB": [row[0] for row in connection.execute(statement).fetchall()],
    }
    if polars is not None:
        found["polars"] = table.scan_polars().filter(polars).collect()["id"].sort().to_list()

    assert found == {way: [*range(len(ids))] if way == "count" else ids for way in found}


def test_where_returns_numbers_as_they_are_stored(table):
    """With the sign of zero and the bits of NaN, in lists and maps too; whole, or by key as well."""
    for condition in ("x >= 0.0 OR x < 0.0 OR x IS NULL", "x IN (0,1,2,3) OR true", "id >= 0"):
        rows = table.query(where=condition).to_pylist()

        assert bits(row["x"] for row in rows) == bits(NUMBERS)
        assert [bits(row["list"]) for row in rows] == [bits(row["list"]) for row in ROWS]
        assert [bits(dict(row["map"]).values()) for row in rows] == [
            bits(row["map"].values()) for row in ROWS
        ]
    (zero,) = table.query(where="x < 1", key=0, columns=["x"]).to_pylist()
    assert bits(zero.values()) == bits([-0.0])


@pytest.mark.parametrize(
    "statement", ["SELECT * FROM t", "SELECT * FROM t WHERE id < 100", "SELECT * FROM t WHERE x=x"]
)
def test_a_statement_has_one_zero_and_one_nan(table, statement):
    """Also if nothing but the table's reader is needed; `SELECT *` has only the table's columns."""
    rows = sorted(table.sql(statement).to_pylist(), key=lambda row: row["id"])

    wanted = [
        number if number is None else NAN if math.isnan(number) else number + 0.0
        for number in (row["x"] for row in ROWS)
        if number is not None or "x=x" not in statement
    ]
    assert bits(row["x"] for row in rows) == bits(wanted)
    assert bits(row["small"] for row in rows) == bits(wanted)
    assert bits(number for row in rows for number in row["list"]) == bits(
        number for number in wanted if number is not None
    )
    assert {*rows[0]} == {*SCHEMA.names}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT x, count(*) AS n FROM t GROUP BY x",
        "SELECT x, small, count(*) AS n FROM t GROUP BY x, small",
        "SELECT list, count(*) AS n FROM t GROUP BY list",
        "SELECT DISTINCT x FROM t",
        "SELECT count(DISTINCT x) AS n FROM t",
        "SELECT x FROM t WHERE id < 3 UNION SELECT x FROM t",
        "SELECT x FROM t WHERE id < 3 EXCEPT SELECT x FROM t WHERE id = 1",
        "SELECT x FROM t INTERSECT SELECT x FROM t WHERE id IN (0, 3)",
        "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.x = b.x",
        "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.x = b.x AND a.small = b.small",
        "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.x < b.x",
        "SELECT id FROM t WHERE x IN (SELECT x FROM t WHERE id IN (0, 3))",
        "SELECT id, count(*) OVER (PARTITION BY x) AS n FROM t",
        "SELECT id, rank() OVER (ORDER BY x NULLS LAST) AS n FROM t",
        "SELECT id, row_number() OVER (ORDER BY x NULLS LAST, id DESC) AS n FROM t",
        "SELECT max(x) AS most, min(x) AS least FROM t",
    ],
)
def test_statements_group_join_and_sort_numbers_as_duckdb_does(table, statement):
    """Zeros of both signs are one group and equal in order, and so is NaN of any bits."""
    connection = duckdb.connect()
    connection.register("given", table.query().to_arrow())
    connection.execute("CREATE TABLE t AS SELECT * FROM given")

    found = table.sql(statement).to_pylist()

    def plain(rows):
        return sorted(repr({name: zero_free(value) for name, value in row.items()}) for row in rows)

    def zero_free(value):
        if isinstance(value, list):
            return [zero_free(each) for each in value]
        return value + 0.0 if isinstance(value, float) else value

    assert plain(found) == plain(connection.sql(statement).to_arrow_table().to_pylist())


@pytest.mark.parametrize(
    "condition",
    [
        "x IN (-0.0, 1, 2, 3, 4)",
        "x NOT IN (1, 2, 3, '-0.0'::DOUBLE)",
        "x = 1 OR x = 2 OR x = 3 OR x = 0.0 * -1.0",
        "CASE x WHEN -0.0 THEN true ELSE false END",
        "nullif(x, -0.0) IS NULL",
    ],
)
def test_a_constant_minus_zero_is_refused_where_only_its_bits_would_be_found(table, condition):
    """The message says what to write."""
    for ask in (
        lambda: table.query(where=condition),
        lambda: table.sql(f"SELECT id FROM t WHERE {condition}"),
        lambda: table.explain_sql(f"SELECT count(*) FROM t WHERE {condition}"),
    ):
        with pytest.raises(QueryInvalid, match=r"write 0\.0, which equals -0\.0"):
            ask()
