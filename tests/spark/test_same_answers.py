"""One question has one answer in Python, by REST, from the command line, and in Spark.

Conditions and aggregates over odd values: infinities, NaN of several bits, zeros of both signs,
nulls, texts beyond the basic plane, lengths of time. Spark is given the same text where both
dialects have it; what means something else in Spark is named in `DIFFERENT`, with both answers.
"""

from __future__ import annotations

import json
import math
import random
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from tests.soak import FIRST_SEED, tries
from tests.unit.interfaces.command_line import rows_of
from tests.unit.interfaces.command_line import sleeper as command

INF, NAN = math.inf, math.nan
SIGNED_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
ODD_FLOATS = [INF, -INF, NAN, SIGNED_NAN, 0.0, -0.0, None, 1.5, -1.5, 5e-324, 1.7e308, -1.7e308]
SMALL_FLOATS = [INF, -INF, NAN, 0.0, -0.0, None, 1.5, -1.5]
TEXTS = ["", "a", "A", "ab", "é", "e\u0301", "z\U0010ffff", "%", "a_", "NaN", None]
SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("g", pa.string()), ("x", pa.float64()), ("small", pa.float32())),
        *(("n", pa.int32()), ("big", pa.int64()), ("d", pa.decimal128(20, 3)), ("b", pa.bool_())),
        *(("name", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))),
        ("took", pa.duration("us")),
    ]
)


