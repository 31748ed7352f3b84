"""Aggregates in SQL over odd floating-point numbers are those of DuckDB."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import QueryInvalid
from tests.random_tables.random_values import EXACT_NUMBERS
from tests.random_tables.table_model import Row
from tests.random_tables.whole_files import as_whole_files
from tests.soak import FIRST_SEED, tries

STATEMENTS = tries(300, soak=10_000)
A_TABLE = 30
CHUNKS = 5
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("g", pa.int32()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float32()),
    ]
)
ONE_NAN = "nanvl(CAST(c0 AS DOUBLE), 'NaN'::DOUBLE)"
"""A number that was computed, so that a NaN of infinities has no sign: docs/guide/sql.md says so."""
NANVL = "CREATE MACRO nanvl(a, b) AS CASE WHEN isnan(a) THEN b ELSE a END"
FINITE = [number for number in EXACT_NUMBERS if math.isfinite(number)]
EXTREMES = ("min", "max")
DEVIATIONS = ("stddev", "var_samp")
OTHERS = ("sum", "avg", "count", "median", *DEVIATIONS)
ARGUMENTS = ("x", "y", "n", "x + 1", "y * 2", "CASE WHEN n > 1 THEN x END", "greatest(x, y)")
CONDITIONS = ("n > 1", "k % 3 = 1", "x > 0", "y IS NOT NULL", "x < 'infinity'::DOUBLE", "g <> 2")
GROUPS = ("", "GROUP BY g", "GROUP BY g, n", "GROUP BY x", "GROUP BY ROLLUP (g, n)", "GROUP BY y")
FRAMES = (
    *("", "ROWS 2 PRECEDING", "ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING"),
    *(
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
        "RANGE BETWEEN 3 PRECEDING AND 1 FOLLOWING",
    ),
    *(
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
    ),
)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(CHUNKS))
def test_aggregates_of_odd_numbers_are_those_of_duckdb(number):
    """In groups and windows, with DISTINCT, FILTER and HAVING, alone and inside other queries."""
    size = STATEMENTS // A_TABLE // CHUNKS
    failures = {}
    for seed in range(FIRST_SEED + number * size, FIRST_SEED + (number + 1) * size):
        try:
            compare(seed)
        except Exception as error:  # noqa: BLE001 - the others are to run as well
            failures[seed] = f"{error!r} {getattr(error, '__notes__', '')}"

    assert failures == {}


def compare(seed: int) -> None:
    """Ask a table of a seed by statements, and DuckDB by the same."""
    pick = Random(seed)
    is_finite = pick.random() < 0.4
    rows = random_rows(pick, FINITE if is_finite else EXACT_NUMBERS)
    with TemporaryDirectory(prefix="random-aggregates-") as folder, as_whole_files(seed):
        table = sleeper.create_instance(Path(folder) / "i").create_table(
            "t", SCHEMA, row_keys=["k"]
        )
        for start in range(0, len(rows), 40):
            table.ingest(rows[start : start + 40])
        theirs = duckdb.connect()
        theirs.register("given", pa.Table.from_pylist(rows, SCHEMA))
        theirs.execute("CREATE TABLE t AS SELECT * FROM given")
        theirs.execute(NANVL)
        for _ in range(A_TABLE):
            statement = random_statement(pick)
            try:
                compare_answers(table, theirs, statement, is_finite=is_finite)
            except BaseException as error:
                error.add_note(f"seed {seed}: {statement}")
                raise


def random_rows(pick: Random, numbers: list[float]) -> list[Row]:
    """Return rows whose groups have one odd number, several, or any."""
    few = {group: pick.sample(numbers, pick.choice((1, 1, 2, len(numbers)))) for group in range(6)}
    return [
        {
            "k": k,
            "g": (group := pick.randrange(6)),
            "n": pick.choice((None, 0, 1, 2, 3)),
            "x": pick.choice([*few[group], None]),
            "y": pick.choice([*few[group], None]),
        }
        for k in range(pick.choice((0, 1, 30, 120)))
    ]


def random_statement(pick: Random) -> str:
    """Return a statement that DataFusion and DuckDB understand alike."""
    where = f"WHERE {pick.choice(CONDITIONS)}" if pick.random() < 0.3 else ""
    if pick.random() < 0.3:
        over = "PARTITION BY g ORDER BY k" if pick.random() < 0.5 else "ORDER BY k"
        calls = [f"{call(pick, distinct=False)} OVER ({over} {pick.choice(FRAMES)})"]
        tail = ""
    else:
        calls = [call(pick, distinct=True) for _ in range(pick.choice((1, 2, 3)))]
        tail = pick.choice(GROUPS)
        if tail and pick.random() < 0.4:
            number = pick.choice(("0", "1.5", "'infinity'::DOUBLE", "'NaN'::DOUBLE"))
            sign = pick.choice(("<", "<=", "=", ">", ">="))
            tail += f" HAVING {pick.choice(EXTREMES)}({pick.choice(ARGUMENTS)}) {sign} {number}"
    columns = ", ".join(f"{each} AS c{place}" for place, each in enumerate(calls))
    asked = f"SELECT {columns} FROM t {where} {tail}"
    match pick.randrange(6):
        case 0:
            return f"WITH q AS ({asked}) SELECT min({ONE_NAN}) AS a, count(*) AS b FROM q"
        case 1 if not any(name in asked for name in DEVIATIONS):  # these are rounded
            return f"SELECT DISTINCT {ONE_NAN} AS c0 FROM ({asked}) q"
        case 2:
            return f"{asked} UNION ALL {asked}"
        case _:
            return asked


def call(pick: Random, *, distinct: bool) -> str:
    """Return a call of an aggregate; min and max are likelier than others."""
    name = pick.choice((*EXTREMES, *EXTREMES, *OTHERS))
    argument = pick.choice(ARGUMENTS)
    if name == "median":  # of REAL, DuckDB computes NaN of infinities
        argument = f"CAST({argument} AS DOUBLE)"
    word = "DISTINCT " if distinct and name in (*EXTREMES, "count") and pick.random() < 0.2 else ""
    condition = f" FILTER (WHERE {pick.choice(CONDITIONS)})" if pick.random() < 0.3 else ""
    return f"{name}({word}{argument}){condition}"


def compare_answers(
    table: Any, theirs: duckdb.DuckDBPyConnection, statement: str, *, is_finite: bool
) -> None:
    """Compare the rows; only what a moving window cannot take away again may be refused."""
    try:
        found = [[*row.values()] for row in table.sql(statement).to_pylist()]
    except QueryInvalid as error:
        if "OVER" in statement and any(name in statement for name in DEVIATIONS):
            return
        if is_finite or "begin the window at UNBOUNDED" not in str(error):
            raise
        assert any(name in statement for name in ("sum(", "avg("))
        return
    wanted = [[*row] for row in theirs.execute(statement).fetchall()]
    pairs = zip(sorted(found, key=_order), sorted(wanted, key=_order), strict=True)
    assert [pair for pair in pairs if not all(map(_same, *pair))] == []


def _order(row: list[Any]) -> list[tuple[bool, bool, float]]:
    known = [(value is None, 0.0 if value is None else float(f"{value:.5g}")) for value in row]
    return [(none, math.isnan(each), 0.0 if math.isnan(each) else each) for none, each in known]


def _same(ours: Any, theirs: Any) -> bool:
    """Return whether values are the same: each engine rounds deviations in its own way."""
    if ours is None or theirs is None:
        return ours is theirs
    ours, theirs = float(ours), float(theirs)
    both_nan = math.isnan(ours) and math.isnan(theirs)
    return both_nan or math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-3)
