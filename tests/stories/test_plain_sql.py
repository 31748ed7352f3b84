"""Statements on row keys are answered without a plan, and exactly as by one."""

from __future__ import annotations

import math
import shutil
import time
from datetime import date
from functools import cache

import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.sql import statements
from sleeper.errors import DataDamaged, QueryInvalid

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("id", pa.int32(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("at_ms", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("parts", pa.list_(pa.float64())),
        pa.field("user", pa.string()),
    ]
)
NAMES = ("", "a", "it's", "ü", "a%b", "Z", "zz")
AMOUNTS = (1.5, -0.0, math.nan, None, math.inf)
ROWS = [
    {
        "name": NAMES[n % 7],
        "id": (n % 5) - 2 if n % 11 else -(2**31) + n,
        "day": date(2026, 1, 1 + n % 28),
        "at_ms": n,
        "amount": AMOUNTS[n % 5],
        "parts": (None, [], [AMOUNTS[n % 5]])[n % 3],
        "user": f"u{n}",
    }
    for n in range(300)  # each leaf has several pages of 16 rows of each of three files
]
SQL_WORDS = """
all and any array as asc between both by case cast count current_date current_time
current_timestamp current_user date day default desc distinct div else end except exists
extract false fetch filter first float for from group having hour if in int integer interval
into is key last left like limit localtime localtimestamp month natural not now null nulls
offset on or order outer over partition pi position range right row rows select session_user
set similar some struct sum table text then time timestamp today top true union unique
unnest user using uuid value values when where window with within without year zone
"""
WORDS = SQL_WORDS.split()
CONDITIONS = (
    "name = 'a'",
    "name = 'it''s'",
    "name <> 'a'",
    "name >= 'a' AND name < 'b'",
    "name > 'zz'",
    "name = ''",
    "name LIKE 'a%'",
    "name = 'a' AND id = 1 AND day = '2026-01-02'",
    "name IN ('a', 'Z', 'nobody', 'a')",
    "name IN ('a', 'ü') AND id BETWEEN -1 AND 1",
    "name BETWEEN 'z' AND 'a'",
    "id = 1",
    "id = 2147483647",
    "id <= -2147483648",
    "id BETWEEN -2147483648 AND 0",
    "day >= DATE '2026-01-20'",
    "name = 'a' AND name = 'Z'",
    "name = 'a' AND id <> 1",
)


@pytest.fixture(
    params=["rows", "sums", "age-off", "deleted keys", "compacted", "empty"], scope="module"
)
def table(request, tmp_path_factory):
    """Rows in three leaves of several files each, with what may be done to them."""
    instance = sleeper.connect(tmp_path_factory.mktemp("plain"), create=True)
    an_hour = 3_600_000
    schema, amounts = SCHEMA, AMOUNTS
    properties = {"sleeper.table.filters": f"ageOff(at_ms,{an_hour})"}
    if request.param == "sums":
        fields = [SCHEMA.field(name).with_nullable(False) for name in ("at_ms", "amount")]
        schema, amounts = pa.schema([*SCHEMA][:3] + fields), (1.5, -0.0, 0.25)
        properties = {"sleeper.table.aggregations": "sum(amount),max(at_ms)"}
    made = instance.create_table(
        *("t", schema),
        row_keys=["name", "id", "day"],
        split_points=["a", "m"],
        properties={
            "sleeper.table.parquet.page.rows": 16,
            **(properties if request.param in ("sums", "age-off") else {}),
        },
    )
    now_ms = time.time_ns() // 1_000_000
    if request.param != "empty":
        for number in range(3):
            rows = [{name: row[name] for name in schema.names} for row in ROWS[number::3]]
            for n, row in enumerate(rows):
                row["at_ms"] = now_ms - n % 2 * 2 * an_hour
                row["amount"] = amounts[n % len(amounts)]
            made.ingest(rows)
    if request.param == "deleted keys":
        made.delete(keys=[("a", 1, date(2026, 1, 2)), ("ü", 1, date(2026, 1, 4))])
        made.delete(range={"name": ("Z", "Za")})
    if request.param == "compacted":
        made.compact()
    return made


@pytest.fixture(scope="module")
def planned_rows(table):
    """All rows that a plan finds for a WHERE, as they are written: asked for once."""
    return cache(lambda where: [*map(repr, planned(table, f"SELECT * FROM t{where}").to_pylist())])


def planned(table, statement, **options):
    """The answer of the planner: it does not know what a comment hides."""
    return table.sql(f"/* planned */ {statement}", **options)


def same(found, wanted):
    """Whether two answers have the same columns, and the same rows in some order."""
    found, wanted = found.to_arrow(), wanted.to_arrow()
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


@pytest.fixture
def no_planner(monkeypatch):
    """Let no statement be planned."""

    def refuse(*_, **__):
        raise AssertionError("a statement is planned")

    return lambda: monkeypatch.setattr(statements, "SqlSession", refuse)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_by_their_keys_are_those_of_a_plan(table, no_planner, condition):
    """The rows, their columns in any order, their number, and those of a condition alone."""
    asked = [
        f"SELECT * FROM t WHERE {condition}",
        f"SELECT amount, name FROM t WHERE {condition}",
        f"select at_ms from t where {condition};",
        f"SELECT count(*) FROM t WHERE {condition}",
        f'SELECT COUNT(*) AS "N" FROM "t" WHERE {condition}',
    ]
    wanted = [planned(table, statement).to_arrow() for statement in asked]
    rows = table.query(where=f"/* planned */ {condition}").to_arrow()

    no_planner()

    for statement, answer in zip(asked, wanted, strict=True):
        same(table.sql(statement), sleeper.Rows.from_table(answer, transaction=0))
    found = table.query(where=condition).to_arrow()
    assert repr(found.to_pylist()) == repr(rows.to_pylist())
    assert found.schema.equals(rows.schema, check_metadata=True)
    assert table.count(where=condition) == rows.num_rows


@pytest.mark.parametrize("limit", [0, 1, 7, 100, 20_000, 2**40])
@pytest.mark.parametrize("where", ["", " WHERE name >= 'a'", " WHERE id = 1"])
def test_a_limit_takes_as_many_rows_as_there_are(table, planned_rows, no_planner, limit, where):
    """Each of them a row of the table, with numbers as statements have them."""
    left = [*planned_rows(where)]
    schema = planned(table, f"SELECT * FROM t{where} LIMIT {limit}").schema

    no_planner()
    found = table.sql(f"SELECT * FROM t{where} LIMIT {limit}").to_arrow()

    assert found.schema.equals(schema, check_metadata=True)
    assert found.num_rows == min(limit, len(left))
    for row in map(repr, found.to_pylist()):
        left.remove(row)


def test_all_rows_and_their_number_need_no_plan(table, no_planner):
    """Of the table that a statement names alone."""
    wanted = planned(table, "SELECT count(*) FROM t").to_arrow()
    rows = planned(table, "SELECT * FROM t").to_arrow()

    no_planner()
    counted = table.sql("SELECT count(*) FROM t")

    assert counted.transaction == table.sql("SELECT * FROM t").transaction > 0
    assert counted.to_arrow() == wanted
    assert counted.transaction > 0
    assert wanted.to_pylist() == [{"count(*)": rows.num_rows}] == [{"count(*)": table.count()}]


def test_an_older_version_is_counted_and_read_by_key(tmp_path):
    """As it was then, whatever was added or deleted since."""
    table = _numbers(tmp_path)
    before = table.query().transaction
    table.delete(key=1)
    table.ingest([{"id": 5, "n": 5}])

    assert table.sql("SELECT count(*) FROM t").to_pylist() == [{"count(*)": 3}]
    assert table.sql("SELECT count(*) FROM t", as_of=before).to_pylist() == [{"count(*)": 3}]
    assert table.sql("SELECT n FROM t WHERE id = 1").to_pylist() == []
    assert table.sql("SELECT n FROM t WHERE id = 1", as_of=before).to_pylist() == [{"n": 1}]


def test_statements_of_an_instance_need_no_plan_either(tmp_path, no_planner):
    """They have the transaction of their table, and see each commit."""
    table = _numbers(tmp_path)
    instance = sleeper.connect(tmp_path / "instance")
    no_planner()

    assert instance.sql("SELECT count(*) FROM t").to_pylist() == [{"count(*)": 3}]
    table.ingest([{"id": 7, "n": 7}])
    found = instance.sql("SELECT * FROM t WHERE id IN (2, 7)")
    assert found.transaction == table.query().transaction
    assert found.to_pylist() == [{"id": 2, "n": 2}, {"id": 7, "n": 7}]


def test_a_name_that_is_a_word_of_sql_means_what_the_planner_takes_it_for(tmp_path):
    """A column may be called so; without quotes the word may be a value, or part of the grammar."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    schema = pa.schema([("id", pa.string()), *((word, pa.string()) for word in WORDS)])
    table = instance.create_table("t", schema, row_keys=["id"])
    table.ingest([{"id": "a", **{word: f"column {word}" for word in WORDS}}])

    for word in WORDS:
        for columns in (word, f"id, {word}", f'"{word}"'):
            statement = f"SELECT {columns} FROM t WHERE id = 'a'"
            try:
                wanted = planned(table, statement).to_arrow()
            except QueryInvalid:
                continue
            found = table.sql(statement).to_arrow()
            assert found.schema == wanted.schema, word
            assert found == wanted or "now" in word or "time" in word


def test_what_is_wrong_is_told_as_before(tmp_path):
    """By the planner, which knows names that are similar."""
    table = _numbers(tmp_path)

    for statement, message in (
        ("SELECT * FROM t WHERE ID = 1", "no column 'ID'; did you mean 'id'"),
        ("SELECT nn FROM t", "no column 'nn'"),
        ("SELECT * FROM T", "no table 'T'"),
        ("SELECT count(*) FROM other", "no table 'other'"),
        ("SELECT * FROM t WHERE id = 'x'", "Cannot cast string 'x'"),
        ("SELECT id FROM t LIMIT -1", "LIMIT must be >= 0"),
    ):
        with pytest.raises(QueryInvalid, match=message):
            table.sql(statement).to_arrow()


def test_a_file_that_is_gone_is_told_while_rows_are_read(tmp_path):
    """As by `query`; the number of rows is known without the file."""
    table = _numbers(tmp_path)
    shutil.rmtree(tmp_path / "instance" / table.table_id / "data")
    again = sleeper.connect(tmp_path / "instance").table("t")

    assert again.sql("SELECT count(*) FROM t").to_pylist() == [{"count(*)": 3}]
    with pytest.raises(DataDamaged):
        again.sql("SELECT * FROM t LIMIT 1").to_arrow()
    with pytest.raises(DataDamaged):
        again.sql("SELECT * FROM t WHERE id = 1").to_arrow()


def _numbers(tmp_path):
    instance = sleeper.connect(tmp_path / "instance", create=True)
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    table = instance.create_table("t", schema, row_keys=["id"])
    table.ingest([{"id": n, "n": n} for n in range(1, 4)])
    return table
