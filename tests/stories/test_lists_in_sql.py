"""Several lists (IN) of one column: a null is in no list, and a list with a null is never false."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.sql import session
from sleeper.errors import QueryInvalid

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.string()), ("d", pa.date32())])
ROWS = [
    {
        "k": n,
        "n": None if n == 7 else n,
        "s": (None, "a", "b", "])", "a, b", "", "c", None, '"', "x")[n],
        "d": None,
    }
    for n in range(10)
]
JOINED = [
    "n NOT IN (1, NULL) AND n IN (1, 2)",
    "n IN (1, 2, 3, 4, 5) AND n NOT IN (1, 7, 8, 9, NULL)",
    "n NOT IN (1, 2) OR n NOT IN (3, 4)",
    "n NOT IN (1, 2, 3, 4, 8) OR n NOT IN (5, NULL, 7, 8, 9)",
    "NOT (n IN (1, 2) AND n IN (3, 4))",
    "NOT (n IN (1) AND NOT n IN (1))",
    "NOT (n IN (1, 2, 3, 4) AND n NOT IN (1, 2, 3, 4))",
    "(n IN (1, 2, 3, 4, 8) AND n NOT IN (1, 2, 3, 4, 8)) IS NULL",
    "(n NOT IN (1, 2, 3, 4) OR n NOT IN (5, 6, 7, 8)) IS NOT TRUE",
    "(n + 1 NOT IN (1, 2)) OR (n + 1 NOT IN (3, 4))",
    "NOT ((n = 1 OR n = 2) AND (n = 3 OR n = 4))",
    "((n = 1 OR n = 2) AND (n = 3 OR n = 4)) IS NULL",
    "NOT ((n = 1 OR n = 2) AND n NOT IN (1, 2, 5))",
    "NOT ((n = 1 OR n = 2) AND n IN (3))",
    "s NOT IN ('a', '])') OR s NOT IN ('a, b', '\"')",
    "(k NOT IN (1, NULL) AND k IN (1, 2)) IS NULL",
]
RIGHT = [
    "n = 1",
    "n = 1 OR n = 2",
    "n <> 1 AND s <> 'a' AND s <> 'b'",
    "n IN (3, 4, 5, 6) OR n = 2 OR n = 1",
    "k = 1 AND n = 1 AND s = 'a'",
    "s = upper(s) OR s = lower(s)",
    "n = k OR s = 'b' OR d = '2026-01-01' OR d = '2026-01-02'",
    "n IN (1, 2) OR n IN (3, 4)",
    "n IN (1, 2, 3, 4) OR n IN (5, 6, 7, 8)",
    "n NOT IN (1, 2) AND n NOT IN (3, 4)",
    "n IN (1, 2) AND k IN (2, 3)",
    "s IN ('a', 'b') OR s IN ('a, b', '\"')",
    "k IN (1, 2) OR k IN (8)",
    "n NOT IN (1, NULL)",
    "n IN (1, NULL)",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Ten rows, of which one has no number, and two have no text."""
    instance = sleeper.connect(tmp_path_factory.mktemp("lists"), create=True)
    made = instance.create_table("t", SCHEMA, row_keys=["k"], split_points=[4])
    made.ingest(ROWS)
    return made


@pytest.fixture
def without_rule(monkeypatch):
    """The statements that are planned without the rule that joins lists."""
    monkeypatch.setattr(session, "IDLE", session.IdleContexts())
    monkeypatch.setattr("sleeper.engine.sql.session.IDLE", session.IDLE)
    seen = []
    made = session.SqlContext.__init__

    def noted(self, *args, **kwargs):
        if not kwargs.get("joins_lists", True):
            seen.append(self)
        made(self, *args, **kwargs)

    monkeypatch.setattr(session.SqlContext, "__init__", noted)
    return seen


def test_lists_of_tables_with_other_names_are_joined_where_that_is_right(table, without_rule):
    """The plan names the columns of the table, and the statement those of an alias."""
    found = table.sql("SELECT a.k FROM t a JOIN t b USING (k) WHERE a.n IN (1, 2) OR a.n IN (3)")

    assert sorted(row["k"] for row in found.to_pylist()) == [1, 2, 3]
    assert without_rule == []


@pytest.mark.parametrize("condition", [*JOINED, *RIGHT])
def test_lists_are_true_of_the_same_rows_as_in_duckdb(table, condition, without_rule):
    """As a condition, in a statement, and inside CASE; the rule that joins is left out if needed."""
    connection = duckdb.connect()
    connection.register("given", table.query().to_arrow())
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    statement = f"SELECT k FROM t WHERE {condition} ORDER BY k"
    case = f"SELECT k, CASE WHEN {condition} THEN 1 ELSE 0 END AS meets FROM t ORDER BY k"
    wanted = [row[0] for row in connection.execute(statement).fetchall()]
    cases = [row[1] for row in connection.execute(case).fetchall()]

    assert [row["k"] for row in table.query(where=condition).to_pylist()] == wanted
    assert [row["k"] for row in table.sql(statement).to_pylist()] == wanted
    assert [row["meets"] for row in table.sql(case).to_pylist()] == cases
    assert bool(without_rule) == (condition in JOINED)


def test_lists_of_keys_narrow_what_is_read_without_the_rule(table):
    """The leaf with the keys of both lists is read, and no other."""
    explained = table.explain_sql("SELECT n FROM t WHERE k IN (1, 2) AND k IN (2, 3)")

    assert "1 of 2 leaves" in explained


def test_functions_that_only_the_rule_knows_are_refused_beside_such_lists(table):
    """The message says what to write instead."""
    joined = "n NOT IN (1, 2) OR n NOT IN (3, 4)"

    with pytest.raises(QueryInvalid, match=r"several lists \(IN\) of one column.*use CASE"):
        table.query(where=f"({joined}) AND coalesce(n, 0) = 5").to_arrow()
    with pytest.raises(QueryInvalid, match=r"several lists \(IN\) of one column.*use CASE"):
        table.sql(f"SELECT arrow_cast(n, 'Int32') AS n FROM t WHERE {joined}").to_arrow()
