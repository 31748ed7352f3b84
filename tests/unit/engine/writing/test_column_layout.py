"""Codec and encoding of each column of a data file, and who can read them."""

from __future__ import annotations

import datetime as dt
import io
import tempfile
from decimal import Decimal
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.writing.column_layout import (
    SAMPLED_ROWS_MIN,
    candidates,
    file_layouts,
    layouts_by_type,
)
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
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
    layouts = layouts_by_type(candidates(SCHEMA, ARROW, WriteSettings()))

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


# ---------------------------------------------------------------- by a sample

MANY = Schema(
    row_keys=[Field("id", Primitive.LONG)],
    values=[
        Field("word", Primitive.STRING, nullable=True),
        Field("text", Primitive.STRING),
        Field("part", Primitive.LONG),
        Field("random", Primitive.DOUBLE),
        Field("small", DecimalType(9, 2), nullable=True),
        Field("price", DecimalType(18, 4)),
        Field("day", Primitive.DATE, nullable=True),
        Field("tags", ListType(Primitive.STRING), nullable=True),
        Field("flag", Primitive.BOOLEAN),
    ],
)
MANY_ARROW = to_arrow(MANY)
KEYS = pa.schema([MANY_ARROW.field("id")])


def many_rows(count, seed=1):
    """Rows whose columns are each smallest in another way."""
    draw = np.random.default_rng(seed)
    words = pa.array(["", "one", "zwei", "trois", None, "\U0001f600"])
    small = pa.array([None if n == 9 else Decimal(n - 20) / 100 for n in range(50)])
    days = pa.array([None if n == 7 else n * 999 for n in range(40)], pa.int32())
    tags = [["a", "b"], [], None, ["c"]]
    columns = {
        "id": pa.array(np.arange(count)),
        "word": words.take(pa.array(draw.integers(0, 6, count))),
        "text": pa.array([f"{n:x}-{n * 7919 % 104729:08}" for n in range(count)]),
        "part": pa.array((1 << 40) + np.cumsum(draw.integers(0, 100, count))),
        "random": pa.array(draw.random(count)),
        "small": small.take(pa.array(draw.integers(0, 50, count))),
        "price": pa.array(
            [Decimal(int(n)) / 10_000 for n in draw.integers(-(10**12), 10**12, count)]
        ),
        "day": days.take(pa.array(draw.integers(0, 40, count))),
        "tags": pa.array([tags[n % 4] for n in range(count)], pa.list_(pa.string())),
        "flag": pa.array(draw.random(count) < 0.5),
    }
    return pa.table(columns).cast(MANY_ARROW)


def written_rows(rows, **settings):
    file = io.BytesIO()
    write_data_file(file, [rows], MANY, MANY_ARROW, WriteSettings(**settings))
    return file.getvalue()


def in_datafusion(path):
    return datafusion.SessionContext().read_parquet(str(path)).to_arrow_table()


def in_duckdb(path):
    return duckdb.sql(f"select * from '{path}'").to_arrow_table()


def chosen(rows, **settings):
    return file_layouts(rows, MANY, MANY_ARROW, WriteSettings(**settings))


def test_each_column_is_written_as_its_first_rows_are_smallest():
    """Few values get a dictionary, narrow numbers differences, texts lengths; random ones neither."""
    layouts = chosen(many_rows(20_000))

    assert {path for path, each in layouts.items() if each.dictionary} == {
        *("word", "small", "day", "tags.list.element")
    }
    assert layouts["part"].encoding == "DELTA_BINARY_PACKED"
    assert layouts["text"].encoding == "DELTA_LENGTH_BYTE_ARRAY"
    assert layouts["random"].encoding is None
    assert layouts["text"].codec == "zstd"


def test_a_file_of_few_rows_has_the_layout_of_each_type():
    """To encode a sample takes as long as to write it."""
    layouts = chosen(many_rows(SAMPLED_ROWS_MIN - 1))

    assert layouts == layouts_by_type(candidates(MANY, MANY_ARROW, WriteSettings()))


def test_no_column_has_a_dictionary_where_a_property_says_no():
    """Where it would be smaller, too."""
    layouts = chosen(many_rows(9_000), dictionary_values=False)

    assert not any(each.dictionary for each in layouts.values())


