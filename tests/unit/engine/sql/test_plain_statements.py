"""Plain statements: which are read without a plan, by which conditions, and which are planned."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from sleeper.engine.rows import Rows
from sleeper.engine.sql.plain_statements import plain_read, plain_rows
from sleeper.engine.sql.table_scan import ScannedTable
from sleeper.state.plans.key_conditions import UNKNOWN, AllOf, KeyCondition

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("id", pa.int32()),
        ("big", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("data", pa.binary()),
        ("count", pa.int64()),
        ("current_user", pa.string()),
        ('a "b"', pa.string()),
    ]
)


class Reads:
    """A table that notes what is asked of it, and has one row for each column that is read."""

    is_exact = True
    transaction = 7

    def __init__(self):
        self.conditions, self.columns, self.rows_max = [], None, None

    def narrowed(self, condition):
        self.conditions.append(condition)
        return self

    def rows(self, columns, *, rows_max=None):
        self.columns, self.rows_max = columns, rows_max
        rows = pa.table({"row": pa.array(columns)})
        return Rows.from_table(rows, transaction=self.transaction)


@pytest.fixture
def reads():
    return Reads()


@pytest.fixture
def tables(reads):
    table = ScannedTable("t", SCHEMA, "name", reads.narrowed, may_merge=False)
    return {"t": table, "my table": table}


def of(column, operator, value):
    return KeyCondition(column, operator, value)


@pytest.mark.parametrize(
    ("written", "condition"),
    [
        ("name = 'it''s'", of("name", "=", "it's")),
        ("name='x'", of("name", "=", "x")),
        ("\n\t name  <>  ''  ", of("name", "!=", "")),
        ("name != 'ü'", of("name", "!=", "ü")),
        ("\"name\" >= 'a'", of("name", ">=", "a")),
        ("id < -5", of("id", "<", -5)),
        ("id>-5", of("id", ">", -5)),
        ("id <= 007", of("id", "<=", 7)),
        ("id = 2147483647", of("id", "=", 2**31 - 1)),
        ("big = -9223372036854775808", of("big", "=", -(2**63))),
        ("id IN (1,2 , 3)", of("id", "in", [1, 2, 3])),
        ("id in(1)", of("id", "in", [1])),
        ("day = '2026-11-27'", of("day", "=", date(2026, 11, 27))),
        ("day = date '2026-11-27'", of("day", "=", date(2026, 11, 27))),
        ("name LIKE 'usr/%'", of("name", "prefix", "usr/")),
        ('"a ""b""" = \'x\'', of('a "b"', "=", "x")),
        ("count = 1", of("count", "=", 1)),
        ("\"current_user\" = 'a'", of("current_user", "=", "a")),
        ("id BETWEEN 1 AND 3", AllOf((of("id", ">=", 1), of("id", "<=", 3)))),
        (
            "id between 1 and 3 and name = 'a'",
            AllOf((AllOf((of("id", ">=", 1), of("id", "<=", 3))), of("name", "=", "a"))),
        ),
    ],
)
def test_comparisons_with_constants_of_the_type_are_read_without_a_plan(
    reads, tables, written, condition
):
    """As a condition, and after WHERE; spaces and case change nothing."""
    assert plain_read(written, tables["t"]) is reads
    assert plain_rows(f"SELECT * FROM t WHERE {written}", tables) is not None
    assert reads.conditions == [condition, condition]


@pytest.mark.parametrize(
    "written",
    [
        "name = 5",
        "id = '5'",
        "id = 5.0",
        "id = 5e3",
        "id = 2147483648",
        "big = 9223372036854775808",
        "big = " + "9" * 5_000,
        "id = +5",
        "id = - 5",
        "id = 5 - 3",
        "id = 5-3",
        "id = 1 OR id = 2",
        "(id = 1)",
        "NOT id = 1",
        "id NOT IN (1)",
        "id IN ()",
        "id IN (1, NULL)",
        "id IN (1, '2')",
        "id IN (1, 2",
        "id IN (1 2)",
        "id BETWEEN 1 OR 3",
        "id BETWEEN 1",
        "5 = id",
        "id = big",
        "id == 1",
        "id < > 1",
        "id = 1 -- why",
        "id = /* why */ 1",
        "id = 1 AND",
        "id = 1 name = 'a'",
        "t.id = 1",
        "ID = 1",
        "name = 'a' 'b'",
        "name = E'a'",
        "name = 'a\\b'",
        "name = 'a",
        "name = 'a\0'",
        'name = "a"',
        "name = '\ud800'",
        "name LIKE 'a'",
        "name LIKE '%'",
        "name LIKE 'a%b'",
        "name LIKE 'a_%'",
        "name LIKE '50\\%%'",
        "name ILIKE 'a%'",
        "name NOT LIKE 'a%'",
        "day = '2026-02-30'",
        "day = '2026-1-1'",
        "day = '0000-01-01'",
        "day = 20000",
        "at = '2026-11-27'",
        "data = 'a'",
        "current_user = 'a'",
        "nothing = 1",
        "name IS NULL",
        "name =\u00a0'a'",
        "",
        ";",
    ],
)
def test_any_other_condition_is_planned(reads, tables, written):
    """So are those that are wrong: the planner tells what is."""
    assert plain_read(written, tables["t"]) is None
    assert plain_rows(f"SELECT * FROM t WHERE {written}", tables) is None
    assert reads.conditions == []


