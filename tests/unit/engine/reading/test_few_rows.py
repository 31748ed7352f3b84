"""Ranges of few rows, read by the page reader, against DataFusion."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading import few_rows
from sleeper.engine.reading.few_rows import read_few_rows
from sleeper.engine.reading.merged_scan import FileSlice
from sleeper.engine.reading.read_leaves import open_table_reader
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged
from sleeper.model.keys import key_type
from sleeper.model.processing import Processing
from sleeper.model.ranges import canonical_range, region_of
from sleeper.model.schema import DecimalType, Field, ListType, Primitive, Schema
from sleeper.storage.local.folder import FolderObjects

STRINGS = ["", "\0", "a", "a\0", "b", "é", "\uffff", "\U0001f600", "\U0001f600" * 70, "z" * 300]
KEYS = {
    Primitive.STRING: lambda pick: (
        pick.choice(STRINGS) + pick.choice(("", "\0", "x", "\U0001f600"))
    ),
    Primitive.BYTES: lambda pick: (
        pick.randbytes(pick.choice((0, 1, 2, 260))) + pick.choice((b"", b"\0"))
    ),
    Primitive.LONG: lambda pick: pick.choice((-(2**63), 2**63 - 1, pick.randrange(-9, 9))),
    Primitive.INT: lambda pick: pick.randrange(-30, 30),
    Primitive.DATE: lambda pick: dt.date(1970, 1, 1) + dt.timedelta(days=pick.randrange(-40, 40)),
    Primitive.TIMESTAMP: lambda pick: (
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=pick.randrange(-40, 40))
    ),
}
REALS = [0.0, -0.0, float("inf"), None, 5e-324, 1.5]


def schema_of(*kinds):
    return Schema(
        row_keys=[Field(f"k{number}", kind) for number, kind in enumerate(kinds)],
        sort_keys=[Field("at", Primitive.LONG)],
        values=[
            Field("text", Primitive.STRING, nullable=True),
            Field("real", Primitive.DOUBLE, nullable=True),
            Field("price", DecimalType(9, 2), nullable=True),
            Field("tags", ListType(Primitive.STRING), nullable=True),
        ],
    )


def rows_of(schema, pick, count):
    row = 0
    rows = []
    for _ in range(count):
        row = row + 1
        keys = {field.name: KEYS[key_type(field)](pick) for field in schema.row_keys}
        rows.append(
            {
                **keys,
                "at": pick.randrange(10**9),
                "text": pick.choice(("", "\0", None, "\U0001f600", "x" * 200)),
                "real": pick.choice(REALS),
                "price": pick.choice((None, Decimal(row) / 100)),
                "tags": pick.choice((None, [], ["a", ""], ["\0"])),
            }
        )
    table = pa.Table.from_pylist(rows, to_arrow(schema))
    return table.sort_by([(name, "ascending") for name in schema.key_names])


def reader_of(folder, schema, tables):
    """A reader of files with small pages and row groups."""
    files = FolderObjects(folder)
    names = []
    layout = WriteSettings(page_rows=7, row_group_rows=40)
    for number, table in enumerate(tables):
        names.append(f"{number}.parquet")
        with files.open_output(names[-1]) as output:
            write_data_file(output, [table], schema, to_arrow(schema), layout)
    return open_table_reader(files, schema, Processing(), temp_folder=None, stores=None), names


def region(schema, pick):
    ranges = {}
    for field in schema.row_keys:
        low, high = sorted((KEYS[key_type(field)](pick), KEYS[key_type(field)](pick)))
        if pick.random() < 0.8:
            ends = (pick.choice((low, low, None)), pick.choice((high, high, None)))
            ranges[field.name] = canonical_range(
                field, *ends, min_inclusive=True, max_inclusive=low == high or pick.random() < 0.5
            )
    return region_of(schema, ranges)


@pytest.mark.parametrize("seed", range(24))
def test_rows_are_those_of_datafusion(tmp_path, seed):
    """Any keys and regions, one row key or two, one file or several: the same rows and order."""
    pick = Random(seed)
    kinds = [pick.choice([*KEYS])] if seed % 2 else [pick.choice([*KEYS]), pick.choice([*KEYS])]
    schema = schema_of(*kinds)
    tables = [rows_of(schema, pick, pick.choice((1, 30, 300))) for _ in range(1 + seed % 3)]
    reader, names = reader_of(tmp_path, schema, tables)
    columns = pick.choice(([*schema.names], [*schema.key_names], [*schema.key_names, "real"]))

    for _ in range(5):
        regions = tuple(region(schema, pick) for _ in range(pick.choice((1, 1, 2))))
        found = read_few_rows(
            reader.lookup, dict.fromkeys(names, regions), columns, schema, reader.arrow_schema
        )
        slices = [FileSlice(reader.files.url(name), regions) for name in names]
        expected = [*reader.scanner.merge(slices, columns)]

        assert found is not None
        assert found.schema.equals(pa.schema([reader.arrow_schema.field(n) for n in columns]))
        wanted = pa.Table.from_batches(expected, found.schema)
        assert repr(found.to_pylist()) == repr(wanted.to_pylist())


def small_table(tmp_path, rows=300):
    schema = schema_of(Primitive.INT)
    table = rows_of(schema, Random(1), rows)
    reader, names = reader_of(tmp_path, schema, [table])
    return reader, names, schema


def few(reader, names, schema, low, high):
    asked = region_of(schema, {"k0": canonical_range(schema.row_keys[0], low, high)})
    return read_few_rows(
        reader.lookup,
        dict.fromkeys(names, (asked,)),
        [*schema.names],
        schema,
        reader.arrow_schema,
    )


def test_many_rows_are_left_to_datafusion(tmp_path, monkeypatch):
    """By rows, by bytes of their pages, and by regions; a few are read all the same."""
    reader, names, schema = small_table(tmp_path)
    monkeypatch.setattr(few_rows, "FEW_ROWS", 100)

    assert few(reader, names, schema, -30, 30) is None
    assert few(reader, names, schema, 0, 2) is not None
    monkeypatch.setattr(few_rows, "FEW_BYTES", 10)
    assert few(reader, names, schema, 0, 2) is None
    unlimited = dict.fromkeys(names, ())
    assert read_few_rows(reader.lookup, unlimited, ["k0"], schema, reader.arrow_schema) is None


def test_many_files_may_have_as_many_rows_each_as_few_files(tmp_path, monkeypatch):
    """The limits are of 8 files; of 16 twice as much is read here, since plans cost by the file."""
    schema = schema_of(Primitive.INT)
    tables = [rows_of(schema, Random(seed), 30) for seed in range(16)]
    reader, names = reader_of(tmp_path, schema, tables)
    monkeypatch.setattr(few_rows, "FEW_ROWS", 8 * 30)

    found = few(reader, names, schema, -(2**31), 2**31 - 1)

    assert found.num_rows == 16 * 30
    assert found["k0"].to_pylist() == sorted(found["k0"].to_pylist())
    monkeypatch.setattr(few_rows, "FEW_ROWS", 8 * 30 - 1)
    assert few(reader, names, schema, -(2**31), 2**31 - 1) is None


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_files_are_read_in_portions(tmp_path, monkeypatch, at_once):
    """Rows come in key order, also where only one portion has any."""
    schema = schema_of(Primitive.INT)
    reader, names = reader_of(
        tmp_path, schema, [rows_of(schema, Random(seed), 30) for seed in range(5)]
    )
    whole = few(reader, names, schema, -30, 30)
    monkeypatch.setattr(few_rows, "_AT_ONCE", at_once)

    assert few(reader, names, schema, -30, 30) == whole
    assert few(reader, names, schema, 1_000, 1_001).num_rows == 0


def test_a_damaged_page_is_not_read(tmp_path):
    """A bit of a page that changed is an error that names the file."""
    reader, names, schema = small_table(tmp_path)
    path = tmp_path / names[0]
    body = bytearray(path.read_bytes())
    body[60] ^= 1
    path.write_bytes(body)

    with pytest.raises(DataDamaged, match=r"0\.parquet"):
        few(reader, names, schema, -30, -20)
