"""Rows in a file of a user's own."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from sleeper.engine.rows import Rows
from sleeper.engine.writing.user_file import ParquetLayout, stream_parquet, write_rows
from sleeper.errors import DataDamaged, QueryInvalid, StorageFailed

FLAT = pa.table(
    {
        "id": ["a", 'b,"c"\n😀'],
        "n": pa.array([2**63 - 1, None], pa.int64()),
        "raw": [b"\x00\xff", b""],
        "money": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "day": [date(2025, 1, 2), None],
        "at": pa.array([datetime(2025, 1, 2, 3, 4, 5, 6, UTC), None], pa.timestamp("us", "UTC")),
    }
)
NESTED = pa.table(
    {
        "id": ["a"],
        "list": pa.array([[b"\xff"]], pa.list_(pa.binary())),
        "map": pa.array([[("k", b"\xff")]], pa.map_(pa.string(), pa.binary())),
        "counts": pa.array([[(5, 1), (-1, 2)]], pa.map_(pa.int64(), pa.int64())),
    }
)


def rows_of(table):
    """The rows of a table as a stream, a row a batch."""
    return Rows(iter(table.to_batches(max_chunksize=1)), table.schema, transaction=1)


@pytest.mark.parametrize("table", [FLAT, NESTED, FLAT.slice(0, 0)])
@pytest.mark.parametrize(
    ("output_format", "read"),
    [("parquet", pq.read_table), ("arrow", lambda path: pa.ipc.open_file(path).read_all())],
)
def test_parquet_and_arrow_keep_everything(tmp_path, table, output_format, read):
    """Types and values come back as they were, without a single row too."""
    path = tmp_path / "out"

    assert write_rows(rows_of(table), path, output_format) == table.num_rows
    assert read(path).equals(table)


def test_parquet_gathers_small_batches_in_one_row_group(tmp_path):
    """A thousand batches are not a thousand row groups."""
    write_rows(rows_of(pa.table({"n": range(1000)})), tmp_path / "out", "parquet")

    assert pq.read_metadata(tmp_path / "out").num_row_groups == 1


def test_csv_has_a_header_and_bytes_as_base64(tmp_path):
    """Commas, quotes and line ends are quoted; a null is an empty field."""
    path = tmp_path / "out.csv"

    assert write_rows(rows_of(FLAT), path, "csv") == 2

    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    back = pyarrow.csv.read_csv(path, parse_options=options).to_pydict()
    assert back["id"] == FLAT["id"].to_pylist()
    assert back["n"] == [2**63 - 1, None]
    assert back["raw"] == ["AP8=", ""]
    assert path.read_text().splitlines()[0] == '"id","n","raw","money","day","at"'


def test_csv_refuses_lists_and_maps(tmp_path):
    """The message says which columns, and what to do; no file is left."""
    with pytest.raises(QueryInvalid, match="list, map, counts: write json"):
        write_rows(rows_of(NESTED), tmp_path / "out.csv", "csv")

    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object_a_line(tmp_path):
    """Bytes are base64 wherever they are; maps are objects, whatever their keys."""
    path = tmp_path / "out.jsonl"

    write_rows(rows_of(NESTED), path, "json")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"id": "a", "list": ["/w=="], "map": {"k": "/w=="}, "counts": {"5": 1, "-1": 2}}
    ]

    assert write_rows(rows_of(FLAT), path, "json") == 2
    first, second = [json.loads(line) for line in path.read_text().splitlines()]
    assert (first["n"], first["raw"], first["day"]) == (2**63 - 1, "AP8=", "2025-01-02")
    assert (second["id"], second["n"]) == ('b,"c"\n😀', None)


@pytest.mark.parametrize("output_format", ["parquet", "csv", "arrow", "json"])
def test_a_file_appears_only_when_it_is_complete(tmp_path, output_format):
    """If reading fails in the middle, the file that was there is still there."""
    path = tmp_path / "out"
    path.write_text("before")

    def source():
        yield FLAT.to_batches()[0]
        raise DataDamaged("data file x is damaged")

    with pytest.raises(DataDamaged):
        write_rows(Rows(source(), FLAT.schema, transaction=1), path, output_format)

    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert path.read_text() == "before"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """The error names the path, and rows are not read in vain."""
    rows = rows_of(FLAT)

    with pytest.raises(StorageFailed, match="nowhere/out"):
        write_rows(rows, tmp_path / "nowhere" / "out", "csv")


@pytest.mark.parametrize("quick_first", [True, False])
def test_two_that_write_to_one_path_do_not_meet(tmp_path, quick_first):
    """Each writes a file of its own; the path has that of the one that ended last, whole."""
    path = tmp_path / "out.parquet"
    slow, quick = pa.table({"n": range(200_000)}), pa.table({"n": [1]})
    ended = []

    def batches():
        yield from slow.to_batches()
        if quick_first:
            ended.append(write_rows(rows_of(quick), path, "parquet"))

    ended.append(write_rows(Rows(batches(), slow.schema, transaction=1), path, "parquet"))
    if not quick_first:
        ended.append(write_rows(rows_of(quick), path, "parquet"))

    assert ended == ([1, 200_000] if quick_first else [200_000, 1])
    assert pq.read_table(path).num_rows == ended[-1]
    assert [found.name for found in tmp_path.iterdir()] == ["out.parquet"]


def test_leftovers_of_killed_processes_are_in_nobodys_way(tmp_path):
    """A hidden file of the same process number is passed over."""
    path = tmp_path / "out.parquet"
    left = tmp_path / f".out.parquet.{os.getpid()}-0.unfinished"
    left.write_text("half")

    write_rows(rows_of(FLAT), path, "parquet")

    assert left.read_text() == "half"
    assert pq.read_table(path).num_rows == FLAT.num_rows


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_a_layout_says_how_a_file_is_made(codec):
    """Compression, bytes in a row group and in a page."""
    rows = pa.table({"n": range(50_000)})
    layout = ParquetLayout(compression=codec, row_group_bytes=80_000, page_bytes=1000)
    file = io.BytesIO()

    source = Rows(iter(rows.to_batches()), rows.schema, transaction=1)

    count = stream_parquet(source, file, layout)

    footer = pq.ParquetFile(io.BytesIO(file.getvalue())).metadata
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    assert (count, footer.num_rows) == (50_000, 50_000)
    assert {group.num_rows for group in groups} == {10_000}
    assert {group.column(0).compression for group in groups} == {codec.upper()}


def test_without_a_layout_a_file_is_made_as_others_are():
    """zstd, and as many rows in a row group as are read at once."""
    rows = pa.table({"n": range(250_000)})
    file = io.BytesIO()

    source = Rows(iter(rows.to_batches(max_chunksize=10_000)), rows.schema, transaction=1)

    stream_parquet(source, file, ParquetLayout())

    footer = pq.ParquetFile(io.BytesIO(file.getvalue())).metadata
    assert footer.row_group(0).column(0).compression == "ZSTD"
    assert footer.num_row_groups <= 3
