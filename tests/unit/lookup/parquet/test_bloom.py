"""Bloom filters: no key that was written is ever ruled out, and most others are."""

from __future__ import annotations

import datetime as dt
import io
import random

import datafusion
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from sleeper.engine.writing.data_file import SealedOutput
from sleeper.lookup.columns import comparable_array
from sleeper.lookup.parquet import compact_protocol as thrift
from sleeper.lookup.parquet.bloom import filter_key, hash_array, read_filter
from sleeper.lookup.parquet.footer import read_footer
from sleeper.lookup.reader import LookupReader

EPOCH = dt.datetime(2024, 1, 1)
KEYS_THAT_FIT = 6_700
"""At 1 in 100 they take just under 2^16 bits, so that rounding up to a power of two changes little."""

KEY_TYPES = {
    "int32": (pa.int32(), lambda n: n * 97 - 400_000),
    "int64": (pa.int64(), lambda n: n * 2**40 - 2**50),
    "string": (pa.string(), lambda n: f"key {n}"),
    "long string": (pa.string(), lambda n: "\U0001f600 " * (n % 5 + 8) + str(n)),
    "binary": (pa.binary(), lambda n: n.to_bytes(3, "little") * (n % 17)),
    "date": (pa.date32(), lambda n: dt.date(1960, 1, 1) + dt.timedelta(n)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda n: EPOCH + dt.timedelta(0, n)),
}


def parquet(values, **options):
    """A file with one column and its filters, as bytes."""
    output = io.BytesIO()
    table = pa.table({"k": values})
    pq.write_table(table, output, bloom_filter_options={"k": options or True})
    return output.getvalue()


def filters_of(body):
    """The filter of the first column of each row group."""
    tail = int.from_bytes(body[-8:-4], "little") + 8
    footer = read_footer(body[-tail:-8], len(body) - tail)
    places = [group[0].bloom_filter for group in footer.chunks]
    return [read_filter(body[offset : offset + length]) for offset, length in places]


def ask(bloom_filter, values):
    """What a filter says of each value; both ways to ask agree."""
    comparable = comparable_array(values)
    many = bloom_filter.may_hold_each(hash_array(comparable))
    width = 4 if pa.types.is_int32(comparable.type) else 8
    single = [bloom_filter.may_hold(filter_key(value.as_py(), width)) for value in comparable]
    assert many.tolist() == single
    return many


class TestHash:
    """XXH64 with seed 0."""

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (b"", 0xEF46DB3751D8E999),
            (b"a", 0xD24EC4F1A98C6E5B),
            (b"abc", 0x44BC2CF5AD770999),
            (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
        ],
    )
    def test_is_the_published_one(self, value, expected):
        """Values that the xxHash project and its bindings state."""
        assert xxh64_intdigest(value) == expected

    @given(st.lists(st.binary(max_size=200), max_size=30))
    def test_of_many_is_that_of_each(self, values):
        """numpy and Python agree, whatever lengths come together."""
        found = hash_array(pa.array(values, pa.binary()))

        assert found.tolist() == [xxh64_intdigest(value) for value in values]

    @given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=30))
    def test_of_numbers_is_that_of_their_bytes(self, numbers):
        """Integers are hashed as they lie in a file."""
        for width, arrow_type in ((4, pa.int32()), (8, pa.int64())):
            found = hash_array(pa.array(numbers, arrow_type))
            plain = [number.to_bytes(width, "little", signed=True) for number in numbers]
            assert found.tolist() == [xxh64_intdigest(each) for each in plain]


