"""The parts of the look-up reader, each by itself."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.writing.data_file import SealedOutput
from sleeper.lookup.column_reader import clip, cover_rows, cover_span
from sleeper.lookup.columns import positions
from sleeper.lookup.parquet import compact_protocol as thrift
from sleeper.lookup.parquet.page_index import (
    bounds_of,
    read_column_index,
    read_offset_index,
)
from sleeper.lookup.parquet.pages import decompress, levels_fill, usual_header
from sleeper.lookup.reader import LookupReader


class TestCompactProtocol:
    """Thrift's compact protocol."""

    @given(
        st.dictionaries(st.integers(1, 400), st.integers(-(2**63), 2**63 - 1), max_size=9),
        st.lists(st.binary(max_size=200), max_size=40),
    )
    def test_what_is_written_is_read(self, numbers, texts):
        """Integers of every size, field ids far apart, lists of any length."""
        fields = [(number, thrift.I64, value) for number, value in sorted(numbers.items())]
        fields.append((500, thrift.LIST, (thrift.BINARY, texts)))

        read, end = thrift.read_struct(thrift.struct_bytes(fields))

        assert read == {**numbers, 500: texts}
        assert end == len(thrift.struct_bytes(fields))

    @given(st.binary(max_size=80))
    def test_any_bytes_are_read_or_refused(self, data):
        """Bytes that are no struct raise ValueError, nothing else, and never run on."""
        try:
            _, end = thrift.read_struct(data)
        except ValueError:
            return
        assert end <= len(data)

    def test_deep_nesting_is_refused(self):
        """Structs within structs without end are damage."""
        with pytest.raises(ValueError, match="too deeply"):
            thrift.read_struct(b"\x1c" * 5_000)


def offset_index(pages):
    rows = [
        [(1, thrift.I64, offset), (2, thrift.I32, size), (3, thrift.I64, first)]
        for offset, size, first in pages
    ]
    return thrift.struct_bytes([(1, thrift.LIST, (thrift.STRUCT, rows))])


def column_index(minimums, maximums, null_pages=None):
    nulls = null_pages or [False] * len(minimums)
    head = thrift.struct_bytes([(1, thrift.LIST, (thrift.I32, []))])[:1]
    flags = bytes([min(len(nulls), 15) << 4 | 1])
    flags += bytes([len(nulls)]) if len(nulls) > 14 else b""
    flags += bytes(1 if null else 2 for null in nulls)
    rest = thrift.struct_bytes(
        [
            (1, thrift.LIST, (thrift.BINARY, minimums)),
            (2, thrift.LIST, (thrift.BINARY, maximums)),
        ]
    )
    return head + flags + rest


class TestPageIndex:
    """Offset index and column index."""

    @given(
        st.lists(st.tuples(st.integers(1, 2**20), st.integers(1, 2**12)), min_size=1, max_size=40)
    )
    def test_page_locations_are_read(self, pages):
        """Offsets, sizes and first rows of any magnitude."""
        sizes, counts = zip(*pages, strict=True)
        offsets = (np.cumsum([4, *sizes[:-1]])).tolist()
        firsts = (np.cumsum([0, *counts])).tolist()
        data = offset_index(zip(offsets, sizes, firsts[:-1], strict=True))

        found = read_offset_index(data, firsts[-1])

        assert found.offsets.tolist() == offsets
        assert found.sizes.tolist() == list(sizes)
        assert found.first_rows.tolist() == firsts

    def test_locations_with_further_fields_are_read(self):
        """A field that this reader does not know sends it the slower way, to the same result."""
        row = [(1, thrift.I64, 4), (2, thrift.I32, 9), (3, thrift.I64, 0), (4, thrift.I32, 7)]
        data = thrift.struct_bytes([(1, thrift.LIST, (thrift.STRUCT, [row]))])

        assert read_offset_index(data, 5).first_rows.tolist() == [0, 5]

    @pytest.mark.parametrize(
        "pages", [[(4, 9, 1)], [(4, 9, 0), (13, 9, 0)], [(4, 0, 0)], [(1, 9, 0)]]
    )
    def test_impossible_locations_are_refused(self, pages):
        """Rows that do not ascend from 0, and offsets or sizes that cannot be, are damage."""
        with pytest.raises(ValueError, match="offset index"):
            read_offset_index(offset_index(pages), 10)

    def test_bounds_of_integers_are_read(self):
        """Integers are compared by value, little-endian and signed."""
        values = [(-5).to_bytes(4, "little", signed=True), (300).to_bytes(4, "little")]

        found = read_column_index(
            column_index(values, values), physical_type=1, pages=2, ordered=True
        )

        assert found.minimums.tolist() == [-5, 300]

    def test_missing_bounds_come_from_the_neighbours(self):
        """In a sorted column a page without bounds lies between those beside it."""
        found = read_column_index(
            column_index([b"b", b"", b"f"], [b"c", b"", b"g"], [False, True, False]),
            physical_type=6,
            pages=3,
            ordered=True,
        )

        assert found.minimums.tolist() == [b"b", b"b", b"f"]
        assert found.maximums.tolist() == [b"c", b"g", b"g"]

    def test_missing_bounds_of_unsorted_columns_exclude_nothing(self):
        """Elsewhere such a page may hold anything."""
        found = bounds_of([b"b", None], [b"c", None], physical_type=6, ordered=False)

        assert found.minimums.tolist()[1] == b""
        assert found.maximums.tolist()[1] == b"\xff" * 256

    def test_bounds_that_do_not_ascend_are_refused(self):
        """A sorted column's bounds ascend."""
        with pytest.raises(ValueError, match="key order"):
            bounds_of([b"b", b"a"], [b"c", b"d"], physical_type=6, ordered=True)


