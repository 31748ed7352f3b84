"""Times of day are values like others, from every input and to every output (rule FMT-2)."""

from __future__ import annotations

import json
from datetime import UTC, time

import duckdb
import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import InputSchemaMismatch, QueryInvalid, SchemaInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.model.schema import Primitive, Schema
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.time64("us")),
        ("open", pa.list_(pa.time64("us"))),
        ("shifts", pa.map_(pa.string(), pa.time64("us"))),
    ]
)
LATE = time(23, 59, 59, 999999)
ROWS = [
    {"id": 1, "at": time(8, 30), "open": [time(0), LATE], "shifts": {"a": time(6, 0, 0, 1)}},
    {"id": 2, "at": None, "open": None, "shifts": None},
    {"id": 3, "at": LATE, "open": [], "shifts": {}},
]
PLAIN = [{"id": row["id"], "at": row["at"]} for row in ROWS]
CSV = "id,at\n1,08:30\n2,\n3,23:59:59.999999\n"
JSON = """{"id": 1, "at": "08:30:00", "open": ["00:00", "23:59:59.999999"], "shifts": {"a": "06:00:00.000001"}}
{"id": 2}
{"id": 3, "at": "23:59:59.999999", "open": [], "shifts": {}}
"""


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


@pytest.fixture
def table(instance):
    return instance.create_table("t", SCHEMA, row_keys=["id"])


@pytest.fixture
def filled(table):
    table.ingest(ROWS)
    return table


INPUTS = {
    "dicts": lambda folder: PLAIN,
    "columns": lambda folder: {"id": [1, 2, 3], "at": [row["at"] for row in ROWS]},
    "nanoseconds": lambda folder: pa.Table.from_pylist(PLAIN).cast(
        pa.schema([("id", pa.int64()), ("at", pa.time64("ns"))])
    ),
    "polars": lambda folder: pl.DataFrame(PLAIN),
    "pandas": lambda folder: pd.DataFrame(PLAIN),
    "duckdb": lambda folder: duckdb.from_arrow(pa.Table.from_pylist(PLAIN)),
    "csv": lambda folder: folder / "a.csv",
    "jsonl": lambda folder: folder / "a.jsonl",
    "parquet": lambda folder: folder / "a.parquet",
}


@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_may_have_them(table, tmp_path, kind):
    """To the microsecond, and null."""
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "a.jsonl").write_text(JSON)
    pq.write_table(pa.Table.from_pylist(PLAIN), tmp_path / "a.parquet")

    table.ingest(INPUTS[kind](tmp_path))

    wanted = ROWS if kind == "jsonl" else PLAIN
    assert table.query(columns=[*wanted[0]]).to_pylist() == wanted


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (time(1, tzinfo=UTC), "it has a time zone"),
        ("12:00", "a str is not a datetime.time"),
        (pd.Timestamp("2026-01-01"), "a Timestamp is not a datetime.time"),
    ],
)
def test_other_objects_are_none(table, value, words):
    """A text is not read as a time where objects have types."""
    with pytest.raises(InputSchemaMismatch, match=words):
        table.ingest([{"id": 1, "at": value}])


@pytest.mark.parametrize("text", ["24:00:00", "8:30", "08:30:00.1234567", "08:30Z", "noon"])
def test_texts_that_are_no_time_of_day_are_refused(table, tmp_path, text):
    """By row and column."""
    (tmp_path / "a.csv").write_text(f"id,at\n1,08:00\n2,{text}\n")
    (tmp_path / "a.jsonl").write_text(f'{{"id": 1, "at": "{text}"}}\n')

    with pytest.raises(InputSchemaMismatch, match=r"row 3, column 'at': .*not a value of time64"):
        table.ingest(tmp_path / "a.csv")
    with pytest.raises(InputSchemaMismatch, match=r"row 1, column 'at': .*not a value of time64"):
        table.ingest(tmp_path / "a.jsonl")


@pytest.mark.parametrize("ticks", [-1, 86_400_000_000, 2**62])
@pytest.mark.parametrize("column", ["at", "open", "shifts"])
def test_numbers_that_are_no_time_of_day_are_refused(table, column, ticks):
    """Arrow holds any number as a time of day; so none becomes a null, or another time, unsaid."""
    number = pa.array([ticks]).view(pa.time64("us"))
    values = {
        "at": number,
        "open": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), number),
        "shifts": pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a"]), number),
    }

    with pytest.raises(InputSchemaMismatch, match=rf"column '{column}' .*{ticks} is not within"):
        table.ingest(pa.table({"id": [1], column: values[column]}))


