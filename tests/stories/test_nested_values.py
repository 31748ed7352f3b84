"""Values may be structs, lists and maps of any type, at any depth (rule SCH-2)."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.errors import InputSchemaMismatch, SchemaInvalid
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.statements.upload_ingest import is_plain
from tests.patience import PATIENCE_S
from tests.soak import tries
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

PLACE = pa.struct([("x", pa.float64()), ("seal", pa.binary()), ("marks", pa.list_(pa.int32()))])
ENTRY = pa.struct([("on", pa.date32()), ("price", pa.decimal128(5, 2))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("grid", pa.list_(pa.list_(pa.float64()))),
        ("place", PLACE),
        ("by_name", pa.map_(pa.string(), ENTRY)),
        ("log", pa.list_(ENTRY)),
    ]
)
ROWS = [
    {
        "id": 1,
        "tags": ["a", None, ""],
        "grid": [[1.5, None], None, []],
        "place": {"x": -0.5, "seal": b"\xff\x00", "marks": [1, None]},
        "by_name": {"tea": {"on": date(2026, 1, 31), "price": Decimal("1.25")}},
        "log": [{"on": None, "price": Decimal("-999.99")}, None],
    },
    {"id": 2, "tags": None, "grid": None, "place": None, "by_name": None, "log": None},
    {
        "id": 3,
        "tags": [],
        "grid": [[]],
        "place": {"x": None, "seal": None, "marks": None},
        "by_name": {},
        "log": [],
    },
    {
        "id": 4,
        "tags": [None],
        "grid": [None],
        "place": {"x": 1e308, "seal": b"", "marks": []},
        "by_name": {"": {"on": None, "price": None}},
        "log": [{"on": date(1, 1, 1), "price": None}],
    },
]


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


def arrow(rows=ROWS):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def large_layouts():
    """The same values as large lists, views and dictionaries, and a struct with its parts turned."""
    turned = pa.struct([PLACE.field("marks"), PLACE.field("x"), PLACE.field("seal")])
    tags = pa.large_list(pa.dictionary(pa.int8(), pa.large_string()))
    columns = arrow()
    return columns.set_column(
        3, "place", pa.array([row["place"] for row in ROWS], turned)
    ).set_column(1, "tags", pa.array([row["tags"] for row in ROWS], tags))


INPUTS = {
    "dicts": lambda folder: ROWS,
    "columns": lambda folder: {name: [row[name] for row in ROWS] for name in SCHEMA.names},
    "arrow": lambda folder: arrow(),
    "a slice": lambda folder: arrow([ROWS[2], *ROWS, ROWS[0]]).slice(1, 4),
    "other layouts": lambda folder: large_layouts(),
    "polars": lambda folder: pl.DataFrame(arrow()),
    "a lazy frame": lambda folder: pl.DataFrame(arrow()).lazy(),
    "pandas of Python objects": lambda folder: pd.DataFrame(ROWS),
    "pandas of Arrow": lambda folder: arrow().to_pandas(types_mapper=pd.ArrowDtype),
    "duckdb": lambda folder: duckdb.from_arrow(arrow()),
    "jsonl": lambda folder: folder / "a.jsonl",
    "parquet": lambda folder: folder / "a.parquet",
}


@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_may_have_them(table, tmp_path, kind):
    """With nulls at each level, empty lists, and structs of nulls, which are no null structs."""
    pq.write_table(arrow(), tmp_path / "a.parquet")
    lines = [json.dumps(row, default=_json_text) for row in ROWS]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))

    table.ingest(INPUTS[kind](tmp_path))

    assert table.query().to_pylist() == ROWS


def _json_text(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def test_every_way_of_reading_has_them(filled):
    """By key, by range, compacted, as frames, and by other engines."""
    later = [{**row, "id": row["id"] + 10} for row in ROWS]
    filled.ingest(later)
    read_before = filled.query(key=4).to_pylist()
    filled.compact(all_files=True)

    assert read_before == ROWS[3:]
    assert [filled.query(key=row["id"]).to_pylist() for row in later] == [[row] for row in later]
    assert filled.query(keys=[4, 1, 12]).to_pylist() == [ROWS[0], ROWS[3], later[1]]
    assert filled.query(range={"id": (1, 10)}).to_pylist() == ROWS
    assert filled.query(ordered=False, where="id < 10").to_pylist() == ROWS
    assert filled.query(columns=["log", "id"], limit=1).to_pylist() == [
        {"log": ROWS[0]["log"], "id": 1}
    ]
    assert filled.to_polars().to_arrow().to_pylist(maps_as_pydicts="lossy") == ROWS + later
    found = filled.scan_polars().filter(pl.col("place").struct.field("x") > 0).collect()
    assert found["id"].to_list() == [4, 14]
    assert filled.to_pandas()["log"][0][1] is None
    with duckdb.connect() as connection:
        filled.to_duckdb(connection, "t")
        wanted = [(1, -0.5, None, Decimal("-999.99"))]
        text = "SELECT id, place.x, grid[2], log[1].price FROM t WHERE place.x < 0 AND id < 9"
        assert connection.sql(text).fetchall() == wanted
    assert filled.verify().findings == ()


def test_sql_takes_them_apart(instance, filled):
    """By names of parts, places in lists, and keys of maps; also in conditions."""
    text = """
        SELECT id, place['x'] AS x, tags[1] AS tag, log[1]['price'] AS price,
               by_name['tea']['on'] AS "on"
        FROM t WHERE place['x'] < 1 ORDER BY id
    """
    assert instance.sql(text).to_pylist() == [
        {"id": 1, "x": -0.5, "tag": "a", "price": Decimal("-999.99"), "on": date(2026, 1, 31)}
    ]
    assert filled.count(where="place IS NULL") == 1
    assert filled.count(where="place['marks'] IS NULL") == 2
    found = instance.sql("SELECT id, unnest(grid) AS g FROM t WHERE id < 4 ORDER BY id").to_pylist()
    assert [row["g"] for row in found] == [[1.5, None], None, [], []]
    assert instance.sql("SELECT count(*) AS n FROM t GROUP BY place").count() == 4


def test_a_number_inside_of_a_struct_is_the_number_that_sql_compares(instance):
    """-0.0 equals 0.0, and NaN of any sign is one, also in parts of structs and lists of them."""
    kind = pa.struct([("of", pa.list_(pa.struct([("x", pa.float64())])))])
    table = instance.create_table(
        "z", pa.schema([("id", pa.int64()), ("s", kind)]), row_keys=["id"]
    )
    values = [0.0, -0.0, float("nan"), -float("nan")]
    table.ingest([{"id": n, "s": {"of": [{"x": value}]}} for n, value in enumerate(values)])

    found = instance.sql("SELECT count(*) AS n FROM z GROUP BY s ORDER BY n").to_pylist()

    assert found == [{"n": 2}, {"n": 2}]


def test_files_have_no_statistics_of_floating_point_parts(filled, tmp_path):
    """No engine can take a NaN in a struct for a number; other parts have limits."""
    filled.ingest([{"id": 10, "place": {"x": float("nan")}}])
    filled.compact(all_files=True)
    filled.export(tmp_path / "out")

    for path in tmp_path.rglob("*.parquet"):
        if "statestore" not in path.parts:
            group = pq.ParquetFile(path).metadata.row_group(0)
            chunks = [group.column(place) for place in range(group.num_columns)]
            without = {chunk.path_in_schema for chunk in chunks if not chunk.is_stats_set}
            assert without == {"place.x"}


def test_every_output_has_them(instance, filled, tmp_path):
    """Files that are written can be read again; CSV has no form for them, and says so."""
    where = ("--instance", instance.url)
    for name in ("a.jsonl", "a.parquet", "a.arrow"):
        kind = {"a.jsonl": ("--format", "json")}.get(name, ())
        result = command("query", "t", "--all", "--output", tmp_path / name, *kind, *where)
        assert result.exit_code == 0, result.output
    for name in ("a.jsonl", "a.parquet"):
        again = instance.create_table(name, SCHEMA, row_keys=["id"])
        again.ingest(tmp_path / name)
        assert again.query().to_pylist() == ROWS
    assert pa.ipc.open_file(tmp_path / "a.arrow").read_all().num_rows == 4
    filled.export(tmp_path / "exported")
    assert pq.read_table(tmp_path / "exported").to_pylist(maps_as_pydicts="lossy") == ROWS

    result = command("query", "t", "--all", "--output", tmp_path / "a.csv", *where)
    assert result.exit_code == 1
    assert "CSV cannot contain the lists, maps and structs of tags, grid, place" in result.output


def test_rest_has_them(instance, filled):
    """In JSON as in files, to clients as Arrow, and from uploads of both."""
    with running_server(make_app(instance)) as url:
        answer = httpx.post(f"{url}/sleeper/tables/t/query", json={"key": 1}, timeout=PATIENCE_S)
        with sleeper.connect(url, token="unused") as remote:
            rows = remote.table("t").query(keys=[1, 2, 3, 4]).to_pylist()
            made = remote.create_table("copy", SCHEMA, row_keys=["id"])
            made.ingest(arrow())
            assert made.schema == filled.schema

    found = answer.json()["rows"][0]
    assert found["place"] == {"x": -0.5, "seal": "/wA=", "marks": [1, None]}
    assert found["by_name"] == {"tea": {"on": "2026-01-31", "price": "1.25"}}
    assert rows == ROWS
    assert instance.table("copy").query().to_pylist() == ROWS


def test_an_upload_of_structs_is_known_to_be_small(tmp_path):
    """Each row of a struct takes some bytes, unless it has no parts."""
    for kind, known in ((PLACE, True), (pa.struct([]), False)):
        path = tmp_path / f"{known}.arrow"
        with pa.ipc.new_stream(path, pa.schema([("s", kind)])) as writer:
            writer.write_table(pa.table({"s": pa.array([{}], kind)}))
        assert is_plain(str(path), "arrow") is known


WRONG = {
    "an unknown part": ({"place": {"z": 1}}, r"row 0 .*'place'.* has \['z'\], and its parts are"),
    "no dict": ({"place": [1]}, "a list is not a dict"),
    "a part of another type": ({"place": {"x": "1"}}, "a str is not a number"),
    "an element of another type": ({"grid": [[1.0], ["x"]]}, "a str is not a number"),
    "a struct of another type in a list": ({"log": [{"on": 5}]}, "an int is not a datetime.date"),
}


@pytest.mark.parametrize("case", WRONG)
def test_values_that_do_not_fit_are_refused(table, case):
    """With their row and field."""
    values, words = WRONG[case]

    with pytest.raises(InputSchemaMismatch, match=words):
        table.ingest([{"id": 1, **values}])


def test_a_value_that_would_change_is_refused_at_any_depth(table):
    """Casts inside of others are as exact as those of columns."""
    narrow = pa.struct([("x", pa.float64()), ("marks", pa.list_(pa.float64()))])
    exact = pa.array([{"x": 1.0, "marks": [2.0]}], narrow)
    changed = pa.array([{"x": 1.0, "marks": [2.5]}], narrow)

    table.ingest(pa.table({"id": [1], "place": exact}))
    with pytest.raises(InputSchemaMismatch, match=r"'place' .*2\.5"):
        table.ingest(pa.table({"id": [2], "place": changed}))
    other = pa.array([{"x": 1.0, "y": 1}])
    with pytest.raises(InputSchemaMismatch, match=r"'place' .* is struct<x: double, y: int64>"):
        table.ingest(pa.table({"id": [2], "place": other}))

    assert table.query().to_pylist()[0]["place"] == {"x": 1.0, "seal": None, "marks": [2]}


def test_nulls_in_lists_are_refused_where_the_type_has_none(instance):
    """At any depth; the message says what to declare."""
    inner = pa.field("element", pa.int32(), nullable=False)
    kind = pa.struct([("of", pa.list_(inner))])
    table = instance.create_table(
        "n", pa.schema([("id", pa.int64()), ("s", kind)]), row_keys=["id"]
    )

    table.ingest([{"id": 1, "s": {"of": [1]}}, {"id": 2, "s": {"of": None}}])
    with pytest.raises(InputSchemaMismatch, match=r"1 nulls inside .* ListType has nullable=True"):
        table.ingest([{"id": 3, "s": {"of": [1, None]}}])

    assert table.count() == 2


def test_json_lines_say_which_row_has_a_wrong_part(table, tmp_path):
    """The row, not the place among all elements."""
    lines = ['{"id": 1, "log": [{"on": "2026-01-01"}, {"on": null}]}'] * 3
    wrong = '{"id": 4, "log": [{}, {"price": 1, "on": "yesterday"}]}'
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, wrong]))

    with pytest.raises(InputSchemaMismatch, match="row 4, column 'log': 'yesterday' is not"):
        table.ingest(tmp_path / "a.jsonl")


def test_json_lines_have_no_maps_inside_of_others(instance, tmp_path):
    """They are refused with what to use, before a row is read."""
    kind = pa.list_(pa.map_(pa.string(), pa.int64()))
    table = instance.create_table(
        "m", pa.schema([("id", pa.int64()), ("m", kind)]), row_keys=["id"]
    )
    (tmp_path / "a.jsonl").write_text('{"id": 1, "m": [{"a": 1}]}')

    with pytest.raises(InputSchemaMismatch, match=r"maps inside of list.*from Arrow, Parquet"):
        table.ingest(tmp_path / "a.jsonl")
    table.ingest([{"id": 1, "m": [{"a": 1}, None]}])

    assert table.query(key=1).to_pylist() == [{"id": 1, "m": [{"a": 1}, None]}]


def test_keys_are_never_nested(instance):
    """A struct has no order that all engines agree on."""
    with pytest.raises(SchemaInvalid, match="must have a primitive type: 'place'"):
        instance.create_table("k", SCHEMA, row_keys=["place"])


def test_aggregations_keep_the_first_or_the_last(instance):
    """No other is defined on structs."""
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        pa.field("s", ENTRY, nullable=False),
    ]
    keys = {"row_keys": ["id"], "sort_keys": ["at"]}
    table = instance.create_table(
        "a", pa.schema(fields), **keys, properties={"sleeper.table.aggregations": "last(s)"}
    )
    for at, price in ((2, "1.00"), (3, "2.00"), (1, "3.00")):
        table.ingest([{"id": 1, "at": at, "s": {"price": Decimal(price)}}])
    table.compact(all_files=True)

    assert table.query().to_pylist()[0]["s"] == {"on": None, "price": Decimal("2.00")}
    with pytest.raises(sleeper.SleeperError, match="max does not work on field 's' of StructType"):
        instance.create_table(
            "b", pa.schema(fields), **keys, properties={"sleeper.table.aggregations": "max(s)"}
        )


# A plain model: any schema, any values, by every reader.

LEAVES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(
        datetime(1, 1, 2),
        datetime(9999, 12, 30),
        timezones=st.just(UTC),
    ),
    pa.decimal128(9, 3): st.decimals(-999_999, 999_999, places=3),
}
NAMES = st.text("ab é.'\"[", min_size=1, max_size=3)


def nested(inner):
    parts = st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3, unique_by=lambda p: p[0])
    return (
        parts.map(pa.struct) | inner.map(pa.list_) | st.builds(pa.map_, st.just(pa.string()), inner)
    )


KINDS = st.recursive(st.sampled_from([*LEAVES]), nested, max_leaves=5)


def values_of(kind, *, nullable=True):
    if pa.types.is_struct(kind):
        found = st.fixed_dictionaries({part.name: values_of(part.type) for part in kind.fields})
    elif pa.types.is_map(kind):
        of_value = values_of(kind.item_type, nullable=False)
        found = st.dictionaries(LEAVES[pa.string()], of_value, max_size=2)
    elif pa.types.is_list(kind):
        found = st.lists(values_of(kind.value_type), max_size=3)
    else:
        found = LEAVES[kind]
    return st.none() | found if nullable else found


@st.composite
def columns_of_any_type(draw):
    kinds = draw(st.lists(KINDS, min_size=1, max_size=2))
    fields = {f"v{n}": kind for n, kind in enumerate(kinds)}
    rows = st.fixed_dictionaries({name: values_of(kind) for name, kind in fields.items()})
    found = draw(st.lists(rows, min_size=1, max_size=6))
    return pa.schema([("id", pa.int64()), *fields.items()]), [
        {"id": n, **row} for n, row in enumerate(found)
    ]


@settings(max_examples=tries(20, soak=1_000), deadline=None, suppress_health_check=[*HealthCheck])
@given(case=columns_of_any_type())
@pytest.mark.soak
def test_values_of_any_type_come_back_as_they_were(case, tmp_path_factory):
    """Given any types and values, then each input and reader has the values of a plain list."""
    schema, rows = case
    with sleeper.connect(tmp_path_factory.mktemp("any") / "i", create=True) as instance:
        table = instance.create_table("t", schema, row_keys=["id"])
        table.ingest(rows[::2])
        table.ingest(pa.Table.from_pylist(rows[1::2], schema=schema))
        by_key = [table.query(key=row["id"]).to_pylist() for row in rows]
        table.compact(all_files=True)
        again = instance.create_table("again", pl.DataFrame(table.to_arrow()), row_keys=["id"])
        again.ingest(table.to_polars())
        again.export(tmp_path_factory.mktemp("out") / "files")

        assert by_key == [[row] for row in rows]
        assert table.query().to_pylist() == rows
        assert table.query(keys=[row["id"] for row in rows]).to_pylist() == rows
        assert instance.sql("SELECT * FROM t ORDER BY id").to_pylist() == rows
        assert again.query().to_pylist() == rows
        assert table.verify().findings == ()
