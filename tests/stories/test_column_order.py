"""A table is made with its columns in some order, and shows them in that order everywhere.

Data files have row keys, sort keys and values, in this order.
"""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import SchemaInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.model.schema import Schema
from tests.unit.interfaces.command_line import json_of
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

ORDERS = pa.schema(
    [
        ("amount", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("id", pa.int64()),
        ("odd, `name`", pa.string()),
        ("part", pa.int64()),
        ("weight", pa.float64()),
    ]
)
"""Integers, of which two are keys, stand where each may be taken for another."""

NAMES = ORDERS.names
KEYS = {"row_keys": ["id", "part"], "sort_keys": ["at"]}
STORED = ["id", "part", "at", "amount", "price", "odd, `name`", "weight"]
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
ROWS = pa.Table.from_pylist(
    [
        dict(zip(NAMES, (1000 + n, NOON, Decimal(n), n, f"n{n}", n % 3, -0.0 + n / 2), strict=True))
        for n in range(40)
    ],
    schema=ORDERS,
)
ROW = ROWS.slice(7, 1)


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    """Two files in each of two leaves; the input has its columns in the order of files."""
    made = instance.create_table("orders", ORDERS, **KEYS, split_points=[20])
    made.ingest(ROWS.take([*range(0, 40, 2)]).select(STORED))
    made.ingest(ROWS.take([*range(1, 40, 2)]).to_pandas())
    return made


READS = {
    "all": lambda table: table.query(),
    "any order": lambda table: table.query(ordered=False),
    "some": lambda table: table.query(limit=40),
    "as of": lambda table: table.query(as_of=3),
    "range": lambda table: table.query(range={"id": (0, 40)}),
    "keys": lambda table: table.query(keys=[(n, n % 3) for n in range(40)]),
    "where": lambda table: table.query(where="amount >= 1000"),
    "where on keys": lambda table: table.query(where="id >= 0"),
    "keys and where": lambda table: table.query(
        keys=[(n, n % 3) for n in range(40)], where="amount >= 1000"
    ),
    "statement": lambda table: table.sql("SELECT * FROM orders"),
    "statement of some": lambda table: table.sql("SELECT * FROM orders WHERE weight >= 0"),
    "added": lambda table: table.diff(0),
}


def same(found: pa.Table) -> None:
    """See that all rows are there, each column at its place."""
    assert found.schema.names == NAMES
    assert found.sort_by("id").to_pydict() == ROWS.to_pydict()


def test_the_schema_shows_the_order_and_files_keep_theirs(table, tmp_path):
    """`schema`, `arrow_schema` and the files themselves (SCH-10)."""
    assert table.schema.columns == tuple(NAMES)
    assert table.schema.names == tuple(STORED)
    assert table.arrow_schema.names == NAMES

    stored = tmp_path.glob("instance/**/data/**/*.parquet")
    assert {tuple(pq.read_schema(path).names) for path in stored} == {tuple(STORED)}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_answer_has_the_columns_in_the_order_of_the_table(table, read):
    """However rows are asked for, before a compaction and after it (SCH-10)."""
    before = read(table).to_arrow()

    table.compact(all_files=True)

    after = read(table).to_arrow()
    assert before.schema.names == after.schema.names == NAMES
    same(before)
    same(after)


def test_one_key_and_a_prefix_of_it(table):
    """Look-ups of rows of a complete key, and of all rows that begin with one (SCH-10)."""
    for key in ((7, 1), 7, {"id": 7}):
        assert table.query(key=key).to_arrow().to_pylist() == ROW.to_pylist()
        assert table.query(key=key).to_arrow().schema.names == NAMES
    assert table.query(key=(700, 1)).to_arrow().schema.names == NAMES


def test_columns_that_are_asked_for_are_in_the_order_that_was_asked(table):
    """As ever: a list of columns says its own order (SCH-10)."""
    wanted = ["weight", "id", "amount"]

    for read in (
        table.query(columns=wanted),
        table.query(columns=wanted, key=(7, 1)),
        table.query(columns=wanted, where="amount > 0"),
        table.sql("SELECT weight, id, amount FROM orders"),
    ):
        assert read.to_arrow().schema.names == wanted


def test_frames_have_the_columns_in_the_order_of_the_table(table):
    """pandas, polars, DuckDB, and the rows in Python (SCH-10)."""
    assert [*table.query().to_pandas().columns] == NAMES
    assert table.query().to_polars().columns == NAMES
    assert [*table.query().to_pylist()[0]] == NAMES
    scan = table.scan_polars()
    assert scan.collect_schema().names() == NAMES
    same(scan.collect().to_arrow().cast(ORDERS))
    same(scan.filter(pl.col("amount") >= 1000).collect().to_arrow().cast(ORDERS))
    connection = duckdb.connect()
    table.to_duckdb(connection)
    assert [each[0] for each in connection.sql("SELECT * FROM orders").description] == NAMES
    connection.sql("CREATE TABLE mine AS SELECT * FROM orders")
    assert connection.execute("SELECT sum(id) FROM mine").fetchone() == (780,)
    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (40,)
    assert scan.select(pl.len()).collect().item() == 40
    assert table.sql("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 40}]


def test_exported_files_have_the_columns_in_the_order_of_the_table(table, tmp_path):
    """So that other programs insert them by position into a table like it (SCH-10)."""
    table.export(tmp_path / "out")

    parts = sorted((tmp_path / "out").glob("*.parquet"))
    assert {tuple(pq.read_schema(part).names) for part in parts} == {tuple(NAMES)}
    same(pa.concat_tables([pq.read_table(part) for part in parts]))


def test_the_command_line_prints_the_columns_in_the_order_of_the_table(table, tmp_path):
    """CSV, JSON, a table on the screen, files, and the fields of `table show` (SCH-10)."""
    env = {"SLEEPER_INSTANCE": str(tmp_path / "instance")}
    for number, arguments in enumerate(
        (
            ["query", "orders", "--key", "id=7", "--key", "part=1"],
            ["sql", "SELECT * FROM orders WHERE id = 7"],
        )
    ):
        printed = command(*arguments, "--json", env=env)
        assert [*json.loads(printed.stdout.splitlines()[0])] == NAMES
        path = tmp_path / f"{number}.csv"
        assert command(*arguments, "--output", path, env=env).exit_code == 0
        with path.open() as file:
            header, row = csv.reader(file)
        assert header == NAMES
        assert (row[0], row[3], row[5]) == ("1007", "7", "1")
    shown = json_of(command("table", "show", "orders", "--json", env=env))
    assert Schema.from_json(shown["schema"]) == table.schema
    _, fields = command("table", "show", "orders", env=env).stdout.split("kind", 1)
    assert [n for line in fields.splitlines() for n in NAMES if line.startswith(f"{n} ")] == NAMES


def test_input_is_found_by_name_whatever_its_order(instance, tmp_path):
    """Files and objects of every kind fill the columns of their names (ING-14)."""
    simple = ROWS.drop(["at", "price"])
    mixed = simple.select(["part", "weight", "amount", "odd, `name`", "id"])
    mixed.to_pandas().to_csv(tmp_path / "rows.csv", index=False)
    mixed.to_pandas().to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    pq.write_table(mixed, tmp_path / "rows.parquet")
    inputs = (
        *(tmp_path / f"rows.{kind}" for kind in ("csv", "jsonl", "parquet")),
        *(mixed, mixed.to_pylist(), mixed.to_pandas(), pl.from_arrow(mixed), mixed.to_pydict()),
        {name: np.asarray(mixed[name]) for name in mixed.schema.names},
    )
    for number, data in enumerate(inputs):
        table = instance.create_table(f"t{number}", simple.schema, row_keys=["id", "part"])
        table.ingest(data)
        assert table.query().to_arrow().to_pydict() == simple.to_pydict()


def test_a_server_answers_in_the_order_of_the_table(instance):
    """Made by REST, written, read and shown by it, and read beside it (SCH-10)."""
    with running_server(make_app(instance)) as url, sleeper.connect(url) as remote:
        table = remote.create_table("orders", ORDERS, **KEYS)
        table.ingest(ROWS.select(STORED))

        assert table.schema == instance.table("orders").schema
        assert table.arrow_schema.names == NAMES
        same(table.query().to_arrow())
        same(table.query(where="amount > 0").to_arrow())
        same(remote.sql("SELECT * FROM orders").to_arrow())
        assert table.query(key=(7, 1)).to_arrow().to_pydict() == ROW.to_pydict()
        same(instance.table("orders").query().to_arrow())


def test_a_copy_of_an_instance_keeps_the_order(table, instance, tmp_path):
    """As do a new name, a reopened instance and a table without its rows (SCH-10)."""
    instance.backup(tmp_path / "copy")
    with sleeper.connect(tmp_path / "copy") as copied:
        same(copied.table("orders").query().to_arrow())

    table.rename("again")
    with sleeper.connect(tmp_path / "instance") as opened:
        again = opened.table("again")
        same(again.query().to_arrow())
        again.reinitialise(split_points=[5, 30])
        assert again.query().to_arrow().schema.names == NAMES
        again.ingest(ROWS)
        same(again.query().to_arrow())
        assert again.verify().findings == ()


def test_an_aggregating_table_has_the_columns_in_its_order(instance):
    """Rows with the same keys are merged first (SCH-10)."""
    schema = pa.schema([pa.field(n, pa.int64(), nullable=False) for n in ("n", "id", "least")])
    table = instance.create_table(
        *("sums", schema),
        row_keys=["id"],
        properties={"sleeper.table.aggregations": "sum(n),min(least)"},
    )
    for n in range(3):
        table.ingest([{"id": 1, "n": 10, "least": 5 - n}])

    for read in (table.query(), table.query(key=1), table.sql("SELECT * FROM sums")):
        assert read.to_arrow().to_pydict() == {"n": [30], "id": [1], "least": [3]}


def test_a_schema_without_an_order_is_returned_keys_first(instance):
    """As in tables that earlier versions made, and of upstream's schema files (SCH-10)."""
    fields = {
        "rowKeyFields": [{"name": "id", "type": "LongType"}],
        "valueFields": [{"name": "amount", "type": "LongType"}],
    }
    table = instance.create_table("old", fields)
    table.ingest([{"amount": 5, "id": 1}])

    assert table.query().to_arrow().schema.names == ["id", "amount"]
    assert "position" not in table.properties.definition.schema_json


def test_the_order_is_in_what_upstream_and_earlier_versions_ignore(table):
    """The groups of the schema are upstream's; what the state says of files has no order (SCH-10)."""
    document = json.loads(table.properties.definition.schema_json)

    assert [*document] == ["rowKeyFields", "sortKeyFields", "valueFields"]
    fields = [field for group in document.values() for field in group]
    assert [field["name"] for field in fields] == STORED
    assert {field["name"]: field.pop("position") for field in fields} == {
        name: NAMES.index(name) for name in NAMES
    }
    assert Schema.from_json(document) == table.schema.as_stored()
    assert [*table.state().schemas.values()] == [table.schema.as_stored()]


def test_a_property_with_another_order_is_refused(instance):
    """Two orders for one table are a contradiction, and positions that lack some no order."""
    given = sleeper.Schema(
        row_keys=[sleeper.Field("id", sleeper.Primitive.LONG)],
        values=[sleeper.Field("n", sleeper.Primitive.LONG)],
        columns=["n", "id"],
    )
    with pytest.raises(sleeper.errors.PropertiesInvalid, match="another schema"):
        instance.create_table(
            "t", given, properties={"sleeper.table.schema": given.as_stored().to_json()}
        )
    document = json.loads(given.to_json())
    del document["valueFields"][0]["position"]
    with pytest.raises(SchemaInvalid, match="position"):
        instance.create_table("t", document)


def test_a_tables_function_gets_and_yields_the_order_of_the_table(tmp_path, monkeypatch):
    """It sees columns as queries return them (PRC-6)."""
    (tmp_path / "in_order.py").write_text(
        "import pyarrow as pa\n"
        "def doubled(batches):\n"
        "    for batch in batches:\n"
        "        assert batch.schema.names == ['n', 'id'], batch.schema.names\n"
        "        n = pa.array([2 * each for each in batch.column('n').to_pylist()], pa.int64())\n"
        "        yield pa.RecordBatch.from_arrays([n, batch.column(1)], schema=batch.schema)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    instance = sleeper.connect(tmp_path / "i", create=True, allow_functions=["in_order"])
    table = instance.create_table(
        "t",
        pa.schema([("n", pa.int64()), ("id", pa.int64())]),
        row_keys=["id"],
        properties={"sleeper.table.function": "in_order:doubled"},
    )
    table.ingest(pd.DataFrame({"id": [1, 2], "n": [10, 20]}))

    once = table.query().to_arrow().to_pydict()
    table.compact(all_files=True)

    assert once["id"] == [1, 2]
    assert table.query().to_arrow().schema.names == ["n", "id"]
