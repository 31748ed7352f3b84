"""Data files: what is in them, how they are laid out, and what is told about them."""

from __future__ import annotations

import gc
import io
import sys
from datetime import UTC, datetime

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.sketches.stored_sketch import (
    SKETCHED_ROWS_MAX,
    SketchBuilder,
    read_stored_sketch,
)
from sleeper.engine.writing.data_file import DataFileWriter, write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged
from sleeper.lookup.parquet.file_end import read_file_end
from sleeper.lookup.parquet.footer import read_footer
from sleeper.lookup.reader import LookupReader
from sleeper.model.files import FileReference
from sleeper.model.schema import Field, ListType, MapType, Primitive, Schema
from sleeper.storage.memory import MemoryObjects

SCHEMA = Schema(
    row_keys=(Field("k", Primitive.STRING), Field("n", Primitive.LONG)),
    sort_keys=(Field("s", Primitive.INT),),
    values=(
        Field("text", Primitive.STRING, nullable=True),
        Field("list", ListType(Primitive.LONG)),
        Field("map", MapType(Primitive.STRING, Primitive.BYTES)),
    ),
)
ARROW = to_arrow(SCHEMA)
NAME = "data/partition_p/f.parquet"


def rows_of(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    columns = {
        "k": [f"{n:08}" for n in numbers],
        "n": list(numbers),
        "s": [n % 7 for n in numbers],
        "text": [None if n % 3 else f"text {n}" for n in numbers],
        "list": [[n] * (n % 3) for n in numbers],
        "map": [[("a", b"b")] * (n % 2) for n in numbers],
    }
    return pa.Table.from_arrays(
        [pa.array(columns[field.name], field.type) for field in ARROW], schema=ARROW
    )


def written(*chunks: pa.Table, **settings):
    output = io.BytesIO()
    file = write_data_file(output, chunks, SCHEMA, ARROW, WriteSettings(**settings))
    assert not output.closed
    return file, output.getvalue()


def reader_of(body: bytes):
    return lambda ranges: [body[offset : offset + length] for offset, length in ranges]


def sketch_of(file, body: bytes):
    files = MemoryObjects(lambda: datetime(2026, 6, 1, tzinfo=UTC))
    files.put(NAME, body)
    return read_stored_sketch(files, file.reference(NAME, "p", SCHEMA), SCHEMA)


def metadata_of(body: bytes):
    return pq.ParquetFile(io.BytesIO(body)).metadata


class TestContent:
    """What comes back is what went in."""

    def test_is_the_rows_in_their_order_and_types(self):
        """Any Parquet reader sees the table's schema and every row."""
        rows = rows_of(2_500)

        _, body = written(rows.slice(0, 700), rows.slice(700))

        back = pq.read_table(io.BytesIO(body), page_checksum_verification=True)
        assert back.schema.equals(ARROW)
        assert back.equals(rows)

    @pytest.mark.parametrize("version", ["1.0", "2.0"])
    @pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
    def test_is_the_same_for_every_codec_and_page_version(self, codec, version):
        """Both are settings of the table."""
        rows = rows_of(1_500)

        _, body = written(rows, codec=codec, level=None, page_version=version)

        assert pq.read_table(io.BytesIO(body)).equals(rows)

    def test_may_be_no_rows(self):
        """A file without rows is a good file."""
        file, body = written()

        assert (file.row_count, file.first_key, file.last_key) == (0, (), ())
        assert pq.read_table(io.BytesIO(body)).schema.equals(ARROW)
        assert sketch_of(file, body).row_count == 0

    def test_names_its_format(self):
        """The footer says which format of ours it is, and nothing about pandas."""
        _, body = written(rows_of(1).replace_schema_metadata({"pandas": "{}"}))

        known = metadata_of(body).metadata
        assert known[b"sleeper.format"] == b"1"
        assert b"pandas" not in known


class TestWrittenFile:
    """What is told about a file comes from its rows."""

    def test_has_counts_keys_and_size(self):
        """Row keys only, first and last, as plain values."""
        file, body = written(rows_of(10), rows_of(5, first=10))

        assert file.row_count == 15
        assert file.first_key == ("00000000", 0)
        assert file.last_key == ("00000014", 14)
        assert file.size_bytes == len(body)

    def test_has_a_sketch_of_its_row_keys(self):
        """The sketch knows every row key field and the number of rows (rule ING-8)."""
        file, body = written(rows_of(1_000))

        sketches = sketch_of(file, body)
        assert sketches.row_count == 1_000
        assert (sketches.quantile(0, 0.5), sketches.quantile(1, 0.5)) == ("00000500", 500)

    @pytest.mark.parametrize("settings", [{}, {"bloom_filter": False}, {"row_group_rows": 70}])
    @pytest.mark.parametrize("row_count", [2 * SKETCHED_ROWS_MAX, 20_000])
    def test_has_its_sketch_where_no_reader_of_rows_looks(self, row_count, settings):
        """Before filters and indexes, so that their bytes stay together."""
        file, body = written(rows_of(row_count), **settings)

        assert sketch_of(file, body).row_count == row_count
        assert pq.read_table(io.BytesIO(body)).equals(rows_of(row_count))
        assert body.index(b"SLPRSKT") == max(
            chunk.end
            for group in read_file_end(len(body), reader_of(body)).footer.chunks
            for chunk in group
        )

    @pytest.mark.parametrize("settings", [{}, {"bloom_filter": False}, {"row_group_rows": 70}])
    @pytest.mark.parametrize("row_count", [1, 500, SKETCHED_ROWS_MAX])
    def test_has_no_sketch_where_its_keys_say_the_same(self, row_count, settings):
        """Of few rows, a sketch would be the key columns again."""
        file, body = written(rows_of(row_count), **settings)

        assert b"SLPRSK" not in body
        sketches = sketch_of(file, body)
        assert sketches.is_exact
        assert sketches.quantile(0, 1) == f"{row_count - 1:08}"

    def test_tells_of_damage_in_the_keys_that_are_its_sketch(self):
        """Their pages are compared with their checksums."""
        file, body = written(rows_of(100))
        damaged = bytearray(body)
        damaged[100] ^= 1

        with pytest.raises(DataDamaged, match=NAME):
            sketch_of(file, bytes(damaged))

    def test_may_have_no_sketch(self):
        """A file of another writer is read without one."""
        output = io.BytesIO()
        pq.write_table(rows_of(10), output)
        files = MemoryObjects(lambda: datetime(2026, 6, 1, tzinfo=UTC))
        files.put(NAME, output.getvalue())
        reference = FileReference(filename=NAME, partition_id="p", row_count=10)

        assert read_stored_sketch(files, reference, SCHEMA) is None

    def test_has_the_sketch_beside_it_if_an_earlier_version_wrote_it(self):
        """Then the sketch is an object of its own."""
        builder = SketchBuilder(SCHEMA)
        builder.add(rows_of(10))
        output = io.BytesIO()
        pq.write_table(rows_of(10), output)
        files = MemoryObjects(lambda: datetime(2026, 6, 1, tzinfo=UTC))
        files.put(NAME, output.getvalue())
        files.put("data/partition_p/f.sketches", builder.to_bytes())
        reference = FileReference(filename=NAME, partition_id="p", row_count=10)

        assert read_stored_sketch(files, reference, SCHEMA).row_count == 10

    def test_is_not_told_of_rows_out_of_order(self):
        """A chunk below the one before it is a fault of ours, found before it is stored."""
        writer = DataFileWriter(io.BytesIO(), SCHEMA, ARROW, WriteSettings())
        writer.add(rows_of(5, first=10))

        with pytest.raises(AssertionError, match="out of order"):
            writer.add(rows_of(5))

    def test_takes_equal_keys_across_chunks(self):
        """Rows of one key may come in several chunks."""
        same = rows_of(1)

        file, _ = written(same, same, same)

        assert file.row_count == 3


class TestLayout:
    """How rows lie in the file: made for look-ups (rule FMT-1)."""

    def test_cuts_row_groups_by_rows(self):
        """All row groups but the last are full, however the chunks came."""
        _, body = written(rows_of(150), rows_of(150, first=150), row_group_rows=100)

        groups = metadata_of(body)
        assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [100] * 3

    def test_cuts_row_groups_by_bytes(self):
        """A row group holds about as many bytes as asked for, in memory."""
        rows = rows_of(10_000)

        _, body = written(rows, row_group_bytes=rows.nbytes // 10)

        groups = metadata_of(body)
        counts = [groups.row_group(n).num_rows for n in range(groups.num_row_groups)]
        assert all(800 <= count <= 1_200 for count in counts[:-1])

    def test_has_small_pages_that_are_indexed(self):
        """Pages have at most the rows asked for, and every column has both indexes."""
        _, small = written(rows_of(10_000), page_rows=500)
        _, large = written(rows_of(10_000), page_rows=10_000)

        column = metadata_of(small).row_group(0).column(0)
        assert column.has_column_index
        assert column.has_offset_index
        assert len(small) > len(large)

    def test_says_what_it_is_sorted_by(self):
        """Row keys, then sort keys, ascending."""
        _, body = written(rows_of(10))

        assert [
            (item.column_index, item.descending)
            for item in metadata_of(body).row_group(0).sorting_columns
        ] == [(0, False), (1, False), (2, False)]

    def test_has_required_and_optional_columns(self):
        """What the schema requires, Parquet requires."""
        _, body = written(rows_of(1))

        levels = [
            pq.ParquetFile(io.BytesIO(body)).schema.column(place).max_definition_level
            for place in range(4)
        ]
        assert levels == [0, 0, 0, 1]

    @pytest.mark.parametrize(
        ("settings", "with_dictionary"),
        [
            ({}, set()),
            ({"dictionary_row_keys": True}, {"k", "n"}),
            ({"dictionary_sort_keys": True}, {"s"}),
            (
                {"dictionary_values": True},
                {"text", "list.list.element", "map.key_value.key", "map.key_value.value"},
            ),
        ],
    )
    def test_has_dictionaries_where_the_table_wants_them(self, settings, with_dictionary):
        """Each group of fields has its own setting, none of them on by default."""
        _, body = written(rows_of(100), **settings)

        group = metadata_of(body).row_group(0)
        columns = [group.column(place) for place in range(group.num_columns)]
        found = {c.path_in_schema for c in columns if c.has_dictionary_page}
        assert found == with_dictionary

    def test_does_not_grow_by_dictionaries_of_distinct_values(self):
        """A dictionary is given up where it would hold about as many values as there are rows."""
        rows = rows_of(32_768)

        _, plain = written(rows)
        _, with_dictionaries = written(
            rows, dictionary_row_keys=True, dictionary_sort_keys=True, dictionary_values=True
        )

        assert len(with_dictionaries) < 1.1 * len(plain)

    def test_shows_damage_in_a_page(self):
        """Every page has a checksum."""
        rows = rows_of(2_000)
        _, body = written(rows, codec="none", level=None)
        place = body.index(b"00000500")
        damaged = body[:place] + b"X" + body[place + 1 :]

        with pytest.raises(OSError, match=r"(?i)crc|checksum"):
            pq.read_table(io.BytesIO(damaged), page_checksum_verification=True)

    def test_keeps_keys_in_statistics(self):
        """The least and largest key of each row group can be read from the footer."""
        rows = rows_of(300)
        _, body = written(rows, row_group_rows=100)

        groups = metadata_of(body)
        found = [
            (
                groups.row_group(n).column(1).statistics.min,
                groups.row_group(n).column(1).statistics.max,
            )
            for n in range(3)
        ]
        assert found == [(0, 99), (100, 199), (200, 299)]
        assert pc.min(rows["n"]).as_py() == 0


def filters_of(body: bytes):
    """Bytes of each column's Bloom filter in the first row group, by name; 0 for none."""
    tail = int.from_bytes(body[-8:-4], "little") + 8
    footer = read_footer(body[-tail:-8], len(body) - tail)
    chunks = zip(footer.leaves, footer.chunks[0], strict=True)
    return {leaf.path[0]: (chunk.bloom_filter or (0, 0))[1] for leaf, chunk in chunks}


class FileInMemory:
    """One file, as the look-up reader wants it. Keeps what is read of it."""

    is_remote = False

    def __init__(self, body: bytes):
        self.body = body
        self.reads = []

    def size(self, key):
        return len(self.body)

    def read_ranges(self, key, ranges):
        self.reads += ranges
        return [self.body[offset : offset + length] for offset, length in ranges]


class TestBloomFilters:
    """Filters by which a look-up passes over files that lack its key."""

    def test_are_there_for_row_keys_alone(self):
        """One for each row key column; sort keys and values have none."""
        _, body = written(rows_of(100))

        found = filters_of(body)
        assert {name for name, size in found.items() if size} == {"k", "n"}

    def test_can_be_left_out(self):
        """The table's property decides."""
        _, body = written(rows_of(100), bloom_filter=False)

        assert not any(filters_of(body).values())

    @pytest.mark.parametrize(("count", "size"), [(50, 64), (20_000, 32_768), (60_000, 65_536)])
    def test_fit_the_rows_of_the_first_row_group(self, count, size):
        """A small file has a small filter: about ten bits a row, up to the next power of two."""
        _, body = written(rows_of(count), row_group_rows=50_000, row_group_bytes=1 << 30)

        assert size < filters_of(body)["k"] < size + 40

    @pytest.mark.parametrize("settings", [{}, {"dictionary_row_keys": True}])
    def test_rule_out_no_key_of_the_file(self, settings):
        """Every key is found, alone and among all, in every row group."""
        rows = rows_of(1_000)
        _, body = written(rows, row_group_rows=300, page_rows=100, **settings)
        keys = rows.select(["k", "n"]).combine_chunks().to_batches()[0]
        reader = LookupReader(FileInMemory(body))

        (found,) = reader.look_up(["f"], keys, ARROW)
        assert found.equals(rows)
        for place in range(0, 1_000, 13):
            (found,) = reader.look_up(["f"], keys.slice(place, 1), ARROW)
            assert found.num_rows == 1

    def test_are_under_the_seal(self):
        """A look-up uses them: for an absent key it reads no page."""
        _, body = written(rows_of(2_000))
        key = pa.RecordBatch.from_arrays([pa.array(["00000500x"]), pa.array([500])], ["k", "n"])
        files = FileInMemory(body)
        reader = LookupReader(files)
        reader.look_up(["f"], key, ARROW)
        files.reads.clear()

        assert reader.look_up(["f"], key, ARROW)[0].num_rows == 0
        assert files.reads == []

    def test_do_not_trouble_other_readers(self, tmp_path):
        """pyarrow, polars, DuckDB and DataFusion find what is there, by filter or without."""
        rows = rows_of(3_000)
        _, body = written(rows, row_group_rows=1_000)
        path = str(tmp_path / "file.parquet")
        (tmp_path / "file.parquet").write_bytes(body)
        setting = "datafusion.execution.parquet.bloom_filter_on_read"
        context = datafusion.SessionContext(datafusion.SessionConfig({setting: "true"}))
        context.register_parquet("t", path)

        assert pq.read_table(path).equals(rows)
        assert pl.read_parquet(path, columns=["k", "n"])["n"].to_list() == rows["n"].to_pylist()
        for key, found in (("00002345", [2_345]), ("00002345x", [])):
            query = f"select n from {{}} where k = '{key}'"
            assert [row[0] for row in duckdb.sql(query.format(f"'{path}'")).fetchall()] == found
            assert context.sql(query.format("t")).to_pydict().get("n", []) == found


def test_a_file_that_is_given_up_is_not_written_to(monkeypatch):
    """Once its output was closed pyarrow would still write a footer, and print a traceback."""
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    output = io.BytesIO()

    def failing():
        yield rows_of(1000)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), output:
        write_data_file(output, failing(), SCHEMA, ARROW, WriteSettings(row_group_rows=100))
    gc.collect()

    assert printed == []
