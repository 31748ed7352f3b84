"""Statements that DataFusion would plan as something else than SQL says: right, or refused."""

from __future__ import annotations

from datetime import datetime

import duckdb
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import QueryInvalid

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("flag", pa.bool_()), ("s", pa.string())])
ROWS = [
    {
        "k": n,
        "n": (None, 1, 2, 3)[n % 4],
        "flag": (None, True, False)[n % 3],
        "s": ("a", None)[n % 2],
    }
    for n in range(12)
]
NEVER_NULL, IN_PARENTHESES = r"write EXISTS \(SELECT", "write it in parentheses"


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """Tables `t` and `u`, which has a null among its numbers."""
    made = sleeper.connect(tmp_path_factory.mktemp("misread"), create=True)
    made.create_table("t", SCHEMA, row_keys=["k"]).ingest(ROWS)
    made.create_table("u", SCHEMA, row_keys=["k"]).ingest(ROWS[:2])
    return made


@pytest.fixture
def theirs(instance):
    """The same tables in DuckDB."""
    connection = duckdb.connect()
    for name in ("t", "u"):
        connection.register("given", instance.table(name).query().to_arrow())
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return connection


@pytest.mark.parametrize(
    "condition",
    [
        "n IN (SELECT n FROM u)",
        "n NOT IN (SELECT n FROM u)",
        "n NOT IN (SELECT n FROM u WHERE n IS NOT NULL) AND s = 'a'",
        "NOT (n IN (SELECT n FROM u))",
        "n IN (SELECT n FROM u) OR s IS NULL",
        "(n IN (SELECT n FROM u) OR flag) AND (k > 3 OR n IN (SELECT k FROM u WHERE n IN (1, 2)))",
        "NOT EXISTS (SELECT 1 FROM u WHERE u.n = t.n) OR s IS NULL",
        "(EXISTS (SELECT 1 FROM u WHERE u.n = t.n)) IS NULL",
        "(flag IS DISTINCT FROM true) AND k > 3",
        "flag IS DISTINCT FROM (k > 3)",
        "k > 3 AND flag IS NOT DISTINCT FROM true",
        "n IS DISTINCT FROM 1 + 1",
        "s = 'IS DISTINCT FROM (a AND b)' OR s = 'a'",
        "flag IS DISTINCT FROM true AND k > 3",
        "flag IS NOT DISTINCT FROM true OR k = 3",
        "n IS DISTINCT FROM 1 OR k = 3",
        "k = 3 OR NOT n + 1 IS DISTINCT FROM 2 * (1 + k) AND k > 1 OR s IS NULL",
        "CASE WHEN n IS DISTINCT FROM 1 AND k > 2 THEN k = 3 ELSE k IS DISTINCT FROM 1 END AND k > 0",
        "CASE n WHEN 1 THEN 2 END IS DISTINCT FROM CASE WHEN k > 1 AND n = 2 THEN 2 END AND k < 4",
        "left(s, 1) IS DISTINCT FROM left('AND', 1) AND /* OR */ k > 0 -- IS DISTINCT FROM",
        "'IS' IS DISTINCT FROM s and k BETWEEN 1 AND 3",
        "k IN (1, 2) AND (s IS DISTINCT FROM 'a' OR k = 1) IS NOT DISTINCT FROM true",
    ],
)
def test_nulls_are_compared_as_in_duckdb(instance, theirs, condition):
    """IN (SELECT ...) where null is as good as false, and IS DISTINCT FROM in parentheses."""
    statement = f"SELECT k FROM t WHERE {condition} ORDER BY k"

    found = [row["k"] for row in instance.sql(statement).to_pylist()]

    assert found == [row[0] for row in theirs.execute(statement).fetchall()]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("n NOT IN (SELECT n FROM u) OR s IS NULL", NEVER_NULL),
        ("NOT (n IN (SELECT n FROM u) AND s = 'a')", NEVER_NULL),
        ("(n IN (SELECT n FROM u)) IS NULL", NEVER_NULL),
        ("(s IS NOT NULL AND n IN (SELECT n FROM u)) IS NOT NULL", NEVER_NULL),
        ("CASE WHEN n IN (SELECT n FROM u) THEN 1 ELSE 2 END = 2", NEVER_NULL),
        ("28 NOT IN (SELECT n FROM u)", NEVER_NULL),
        ("n NOT IN (SELECT n FROM u WHERE u.k > t.k)", NEVER_NULL),
        ("flag IS DISTINCT FROM n = 1", IN_PARENTHESES),
        ("k BETWEEN 1 AND n IS DISTINCT FROM 1 AND k > 1", IN_PARENTHESES),
    ],
)
def test_what_would_be_wrong_is_refused(instance, condition, says):
    """The message says what to write instead."""
    with pytest.raises(QueryInvalid, match=says):
        instance.sql(f"SELECT k FROM t WHERE {condition}")
    if says == IN_PARENTHESES:
        with pytest.raises(QueryInvalid, match=says):
            instance.table("t").query(where=condition)


