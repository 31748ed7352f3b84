"""Tables that keep the last of many rows, count them, or hand them to a function of the user's."""

from __future__ import annotations

import io
from itertools import product

import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.errors import PropertiesInvalid, TableFunctionFailed
from sleeper.model.schema import ListType

SCHEMA = Schema(
    row_keys=[Field("house", Primitive.STRING), Field("room", Primitive.LONG)],
    sort_keys=[Field("at", Primitive.LONG)],
    values=[
        Field("lamps", ListType(Primitive.STRING), nullable=True),
        Field("warmth", Primitive.DOUBLE, nullable=True),
        Field("readings", Primitive.LONG, nullable=True),
    ],
)
AGGREGATIONS = "sleeper.table.aggregations"
FUNCTION = "sleeper.table.function"
FUNCTION_TEXT = '''
import pyarrow as pa
import pyarrow.compute as pc


def clean(batches):
    """Leave out cold rooms, and hide what lamps there are."""
    for batch in batches:
        warm = batch.filter(pc.fill_null(pc.greater(batch["warmth"], 10.0), False))
        hidden = pa.nulls(warm.num_rows, batch.schema.field("lamps").type)
        columns = [hidden if name == "lamps" else warm[name] for name in batch.schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def fail(batches):
    next(batches)
    raise ValueError("no lamps today")


def fail_after_a(batches):
    for batch in batches:
        if batch["house"][0].as_py() != "a":
            raise ValueError("lamps only in a")
        yield batch
'''


def reading(house, room, at):
    """What is measured in a room at a time; sometimes nothing."""
    return {
        "house": house,
        "room": room,
        "at": at,
        "lamps": None if at % 3 == 0 else [f"lamp {at}"],
        "warmth": None if at % 4 == 3 else room + at,
        "readings": None if at % 2 else at,
    }


ROWS = [reading(*each) for each in product("abc", range(5), range(11))]
PARTS = (ROWS[::3], ROWS[1::3][::-1], ROWS[2::3])


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True, allow_functions=["*"])


def made(instance, **properties):
    """A table of two leaves, which cut house b in two."""
    names = {"aggregations": AGGREGATIONS, "function": FUNCTION}
    return instance.create_table(
        "rooms",
        SCHEMA,
        split_points=["b"],
        properties={names[name]: text for name, text in properties.items()},
    )


def answers(table):
    """The same rows, asked for in all the ways there are; then some columns of them."""
    everything = table.query().to_pylist()
    of_house = [row for row in everything if row["house"] == "b"]
    assert table.query(key="b").to_pylist() == of_house
    assert table.query(range={"house": ("b", "c")}).to_pylist() == of_house
    keys = [("c", 2), ("a", 1), ("a", 4)]
    found = [row for row in everything if (row["house"], row["room"]) in keys]
    assert table.query(keys=keys).to_pylist() == found
    one = [row for row in everything if (row["house"], row["room"]) == ("a", 1)]
    assert table.query(key=("a", 1)).to_pylist() == one
    narrow = [{"readings": row["readings"], "lamps": row["lamps"]} for row in one]
    assert table.query(key=("a", 1), columns=["readings", "lamps"]).to_pylist() == narrow
    warm = [{"warmth": row["warmth"]} for row in everything]
    assert table.query(columns=["warmth"]).to_pylist() == warm
    return everything


def stored(table, tmp_path):
    """How many rows there are in the table's files."""
    files = [
        next((tmp_path / "instance").rglob(reference.filename)) for reference in table.references()
    ]
    return sum(pq.read_metadata(io.BytesIO(path.read_bytes())).num_rows for path in files)


def united(end):
    """What plain Python makes of all rows."""
    found = []
    for house, room in product("abc", range(5)):
        rows = [row for row in ROWS if (row["house"], row["room"]) == (house, room)]
        kept = rows[0 if end == "first" else -1]
        found.append({**kept, "readings": sum(row["readings"] is not None for row in rows)})
    return found


@pytest.mark.parametrize("end", ["first", "last"])
def test_a_table_keeps_one_row_of_each_key_and_counts_them(instance, tmp_path, end):
    """
    Three jobs bring rows of all rooms in any order. The answers are those for all rows at once,
    however one asks, before files are merged and after.
    """
    text = f"{end}(lamps), {end}(warmth), count(readings)"
    table = made(instance, aggregations=text)
    for part in PARTS:
        table.ingest(part)

    before = answers(table)
    table.compact(all_files=True)

    assert before == answers(table) == united(end)
    assert stored(table, tmp_path) == 15


