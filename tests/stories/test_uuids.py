"""Objects of class UUID in rows, frames and keys: they are texts, as `str(value)` gives them."""

from __future__ import annotations

from uuid import UUID

import pandas as pd
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InputSchemaMismatch

FIRST, SECOND = UUID("00000000-0000-4000-8000-0000000000a5"), UUID(int=9)
TEXTS = sorted(map(str, (FIRST, SECOND)))
IN_ARROW = pa.array([FIRST.bytes, SECOND.bytes], pa.uuid())
GIVEN = {
    "dicts": lambda: [{"id": FIRST, "n": 1}, {"id": SECOND, "n": 2}],
    "columns": lambda: {"id": [FIRST, SECOND], "n": [1, 2]},
    "pandas": lambda: pd.DataFrame({"id": [FIRST, SECOND], "n": [1, 2]}),
    "index": lambda: pd.DataFrame({"n": [1, 2]}, index=pd.Index([FIRST, SECOND], name="id")),
}


@pytest.fixture
def instance():
    with sleeper.connect("memory://") as opened:
        yield opened


@pytest.mark.parametrize("make", GIVEN.values(), ids=GIVEN)
def test_a_table_made_of_them_takes_them(instance, make):
    """Given a frame with UUIDs, when a table is made like it, then it takes the frame."""
    table = instance.create_table("t", make(), row_keys=["id"])

    table.ingest(make())

    assert table.query().to_arrow()["id"].to_pylist() == TEXTS
    assert table.arrow_schema.field("id").type == pa.string()


def test_they_find_rows_as_their_texts_do(instance):
    """As a key, in a list of keys, and at the ends of a range."""
    table = instance.create_table("t", GIVEN["dicts"](), row_keys=["id"])
    table.ingest(GIVEN["dicts"]())

    assert [row["n"] for row in table.query(key=FIRST).rows()] == [1]
    assert [row["n"] for row in table.query(keys=[SECOND, UUID(int=7)]).rows()] == [2]
    between = table.query(range={"id": (SECOND, None)}).rows()
    assert [row["n"] for row in between] == [2, 1]
    table.delete(keys=[FIRST])
    assert len(table) == 1


def test_they_may_be_beside_texts_and_inside_of_lists(instance):
    """Missing ones are null."""
    schema = pa.schema([("id", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.string()))])
    table = instance.create_table("t", schema, row_keys=["id"])

    table.ingest([{"id": 1, "t": FIRST, "l": [SECOND, "x"]}, {"id": 2, "t": "x", "l": None}])
    table.ingest(pd.DataFrame({"id": [3, 4], "t": [SECOND, None]}))

    rows = table.query().to_pylist()
    assert [row["t"] for row in rows] == [str(FIRST), "x", str(SECOND), None]
    assert rows[0]["l"] == [str(SECOND), "x"]


def test_those_of_arrow_are_bytes_and_never_taken_for_text(instance):
    """Arrow keeps 16 bytes; in a text some would be control characters, and most no text."""
    texts = instance.create_table("texts", pa.schema([("id", pa.string())]), row_keys=["id"])
    made = instance.create_table("made", pa.table({"id": IN_ARROW}), row_keys=["id"])

    with pytest.raises(InputSchemaMismatch, match=r"16 bytes of each UUID.*or declare ByteArray"):
        texts.ingest(pa.table({"id": IN_ARROW}))
    made.ingest(pa.table({"id": IN_ARROW}))

    assert made.query(key=FIRST.bytes).to_pylist() == [{"id": FIRST.bytes}]
    assert made.arrow_schema.field("id").type == pa.binary()
    assert len(texts) == 0


def test_those_of_python_are_no_bytes(instance):
    """A field of bytes asks for bytes."""
    table = instance.create_table("t", pa.schema([("id", pa.binary())]), row_keys=["id"])

    with pytest.raises(InputSchemaMismatch, match="a UUID is not bytes"):
        table.ingest([{"id": FIRST}])
