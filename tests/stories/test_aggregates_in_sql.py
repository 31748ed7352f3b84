"""Aggregates in SQL over infinities, NaN and zeros of both signs are those of DuckDB, or refused."""

from __future__ import annotations

import math
import struct
from itertools import permutations

import duckdb
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import QueryInvalid

NAN, INF = math.nan, math.inf
SIGNED_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("g", pa.string()),
        ("x", pa.float64()),
        ("small", pa.float32()),
        ("f", pa.float64()),
        ("n", pa.int32()),
    ]
)
SETS = [
    *([each] for each in (INF, -INF, NAN, SIGNED_NAN, None, -7.5)),
    *([each, None] for each in (INF, -INF, NAN)),
    *permutations([INF, NAN]),
    *permutations([-INF, NAN]),
    *permutations([INF, NAN, 3.25, None]),
    *permutations([-INF, SIGNED_NAN, -3.25]),
    *permutations([INF, -INF, 3.25]),
    *permutations([INF, -INF, None]),
    [-INF, 5.0, NAN, 1.0, 2.0],
    [1.0e38, -1.0e38, NAN],
    [0.0, -1.5],
]
NUMBERS = [(f"{place:03}", number) for place, each in enumerate(SETS) for number in each]
ROWS = [
    {"k": k, "g": g, "x": x, "small": x, "f": (k * 7 % 11) - 4.5, "n": (None, 3, -1, 8)[k % 4]}
    for k, (g, x) in enumerate(NUMBERS)
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of groups of odd numbers, in several files."""
    instance = sleeper.connect(tmp_path_factory.mktemp("aggregates"), create=True)
    made = instance.create_table("t", SCHEMA, row_keys=["k"])
    for start in range(0, len(ROWS), 70):
        made.ingest(ROWS[start : start + 70])
    return made


@pytest.fixture
def theirs(table):
    """The same rows in DuckDB."""
    connection = duckdb.connect()
    connection.register("given", table.query().to_arrow())
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    return connection


def plain(rows):
    return sorted(repr([value + 0 if value in (0, 1) else value for value in row]) for row in rows)


def values(rows):
    return [[*row.values()] for row in rows.to_pylist()]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT g, min(x), max(x), min(small) AS a, max(small) FROM t GROUP BY g",
        "SELECT g, max(x) AS max, min(n), max(n + 1), min(g), count(*) FROM t GROUP BY g",
        "SELECT g, MIN( /* ) */ x ) FILTER (WHERE n > 0), max (DISTINCT small) FROM t GROUP BY g",
        "SELECT g, max(x) FILTER (WHERE k % 2 = 0), max(x) FROM t GROUP BY g",
        "SELECT g FROM t GROUP BY g HAVING min(x) < 0 AND max(small) > 5",
        "SELECT g FROM t GROUP BY g HAVING max(x) = 'infinity'::DOUBLE",
        "SELECT g, min(x) FROM t GROUP BY g ORDER BY 2 NULLS LAST, 1 LIMIT 20",
        "SELECT g, max(x) AS m FROM t GROUP BY g ORDER BY max(x) DESC NULLS LAST, g LIMIT 20",
        "SELECT DISTINCT min(x) FROM t GROUP BY g ORDER BY min(x)",
        "SELECT g, n, min(x), max(small) FROM t GROUP BY ROLLUP (g, n)",
        "SELECT g, max(x) FROM t GROUP BY GROUPING SETS ((g), ())",
        "SELECT g, min(-x), max(-small), min(x - x) FROM t GROUP BY g",
        "SELECT x, max(small), min(x) FROM t GROUP BY x",
        "SELECT n, min(x + 1), max(small * 2), max(x - x) FROM t GROUP BY n",
        "SELECT n, max(CASE WHEN g < '010' THEN x ELSE small END) AS m, 'min(x)' FROM t GROUP BY n",
        "SELECT min(x), max(x), min(small), max(small) FROM t",
        "SELECT min(x) FILTER (WHERE k < 3), max(x) FILTER (WHERE g = '002') FROM t",
        "SELECT k, (SELECT max(x) FROM t u WHERE u.g = t.g) AS m FROM t",
        "SELECT k FROM t WHERE x IN (SELECT min(x) FROM t GROUP BY n)",
        "SELECT min(x) FROM t GROUP BY n UNION ALL SELECT max(small) FROM t GROUP BY n",
        "WITH m AS (SELECT g, max(x) AS x FROM t GROUP BY g) SELECT t.k FROM t JOIN m USING (g, x)",
        "SELECT max(m) FROM (SELECT min(x) AS m FROM t GROUP BY g HAVING min(x) IS NOT NULL)",
        "SELECT g, min(min(x)) OVER (), rank() OVER (ORDER BY max(x), g) FROM t GROUP BY g",
        "SELECT n FROM t GROUP BY n HAVING max(x) > (SELECT min(small) FROM t WHERE g < '003')",
        "SELECT k, min(x) OVER (PARTITION BY g ORDER BY k), max(x) OVER (PARTITION BY g) FROM t",
        "SELECT k, max(x) OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) FROM t",
        "SELECT k, sum(x) OVER (ORDER BY k), avg(small) OVER (PARTITION BY g) FROM t",
        "SELECT k, sum(f) OVER w, sum(n) OVER w FROM t WINDOW w AS (ORDER BY k ROWS 2 PRECEDING)",
        "SELECT k, avg(f) OVER (ORDER BY k ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING) FROM t",
        "SELECT k, sum(x) FILTER (WHERE abs(x) < 9) OVER (ORDER BY k ROWS 1 PRECEDING) FROM t",
        """WITH q AS (
            SELECT g, sum(CASE WHEN abs(small) < 9 THEN small END) OVER w AS s FROM t
            WINDOW w AS (ORDER BY k ROWS 2 PRECEDING)
        ) SELECT g, min(s), max(s) FROM q GROUP BY g""",
        """SELECT min(a) FROM (
            SELECT g, avg(n) OVER (ORDER BY k ROWS 1 PRECEDING) AS a FROM t
        ) GROUP BY g""",
        "SELECT g, sum(x), avg(x), median(x), count(DISTINCT x) FROM t GROUP BY g",
        "SELECT k, greatest(x, small, 1.5), least(x, small, 1.5) FROM t",
    ],
)
def test_aggregates_are_those_of_duckdb(table, theirs, statement):
    """Alone and in groups, with FILTER, HAVING, DISTINCT and OVER, in queries inside queries."""
    found = plain(values(table.sql(statement)))

    assert found == plain(theirs.execute(statement).fetchall())


@pytest.mark.parametrize("kind", ["Float16", "Float32", "Float64"])
def test_types_of_numbers_stay_as_they_are(table, kind):
    """A minimum has the type of its numbers, also of those with 16 bits."""
    cast = f"arrow_cast(x, '{kind}')"
    statement = f"SELECT g, min({cast}) AS a, max({cast}) AS b FROM t WHERE g < '009' GROUP BY g"

    found = table.sql(statement).to_arrow()

    name = {"Float16": "halffloat", "Float32": "float", "Float64": "double"}[kind]
    assert [str(field.type) for field in found.schema] == ["string", name, name]
    wanted = values(table.sql("SELECT g, x, x AS y FROM t WHERE g < '009' AND x IS NOT NULL"))
    known = [[row[0], *map(float, row[1:])] for row in values(found) if row[1] is not None]
    assert plain(known) == plain(wanted)


def test_columns_have_the_names_that_they_would_have(table):
    """As if the function was called as it is written; so does `explain_sql` show the statement."""
    found = table.sql(
        'SELECT min(x), max("small") AS b, MAX(DISTINCT x), 1 + min(x) FROM t GROUP BY g'
    )

    assert found.schema.names == ["min(t.x)", "b", "max(DISTINCT t.x)", "Int64(1) + min(t.x)"]
    assert "min(order_of_float64(t.x))" in table.explain_sql("SELECT min(x) FROM t GROUP BY g")
    assert "order_of" not in table.explain_sql("SELECT min(n), max(g), avg(x) FROM t GROUP BY g")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ('SELECT "min(t.x)" FROM (SELECT min(x) FROM t GROUP BY g)', "name them, as in"),
        ("SELECT DISTINCT min(x) FROM t GROUP BY g ORDER BY min(t.x)", "name them, as in"),
        ("SELECT /* /* */ g, ' */ min(x) FROM t GROUP BY g --' FROM t", "name them, as in|"),
        ("SELECT g, min(named_struct('n', n, 'k', k)) FROM t GROUP BY g", "first_value"),
        ("SELECT max(named_struct('n', n, 'k', k)) FROM t", "first_value"),
        ("SELECT max(named_struct('n', n)) OVER (ORDER BY k) FROM t", "first_value"),
        ("SELECT n FROM t EXCEPT ALL SELECT n FROM t WHERE k < 9", "row_number"),
        ("SELECT n FROM t INTERSECT\nall SELECT n FROM t WHERE k < 9", "row_number"),
        ("SELECT stddev(f) OVER (ORDER BY k ROWS 1 PRECEDING) FROM t", "to_duckdb"),
        ("SELECT corr(f, n) OVER w FROM t WINDOW w AS (ORDER BY k ROWS 1 PRECEDING)", "to_duckdb"),
        ("SELECT sum(n) OVER (w) FROM t WINDOW w AS (ORDER BY k)", "OVER name without"),
        ('SELECT sum(n) OVER ("a b" ORDER BY k) FROM t WINDOW "a b" AS ()', "OVER name without"),
        ("SELECT sum(n) OVER v FROM t WINDOW w AS (ORDER BY k), v AS (w)", "OVER name without"),
    ],
)
def test_what_would_be_wrong_is_refused(table, statement, says):
    """Before rows are read; the message says what to write instead."""
    with pytest.raises(QueryInvalid, match=says):
        table.sql(statement).to_pylist()


@pytest.mark.parametrize("function", ["sum", "avg", "mean"])
@pytest.mark.parametrize("number", [INF, -INF, NAN])
@pytest.mark.parametrize(
    "window", ["(ORDER BY k ROWS 1 PRECEDING)", "w", "(ORDER BY k RANGE 2 PRECEDING)"]
)
def test_a_moving_window_has_finite_numbers(table, function, number, window):
    """Others would stay in it after they left; a condition of FILTER leaves them out."""
    call = f"{function}(CASE WHEN k = 5 THEN '{number}'::DOUBLE ELSE f END)"
    named = "WINDOW w AS (ORDER BY k ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)"

    with pytest.raises(QueryInvalid, match="begin the window at UNBOUNDED"):
        table.sql(f"SELECT k, {call} OVER {window} FROM t {named}").to_pylist()
    table.sql(f"SELECT k, {call} FILTER (WHERE k <> 5) OVER {window} FROM t {named}").to_pylist()


def test_text_that_looks_like_a_call_stays(table):
    """In constants of all kinds, comments and quoted names."""
    statement = """
        SELECT g, 'it''s min(x)' AS a, E'\\'min(x)' AS "max(x)", $$max(x)$$ AS c, -- min(x)
               max(x) AS "min(" /* max(x) */ FROM t AS "t(" WHERE g = '001' GROUP BY g
    """

    (row,) = table.sql(statement).to_pylist()

    assert [*row.values()] == ["001", "it's min(x)", "'min(x)", "max(x)", -INF]
    assert [*row] == ["g", "a", "max(x)", "c", "min("]