RANGES = st.lists(st.integers(0, 60), min_size=2, max_size=12, unique=True).map(sorted)


class TestRanges:
    """Rows to pages and back."""

    @given(RANGES, st.sets(st.integers(1, 59), max_size=9))
    def test_a_cover_holds_exactly_the_rows(self, cuts, page_starts):
        """Positions in the pages put together are the rows that were asked for."""
        starts, ends = (np.array(side) for side in (cuts[: len(cuts) // 2 * 2 : 2], cuts[1::2]))
        first_rows = np.array([0, *sorted(page_starts), 60])

        cover = cover_rows(first_rows, starts, ends)

        rows = positions(first_rows[cover.pages], first_rows[cover.pages + 1])
        assert len(rows) == cover.row_count
        assert (
            rows[positions(cover.starts, cover.ends)].tolist() == positions(starts, ends).tolist()
        )

    @given(st.integers(0, 59), st.integers(1, 60), st.sets(st.integers(1, 59), max_size=9))
    def test_one_span_is_covered_like_many(self, start, length, page_starts):
        """The quick way for one range agrees with the general one."""
        end = min(60, start + length)
        first_rows = np.array([0, *sorted(page_starts), 60])

        quick = cover_span(first_rows, start, end)
        general = cover_rows(first_rows, np.array([start]), np.array([end]))

        assert quick.pages.tolist() == general.pages.tolist()
        assert quick.row_count == general.row_count
        assert (quick.starts[0], quick.ends[0]) == (general.starts[0], general.ends[0])

    @given(RANGES, st.sets(st.integers(1, 59), max_size=9), st.data())
    def test_clipping_keeps_the_rows_of_the_pages(self, cuts, page_starts, data):
        """What is left are the rows that are in a range and in a page that was kept."""
        starts, ends = (np.array(side) for side in (cuts[: len(cuts) // 2 * 2 : 2], cuts[1::2]))
        first_rows = np.array([0, *sorted(page_starts), 60])
        kept = data.draw(st.sets(st.integers(0, len(first_rows) - 2)))
        pages = np.array(sorted(kept), np.int64)

        found = clip(starts, ends, first_rows, pages)

        in_pages = (
            set(positions(first_rows[pages], first_rows[pages + 1]).tolist()) if kept else set()
        )
        rows = positions(found[0], found[1]).tolist() if len(found[0]) else []
        assert rows == [row for row in positions(starts, ends).tolist() if row in in_pages]


NUMBERS = st.integers(-(2**31), 2**31 - 1)


def with_flag(fields, flag):
    """A struct's bytes; the flag, whose value is in its type, comes last."""
    data = thrift.struct_bytes(fields)
    return data[:-1] + bytes(1 << 4 | kind for _, kind, _ in flag) + b"\x00"


class TestPages:
    """Headers and bodies of pages."""

    @given(
        *[NUMBERS] * 2,
        st.none() | NUMBERS,
        st.lists(NUMBERS, min_size=6, max_size=6),
        st.none() | st.booleans(),
    )
    def test_the_usual_headers_are_read_as_any_struct(
        self, size, packed, crc, numbers, is_compressed
    ):
        """The quick way for data pages of both versions says what the general one says."""
        sizes = [(2, thrift.I32, size), (3, thrift.I32, packed)]
        if crc is not None:
            sizes.append((4, thrift.I32, crc))
        about = [(number, thrift.I32, value) for number, value in enumerate(numbers, 1)]
        flag = [] if is_compressed is None else [(7, 1 if is_compressed else 2, None)]
        version_1 = [(1, thrift.I32, 0), *sizes, (5, thrift.STRUCT, about[:4])]
        version_2 = [(1, thrift.I32, 3), *sizes, (8, thrift.STRUCT, with_flag(about, flag))]

        for header in (version_1, version_2):
            data = thrift.struct_bytes(header)
            assert usual_header(data + b"body", 0) == thrift.read_struct(data)
            assert usual_header(b"body" + data, 4) == thrift.read_struct(b"body" + data, 4)

    @given(st.binary(max_size=60))
    def test_any_bytes_are_a_usual_header_or_left_alone(self, tail):
        """Whatever is taken for a usual header reads as that struct."""
        for head in (b"\x15\x00\x15\x02\x15\x04", b"\x15\x06\x15\x02\x15\x04\x15\x08"):
            quick = usual_header(head + tail, 0)

            assert quick is None or quick == thrift.read_struct(head + tail)

    @pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip"])
    @pytest.mark.parametrize("off_by", [-1, 1, 100])
    def test_another_size_than_the_header_says_is_refused(self, codec, off_by):
        """No page is padded or cut."""
        body = pa.compress(b"some values" * 9, codec=codec, asbytes=True)

        with pytest.raises((ValueError, OSError)):
            decompress(codec, memoryview(body), 99 + off_by)

    @pytest.mark.parametrize("wrong", [b"", b"(\xb5/\xfd", bytes(9), "cut", "longer", "flipped"])
    def test_pages_after_a_damaged_one_are_read(self, wrong):
        """The stream that a thread keeps for zstd is not kept after an error."""
        value = bytes(range(256)) * 9
        body = pa.compress(value, codec="zstd", asbytes=True)
        others = {
            "cut": body[:-3],
            "longer": body + body,
            "flipped": body[:4] + bytes([body[4] ^ 0x08]) + body[5:],
        }

        for _ in range(2):
            with pytest.raises((ValueError, OSError)):
                decompress("zstd", memoryview(others.get(wrong, wrong)), len(value))
            assert decompress("zstd", memoryview(body), len(value)) == value

    def test_threads_decompress_at_once(self):
        """Each has a stream of its own."""
        values = [bytes([number]) * 5_000 * (number + 1) for number in range(8)]
        bodies = [memoryview(pa.compress(value, codec="zstd", asbytes=True)) for value in values]

        def read(number):
            return all(
                decompress("zstd", bodies[number], len(values[number])) == values[number]
                for _ in range(100)
            )

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, range(8)))

    def test_levels_must_fill_their_bytes(self):
        """Runs that end before or after their bytes, or hold too few levels, are damage."""
        assert levels_fill(b"\x14\x01", 1, 10)
        assert levels_fill(b"\x03\xff", 1, 5)
        assert not levels_fill(b"\x14\x01", 1, 11)
        assert not levels_fill(b"\x14\x01\x00", 1, 10)
        assert not levels_fill(b"\x14", 1, 10)
        assert not levels_fill(b"\x14\x01", 0, 10)


class TestSeal:
    """The seal between indexes and footer."""

    def test_other_readers_do_not_notice_it(self, tmp_path):
        """pyarrow, polars, DuckDB and DataFusion read a sealed file, pages pruned or not."""
        table = pa.table(
            {"k": pa.array(range(5_000), pa.int64()), "v": [str(i) for i in range(5_000)]}
        )
        path = str(tmp_path / "sealed.parquet")
        output = SealedOutput(io.FileIO(path, "w"))
        with pq.ParquetWriter(
            output, table.schema, write_page_index=True, max_rows_per_page=100
        ) as writer:
            writer.write_table(table, row_group_size=1_000)
            output.hold()
        output.close()
        context = datafusion.SessionContext()
        context.register_parquet("t", path)

        assert pq.read_table(path).equals(table)
        assert pl.read_parquet(path).to_dict(as_series=False) == table.to_pydict()
        assert duckdb.sql(f"select v from '{path}' where k = 4321").fetchall() == [("4321",)]
        assert context.sql("select v from t where k = 4321").to_pydict() == {"v": ["4321"]}

    def test_it_is_a_few_bytes_an_index(self, tmp_path):
        """Eight bytes for each column of each row group, and twenty for the whole; page sums take
        four for each page, and eight for each column of a row group, and sixteen.
        """
        table = pa.table(
            {"k": pa.array(range(100), pa.int64()), "v": pa.array(range(100), pa.int64())}
        )
        plain, sealed = tmp_path / "plain", tmp_path / "sealed"
        pq.write_table(table, plain, write_page_index=True, row_group_size=50)
        with (
            SealedOutput(sealed.open("wb")) as output,
            pq.ParquetWriter(output, table.schema, write_page_index=True) as writer,
        ):
            writer.write_table(table, row_group_size=50)
            output.hold()

        assert sealed.stat().st_size - plain.stat().st_size == 2 * 2 * 8 + 20 + 4 * (4 * 2 + 8) + 16


class TestIndexCache:
    """The bound of the cache."""

    def test_the_least_recently_used_file_goes_first(self, folder):
        """The cache stays within its bytes, and keeps what is used."""
        table = pa.table({"k": pa.array(range(500), pa.int64())})
        names = [f"{number}.parquet" for number in range(6)]
        for name in names:
            pq.write_table(table, folder.path / name, write_page_index=True, max_rows_per_page=10)
        key = pa.RecordBatch.from_arrays([pa.array([250], pa.int64())], names=["k"])
        measured = LookupReader(folder)
        measured.look_up(names[:1], key, table.schema)
        one = measured.cached_bytes
        reader = LookupReader(folder, cache_bytes=3 * one + one // 2)

        for name in names:
            reader.look_up([names[0], name], key, table.schema)
        folder.reads.clear()
        reader.look_up([names[0], names[5]], key, table.schema)
        warm = len(folder.reads)
        reader.look_up([names[1]], key, table.schema)

        assert reader.cached_bytes <= 3 * one + one // 2
        assert warm == 2
        assert len(folder.reads) > warm + 1
