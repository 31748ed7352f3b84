"""Rows come from and go to pandas, polars, DuckDB, Arrow, Parquet and plain dicts."""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

import sleeper

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
ROWS = [{"id": n, "name": f"n{n}" if n % 2 else None} for n in range(5)]
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)


@pytest.fixture
def table():
    return sleeper.connect("memory://").create_table("t", SCHEMA, row_keys=["id"])


def written(folder):
    pq.write_table(TABLE, folder / "rows.parquet")
    return folder / "rows.parquet"


@pytest.mark.parametrize(
    "data",
    [
        lambda folder: ROWS,
        lambda folder: (row for row in reversed(ROWS)),
        lambda folder: TABLE,
        lambda folder: TABLE.to_batches()[0],
        lambda folder: TABLE.to_reader(),
        lambda folder: pds.dataset(written(folder)),
        lambda folder: pd.DataFrame(ROWS),
        lambda folder: pl.DataFrame(ROWS),
        lambda folder: duckdb.from_arrow(TABLE),
        written,
        lambda folder: str(written(folder)),
        lambda folder: [written(folder)],
        lambda folder: written(folder).parent,
        lambda folder: written(folder).as_uri(),
    ],
    ids=[
        *("dicts", "generator", "arrow table", "batch", "reader", "dataset", "pandas", "polars"),
        *("duckdb", "path", "string", "list", "folder", "url"),
    ],
)
def test_whatever_holds_rows_can_be_ingested(table, tmp_path, data):
    """The same rows are in the table, whoever held them (rule ING-1)."""
    result = table.ingest(data(tmp_path))

    assert result.rows_written == 5
    assert table.query().to_arrow() == TABLE


def test_an_answer_goes_to_any_of_them(table):
    """By method, or directly by the Arrow PyCapsule interface, which copies nothing."""
    table.ingest(ROWS)

    rows = table.query().to_arrow()
    assert rows == TABLE
    assert table.query().to_pylist() == ROWS
    assert pd.isna(table.query().to_pandas()["name"][0])
    assert table.query().to_polars().equals(pl.DataFrame(rows))
    assert pl.DataFrame(table.query()).equals(pl.DataFrame(rows))
    assert pa.table(table.query()) == TABLE
    assert duckdb.sql("select max(id) from rows").fetchall() == [(4,)]
    assert sum(batch.num_rows for batch in table.query()) == 5


def test_an_answer_goes_into_another_table(table):
    """What a table answers can be ingested: a copy without a file in between."""
    table.ingest(ROWS)
    copy = sleeper.connect("memory://").create_table("copy", SCHEMA, row_keys=["id"])

    copy.ingest(table.query(range={"id": (1, 3)}))

    assert copy.query().to_pylist() == ROWS[1:3]


def test_a_stream_is_read_once(table):
    """A range is read while it is iterated; a second look says what to do instead."""
    table.ingest(ROWS)
    answer = table.query()
    answer.to_arrow()

    with pytest.raises(sleeper.SleeperError, match="Query again"):
        answer.to_arrow()


def test_keys_from_arrow_and_numpy(table):
    """Many keys need not become Python values first."""
    table.ingest(ROWS)

    for keys in (pa.array([3, 1]), TABLE["id"].to_numpy()[[3, 1]], pd.Series([3, 1]).to_numpy()):
        assert table.query(keys=keys).to_pylist() == [ROWS[1], ROWS[3]]
