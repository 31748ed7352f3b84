"""Joins of tables of very different sizes: the order in which they are named changes no answer."""

from __future__ import annotations

import random
from itertools import permutations

import duckdb
import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.sql import refusals, session
from sleeper.engine.sql.plans import barrier
from sleeper.errors import DataDamaged

ROWS = {"few": 40, "middle": 3_000, "many": 9_000}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ref", pa.int64()),
        pa.field("kind", pa.string()),
    ]
)
JOINS = (
    "JOIN {b} ON {a}.ref = {b}.id",
    "LEFT JOIN {b} ON {a}.ref = {b}.ref AND {b}.id < 30",
    "RIGHT JOIN {b} ON {a}.ref = {b}.id AND {a}.id < 60",
    "FULL JOIN {b} ON {a}.id = {b}.id",
    "LEFT JOIN {b} USING (id)",
)
FILTERS = (
    "{a}.ref IN (SELECT ref FROM {b})",
    "{a}.ref NOT IN (SELECT ref FROM {b})",
    "{a}.ref NOT IN (SELECT ref FROM {b} WHERE ref IS NOT NULL AND id < 2000)",
    "EXISTS (SELECT 1 FROM {b} WHERE {b}.id = {a}.ref AND {b}.kind <> {a}.kind)",
    "NOT EXISTS (SELECT 1 FROM {b} WHERE {b}.ref = {a}.ref AND {b}.kind = 'x')",
    "{a}.id < (SELECT count(*) FROM {b} WHERE {b}.kind = 'x') AND {a}.id IN (SELECT id FROM {b})",
)
PAIRS = tuple(permutations(ROWS, 2))


def rows_of(count, seed):
    """Some references of rows are null, and most are in all tables."""
    draw = random.Random(seed)
    return pa.table(
        {
            "id": range(count),
            "ref": [
                None if draw.random() < 0.1 else draw.randrange(2 * count) for _ in range(count)
            ],
            "kind": [draw.choice("xyz") for _ in range(count)],
        },
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def instance():
    made = sleeper.connect("memory://")
    for seed, (name, count) in enumerate(ROWS.items()):
        made.create_table(name, SCHEMA, row_keys=["id"]).ingest(rows_of(count, seed))
    return made


@pytest.fixture(scope="module")
def duck():
    connection = duckdb.connect()
    for seed, (name, count) in enumerate(ROWS.items()):
        connection.register(name, rows_of(count, seed))
    return connection


def check_as_duckdb(instance, duck, statement):
    found = instance.sql(statement).to_arrow().to_pylist()
    wanted = duck.sql(statement).to_arrow_table().to_pylist()

    def ordered(rows):
        return sorted(map(repr, (tuple(row.values()) for row in rows)))

    assert ordered(found) == ordered(wanted), statement


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_tables_are_joined_as_by_duckdb(a, b, join, instance, duck):
    """Whichever table is named first, and whichever has more rows."""
    joined = join.format(a=a, b=b)
    check_as_duckdb(instance, duck, f"SELECT {a}.kind AS one, {b}.ref AS other FROM {a} {joined}")
    check_as_duckdb(
        instance,
        duck,
        f"SELECT {b}.kind, count(*), CAST(sum({a}.ref) AS BIGINT), min({b}.ref) FROM {a} {joined} GROUP BY {b}.kind",
    )


@pytest.mark.parametrize("condition", FILTERS)
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_rows_are_chosen_by_another_table_as_by_duckdb(a, b, condition, instance, duck):
    """A null in what NOT IN compares, on either side, leaves out rows as SQL says."""
    check_as_duckdb(instance, duck, f"SELECT id, kind FROM {a} WHERE {condition.format(a=a, b=b)}")


@pytest.mark.parametrize("order", ["{small}, {large}", "{large}, {small}"])
@pytest.mark.parametrize(("small", "large"), [("few", "middle"), ("middle", "many")])
def test_the_smaller_table_is_kept_in_memory(small, large, order, instance, duck):
    """Given two tables in any order, a join is built of the one with fewer rows."""
    statement = (
        f"SELECT count(*), CAST(sum({small}.ref) AS BIGINT), max({large}.kind) "
        f"FROM {order.format(small=small, large=large)} WHERE {small}.id = {large}.id"
    )

    steps = instance.explain_sql(statement).split("steps:")[1].splitlines()

    scans = [line.rpartition("projection=")[2] for line in steps if "DatasetExec" in line]
    assert scans == ["[id, ref]", "[id, kind]"]
    check_as_duckdb(instance, duck, statement)


def test_a_plan_is_shown_without_the_sizes_of_tables(instance):
    """The LIMIT that tells joins how large a table is says nothing to a reader."""
    shown = instance.explain_sql("SELECT few.kind FROM few JOIN many USING (id) ORDER BY id")

    assert "Limit" not in shown
    assert "fetch" not in shown


@pytest.mark.parametrize("name", ROWS)
def test_a_limit_of_a_statement_is_none_of_the_tables_own(name, instance, duck):
    """A condition above a LIMIT narrows nothing of what the LIMIT counts, beside other tables."""
    statement = (
        f"SELECT count(*) FROM (SELECT id FROM {name} ORDER BY id LIMIT 20) AS first "
        "JOIN few ON few.id = first.id WHERE first.id > 15"
    )

    check_as_duckdb(instance, duck, statement)


def test_more_rows_than_a_plan_expects_are_an_error(monkeypatch):
    """Given a state that counts far fewer rows than there are, none is left out in silence."""
    made = sleeper.connect("memory://")
    for name in ("few", "many"):
        made.create_table(name, SCHEMA, row_keys=["id"]).ingest(rows_of(ROWS[name], 1))
    monkeypatch.setattr(session, "rows_limit", lambda row_count: 45)
    monkeypatch.setattr(refusals, "BARRIERS", {barrier(45)})

    with pytest.raises(DataDamaged, match="more than 45 rows"):
        made.sql("SELECT sum(few.ref) FROM few JOIN many ON many.id = few.id").to_arrow()