class TestFilter:
    """What other writers put into a filter is found in it."""

    @pytest.mark.parametrize("key_type", KEY_TYPES)
    def test_holds_every_key_and_few_others(self, key_type):
        """No key is missed; of 10,000 absent ones about one in a hundred is let through."""
        arrow_type, value = KEY_TYPES[key_type]
        written = [value(n) for n in range(1, KEYS_THAT_FIT + 1)]
        others = (value(n) for n in range(KEYS_THAT_FIT + 1, KEYS_THAT_FIT + 12_001))
        absent = sorted(set(others) - set(written))[:10_000]
        (bloom_filter,) = filters_of(
            parquet(pa.array(written, arrow_type), ndv=len(set(written)), fpp=0.01)
        )

        assert ask(bloom_filter, pa.array(written, arrow_type)).all()
        assert 40 < ask(bloom_filter, pa.array(absent, arrow_type)).sum() < 200

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.binary(max_size=70) | st.text(max_size=40).map(str.encode), min_size=1))
    def test_never_misses_a_byte_array(self, values):
        """Whatever the keys: empty, long, with zero bytes, beyond the basic plane."""
        (bloom_filter,) = filters_of(parquet(pa.array(values, pa.binary()), ndv=3, fpp=0.5))

        assert ask(bloom_filter, pa.array(values, pa.binary())).all()

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
    def test_never_misses_a_number(self, values):
        """Whatever the keys, the smallest and the largest too."""
        for arrow_type, bits in ((pa.int64(), 64), (pa.int32(), 32)):
            numbers = pa.array([value >> 64 - bits for value in values], arrow_type)
            (bloom_filter,) = filters_of(parquet(numbers, ndv=40, fpp=0.01))
            assert ask(bloom_filter, numbers).all()

    def test_of_duckdb_holds_every_key(self, tmp_path):
        """DuckDB writes filters for columns with dictionaries."""
        keys = pa.table({"k": [f"key {n}" for n in range(2_000)]})
        path = tmp_path / "file.parquet"
        connection = duckdb.connect()
        connection.register("keys", keys)
        connection.sql(f"copy keys to '{path}' (dictionary_size_limit 100000)")

        (bloom_filter,) = filters_of(path.read_bytes())

        assert ask(bloom_filter, keys["k"].combine_chunks()).all()
        absent = pa.array([f"none {n}" for n in range(2_000)])
        assert ask(bloom_filter, absent).sum() < 400

    def test_of_datafusion_holds_every_key(self, tmp_path):
        """So does DataFusion (parquet-rs), where it is asked to."""
        keys = pa.table({"k": pa.array(range(0, 9_000, 3), pa.int64())})
        path = tmp_path / "file.parquet"
        options = datafusion.ParquetWriterOptions(bloom_filter_on_write=True)
        datafusion.SessionContext().from_arrow(keys).write_parquet_with_options(str(path), options)
        body = path.read_bytes() if path.is_file() else next(path.iterdir()).read_bytes()

        (bloom_filter,) = filters_of(body)

        assert ask(bloom_filter, keys["k"].combine_chunks()).all()
        absent = pa.array(range(1, 9_000, 3), pa.int64())
        assert ask(bloom_filter, absent).sum() < len(absent) / 5

    @pytest.mark.parametrize("part", [2, 3, 4])
    def test_of_an_unknown_kind_is_not_used(self, part):
        """Another algorithm, hash or compression than Parquet's only ones is left alone."""
        unions = {number: [(1, thrift.STRUCT, [])] for number in (2, 3, 4)}
        unions[part] = [(2, thrift.STRUCT, [])]
        kinds = [(number, thrift.STRUCT, union) for number, union in unions.items()]
        header = thrift.struct_bytes([(1, thrift.I32, 32), *kinds])

        assert read_filter(header + bytes(32)) is None

    @pytest.mark.parametrize("size", [0, 31, 33, 64])
    def test_of_another_size_is_refused(self, size):
        """A filter is as long as it says, in whole blocks."""
        unions = [(number, thrift.STRUCT, [(1, thrift.STRUCT, [])]) for number in (2, 3, 4)]
        header = thrift.struct_bytes([(1, thrift.I32, size), *unions])

        with pytest.raises(ValueError, match="Bloom filter"):
            read_filter(header + bytes(32 if size == 64 else size))


INT64 = pa.int64()
EVEN = {"k": range(0, 20_000, 2)}
PAIR = {"k": np.arange(20_000) // 100 * 2, "l": np.arange(20_000) % 100 * 2}


def write(folder, columns, key_type=INT64, name="file.parquet"):
    """A sealed file with filters on all columns but `v`."""
    table = pa.table({key: pa.array(values, key_type) for key, values in columns.items()})
    fields = [pa.field(key, key_type, nullable=False) for key in columns]
    table = table.cast(pa.schema(fields))
    table = table.append_column("v", pa.array(range(table.num_rows)))
    with SealedOutput((folder.path / name).open("wb")) as output:
        writer = pq.ParquetWriter(
            output,
            table.schema,
            write_page_index=True,
            max_rows_per_page=1_000,
            use_dictionary=False,
            bloom_filter_options={key: {"ndv": 10_000, "fpp": 0.001} for key in columns},
        )
        writer.write_table(table, row_group_size=5_000)
        output.hold()
        writer.close()
    return name, table.schema


def batch(schema, *rows):
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), schema, strict=False)
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names[: len(columns)])