def test_a_dictionary_that_a_property_asks_for_wins_over_the_sample():
    """A column that differences make smaller has one: its values fit into it."""
    slow = pa.array((1 << 40) + np.arange(9_000) // 9)
    rows = many_rows(9_000)
    rows = rows.set_column(rows.schema.get_field_index("part"), MANY_ARROW.field("part"), slow)

    assert chosen(rows)["part"].encoding == "DELTA_BINARY_PACKED"
    assert chosen(rows, dictionary_values=True)["part"].dictionary


@pytest.mark.parametrize("page_version", ["2.0", "1.0"])
def test_columns_that_no_dictionary_holds_have_the_layout_without(page_version):
    """Of distinct values the encoder would give up the dictionary, and go on with plain values."""
    rows = many_rows(9_000)
    found = {
        wanted: chosen(
            rows, dictionary_values=wanted, dictionary_row_keys=wanted, page_version=page_version
        )
        for wanted in (False, True)
    }

    for path in ("id", "text", "part", "random", "price"):
        assert found[True][path] == found[False][path], path
    for path in ("word", "small", "day", "tags.list.element"):
        assert found[True][path].dictionary, path


@pytest.mark.parametrize("codec", ["snappy", "none"])
def test_a_codec_that_a_property_sets_wins_over_the_sample(codec):
    """For every column."""
    assert {each.codec for each in chosen(many_rows(9_000), codec=codec).values()} == {codec}


def test_version_1_pages_of_many_rows_have_no_delta_encodings():
    """They are for readers that know PLAIN and dictionaries alone."""
    found = chosen(many_rows(9_000), page_version="1.0").values()

    assert {each.encoding for each in found} == {None}


def test_columns_that_repeat_are_much_smaller_with_their_dictionaries():
    """Than in the best layout without."""
    rows = many_rows(30_000).select(["id", "word", "small", "day", "tags"])
    schema = Schema(
        row_keys=MANY.row_keys, values=[f for f in MANY.values if f.name in rows.column_names]
    )
    arrow = to_arrow(schema)
    found = []
    for wanted in (None, False):
        file = io.BytesIO()
        layout = WriteSettings(dictionary_values=wanted, bloom_filter=False)
        write_data_file(file, [rows.cast(arrow)], schema, arrow, layout)
        chunks = columns(file.getvalue())
        found.append(sum(each.total_compressed_size for each in chunks[1:]))

    assert found[0] < 0.8 * found[1]


@pytest.mark.parametrize("page_version", ["2.0", "1.0"])
@pytest.mark.parametrize("dictionary_values", [None, True, False])
def test_all_readers_read_rows_of_chosen_layouts(dictionary_values, page_version, tmp_path):
    """pyarrow, DataFusion, DuckDB, polars and look-ups, of one row and of several."""
    rows = many_rows(12_000, seed=2)
    path = tmp_path / "file.parquet"
    path.write_bytes(
        written_rows(rows, dictionary_values=dictionary_values, page_version=page_version)
    )

    assert pq.read_table(path).cast(MANY_ARROW).equals(rows)
    simple = [field.name for field in MANY_ARROW if not pa.types.is_nested(field.type)]
    for read in (in_datafusion, in_duckdb, pl.read_parquet):
        found = read(path).select(simple)
        plain = found.to_arrow() if isinstance(found, pl.DataFrame) else found
        plain = plain.cast(rows.select(simple).schema)
        assert plain.sort_by("id").equals(rows.select(simple)), read
    reader = LookupReader(FolderObjects(tmp_path))
    for keys in ([0], [11_999], [5_000], [1_001], [*range(990, 1_010)], [*range(0, 12_000, 7)]):
        wanted = pa.RecordBatch.from_arrays([pa.array(keys)], schema=KEYS)
        (got,) = reader.look_up([path.name], wanted, MANY_ARROW)
        assert got.combine_chunks().equals(rows.take(pa.array(keys)).combine_chunks()), keys


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_values_are_read_back_by_look_ups(data):
    """Whatever repeats, is null, or is at a limit of its type."""
    count = SAMPLED_ROWS_MIN + 50
    pools = {
        "word": st.none() | st.text(max_size=12),
        "part": st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n) / 100),
        "price": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n) / 10_000),
        "day": st.none() | st.integers(-700_000, 2_900_000),
    }
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = many_rows(count)
    for name, pool in pools.items():
        field = MANY_ARROW.field(name)
        some = data.draw(st.lists(pool, min_size=1, max_size=12), label=name)
        kind = pa.int32() if name == "day" else field.type
        values = pa.array(some, kind).cast(field.type)
        taken = values.take(pa.array(np.sort(draw.integers(0, len(some), count))))
        rows = rows.set_column(rows.schema.get_field_index(name), field, taken)
    chosen_rows = sorted(
        set(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=9)))
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file.parquet").write_bytes(written_rows(rows))
        keys = pa.RecordBatch.from_arrays([pa.array(chosen_rows)], schema=KEYS)
        (got,) = LookupReader(FolderObjects(Path(folder))).look_up(
            ["file.parquet"], keys, MANY_ARROW
        )

    assert got.to_pylist() == rows.take(pa.array(chosen_rows)).to_pylist()