@pytest.mark.parametrize("limit", ["", " LIMIT 3", "\nlimit 3 ;", " LIMIT 0"])
@pytest.mark.parametrize(
    ("columns", "names"),
    [("*", SCHEMA.names), ("id", ["id"]), ('"day",name', ["day", "name"]), ("count", ["count"])],
)
def test_columns_are_selected_up_to_a_limit(reads, tables, columns, names, limit):
    """The read is told how many rows are taken, and rows after them are left out."""
    rows = plain_rows(f"SELECT {columns} FROM t{limit}", tables)

    wanted = {"": None, " LIMIT 0": 0}.get(limit, 3)
    assert reads.conditions == [UNKNOWN]
    assert (reads.columns, reads.rows_max) == (names, wanted)
    assert rows.to_arrow().num_rows == len(names[:wanted])


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("count(*)", "count(*)"),
        ("COUNT ( * )", "count(*)"),
        ("count(*) AS n", "n"),
        ('Count(*) as "N s"', "N s"),
    ],
)
def test_rows_are_counted(reads, tables, written, name):
    """In a column that has the name that the planner would give it."""
    rows = plain_rows(f'SELECT {written} FROM "my table" WHERE id > 1;', tables)

    assert rows.schema == pa.schema([pa.field(name, pa.int64(), nullable=False)])
    assert rows.to_pylist() == [{name: 1}]
    assert (rows.transaction, reads.columns) == (7, ["name"])


@pytest.mark.parametrize(
    "statement",
    [
        None,
        b"SELECT * FROM t",
        "",
        "SELECT",
        "SELECT FROM t",
        "SELECT * FROM",
        "SELECT * FROM other",
        "SELECT * FROM T",
        "SELECT * FROM 't'",
        "SELECT * FROM t x",
        "SELECT * FROM t, t",
        "SELECT * FROM t WHERE",
        "SELECT * FROM t LIMIT",
        "SELECT * FROM t LIMIT -1",
        "SELECT * FROM t LIMIT '1'",
        "SELECT * FROM t LIMIT 9999999999999999999",
        "SELECT * FROM t LIMIT 1 OFFSET 1",
        "SELECT * FROM t LIMIT 1 WHERE id = 1",
        "SELECT * FROM t ORDER BY id",
        "SELECT * FROM t;;",
        "SELECT * FROM t; SELECT * FROM t",
        "SELECT *, id FROM t",
        "SELECT id, * FROM t",
        "SELECT id, id FROM t",
        "SELECT id n FROM t",
        "SELECT id AS n FROM t",
        "SELECT id, FROM t",
        "SELECT 'id' FROM t",
        "SELECT 1 FROM t",
        "SELECT ID FROM t",
        "SELECT current_user FROM t",
        "SELECT DISTINCT id FROM t",
        "SELECT ALL id FROM t",
        "SELECT count(*) n FROM t",
        "SELECT count(*) AS FROM t",
        "SELECT count(*) AS select FROM t",
        "SELECT count(*) AS 'n' FROM t",
        "SELECT count(*), count(*) FROM t",
        "SELECT count(*) FROM t LIMIT 1",
        "SELECT count(id) FROM t",
        "SELECT count(1) FROM t",
        'SELECT "count"(*) FROM t',
        "-- why\nSELECT * FROM t",
        "EXPLAIN SELECT * FROM t",
        "(SELECT * FROM t)",
        "WITH t AS (SELECT 1) SELECT * FROM t",
        "SELECT * FROM t" + " " * 100_000 + "LIMIT 1",
    ],
)
def test_any_other_statement_is_planned(reads, tables, statement):
    """Nothing is read for it here."""
    assert plain_rows(statement, tables) is None
    assert reads.conditions == []


def test_conditions_that_leave_other_rows_are_planned(reads, tables):
    """Such as those on values: what is read has rows that do not meet them."""
    reads.is_exact = False

    assert plain_read("id = 1", tables["t"]) is None
    assert plain_rows("SELECT count(*) FROM t WHERE id = 1", tables) is None
    assert plain_rows("SELECT * FROM t", tables) is not None