MOMENTS = [datetime(1, 1, 1), datetime(1677, 9, 21), datetime(2000, 2, 29), datetime(2262, 4, 12)]
MOMENTS += [datetime(9999, 12, 31, 23, 59, 59, 999_999)]


@pytest.mark.parametrize("at", MOMENTS, ids=str)
@pytest.mark.parametrize(
    "condition",
    [
        "moment {} TIMESTAMP '{}'",
        "moment {} CAST('{}' AS TIMESTAMP)",
        "moment {} '{}'::TIMESTAMP",
        "moment {} TIMESTAMP '{}' AND moment > TIMESTAMP '1900-01-01' /* TIMESTAMP '0001' */",
    ],
)
def test_moments_of_all_years_can_be_compared(tmp_path, at, condition):
    """DataFusion makes nanoseconds of them, which are of the years 1677 to 2262 alone."""
    schema = pa.schema([("k", pa.int64()), ("moment", pa.timestamp("us"))])
    rows = pa.Table.from_pylist(
        [{"k": k, "moment": each} for k, each in enumerate(MOMENTS)], schema
    )
    theirs = duckdb.connect()
    theirs.register("t", rows)
    with sleeper.connect(tmp_path / "i", create=True) as instance:
        table = instance.create_table("t", schema, row_keys=["k"])
        table.ingest(rows)
        for operator in ("=", "<>", "<", ">="):
            where = condition.format(operator, at)
            asked = f"SELECT k FROM t WHERE {where} ORDER BY k"

            right = [row[0] for row in theirs.execute(asked).fetchall()]

            assert [row["k"] for row in table.query(where=where).to_pylist()] == right
            assert [row["k"] for row in table.sql(asked).to_pylist()] == right


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM stored.t",
        "SELECT count(*) AS n FROM sleeper.stored.t AS t",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM stored.u WHERE n = t.n)",
        "SELECT (SELECT max(k) FROM stored.t) AS m FROM t",
        "EXPLAIN SELECT * FROM stored.t",
    ],
)
def test_what_tables_are_made_of_has_no_name(instance, statement):
    """A condition on it would be evaluated otherwise than one on the table."""
    with pytest.raises(QueryInvalid, match="no schema 'stored'"):
        instance.sql(statement)

    assert instance.sql("SELECT stored.k FROM t AS stored LIMIT 1").to_pylist()


@pytest.mark.parametrize(
    "statement",
    ["SELECT '\0'", 'SELECT k AS "a\0b" FROM t', "SELECT s || '\0' FROM t GROUP BY s || '\0'"],
)
def test_a_zero_byte_in_the_name_of_a_column_is_refused(instance, statement):
    """Arrow has no such names; as a value it is answered."""
    with pytest.raises(QueryInvalid, match="zero byte in its name"):
        instance.sql(statement)

    assert instance.sql("SELECT '\0' AS a").to_pylist() == [{"a": "\0"}]
