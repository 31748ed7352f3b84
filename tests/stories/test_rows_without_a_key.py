"""Rows that have no key: refused with a count, or set aside in a file of their own."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper

SCHEMA = pa.schema([("plate", pa.string()), ("speed", pa.int64())])
ROWS = [{"plate": "A 1", "speed": 50}, {"plate": None, "speed": 90}, {"plate": "B 2", "speed": 30}]


def test_rows_without_a_key_are_set_aside(tmp_path):
    """The others go in; the file holds the rest as they came, to be mended and tried again."""
    table = sleeper.connect("memory://").create_table("radar", SCHEMA, row_keys=["plate"])
    aside = tmp_path / "no-plate.parquet"

    with pytest.raises(sleeper.InputRefused, match="1 of 3 rows"):
        table.ingest(ROWS)
    result = table.ingest(ROWS, set_aside=aside)

    assert (result.rows_read, result.rows_written, result.rows_set_aside) == (3, 2, 1)
    assert table.query().to_pylist() == [ROWS[0], ROWS[2]]
    assert pq.read_table(aside).to_pylist() == [ROWS[1]]


def test_nothing_to_set_aside_makes_no_file(tmp_path):
    """A file means that there is something in it."""
    table = sleeper.connect("memory://").create_table("radar", SCHEMA, row_keys=["plate"])

    table.ingest(ROWS[:1], set_aside=tmp_path / "aside.parquet")

    assert list(tmp_path.iterdir()) == []


def test_only_rows_without_a_key(tmp_path):
    """All rows may be set aside; then the table is as it was."""
    table = sleeper.connect("memory://").create_table("radar", SCHEMA, row_keys=["plate"])

    result = table.ingest(ROWS[1:2], set_aside=tmp_path / "aside.parquet")

    assert (result.rows_written, result.rows_set_aside) == (0, 1)
    assert table.state().number == 1
    assert pq.read_table(tmp_path / "aside.parquet").num_rows == 1
