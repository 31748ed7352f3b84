"""Tables whose columns were changed, as Delta and Iceberg: versions whose files have them all."""

from __future__ import annotations

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.errors import NothingToPublish
from tests.soak import tries
from tests.stories.changed_columns_model import drawn_change, drawn_rows, first_models, in_order
from tests.stories.published_tables import opened_iceberg

SCHEMA = pa.schema(
    [pa.field("n", pa.int32(), nullable=False), ("id", pa.int64()), ("note", pa.string())]
)
FORMATS = ("delta", "iceberg")


@pytest.fixture
def table(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        made = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=[5])
        made.ingest([{"n": i, "id": i, "note": f"old {i}"} for i in range(10)])
        yield made


def read(done) -> pa.Table:
    if done.format == "delta":
        return pa.table(deltalake.DeltaTable(done.location).to_pyarrow_table())
    return opened_iceberg(done.location).scan().to_arrow()


def plain(found: pa.Table) -> list[dict]:
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def change(table):
    table.alter(
        rename={"n": "m"},
        widen={"n": pa.int64()},
        drop=["note"],
        add=[pa.field("note", pa.int64()), pa.field("kind", pa.string(), nullable=False)],
        defaults={"kind": "old"},
    )


@pytest.mark.parametrize("name", FORMATS)
def test_the_version_before_a_change_is_published_until_files_have_the_columns(table, name):
    """With the columns of then; afterwards readers see the columns of now, and old values nowhere."""
    before = table.publish(name)
    change(table)

    lagging = table.publish(name)
    assert (lagging.is_new, lagging.transaction) == (False, before.transaction)
    assert read(lagging).column_names == SCHEMA.names
    assert "other columns than the table" in str(lagging)

    done = table.publish(name, make_clean=True)
    found = read(done)
    assert found.column_names == ["m", "id", "note", "kind"]
    assert plain(found) == [{"m": i, "id": i, "note": None, "kind": "old"} for i in range(10)]


@pytest.mark.parametrize("name", FORMATS)
def test_the_last_version_with_the_columns_of_before_may_be_the_first_published(table, name):
    """It has the columns of then."""
    last = table.refresh()
    change(table)

    done = table.publish(name)

    assert done.transaction == last
    assert read(done).column_names == SCHEMA.names
    assert plain(read(done))[0] == {"n": 0, "id": 0, "note": "old 0"}


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_are_written_after_a_change_are_seen_with_those_of_before(table, name):
    """Once those of before are written anew."""
    change(table)
    table.ingest([{"m": 2**40, "id": 3, "note": 1, "kind": "new"}])

    done = table.publish(name, make_clean=True)

    assert {(row["id"], row["kind"]) for row in read(done).to_pylist()} >= {(3, "old"), (3, "new")}
    assert pl.from_arrow(read(done)).height == 11


@settings(max_examples=tries(8, soak=400), deadline=None, suppress_health_check=[*HealthCheck])
@given(model=first_models(), data=st.data())
def test_readers_of_both_formats_see_the_rows_of_a_model(tmp_path_factory, model, data):
    """Whatever columns came and went, once the files have the columns of the table."""
    folder = tmp_path_factory.mktemp("published")
    with sleeper.connect(folder / "instance", create=True) as instance:
        table = instance.create_table("t", model.schema(), row_keys=["k"], split_points=[20])
        for _ in range(data.draw(st.integers(2, 4))):
            new = drawn_rows(data, model, data.draw(st.integers(1, 6)))
            model.rows += new
            named = [{c.name: row[c.number] for c in model.columns} for row in new]
            table.ingest(pa.Table.from_pylist(named, schema=model.schema()))
            asked = drawn_change(data, model)
            if any(asked.values()):
                table.alter(**asked)
        for name in published_formats(model):
            try:
                done = table.publish(name, make_clean=True)
            except NothingToPublish:
                assert not model.rows
                continue
            assert in_order(read(done).to_pylist()) == model.shown()


def published_formats(model):
    """Delta has no type for some columns."""
    kinds = {column.type for column in model.columns}
    return [
        *([] if kinds & {pa.time64("us"), pa.duration("us")} else ["delta"]),
        *([] if pa.duration("us") in kinds else ["iceberg"]),
    ]