def test_every_way_of_reading_has_them(filled):
    """By key, by range, compacted, as frames, and by other engines."""
    filled.ingest([{**row, "id": row["id"] + 10} for row in ROWS])
    filled.compact(all_files=True)

    assert filled.query(key=1).to_pylist() == ROWS[:1]
    assert filled.query(keys=[1, 2, 3]).to_pylist() == ROWS
    assert filled.query(range={"id": (1, 10)}).to_pylist() == ROWS
    assert filled.query(ordered=False, where="id < 10").count() == 3
    assert filled.scan_polars().filter(pl.col("at") > time(9)).collect()["id"].to_list() == [3, 13]
    assert filled.to_pandas()["at"].tolist()[:3] == [row["at"] for row in ROWS]
    with duckdb.connect() as connection:
        filled.to_duckdb(connection, "t")
        assert connection.sql('SELECT max("at") FROM t').fetchall() == [(LATE,)]


def test_sql_compares_them_with_texts(instance, filled):
    """Also smallest and largest; a literal of other precision is refused with what to write."""
    assert filled.count(where="at > '12:00:00'") == 1
    assert filled.count(where="at = '08:30'") == 1
    assert filled.count(where="at BETWEEN '08:00' AND '09:00'") == 1
    found = instance.sql("SELECT min(at) AS low, max(at) AS high FROM t").to_pylist()
    assert found == [{"low": time(8, 30), "high": LATE}]

    with pytest.raises(QueryInvalid, match="Compare a time of day with its text"):
        filled.count(where="at > TIME '12:00:00'")
    suggested = "at > arrow_cast('12:00:00', 'Time64(Microsecond)')"
    assert filled.count(where=suggested) == 1


def test_every_output_has_them(instance, filled, tmp_path):
    """Files that are written can be read again."""
    where = ("--instance", instance.url)
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        wanted = "id,at" if name == "a.csv" else "id,at,open,shifts"
        arguments = ("--all", "--columns", wanted, "--output", tmp_path / name)
        kind = ("--format", "json") if name == "a.jsonl" else ()
        result = command("query", "t", *arguments, *kind, *where)
        assert result.exit_code == 0, result.output
        again = instance.create_table(name, SCHEMA, row_keys=["id"])

        again.ingest(tmp_path / name)

        assert again.query(columns=wanted.split(",")).to_pylist() == (
            PLAIN if name == "a.csv" else ROWS
        )
    filled.export(tmp_path / "exported")
    assert pq.read_table(tmp_path / "exported").schema.field("at").type == pa.time64("us")


def test_rest_has_them_as_text(instance, filled):
    """In JSON; clients get Arrow."""
    with running_server(make_app(instance)) as url:
        answer = httpx.post(f"{url}/sleeper/tables/t/query", json={"key": 1}, timeout=PATIENCE_S)
        with sleeper.connect(url, token="unused") as remote:
            rows = remote.table("t").query(keys=[1, 2, 3]).to_pylist()

    assert answer.json()["rows"][0]["at"] == "08:30:00"
    assert rows == ROWS


def test_aggregations_keep_the_smallest_and_the_largest(instance):
    """As of other values with an order."""
    fields = {"id": pa.int64(), "first": pa.time64("us"), "last": pa.time64("us")}
    table = instance.create_table(
        "a",
        pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields.items()]),
        row_keys=["id"],
        properties={"sleeper.table.aggregations": "min(first),max(last)"},
    )
    for hour in (9, 7, 12):
        table.ingest([{"id": 1, "first": time(hour), "last": time(hour)}])

    assert table.query().to_pylist() == [{"id": 1, "first": time(7), "last": time(12)}]


def test_schemas_have_them_as_values_alone(instance, table, tmp_path):
    """Their JSON is like that of other types; files of CSV suggest them."""
    document = json.loads(table.schema.to_json())
    (tmp_path / "a.csv").write_text("id,at\n1,08:30:00\n")

    assert document["valueFields"][0] == {"name": "at", "type": "TimeType", "nullable": True}
    assert Schema.from_json(document) == table.schema
    made = instance.create_table("like", tmp_path / "a.csv", row_keys=["id"])
    assert made.schema.fields[1].type is Primitive.TIME
    with pytest.raises(SchemaInvalid, match="cannot be of TimeType"):
        instance.create_table("keys", SCHEMA, row_keys=["at"])
