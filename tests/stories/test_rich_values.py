"""Values of every type: maps, lists, decimals, dates, nothing at all, and long ones."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import sleeper

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("part", pa.binary()),
        pa.field("price", pa.decimal128(20, 4)),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
        pa.field("day", pa.date32()),
        pa.field("good", pa.bool_()),
        pa.field("ratio", pa.float32()),
    ]
)
FULL = {
    "at": NOON,
    "part": b"\x00\xff",
    "price": Decimal("1234567890123456.7890"),
    "tags": ["a", "", "ü\U0001f431"],
    "counts": {"x": 1, "y": -(2**63)},
    "day": dt.date(1969, 12, 31),
    "good": False,
    "ratio": 0.5,
}
NOTHING = {**dict.fromkeys(FULL), "at": NOON, "part": b""}
EMPTY = {**FULL, "part": b"\x7f", "tags": [], "counts": {}}
LONG = {**FULL, "part": b"\x80" * 10_000, "tags": ["w" * 100_000] * 3}


@pytest.fixture(scope="module")
def table():
    made = sleeper.connect("memory://").create_table(
        "t", SCHEMA, row_keys=["at", "part"], split_points=[NOON - dt.timedelta(days=1)]
    )
    made.ingest([FULL, LONG])
    made.ingest([EMPTY, NOTHING])
    return made


def test_every_value_comes_back_as_it_went_in(table):
    """Nulls and empty lists are different things; bytes are ordered unsigned (design 9)."""
    found = table.query()

    assert found.schema.equals(table.arrow_schema)
    assert found.to_pylist() == [NOTHING, FULL, EMPTY, LONG]


@pytest.mark.parametrize("row", [FULL, NOTHING, EMPTY, LONG], ids=["full", "null", "empty", "long"])
def test_by_key_too(table, row):
    """A look-up by key decodes the same values."""
    assert table.query(key=(NOON, row["part"])).to_pylist() == [row]


def test_instants_are_instants(table):
    """A key of another time zone is the same instant."""
    in_tokyo = NOON.astimezone(dt.timezone(dt.timedelta(hours=9)))

    assert table.query(key=(in_tokyo, b"")).to_pylist() == [NOTHING]


def test_some_columns_only(table):
    """Exactly those, in the order asked."""
    found = table.query(key=(NOON, b"\x00\xff"), columns=["counts", "price"])

    assert found.to_pylist() == [{"counts": FULL["counts"], "price": FULL["price"]}]
