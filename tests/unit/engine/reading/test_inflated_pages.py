"""Pages that one stream decompresses, for pyarrow to decode."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.reading import decoded_rows, inflated_pages
from sleeper.errors import DataDamaged

ROWS = 40_000
VERSIONS = {
    "pages of version 2": {},
    "pages of version 1": {"sleeper.table.parquet.writer.version": "v1"},
}


def some(values, *, every=1):
    """Values, of which each but every so many is null."""
    return [value if n % every == 0 else None for n, value in enumerate(values)]


COLUMNS = {
    "numbers": pa.array([n * 31 % 4_001 for n in range(ROWS)], pa.int64()),
    "numbers, most null": pa.array(some(range(ROWS), every=7), pa.int64()),
    "only null": pa.nulls(ROWS, pa.float64()),
    "fractions": pa.array([n / 8 for n in range(ROWS)], pa.float64()),
    "fractions, most null": pa.array(some((n / 8 for n in range(ROWS)), every=7), pa.float64()),
    "texts": pa.array([f"{n:07}" for n in range(ROWS)], pa.string()),
    "empty texts": pa.array([""] * ROWS, pa.string()),
    "lists": pa.array([[n, None] if n % 3 else [] for n in range(ROWS)], pa.list_(pa.int64())),
}


def in_part_random():
    """Numbers whose last pages cannot be compressed, and are not."""
    drawn = random.Random(4).randbytes(8 * 2_000)
    tail = [int.from_bytes(drawn[at : at + 8], "big", signed=True) for at in range(0, 16_000, 8)]
    return pa.array([n // 500 for n in range(ROWS - 2_000)] + tail, pa.int64())


@pytest.fixture
def runs(monkeypatch):
    """Whether each run that was read was decompressed by the stream."""
    seen = []

    def inflating(*given):
        found = inflated_pages.inflated(*given)
        seen.extend(pages is not None for pages in found)
        return found

    monkeypatch.setattr(decoded_rows, "inflated", inflating)
    return seen


def table_of(column, properties):
    schema = pa.schema(
        [pa.field("key", pa.int64(), nullable=False), pa.field("value", column.type)]
    )
    table = sleeper.connect("memory://").create_table(
        "t", schema, row_keys=["key"], properties=properties
    )
    table.ingest(pa.table({"key": range(len(column)), "value": column}, schema=schema))
    return table


@pytest.mark.parametrize("properties", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("column", [*COLUMNS.values(), in_part_random()], ids=[*COLUMNS, "random"])
def test_values_of_any_column_are_read_as_they_were_written(column, properties):
    """Whatever is null, nested or cannot be compressed, values are those that were written."""
    table = table_of(column, properties)

    found = table.query(columns=["value"], ordered=False).to_arrow()

    assert found["value"].combine_chunks().equals(column)


@pytest.mark.parametrize("name", ["numbers", "fractions", "texts", "fractions, most null"])
def test_many_pages_are_decompressed_by_one_stream(name, runs):
    """Given a column of many pages without a dictionary, pyarrow decompresses none of them."""
    table = table_of(COLUMNS[name], {})

    table.query(columns=["value"], ordered=False).to_arrow()

    assert runs
    assert all(runs)


def test_few_pages_are_left_to_pyarrow(runs):
    """Given a column of a page or two, the stream would cost more than it saves."""
    table = table_of(COLUMNS["fractions"].slice(0, 1_500), {})

    found = table.query(columns=["value"], ordered=False).to_arrow()

    assert found["value"].to_pylist() == [n / 8 for n in range(1_500)]
    assert runs == [False]


def test_a_header_that_announces_another_size_is_an_error(monkeypatch):
    """Given pages of other sizes than their headers say, no value is returned."""
    table = table_of(COLUMNS["fractions"], {})
    right = inflated_pages.compressed_header

    def larger(raw, at):
        header = right(raw, at)
        return header._replace(size=header.size + 1)

    monkeypatch.setattr(inflated_pages, "compressed_header", larger)

    with pytest.raises(DataDamaged, match="other sizes than their headers say"):
        table.query(columns=["value"], ordered=False).to_arrow()