def test_a_count_goes_on_after_a_compaction(instance):
    """What was counted is a number, to which rows that come later are added."""
    table = made(instance, aggregations="last(lamps),last(warmth),count(readings)")
    table.ingest(PARTS[0])
    table.compact(all_files=True)
    table.ingest(PARTS[1])
    table.compact(all_files=True)
    table.bulk_import(PARTS[2], engine="local")

    assert answers(table) == united("last")


def test_rows_from_before_keep_their_number(instance):
    """Counting begins with the rows that come in after the property was set."""
    table = made(instance)
    table.ingest([{**ROWS[0], "readings": 40}])
    table.set_properties({AGGREGATIONS: "last(lamps),last(warmth),count(readings)"})
    table.ingest([{**ROWS[0], "readings": 7}, {**ROWS[1], "readings": None}])

    assert [row["readings"] for row in table.query().to_pylist()] == [41]


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """A module of the user's own, on Python's path."""
    (tmp_path / "our_rows.py").write_text(FUNCTION_TEXT)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("functions")
def test_a_function_changes_rows_wherever_they_are_read(instance, tmp_path):
    """Rows that it drops are not written; rows that were there before it are hidden at once."""
    table = made(instance)
    table.ingest(PARTS[0])
    table.set_properties({FUNCTION: "our_rows:clean"})
    warm = [
        {**row, "lamps": None} for row in ROWS if row["warmth"] is not None and row["warmth"] > 10
    ]

    result = table.ingest(PARTS[1])
    table.ingest(PARTS[2])

    assert result.rows_written == sum((row["warmth"] or 0) > 10 for row in PARTS[1])
    before = answers(table)
    table.compact(all_files=True)
    assert before == answers(table) == warm
    assert stored(table, tmp_path) == len(warm)


@pytest.mark.usefixtures("functions")
def test_a_function_that_fails_changes_nothing(instance, tmp_path):
    """The table stays as it was, with its files alone; compaction says why it did nothing."""
    table = made(instance)
    table.ingest(PARTS[0])
    table.ingest(PARTS[1])
    files = sorted((tmp_path / "instance").rglob("*.parquet"))
    table.set_properties({FUNCTION: "our_rows:fail"})

    with pytest.raises(TableFunctionFailed, match=r"our_rows:fail.*no lamps today"):
        table.ingest(PARTS[2])
    with pytest.raises(TableFunctionFailed, match="no lamps today"):
        table.query().count()
    run = table.compact(all_files=True)

    assert all("no lamps today" in str(job.failure) for job in run.jobs)
    assert sorted((tmp_path / "instance").rglob("*.parquet")) == files
    table.set_properties({FUNCTION: None})
    assert table.query().count() == len(PARTS[0]) + len(PARTS[1])


def crowded(instance, houses):
    """A table of a leaf for each house, with two files in each leaf."""
    table = instance.create_table("many", SCHEMA, split_points=[*houses[1:]])
    for at in (1, 2):
        table.ingest([reading(house, 1, at) for house in houses])
    return table


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_function_that_always_fails_stops_a_compaction(instance, workers, caplog):
    """Three jobs are tried, not all; the leaf is named, and no claim is left."""
    table = crowded(instance, "abcdefghijkl")
    table.set_properties({FUNCTION: "our_rows:fail"})

    run = table.compact(all_files=True, workers=workers)

    assert run.stopped
    assert len(run.jobs) == len(run.failed) == 3
    assert run.failed[-1].job.partition_id in caplog.text
    assert table.claims() == ()
    table.set_properties({FUNCTION: None})
    assert len(table.compact(all_files=True).jobs) == 12


@pytest.mark.usefixtures("functions")
def test_a_function_that_fails_in_some_leaves_is_tried_in_all(instance):
    """Where a job was done, others may be done as well."""
    table = crowded(instance, "abcdefghijkl")
    table.set_properties({FUNCTION: "our_rows:fail_after_a"})

    run = table.compact(all_files=True)

    assert not run.stopped
    assert (len(run.jobs), len(run.failed)) == (12, 11)


def test_only_the_form_of_a_functions_name_is_checked_when_it_is_set(instance):
    """Whoever sets it need not have it; whoever reads rows must."""
    table = made(instance)
    table.ingest(PARTS[0])

    with pytest.raises(PropertiesInvalid, match=r"must be package\.module:function"):
        table.set_properties({FUNCTION: "clean"})
    table.set_properties({FUNCTION: "no_such_rows:clean"})

    with pytest.raises(TableFunctionFailed, match="PYTHONPATH"):
        table.query(key=("a", 1))