def odd_rows(draw: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows of such values, in groups."""
    return [
        {
            "id": number,
            "g": draw.choice(["p", "q", "r", "", None]),
            "x": ODD_FLOATS[number % len(ODD_FLOATS)],
            "small": draw.choice(SMALL_FLOATS),
            "n": draw.choice([None, 0, 1, -1, 2**31 - 1, -(2**31)]),
            "big": draw.choice([None, 0, 7, 2**53 + 1, -(2**53) - 1]),
            "d": draw.choice([None, Decimal("0.001"), Decimal("-12345678901234567.999")]),
            "b": draw.choice([None, True, False]),
            "name": draw.choice(TEXTS),
            "day": draw.choice([None, date(1, 1, 1), date(9999, 12, 31), date(2026, 2, 28)]),
            "at": draw.choice(
                [None, datetime(1970, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
            ),
            "took": draw.choice(
                [None, timedelta(0), timedelta(hours=36), -timedelta(microseconds=1)]
            ),
        }
        for number in range(count)
    ]


TERMS = [
    *("x > 1.0", "x < 0.0", "x >= 0.0", "x = 0.0", "x <> 0.0", "x IS NULL", "x IS NOT NULL"),
    *("x = CAST('NaN' AS DOUBLE)", "x > CAST('Infinity' AS DOUBLE)", "x < CAST('NaN' AS DOUBLE)"),
    *("x BETWEEN -1.5 AND 1.5", "x IN (0.0, 1.5)", "x NOT IN (1.5, -1.5)", "small = 1.5"),
    *("small < x", "small = x", "isnan(x)", "isnan(small)", "abs(x) < 2.0", "x + 1.0 > 1.0"),
    *("n > 0", "n = -1", "n IN (1, 0)", "n NOT IN (1, 0)", "n IS NULL OR n < 0", "n % 2 = 1"),
    *("big = 9007199254740993", "big > n", "d < 0", "d = 0.001", "d > n"),
    *("b", "NOT b", "b IS NULL", "b = (n > 0)", "b IS DISTINCT FROM (n > 0)", "b OR x > 0"),
    *("name > 'a'", "name >= 'é'", "name = 'e\u0301'", "name LIKE 'a%'", "name NOT LIKE '%a%'"),
    *("name IN ('', 'NaN')", "name < g", "length(name) = 1", "upper(name) = 'A'", "name = ''"),
    *("day > DATE '2000-01-01'", "day = DATE '0001-01-01'", "day IS NULL"),
    *("took > INTERVAL '35' HOUR", "took < INTERVAL '0' SECOND", "took IS NULL"),
    *("CASE WHEN x > 0 THEN n ELSE big END > 0", "coalesce(x, 0.0) = 0.0", "nullif(n, 0) IS NULL"),
]
"""Conditions that both dialects have."""

AGGREGATES = [
    *("count(*)", "count(x)", "count(DISTINCT x)", "min(x)", "max(x)", "min(small)", "max(small)"),
    *("sum(n)", "min(n)", "max(n)", "sum(big)", "min(d)", "max(d)", "sum(d)", "min(name)"),
    *("max(name)", "count(DISTINCT name)", "min(day)", "max(day)", "min(at)", "max(at)"),
    *("min(took)", "max(took)", "bool_and(b)", "bool_or(b)", "count(DISTINCT small)"),
    *("sum(CASE WHEN x > 0 THEN 1 ELSE 0 END)", "max(CASE WHEN x < 0.0 THEN x END)"),
    *("count(*) FILTER (WHERE x > 0)", "min(x) FILTER (WHERE NOT isnan(x))"),
]
"""Aggregates that both dialects have."""

DIFFERENT = {
    "1 / 2": (0, 0.5),
    "round(2.5)": (3.0, 3),
    "concat('a', NULL)": ("a", None),
    "date_part('dow', DATE '2026-11-22')": (0, 1),
    "log(8)": (pytest.approx(math.log10(8)), pytest.approx(math.log(8))),
}
"""What means something else in Spark: ours, and Spark's."""


def plain(value: Any) -> Any:
    """A value that can be compared: one NaN, one zero."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def as_set(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows in no order."""
    return sorted((tuple(map(plain, row.values())) for row in rows), key=repr)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A table in several files, one leaf compacted, itself and by a server."""
    draw = random.Random(FIRST_SEED)
    with sleeper.create_instance(tmp_path_factory.mktemp("same") / "instance") as instance:
        table = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[100])
        rows = odd_rows(draw, 200)
        draw.shuffle(rows)
        for start in range(0, len(rows), 50):
            table.ingest(rows[start : start + 50])
        # The oldest Spark is tried where no web server is.
        from sleeper.interfaces.rest.app import make_app  # noqa: PLC0415
        from tests.unit.interfaces.rest.running_server import running_server  # noqa: PLC0415

        with running_server(make_app(instance)) as url, sleeper.connect(url) as remote:
            yield instance, remote, rows


@pytest.fixture(scope="module")
def view(places, spark):
    """The table in Spark, read by Spark itself."""
    places[0].table("t").to_spark(spark).createOrReplaceTempView("t")
    return spark


def conditions(draw: random.Random, count: int) -> list[str]:
    """Terms alone, and joined."""
    found = [*TERMS]
    for _ in range(count):
        one, two, three = draw.sample(TERMS, 3)
        found.append(
            draw.choice(
                [
                    f"({one}) AND ({two})",
                    f"NOT ({one}) OR ({two})",
                    f"(({one}) OR ({two})) AND NOT ({three})",
                ]
            )
        )
    return found


@pytest.mark.soak
def test_every_way_chooses_the_same_rows(places, view):
    """By conditions over odd values, alone and together."""
    instance, remote, _ = places
    for condition in conditions(random.Random(FIRST_SEED), tries(20, soak=400)):
        # when each is asked
        ours = [
            r["id"] for r in instance.table("t").query(where=condition, columns=["id"]).to_pylist()
        ]
        by_rest = (
            remote.table("t").query(where=condition, columns=["id"]).to_arrow()["id"].to_pylist()
        )
        by_sql = sorted(
            r["id"] for r in instance.sql(f"SELECT id FROM t WHERE {condition}").to_pylist()
        )
        in_spark = sorted(
            row.id for row in view.sql(f"SELECT id FROM t WHERE {condition}").collect()
        )
        # then all choose the same
        assert (by_rest, by_sql, in_spark) == (ours, ours, ours), condition


@pytest.mark.soak
@pytest.mark.parametrize("grouped", [True, False])
def test_every_way_has_the_same_aggregates(places, view, grouped):
    """In groups and over all rows, with nothing, nulls alone, and everything in them."""
    instance, remote, _ = places
    for aggregate in AGGREGATES:
        statement = f"SELECT {'g, ' if grouped else ''}{aggregate} AS a FROM t{' GROUP BY g' if grouped else ''}"
        ours = as_set(instance.sql(statement).to_pylist())
        assert as_set(remote.sql(statement).to_pylist()) == ours, statement
        in_spark = [row.asDict() for row in view.sql(statement).collect()]
        for row in in_spark:  # Spark gives instants without a zone, of the session's
            if isinstance(row["a"], datetime):
                row["a"] = row["a"].astimezone(UTC)
        assert as_set(in_spark) == ours, statement


def test_the_command_line_prints_the_same(places):
    """As JSON, which has no infinities: they are null there."""
    instance, _, _ = places
    statement = "SELECT g, max(n) AS a, max(took) AS b, count(DISTINCT x) AS c FROM t GROUP BY g"
    shown = rows_of(command("sql", statement, "--json", "--instance", instance.url))

    wanted = instance.sql(statement).to_pylist()
    assert sorted((str(r["g"]), r["a"], r["c"]) for r in shown) == sorted(
        (str(r["g"]), r["a"], r["c"]) for r in wanted
    )
    assert {r["b"] for r in shown} <= {"P1DT12H", "PT0S", "-PT0.000001S", None}
    assert json.dumps(shown)


@pytest.mark.parametrize("expression", DIFFERENT)
def test_differences_are_those_that_are_named(places, view, expression):
    """Who moves a statement from one to the other finds what changes here."""
    instance, _, _ = places
    ours, sparks = DIFFERENT[expression]

    assert instance.sql(f"SELECT {expression} AS a").to_pylist() == [{"a": ours}]
    assert view.sql(f"SELECT {expression} AS a").collect()[0].a == sparks
