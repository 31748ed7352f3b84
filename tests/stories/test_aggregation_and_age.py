"""Tables that add up rows of equal keys, and tables that forget old rows."""

from __future__ import annotations

import time
from decimal import Decimal

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import SchemaInvalid

SCHEMA = pa.schema(
    [
        pa.field("page", pa.string()),
        pa.field("hits", pa.int64(), nullable=False),
        pa.field("longest_ms", pa.int64(), nullable=False),
    ]
)
EVENTS = pa.schema([pa.field("id", pa.string()), pa.field("at_ms", pa.int64(), nullable=False)])


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_rows_of_equal_keys_become_one(parts):
    """Sums and maxima are the same however the rows arrive (rules PRC-1 to PRC-5)."""
    table = sleeper.connect("memory://").create_table(
        "hits",
        SCHEMA,
        row_keys=["page"],
        properties={"sleeper.table.aggregations": "sum(hits),max(longest_ms)"},
    )
    rows = [
        {"page": page, "hits": 1, "longest_ms": ms}
        for page, ms in [("a", 5), ("b", 7), ("a", 9), ("a", 1), ("b", 2), ("c", 3)]
    ]

    for part in range(parts):
        table.ingest(rows[part::parts])

    assert table.query().to_pylist() == [
        {"page": "a", "hits": 3, "longest_ms": 9},
        {"page": "b", "hits": 2, "longest_ms": 7},
        {"page": "c", "hits": 1, "longest_ms": 3},
    ]
    assert table.query(key="b", columns=["hits"]).to_pylist() == [{"hits": 2}]
    assert table.query(keys=["c", "a"], columns=["longest_ms"]).to_pylist() == [
        {"longest_ms": 9},
        {"longest_ms": 3},
    ]


def test_an_ingest_says_how_many_rows_are_left():
    """Rows that were united or dropped are read and not written."""
    table = sleeper.connect("memory://").create_table(
        "hits",
        SCHEMA,
        row_keys=["page"],
        properties={"sleeper.table.aggregations": "sum(hits),max(longest_ms)"},
    )

    result = table.ingest([{"page": "a", "hits": 1, "longest_ms": ms} for ms in range(10)])

    assert (result.rows_read, result.rows_written) == (10, 1)


def test_old_rows_are_forgotten():
    """A row older than the limit is no longer found, and not taken in either (rule PRC-2)."""
    hour_ms = 3_600_000
    now_ms = int(time.time() * 1000)
    table = sleeper.connect("memory://").create_table(
        "events",
        EVENTS,
        row_keys=["id"],
        properties={"sleeper.table.filters": f"ageOff(at_ms,{hour_ms})"},
    )
    young, old = {"id": "a", "at_ms": now_ms}, {"id": "b", "at_ms": now_ms - 2 * hour_ms}

    result = table.ingest([young, old])

    assert (result.rows_read, result.rows_written) == (2, 1)
    assert table.query().to_pylist() == [young]


def test_a_filter_set_later_hides_what_is_there():
    """Properties change how rows are read from the next query on."""
    table = sleeper.connect("memory://").create_table("events", EVENTS, row_keys=["id"])
    table.ingest([{"id": "a", "at_ms": 1}])
    assert table.query().to_arrow().num_rows == 1

    table.set_properties({"sleeper.table.filters": "ageOff(at_ms,1000)"})
    assert table.query().to_pylist() == []
    assert table.query(key="a").to_pylist() == []

    table.set_properties({"sleeper.table.filters": None})
    assert table.query(key="a").to_arrow().num_rows == 1


def test_a_sum_of_decimals_that_is_too_large_fails_no_read_and_loses_nothing():
    """
    Rows of different ingests meet when they are read. Their sum is shown as the largest value of
    its type, compactions keep them, and with rows that make it smaller it is exact again.
    """
    schema = pa.schema(
        [("key", pa.string()), pa.field("money", pa.decimal128(3, 1), nullable=False)]
    )
    table = sleeper.connect("memory://").create_table(
        "t", schema, row_keys=["key"], properties={"sleeper.table.aggregations": "sum(money)"}
    )

    def read():
        table_rows = {(row["key"], row["money"]) for row in table.query().to_pylist()}
        looked_up = {(row["key"], row["money"]) for row in table.query(key="a").to_pylist()}
        assert looked_up <= table_rows
        return table_rows

    for _ in range(2):
        table.ingest([{"key": "a", "money": Decimal("90.0")}, {"key": "b", "money": Decimal(1)}])
    assert read() == {("a", Decimal("99.9")), ("b", Decimal(2))}
    table.compact(all_files=True)
    assert read() == {("a", Decimal("99.9")), ("b", Decimal(2))}
    table.ingest([{"key": "a", "money": Decimal("-99.0")}])
    assert read() == {("a", Decimal("81.0")), ("b", Decimal(2))}
    table.compact(all_files=True)
    assert read() == {("a", Decimal("81.0")), ("b", Decimal(2))}
    with pytest.raises(SchemaInvalid, match="field 'money' does not fit"):
        table.ingest([{"key": "a", "money": Decimal("60.0")}] * 2)