class TestLookUp:
    """What a look-up reads when there are filters."""

    def test_an_absent_key_reads_the_filter_once_and_no_page(self, folder):
        """The first absent key in a row group costs its filter's bytes, the next ones nothing."""
        name, schema = write(folder, EVEN)
        reader = LookupReader(folder)
        reader.look_up([name], batch(schema, (-1,)), schema)
        folder.reads.clear()

        for key in (4_001, 4_003, 4_101):
            assert reader.look_up([name], batch(schema, (key,)), schema)[0].num_rows == 0

        assert [len(ranges) for ranges in folder.reads] == [1]
        assert 10_000 < folder.bytes_read() < 40_000

    def test_a_key_between_the_pages_asks_no_filter(self, folder):
        """Bounds come first: they cost nothing."""
        name, schema = write(folder, EVEN)
        reader = LookupReader(folder)
        reader.look_up([name], batch(schema, (-1,)), schema)
        folder.reads.clear()

        reader.look_up([name], batch(schema, (1_999,)), schema)

        assert folder.reads == []

    def test_either_key_column_rules_a_key_out(self, folder):
        """Of a composite key one absent value is enough, whichever it is."""
        name, schema = write(folder, PAIR)
        reader = LookupReader(folder)
        (found,) = reader.look_up([name], batch(schema, (20, 30)), schema)
        folder.reads.clear()

        for key in ((20, 31), (21, 30)):
            assert reader.look_up([name], batch(schema, key), schema)[0].num_rows == 0

        assert found.num_rows == 1
        assert folder.reads == []

    @pytest.mark.parametrize(
        ("columns", "rows"),
        [
            (EVEN, [(1 + 200 * n,) for n in range(90)]),
            (PAIR, [(n // 10 * 2, n % 10 * 2 + 1) for n in range(90)]),
        ],
    )
    def test_many_absent_keys_read_filters_alone(self, folder, columns, rows):
        """Of keys that no row group holds not one page is read, once the filters are known."""
        name, schema = write(folder, columns)
        reader = LookupReader(folder)
        reader.look_up([name], batch(schema, *rows), schema)
        folder.reads.clear()

        (found,) = reader.look_up([name], batch(schema, *rows), schema)

        assert found.num_rows == 0
        assert folder.reads == []

    def test_only_pages_of_possible_keys_are_read(self, folder):
        """Among many absent keys a single one that is there costs one key page and its values."""
        name, schema = write(folder, EVEN)
        rows = sorted([(1 + 200 * n,) for n in range(90)] + [(10_400,)])
        reader = LookupReader(folder)
        reader.look_up([name], batch(schema, *rows), schema)
        folder.reads.clear()

        (found,) = reader.look_up([name], batch(schema, *rows), schema)

        assert found.to_pylist() == [{"k": 10_400, "v": 5_200}]
        assert [len(ranges) for ranges in folder.reads] == [1, 1]

    def test_the_cache_counts_filters_at_their_size(self, folder):
        """A filter that is kept takes its bytes out of the cache's bound."""
        name, schema = write(folder, EVEN)
        reader = LookupReader(folder)
        reader.look_up([name], batch(schema, (-1,)), schema)
        before = reader.cached_bytes
        folder.reads.clear()

        reader.look_up([name], batch(schema, (4_001,)), schema)

        grown = reader.cached_bytes - before
        assert folder.bytes_read() <= grown < folder.bytes_read() + 3_000

    def test_seconds_are_not_asked_for_in_a_filter_of_milliseconds(self, folder):
        """The file's values are a thousand times the key's, and so are what the filter knows."""
        seconds = [EPOCH + dt.timedelta(0, n) for n in range(3_000)]
        name, schema = write(folder, {"k": seconds}, pa.timestamp("s"))
        reader = LookupReader(folder)

        for rows in ([(seconds[77],)], [(each,) for each in seconds[::50]]):
            (found,) = reader.look_up([name], batch(schema, *rows), schema)
            assert found.num_rows == len(rows)

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 2**32))
    def test_finds_what_a_scan_finds(self, tmp_path_factory, seed):
        """Keys of two columns, present and absent, alone and together: as by looking at all rows."""
        folder = _Folder(tmp_path_factory.mktemp("rows"))
        r = random.Random(seed)
        pairs = sorted((r.choice(TEXTS), r.choice(TEXTS)) for _ in range(400))
        first, second = zip(*pairs, strict=True)
        name, schema = write(folder, {"k": first, "l": second}, pa.string())
        asked = sorted({(r.choice(TEXTS), r.choice(TEXTS)) for _ in range(60)}, key=_as_bytes)
        reader = LookupReader(folder)

        for rows in (asked, *([row] for row in asked[:10])):
            (found,) = reader.look_up([name], batch(schema, *rows), schema)
            numbers = [n for n, pair in enumerate(pairs) if pair in rows]
            assert found["v"].to_pylist() == numbers


TEXTS = [letter * times + tail for letter in "az" for times in (0, 1, 40) for tail in "0123456789"]


def _as_bytes(row):
    return tuple(text.encode() for text in row)


class _Folder:
    """Files in a folder, for examples of which each needs its own."""

    is_remote = False

    def __init__(self, path):
        self.path = path

    def size(self, key):
        return (self.path / key).stat().st_size

    def read_ranges(self, key, ranges):
        body = (self.path / key).read_bytes()
        return [body[offset : offset + length] for offset, length in ranges]
