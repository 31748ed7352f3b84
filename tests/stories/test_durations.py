"""Lengths of time are values like others, from every input and to every output (rule FMT-2)."""

from __future__ import annotations

import json
from datetime import timedelta

import duckdb
import httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import BadRequest, InputSchemaMismatch, QueryInvalid, SchemaInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.model.schema import Primitive, Schema
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

US = pa.duration("us")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("took", US),
        ("laps", pa.list_(US)),
        ("parts", pa.map_(pa.string(), US)),
        ("span", pa.struct([("lead", US), ("name", pa.string())])),
    ]
)
LONG = timedelta(days=106_751_991, microseconds=7)
BACK = -timedelta(hours=36, microseconds=1)
ROWS = [
    {
        "id": 1,
        "took": timedelta(hours=36, seconds=3.5),
        "laps": [timedelta(0), LONG],
        "parts": {"a": BACK},
        "span": {"lead": timedelta(minutes=5), "name": "x"},
    },
    {"id": 2, "took": None, "laps": None, "parts": None, "span": None},
    {"id": 3, "took": BACK, "laps": [], "parts": {}, "span": {"lead": None, "name": "y"}},
    {"id": 4, "took": timedelta(0), "laps": None, "parts": None, "span": None},
]
PLAIN = [{"id": row["id"], "took": row["took"]} for row in ROWS]
CSV = 'id,took\n1,P1DT12H3.5S\n2,\n3,"-1 days, -12:00:00.000001"\n4,PT0S\n'
JSON = """{"id": 1, "took": "PT36H3.5S", "laps": ["P0D", "P106751991DT0.000007S"], "parts": {"a": "-PT36H0.000001S"}, "span": {"lead": "PT5M", "name": "x"}}
{"id": 2}
{"id": 3, "took": "-P1DT12H0.000001S", "laps": [], "parts": {}, "span": {"name": "y"}}
{"id": 4, "took": "00:00:00"}
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


def as_numbers(unit):
    """Return the lengths as NumPy has them, in a unit that shows them all."""
    return np.array([row["took"] for row in PLAIN], f"timedelta64[{unit}]")


INPUTS = {
    "dicts": lambda folder: PLAIN,
    "columns": lambda folder: {"id": [1, 2, 3, 4], "took": [row["took"] for row in ROWS]},
    "numpy": lambda folder: {"id": np.arange(1, 5), "took": as_numbers("ns")},
    "nanoseconds": lambda folder: pa.Table.from_pylist(PLAIN).cast(
        pa.schema([("id", pa.int64()), ("took", pa.duration("ns"))])
    ),
    "polars": lambda folder: pl.DataFrame(PLAIN),
    "pandas": lambda folder: pd.DataFrame(PLAIN),
    "csv": lambda folder: folder / "a.csv",
    "jsonl": lambda folder: folder / "a.jsonl",
    "parquet": lambda folder: folder / "a.parquet",
    "pandas' csv": lambda folder: folder / "pandas.csv",
}


@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_may_have_them(table, tmp_path, kind):
    """To the microsecond, above a day, below 0, and null."""
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "a.jsonl").write_text(JSON)
    pq.write_table(pa.Table.from_pylist(PLAIN), tmp_path / "a.parquet")
    pd.DataFrame(PLAIN).to_csv(tmp_path / "pandas.csv", index=False)

    table.ingest(INPUTS[kind](tmp_path))

    wanted = ROWS if kind == "jsonl" else PLAIN
    assert table.query(columns=[*wanted[0]]).to_pylist() == wanted


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pd.Timedelta(5_001, "ns"), "it has nanoseconds"),
        ("PT1H", "a str is not a datetime.timedelta"),
        (3_600, "an int is not a datetime.timedelta"),
        (timedelta.max, "too large"),
    ],
)
def test_other_objects_are_none(table, value, words):
    """A number has no unit, and what is too long or too fine is not changed."""
    with pytest.raises(InputSchemaMismatch, match=words):
        table.ingest([{"id": 1, "took": value}])


def test_finer_units_are_taken_only_if_nothing_is_lost(table):
    """Nanoseconds in a frame are refused, as of timestamps."""
    with pytest.raises(InputSchemaMismatch, match=r"'took' .*would lose data"):
        table.ingest(pa.table({"id": [1], "took": pa.array([1_001], pa.duration("ns"))}))


@pytest.mark.parametrize(
    "text",
    [
        *("P", "PT", "P1DT", "-PT", "P1Y", "P1M", "P1DT1D", "1H", "PT1.5H", "PT0.0000001S"),
        *("3600", "1 day", "12:60:00", "P106751992D", "PT9999999999999H", "soon", "PT1H "),
        *("99999999999999999999 days 00:00:00", "00:00:00.1234567"),
    ],
)
def test_texts_that_are_no_length_of_time_are_refused(table, tmp_path, text):
    """By row and column."""
    (tmp_path / "a.csv").write_text(f"id,took\n1,PT1S\n2,{text}\n")
    (tmp_path / "a.jsonl").write_text(f'{{"id": 1, "took": "{text}"}}\n')

    for name, row in ("a.csv", 3), ("a.jsonl", 1):
        words = rf"row {row}, column 'took': .*not a value of duration.*such as P1DT2H3.5S"
        with pytest.raises(InputSchemaMismatch, match=words):
            table.ingest(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("P2W", timedelta(weeks=2)),
        ("+P1W1DT1H1M1.000001S", timedelta(8, 3_661, 1)),
        ("PT100000000H", timedelta(hours=100_000_000)),
        ("PT1.500000000S", timedelta(seconds=1.5)),
        ("-1 day, 23:00:00", -timedelta(hours=1)),  # str(timedelta)
        ("-1 days +23:00:00", -timedelta(hours=1)),  # pandas
        ("-2 days -01:00:00", -timedelta(days=2, hours=1)),  # DuckDB
        ("100:00:00.25", timedelta(hours=100, seconds=0.25)),
        ("-00:00:01", -timedelta(seconds=1)),
    ],
)
def test_texts_have_the_forms_that_others_write(table, tmp_path, text, wanted):
    """Each sign says what it stands before."""
    (tmp_path / "a.csv").write_text(f'id,took\n1,"{text}"\n')

    table.ingest(tmp_path / "a.csv")

    assert table.query(key=1).to_pylist()[0]["took"] == wanted


def test_every_way_of_reading_has_them(filled):
    """By key, by range, compacted, as frames, and by other engines."""
    filled.ingest([{**row, "id": row["id"] + 10} for row in ROWS])
    before = filled.query().to_pylist()
    filled.compact(all_files=True)

    assert before[:4] == ROWS
    assert filled.query().to_pylist() == before
    assert filled.query(key=1).to_pylist() == ROWS[:1]
    assert filled.query(keys=[1, 2, 3]).to_pylist() == ROWS[:3]
    assert filled.query(range={"id": (1, 10)}).to_pylist() == ROWS
    assert filled.query(ordered=False, where="id < 10").count() == 4
    hour = timedelta(hours=1)
    assert filled.scan_polars().filter(pl.col("took") > hour).collect()["id"].to_list() == [1, 11]
    assert [*map(pd.Timedelta, filled.to_pandas()["took"].dropna())][:2] == [
        ROWS[0]["took"],
        ROWS[2]["took"],
    ]
    with duckdb.connect() as connection:
        filled.to_duckdb(connection, "t")
        assert connection.sql("SELECT max(took) FROM t").fetchall() == [(ROWS[0]["took"],)]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("took > INTERVAL '35 hours'", [1]),
        ("took = INTERVAL '36 hours 3.5 seconds'", [1]),
        ("took < INTERVAL '0 seconds'", [3]),
        ("took BETWEEN INTERVAL '0 hours' AND INTERVAL '48 hours'", [1, 4]),
        ("took IN (INTERVAL '0 hours', INTERVAL '1 hour')", [4]),
        ("took > arrow_cast(3600, 'Duration(Second)')", [1]),
        ("CAST(took AS BIGINT) > 3600000000", [1]),
        ("took IS NULL", [2]),
        ("took + INTERVAL '1 hour' > INTERVAL '37 hours'", [1]),
    ],
)
def test_sql_compares_them_with_intervals_of_hours(filled, where, ids):
    """Minutes and seconds too, and with other lengths."""
    assert filled.query(where=where, columns=["id"]).to_arrow()["id"].to_pylist() == ids


@pytest.mark.parametrize(
    "where",
    [
        "took > INTERVAL '1 day'",
        "INTERVAL '1 month' > took",
        "took BETWEEN INTERVAL '1 hour' AND INTERVAL '2 days'",
        "took + INTERVAL '1 day' > INTERVAL '1 hour'",
        "took IN (INTERVAL '1 day', INTERVAL '1 hour')",
        "took > CAST(concat(span['name'], ' hour') AS INTERVAL)",
    ],
)
def test_sql_compares_them_with_no_days(filled, where):
    """DataFusion compares days before hours: 36 hours would be less than a day."""
    with pytest.raises(QueryInvalid, match="write hours, such as INTERVAL '36 hours'"):
        filled.count(where=where)


def test_sql_says_what_to_compare_them_with(instance, filled):
    """Numbers and texts are refused with it; aggregates have the smallest and largest."""
    for where in ("took > 5", "took = 'PT1H'"):
        with pytest.raises(QueryInvalid, match="a length of time, such as INTERVAL '36 hours'"):
            filled.count(where=where)
    found = instance.sql("SELECT min(took) AS low, max(took) AS high FROM t").to_pylist()
    assert found == [{"low": BACK, "high": ROWS[0]["took"]}]


def test_every_output_has_them(instance, filled, tmp_path):
    """Files that are written can be read again."""
    where = ("--instance", instance.url)
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        wanted = "id,took" if name == "a.csv" else ",".join(ROWS[0])
        arguments = ("--all", "--columns", wanted, "--output", tmp_path / name)
        kind = ("--format", "json") if name == "a.jsonl" else ()
        result = command("query", "t", *arguments, *kind, *where)
        assert result.exit_code == 0, result.output
        again = instance.create_table(name, SCHEMA, row_keys=["id"])

        again.ingest(tmp_path / name)

        assert again.query(columns=wanted.split(",")).to_pylist() == (
            PLAIN if name == "a.csv" else ROWS
        )
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == '1,"P1DT12H3.5S"'
    filled.export(tmp_path / "exported")
    assert pq.read_table(tmp_path / "exported").schema.field("took").type == US


def test_a_terminal_and_a_notebook_show_them_as_text(instance, filled):
    """In the form that can be given back."""
    shown = command("query", "t", "--key", "id=1", "--instance", instance.url).output

    assert "P1DT12H3.5S" in shown
    assert "P1DT12H3.5S" in filled.query(key=1)._repr_html_()


def test_rest_has_them_as_text(instance, filled):
    """In JSON; clients get Arrow."""
    with running_server(make_app(instance)) as url:
        answer = httpx.post(f"{url}/sleeper/tables/t/query", json={"key": 1}, timeout=PATIENCE_S)
        with sleeper.connect(url, token="unused") as remote:
            rows = remote.table("t").query(keys=[1, 2, 3, 4]).to_pylist()

    assert answer.json()["rows"][0]["took"] == "P1DT12H3.5S"
    assert answer.json()["rows"][0]["laps"] == ["PT0S", "P106751991DT0.000007S"]
    assert rows == ROWS


def test_aggregations_keep_the_smallest_and_the_largest(instance):
    """As of other values with an order."""
    fields = {"id": pa.int64(), "least": US, "most": US}
    table = instance.create_table(
        "a",
        pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields.items()]),
        row_keys=["id"],
        properties={"sleeper.table.aggregations": "min(least),max(most)"},
    )
    for hours in (30, -7, 12):
        length = timedelta(hours=hours)
        table.ingest([{"id": 1, "least": length, "most": length}])

    wanted = {"id": 1, "least": timedelta(hours=-7), "most": timedelta(hours=30)}
    assert table.query().to_pylist() == [wanted]


def test_schemas_have_them_as_values_alone(instance, table):
    """Their JSON is like that of other types, and data has them."""
    document = json.loads(table.schema.to_json())

    assert document["valueFields"][0] == {"name": "took", "type": "DurationType", "nullable": True}
    assert Schema.from_json(document) == table.schema
    made = instance.create_table("like", pl.DataFrame(PLAIN), row_keys=["id"])
    assert made.schema.fields[1].type is Primitive.DURATION
    with pytest.raises(SchemaInvalid, match="cannot be of DurationType"):
        instance.create_table("keys", SCHEMA, row_keys=["took"])


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_formats_of_others_have_none(filled, name):
    """They would be numbers there, so such a table is refused, wherever the length is."""
    with pytest.raises(BadRequest, match=r"'took' is DurationType.*'laps' is .*'span' is "):
        filled.publish(name)
