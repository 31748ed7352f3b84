"""Columns change whatever keeps the state of a table, and by several processes (rules COL-7, COL-8)."""

from __future__ import annotations

import multiprocessing
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import BadRequest, SleeperError
from sleeper.model.known_properties.state_store import STATE_STORES
from sleeper.tables import alter as verb
from tests.contracts.s3_server import s3_credentials
from tests.contracts.servers.dynamo import dynamo_endpoint, dynamo_environment, on_one_server

__all__ = ["dynamo_endpoint", "dynamo_environment", "s3_credentials"]

SCHEMA = pa.schema(
    [
        ("word", pa.string()),
        ("number", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        pa.field("n", pa.int32(), nullable=False),
        ("note", pa.string()),
    ]
)
"""Two row keys, a sort key, two values."""


@pytest.fixture
def instance(tmp_path, dynamo_environment):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


def row(word, number, **values):
    return {"word": word, "number": number, "at": datetime(2026, 1, number, tzinfo=UTC), **values}


def made(instance, store=STATE_STORES[0]):
    """Rows of two words in two leaves."""
    table = instance.create_table(
        "t",
        SCHEMA,
        row_keys=["word", "number"],
        sort_keys=["at"],
        split_points=["m"],
        properties={"sleeper.table.statestore.classname": store},
    )
    table.ingest([row(word, number, n=number, note=word) for word in "az" for number in (1, 2)])
    return table


def changed(table):
    return table.alter(
        drop=["note"],
        rename={"n": "m"},
        widen={"n": pa.int64()},
        add=[pa.field("note", pa.string()), pa.field("x", pa.int64(), nullable=False)],
        defaults={"x": 7},
    )


def check_rows(table):
    old = [row(word, n, m=n, note=None, x=7) for word in "az" for n in (1, 2)]
    new = row("b", 3, m=2**40, note="new", x=8)
    assert table.query().to_pylist() == [*old[:2], new, *old[2:]]
    assert table.query(key=("z", 2)).to_pylist() == old[3:]
    assert table.query(key="a").to_pylist() == old[:2]
    statement = "SELECT sum(x) AS x, count(note) AS n FROM t"
    assert table.sql(statement).to_pylist() == [{"x": 36, "n": 1}]
    assert table.verify().findings == ()


@on_one_server
@pytest.mark.parametrize("store", STATE_STORES)
def test_columns_change_in_every_store(instance, store):
    """Rows of before and of now are read alike, by a fresh handle, after compactions and a move."""
    table = made(instance, store)

    done = changed(table)
    table.ingest([row("b", 3, m=2**40, note="new", x=8)])

    assert done.transaction == 3
    check_rows(table)
    fresh = sleeper.connect(instance.url).table("t")
    check_rows(fresh)
    fresh.compact(all_files=True)
    check_rows(fresh)
    table.migrate_state(next(each for each in STATE_STORES if each != store))
    check_rows(sleeper.connect(instance.url).table("t"))
    table.alter(drop=["x"])
    assert table.columns == ["word", "number", "at", "m", "note"]
    assert table.state().schema_id == 3


@on_one_server
@pytest.mark.parametrize("store", STATE_STORES)
def test_a_change_that_was_killed_completes_itself_in_every_store(instance, store, monkeypatch):
    """Given a record with new columns and no entry of them, the next commit adds it."""
    table = made(instance, store)

    def died(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(verb, "record_change", died)
        with pytest.raises(KeyboardInterrupt):
            changed(table)
    fresh = sleeper.connect(instance.url).table("t")

    assert fresh.query(key=("a", 1)).to_pylist() == [row("a", 1, m=1, note=None, x=7)]
    fresh.ingest([row("b", 3, m=2**40, note="new", x=8)])

    assert fresh.state().schema_id == 2
    check_rows(fresh)


@on_one_server
@pytest.mark.parametrize("store", STATE_STORES)
def test_many_changes_of_a_wide_table_fit_in_every_store(instance, store):
    """A store that keeps all schemas in one place has room for them."""
    wide = pa.schema([("id", pa.int64()), *((f"column {n}", pa.int64()) for n in range(200))])
    table = instance.create_table(
        "t", wide, row_keys=["id"], properties={"sleeper.table.statestore.classname": store}
    )
    table.ingest([{"id": 1, "column 7": 7}])

    for n in range(30):
        table.alter(rename={"column 7" if not n else f"name {n - 1}": f"name {n}"})

    assert table.query(1, columns=["name 29"]).to_pylist() == [{"name 29": 7}]
    table.ingest([{"id": 2, "name 29": 8}])
    assert sleeper.connect(instance.url).table("t").count() == 2


def test_columns_change_in_memory():
    """As in a folder."""
    with sleeper.connect("memory://") as instance:
        table = made(instance)
        changed(table)
        table.ingest([row("b", 3, m=2**40, note="new", x=8)])
        check_rows(table)


def _add(url, names, failures):
    try:
        table = sleeper.connect(url).table("t")
        for name in names:
            table.alter(add=[pa.field(name, pa.int64())], reason=name)
            table.ingest([row("q", 1, n=1, note=name)])
    except SleeperError as error:
        failures.put(repr(error))


def test_changes_by_processes_are_all_made(instance):
    """Two processes change columns and add rows, a third one reads: none is lost or refused."""
    table = made(instance)
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    names = [[f"{who}{n}" for n in range(4)] for who in "xy"]
    processes = [
        context.Process(target=_add, args=(instance.url, each, failures)) for each in names
    ]
    for each in processes:
        each.start()
    while any(each.is_alive() for each in processes):
        rows = table.query(key=("a", 1)).to_pylist()
        assert {*SCHEMA.names} <= {*rows[0]}
    for each in processes:
        each.join()

    assert failures.empty(), failures.get()
    table.refresh()
    assert sorted(table.columns[5:]) == sorted([*names[0], *names[1]])
    assert table.count() == 12
    assert table.verify().findings == ()
    state, log = table.state(), table.history()
    assert [*state.schemas] == [*range(1, state.schema_id + 1)]
    assert state.schemas[state.schema_id] == table.schema.as_stored()
    said = {reason for each in log for reason in each.reasons}
    assert said <= {*names[0], *names[1]}


def test_a_filter_and_a_function_name_the_columns_of_now(instance):
    """A filter on a sort key stays; one on a column that goes is refused, or goes with it."""
    table = made(instance)
    table.set_properties({"sleeper.table.filters": "ageOff(at,1000000000000)"})
    changed(table)
    assert len(table.query().to_pylist()) == 4

    schema = pa.schema([("id", pa.int64()), ("when", pa.date32()), ("n", pa.int64())])
    other = instance.create_table(
        "u",
        schema,
        row_keys=["id"],
        properties={"sleeper.table.filters": "ageOff(when,1000000000000)"},
    )
    with pytest.raises(BadRequest, match="when"):
        other.alter(rename={"when": "day"})
    assert other.columns == schema.names
    other.alter(
        rename={"when": "day"},
        properties={"sleeper.table.filters": "ageOff(day,1000000000000)"},
    )
    assert other.columns == ["id", "day", "n"]


def test_a_property_that_was_stored_misspelt_is_no_obstacle(instance):
    """Given a table of an earlier version with a name that nothing knows, its columns change."""
    table = made(instance)
    record, index = table._record, table._context.index
    name = "sleeper.table.parquet.compression.codecs"
    properties = {**record.properties, name: "zstd"}
    index.replace(record, type(record)(record.table_id, record.name, record.online, properties))

    changed(table)

    assert table.properties.values[name] == "zstd"
