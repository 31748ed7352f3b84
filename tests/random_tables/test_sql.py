"""SQL over tables of any schema and processing answers as DuckDB does over the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest

from sleeper.engine.sql import session
from sleeper.model.schema import Schema
from sleeper.tables.table import Table
from tests.random_tables.random_table import RandomTable, arrow_table, random_table
from tests.random_tables.sql_conditions import ConditionSource, Written, quoted, their_column
from tests.random_tables.table_model import Row, comparable_rows
from tests.random_tables.test_random_tables import as_in_a_bucket
from tests.random_tables.whole_files import as_whole_files
from tests.soak import FIRST_SEED, tries

STATEMENTS = tries(120, soak=5_000)
A_TABLE = 12
CHUNKS = 5


@pytest.mark.soak
@pytest.mark.parametrize("number", range(CHUNKS))
def test_conditions_and_statements_return_what_duckdb_returns(number):
    """Conditions over keys and values of every type, alone and inside statements."""
    size = STATEMENTS // A_TABLE // CHUNKS
    failures = {}
    for seed in range(FIRST_SEED + number * size, FIRST_SEED + (number + 1) * size):
        try:
            compare(seed)
        except Exception as error:  # noqa: BLE001 - the others are to run as well
            failures[seed] = f"{error!r} {getattr(error, '__notes__', '')}"

    assert failures == {}


def compare(seed: int) -> None:
    """Ask the table of a seed by conditions, and DuckDB by the same."""
    with (
        TemporaryDirectory(prefix="random-sql-") as folder,
        as_in_a_bucket(seed),
        as_whole_files(seed),
    ):
        table = random_table(seed, Path(folder))
        session.PARTITIONS = (1, 2, 4)[seed % 3]
        for _ in range(3):
            table.step()
        rows = table.model.shown()
        theirs = duck_table(table.schema, rows)
        source = ConditionSource(table.pick, table.schema, table.source, rows)
        for _ in range(A_TABLE):
            condition = source.condition()
            try:
                compare_answers(table, condition, theirs, source)
            except BaseException as error:
                error.add_note(f"seed {seed}: {condition}; {table.schema}, {table.properties}")
                raise


def duck_table(schema: Schema, rows: list[Row]) -> duckdb.DuckDBPyConnection:
    """Return a connection to DuckDB whose table `t` has the rows, and their positions."""
    given = arrow_table(rows, schema)
    given = given.rename_columns([f"c{n}" for n in range(given.num_columns)])
    given = given.append_column("position", [[*range(len(rows))]])
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("given", given)
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    return connection


def compare_answers(
    table: RandomTable,
    condition: Written,
    theirs: duckdb.DuckDBPyConnection,
    source: ConditionSource,
) -> None:
    """Compare the rows of a condition, their order, their number, and groups of them."""
    pick, schema, rows = table.pick, table.schema, table.model.shown()
    found = theirs.execute(f"SELECT position FROM t WHERE {condition.theirs} ORDER BY position")
    wanted = [rows[position] for (position,) in found.fetchall()]
    names = pick.sample(schema.names, pick.randint(1, len(schema.names)))
    ours = table.table
    _same(ours.query(where=condition.ours).to_pylist(), wanted, schema.columns)
    _same(ours.query(where=condition.ours, columns=names).to_pylist(), wanted, names)
    in_order = [tuple(row[name] for name in schema.key_names) for row in wanted]
    keys = ours.query(where=condition.ours, columns=schema.key_names).to_pylist()
    assert [tuple(row.values()) for row in keys] == in_order
    assert ours.count(where=condition.ours) == len(wanted)
    listed = ", ".join(map(quoted, names))
    where = f"FROM {quoted(ours.name)} WHERE {condition.ours}"
    comparable = [{name: _comparable(value) for name, value in row.items()} for row in wanted]
    _same(ours.sql(f"SELECT {listed} {where}").to_pylist(), comparable, names)
    assert ours.sql(f"SELECT count(*) AS n {where}").to_pylist() == [{"n": len(wanted)}]
    meets = ours.sql(
        f"SELECT CASE WHEN {condition.ours} THEN 1 ELSE 0 END AS meets FROM {quoted(ours.name)}"
    ).to_pylist()
    assert Counter(row["meets"] for row in meets) == Counter(
        {1: len(wanted), 0: len(rows) - len(wanted)}
    )
    _same_groups(pick, table, condition, theirs)
    _same_without_a_plan(ours, source.of_keys(), names)


def _same_without_a_plan(ours: Table, condition: str, names: list[str]) -> None:
    """Compare the answers by keys with those of a plan: a comment leaves a statement to that."""
    listed = ", ".join(map(quoted, names))
    where = f"FROM {quoted(ours.name)} WHERE {condition}"
    for statement in (f"SELECT {listed} {where}", f"SELECT count(*) {where}"):
        found, wanted = ours.sql(statement).to_arrow(), ours.sql(f"--\n{statement}").to_arrow()
        assert found.schema.equals(wanted.schema, check_metadata=True), statement
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


def _same_groups(
    pick: Random, table: RandomTable, condition: Written, theirs: duckdb.DuckDBPyConnection
) -> None:
    field = pick.choice(table.schema.keys)
    ours = table.table.sql(
        f"SELECT {quoted(field.name)} AS k, count(*) AS n FROM {quoted(table.table.name)} "
        f"WHERE {condition.ours} GROUP BY 1"
    )
    column = their_column(table.schema, field)
    found = theirs.sql(
        f"SELECT {column} AS k, count(*) AS n FROM t WHERE {condition.theirs} GROUP BY 1"
    )
    groups = found.to_arrow_table().to_pylist()
    assert {row["k"]: row["n"] for row in ours.to_pylist()} == {g["k"]: g["n"] for g in groups}


def _comparable(value: Any) -> Any:
    """Return a value as statements have it: zeros of floating-point numbers have no sign."""
    match value:
        case float():
            return value + 0.0
        case list():
            return [_comparable(each) for each in value]
        case dict():
            return {name: _comparable(each) for name, each in value.items()}
        case _:
            return value


def _same(found: list[dict[str, Any]], wanted: list[Row], names: Any) -> None:
    expected = [{name: row[name] for name in names} for row in wanted]
    assert Counter(comparable_rows(found)) == Counter(comparable_rows(expected))
