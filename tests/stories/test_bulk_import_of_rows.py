"""Rows in this process, imported in bulk: none is lost, and leaves are made for them."""

from __future__ import annotations

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pytest

import sleeper
from sleeper.errors import InsufficientData
from sleeper.state.log_store import TransactionLogStateStore
from sleeper.state.plans import extend_tree

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = pa.table({"k": [n * 7919 % 4001 for n in range(4000)], "v": ["x"] * 4000}, schema=SCHEMA)
KEPT = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.combine_chunks().to_batches()[0],
    "dataset": lambda: pds.dataset(ROWS),
    "pandas": ROWS.to_pandas,
    "polars": lambda: pl.from_arrow(ROWS),
    "dicts": ROWS.to_pylist,
}
READ_ONCE = {
    "reader": ROWS.to_reader,
    "iterator": lambda: iter(ROWS.to_pylist()),
    "generator": lambda: (row for row in ROWS.to_pylist()),
    "duckdb": lambda: duckdb.sql("select * from ROWS"),
}


@pytest.fixture
def table():
    """A table that wants four leaves, however few rows there are."""
    instance = sleeper.connect("memory://")
    properties = {
        "sleeper.table.bulk.import.min.leaf.partitions": 4,
        "sleeper.table.partition.splitting.min.rows": 1,
    }
    return instance.create_table("t", SCHEMA, row_keys=["k"], properties=properties)


@pytest.mark.parametrize("kind", [*KEPT, *READ_ONCE])
def test_every_row_arrives_from_every_kind_of_input(table, kind):
    """The first one too, of an iterator that can be read only once."""
    result = table.bulk_import({**KEPT, **READ_ONCE}[kind]())

    assert (result.rows_read, result.rows_written) == (4000, 4000)
    assert sorted(table.query().to_arrow()["k"].to_pylist()) == sorted(ROWS["k"].to_pylist())


@pytest.mark.parametrize("kind", [*KEPT])
def test_leaves_are_made_for_rows_that_can_be_read_twice(table, kind):
    """By a sample of their keys, as for files: each leaf gets about as many rows."""
    result = table.bulk_import(KEPT[kind]())

    assert (result.leaves_before, result.leaves_after) == (1, 4)
    assert min(reference.row_count for reference in result.files) > 800


@pytest.mark.parametrize("kind", [*READ_ONCE])
def test_a_stream_goes_into_the_leaves_that_there_are(table, kind):
    """Whoever looked at its keys first would have nothing left to write."""
    result = table.bulk_import(READ_ONCE[kind]())

    assert (result.leaves_before, result.leaves_after) == (1, 1)


def test_too_few_keys_are_refused_as_of_files(table):
    """The property asks for four leaves; nothing is changed."""
    with pytest.raises(InsufficientData, match="4"):
        table.bulk_import([{"k": 1, "v": "x"}] * 10)

    assert table.query().count() == 0


def test_few_rows_need_no_leaves_where_nobody_asks_for_them():
    """By default a leaf is for a million rows."""
    table = sleeper.connect("memory://").create_table("t", SCHEMA, row_keys=["k"])

    assert table.bulk_import(ROWS).leaves_after == 1
    assert table.query().count() == 4000


@pytest.mark.parametrize(("changes_max", "leaves"), [(None, 40), (31, 11)])
def test_leaves_are_as_many_as_the_state_store_makes_in_one_commit(
    monkeypatch, changes_max, leaves
):
    """
    Given rows for forty leaves, when the store of the state splits only ten by one commit and no
    property asks for more, then the rows are imported into eleven.
    """
    monkeypatch.setattr(extend_tree, "LEAF_ROWS", 100)
    monkeypatch.setattr(TransactionLogStateStore, "changes_max", changes_max)
    instance = sleeper.connect("memory://")
    properties = {"sleeper.table.partition.splitting.min.rows": 1}
    table = instance.create_table("t", SCHEMA, row_keys=["k"], properties=properties)

    result = table.bulk_import(ROWS)

    assert (result.leaves_after, result.rows_written) == (leaves, 4000)
