"""NaN, infinities and zeros with a sign are what they were, whichever way they are read."""

from __future__ import annotations

import math
import struct
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.writing import data_file

NAN, INF = math.nan, math.inf
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("list", pa.list_(pa.field("element", pa.float64(), False))),
        ("map", pa.map_(pa.int32(), pa.field("value", pa.float32(), False))),
    ]
)
COLUMNS = {
    "NaN beside one number": [NAN, 1.5],
    "NaN beside equal numbers": [1.5, NAN, 1.5],
    "NaN first": [NAN, -INF, INF],
    "nothing but NaN": [NAN, NAN],
    "NaN beside null": [NAN, None],
    "NaN, null and one number": [None, NAN, 0.5],
    "one NaN": [NAN],
    "zeros of both signs": [0.0, -0.0],
    "negative zeros": [-0.0, -0.0],
    "infinity": [INF, INF],
    "nothing but null": [None, None],
}


def rows_of(numbers):
    return [
        {
            "id": place,
            "double": number,
            "float": number,
            "list": [] if number is None else [number],
            "map": {} if number is None else {1: number},
        }
        for place, number in enumerate(numbers)
    ]


def bits(rows):
    """Rows with each number as its bits, so that NaN equals NaN and -0.0 is not 0.0."""
    return [
        [None if value is None else struct.pack("<d", value) for value in numbers(row)]
        for row in rows
    ]


def numbers(row):
    mapped = dict(row["map"] or ())
    return chain((row["id"], row["double"], row["float"]), row["list"] or (), mapped.values())


@pytest.fixture(params=["files as they are now", "files of an older version"])
def table(request, tmp_path, monkeypatch):
    """A table whose files have statistics of floating-point columns, as once written, or not."""
    if request.param == "files of an older version":
        monkeypatch.setattr(data_file, "columns_with_statistics", lambda _: True)
    return sleeper.connect(tmp_path / "instance", create=True).create_table(
        "t", SCHEMA, row_keys=["id"]
    )


@pytest.mark.parametrize("numbers", COLUMNS.values(), ids=COLUMNS)
def test_numbers_are_the_same_to_every_bit_by_key_range_scan_compaction_and_export(
    table, numbers, tmp_path
):
    """Parquet's statistics leave NaN out, so they may not decide what a row holds."""
    rows = rows_of(numbers)
    table.ingest(rows)

    def as_read():
        return {
            "key": [row for row in rows for row in table.query(key=row["id"]).to_pylist()],
            "keys": table.query(keys=[row["id"] for row in rows]).to_pylist(),
            "range": table.query(range={"id": (0, len(rows))}).to_pylist(),
            "scan": table.query().to_pylist(),
        }

    before = as_read()
    table.ingest([{**row, "id": row["id"] + 1000} for row in rows])
    table.compact(all_files=True)
    after = {**as_read(), "scan": table.query(range={"id": (None, 1000)}).to_pylist()}
    table.export(tmp_path / "out")
    exported = [
        row
        for part in sorted(Path(tmp_path / "out").glob("*.parquet"))
        for row in pq.read_table(part).to_pylist()
    ]

    for found in (*before.values(), *after.values(), exported[: len(rows)]):
        assert bits(found) == bits(rows)


def test_files_have_no_statistics_of_floating_point_columns(tmp_path):
    """No engine can take a NaN for a number; the limits of keys stay, for pages to be chosen by."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    table = instance.create_table("t", SCHEMA, row_keys=["id"])
    table.ingest(rows_of([NAN, 1.5]))
    table.export(tmp_path / "out")

    for folder in (tmp_path / "instance", tmp_path / "out"):
        (path,) = (path for path in folder.rglob("*.parquet") if "statestore" not in path.parts)
        group = pq.ParquetFile(path).metadata.row_group(0)
        chunks = [group.column(place) for place in range(group.num_columns)]
        limited = {chunk.path_in_schema for chunk in chunks if chunk.is_stats_set}

        assert limited == {
            "id",
            "list.list.element",
            "map.key_value.key",
            "map.key_value.value",
        }
        assert all(chunk.has_offset_index for chunk in chunks)
