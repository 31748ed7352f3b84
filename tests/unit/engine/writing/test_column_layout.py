"""Codec and encoding of each column of a data file, and who can read them."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.writing.data_file import WriteSettings, column_layouts, write_data_file
from sleeper.lookup.reader import LookupReader
from sleeper.model.schema import DecimalType, Field, ListType, MapType, Primitive, Schema
from sleeper.storage.local.folder import FolderObjects

SCHEMA = Schema(
    row_keys=[Field("id", Primitive.STRING), Field("at", Primitive.LONG)],
    sort_keys=[Field("seen", Primitive.TIMESTAMP)],
    values=[
        Field("text", Primitive.STRING, nullable=True),
        Field("raw", Primitive.BYTES, nullable=True),
        Field("whole", Primitive.INT, nullable=True),
        Field("day", Primitive.DATE, nullable=True),
        Field("real", Primitive.DOUBLE, nullable=True),
        Field("price", DecimalType(9, 2), nullable=True),
        Field("tags", ListType(Primitive.STRING), nullable=True),
        Field("counts", MapType(Primitive.STRING, Primitive.LONG), nullable=True),
    ],
)
ARROW = to_arrow(SCHEMA)
TEXTS = ["", "\0", "é\U0001f600", "x" * 300, None, "a", "\uffff"]
RAWS = [b"", b"\0" * 9, b"\xff" * 40, None, b"\x01\0\0\0"]
WHOLES = [0, -(2**31), 2**31 - 1, None, 7, 7, 7]
REALS = [0.0, -0.0, 1e308, None, 5e-324]


def rows():
    """600 rows of odd values, sorted by key."""
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    return pa.Table.from_pylist(
        [
            {
                "id": f"key{place // 2:04}" + "\U0001f600" * (place % 3),
                "at": place * 977 - 5_000,
                "seen": start + dt.timedelta(microseconds=place**3),
                "text": TEXTS[place % 7],
                "raw": RAWS[place % 5],
                "whole": WHOLES[place * 3 % 7],
                "day": None
                if place % 9 == 0
                else dt.date(1, 1, 1) + dt.timedelta(days=place * 999),
                "real": REALS[place % 5],
                "price": Decimal(place) / 100,
                "tags": [str(place)] * (place % 3),
                "counts": [("n", place)],
            }
            for place in range(600)
        ],
        ARROW,
    ).sort_by([("id", "ascending"), ("at", "ascending")])


def written(**settings):
    file = io.BytesIO()
    write_data_file(file, [rows()], SCHEMA, ARROW, WriteSettings(page_rows=100, **settings))
    return file.getvalue()


def columns(data):
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    return [group.column(place) for place in range(group.num_columns)]


def test_each_column_has_its_own_codec_and_encoding():
    """Row keys and numbers are plain, each in a codec of their own; texts have lengths first."""
    found = columns(written())

    kinds = {
        each.path_in_schema: (each.compression, "DELTA" in str(each.encodings)) for each in found
    }
    assert kinds["id"] == ("ZSTD", False)
    assert kinds["at"] == ("ZSTD", False)
    assert kinds["seen"] == kinds["whole"] == kinds["day"] == ("LZ4", False)
    assert kinds["text"] == kinds["raw"] == ("ZSTD", True)
    assert kinds["real"] == kinds["price"] == kinds["tags.list.element"] == ("ZSTD", False)


@pytest.mark.parametrize(
    ("codec", "name"), [("snappy", "SNAPPY"), ("zstd", "ZSTD"), ("none", "UNCOMPRESSED")]
)
def test_a_codec_that_was_chosen_is_that_of_all_columns(codec, name):
    """A codec of the table's properties is no hint: every column has it."""
    assert {each.compression for each in columns(written(codec=codec))} == {name}


def test_version_1_pages_have_no_delta_encodings():
    """They are for readers that know PLAIN and dictionaries alone."""
    assert not any("DELTA" in str(each.encodings) for each in columns(written(page_version="1.0")))


def test_columns_with_dictionaries_have_no_other_encoding():
    """A dictionary that was asked for wins."""
    found = {each.path_in_schema: each for each in columns(written(dictionary_values=True))}

    assert "RLE_DICTIONARY" in found["whole"].encodings
    assert "RLE_DICTIONARY" in found["text"].encodings
    assert "DELTA" not in str(found["text"].encodings)


def test_every_column_has_a_layout():
    """Leaves of lists and maps too, by the paths that the file has."""
    layouts = column_layouts(SCHEMA, ARROW, codec=None)

    assert set(layouts) == {each.path_in_schema for each in columns(written())}


@pytest.mark.parametrize("codec", [None, "lz4", "none"])
def test_all_readers_read_the_same_rows(codec, tmp_path):
    """pyarrow, DataFusion, DuckDB, polars, and look-ups."""
    path = tmp_path / "file.parquet"
    path.write_bytes(written(codec=codec))
    expected = rows()

    assert pq.read_table(path).cast(ARROW).equals(expected)
    simple = [field.name for field in ARROW if not pa.types.is_nested(field.type)]
    wanted = expected.select(simple).to_pylist()
    for read in (by_datafusion, by_duckdb, by_polars):
        assert read(path, simple).to_pylist() == wanted, read.__name__
    keys = expected.select(["id", "at"]).slice(100, 50).combine_chunks().to_batches()[0]
    (found,) = LookupReader(FolderObjects(path.parent)).look_up([path.name], keys, ARROW)
    assert found.equals(expected.slice(100, 50))


def by_datafusion(path, names):
    context = datafusion.SessionContext()
    context.register_parquet("t", str(path))
    plain = ", ".join(f'"{name}"' for name in names)
    return context.sql(f'select {plain} from t order by id, "at"').to_arrow_table()


def by_duckdb(path, names):
    connection = duckdb.connect()
    connection.sql("set timezone = 'UTC'")
    plain = ", ".join(f'"{name}"' for name in names)
    return connection.sql(f"select {plain} from '{path}' order by all").to_arrow_table()


def by_polars(path, names):
    return pl.read_parquet(path, columns=names).sort("id", "at").to_arrow()
