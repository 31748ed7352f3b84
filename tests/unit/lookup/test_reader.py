"""The look-up reader finds exactly the rows that have a key, whoever wrote the file and however."""

from __future__ import annotations

import datetime as dt
import decimal
import random

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.engine.writing.data_file import SealedOutput
from sleeper.errors import DataDamaged, ObjectNotFound, StorageFailed
from sleeper.lookup.reader import LookupReader
from tests.soak import tries
from tests.unit.lookup.conftest import CountedFolder

TEXTS = ("", "a", "a\0", "a\0\0", "b", "é", "￿", "\U0001f600", "k" * 300, "zz", "z\x7f")
EPOCH = dt.datetime(2024, 1, 1)

KEY_TYPES = {
    "int32": (pa.int32(), lambda r: r.randint(-200, 200) * 10_000_000),
    "int64": (pa.int64(), lambda r: r.randint(-200, 200) * 2**54),
    "string": (pa.string(), lambda r: r.choice(TEXTS) + str(r.randint(0, 50))),
    "even string": (pa.string(), lambda r: f"{r.randint(0, 300):08d}"),
    "binary": (
        pa.binary(),
        lambda r: r.choice((b"", b"\0", b"\x7f", b"\x80", b"\xff")) * r.randint(0, 40),
    ),
    "date32": (
        pa.date32(),
        lambda r: dt.date(1960, 1, 1) + dt.timedelta(r.randint(0, 300)),
    ),
    "timestamp us": (
        pa.timestamp("us"),
        lambda r: EPOCH + dt.timedelta(0, r.randint(-200, 200)),
    ),
    "timestamp ms": (
        pa.timestamp("ms", "UTC"),
        lambda r: EPOCH + dt.timedelta(r.randint(-99, 99)),
    ),
    "timestamp ns": (pa.timestamp("ns"), lambda r: EPOCH + dt.timedelta(r.randint(-99, 99))),
    "timestamp s": (pa.timestamp("s"), lambda r: EPOCH + dt.timedelta(r.randint(-99, 99))),
}

VALUE_FIELDS = [
    pa.field("whole", pa.int64(), nullable=False),
    pa.field("small", pa.int32()),
    pa.field("real", pa.float64()),
    pa.field("half", pa.float32(), nullable=False),
    pa.field("flag", pa.bool_()),
    pa.field("price", pa.decimal128(12, 2)),
    pa.field("text", pa.string()),
    pa.field("plain", pa.string(), nullable=False),
    pa.field("raw", pa.binary()),
    pa.field("day", pa.date32()),
    pa.field("at", pa.timestamp("us")),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("counts", pa.map_(pa.string(), pa.int64())),
]


def values_of(seed, count):
    """Rows of every value type, some of them null."""
    r = random.Random(seed)

    def some(value):
        return None if r.random() < 0.2 else value

    return {
        "whole": [r.randint(-(2**60), 2**60) for _ in range(count)],
        "small": [some(r.randint(-9, 9)) for _ in range(count)],
        "real": [some(r.random()) for _ in range(count)],
        "half": [float(r.randint(0, 9)) for _ in range(count)],
        "flag": [some(r.random() < 0.5) for _ in range(count)],
        "price": [some(decimal.Decimal(r.randint(-999, 999)) / 100) for _ in range(count)],
        "text": [some("é" * r.randint(0, 90)) for _ in range(count)],
        "plain": [r.choice(TEXTS) for _ in range(count)],
        "raw": [some(r.randbytes(r.randint(0, 9))) for _ in range(count)],
        "day": [some(dt.date(2020, 1, r.randint(1, 28))) for _ in range(count)],
        "at": [some(EPOCH + dt.timedelta(r.randint(0, 99))) for _ in range(count)],
        "tags": [
            some([some("t" * r.randint(0, 5)) for _ in range(r.randint(0, 5))])
            for _ in range(count)
        ],
        "counts": [some([(str(n), some(n)) for n in range(r.randint(0, 4))]) for _ in range(count)],
    }


def sorted_table(key_names, count, seed=0, fields=VALUE_FIELDS):
    """A table that is sorted by keys `k0`, `k1`, ... of the named types."""
    r = random.Random(seed)
    columns = {
        f"k{i}": [KEY_TYPES[name][1](r) for _ in range(count)] for i, name in enumerate(key_names)
    }
    key_fields = [
        pa.field(f"k{i}", KEY_TYPES[name][0], nullable=False) for i, name in enumerate(key_names)
    ]
    values = values_of(seed, count)
    columns |= {field.name: values[field.name] for field in fields}
    table = pa.table(columns, pa.schema([*key_fields, *fields]))
    return table.sort_by([(field.name, "ascending") for field in key_fields])


def keys_of(table, key_count, rows, absent=()):
    """The distinct keys of some rows, and others, as the reader wants them."""
    fields = list(table.schema)[:key_count]
    taken = table.select(range(key_count)).take(pa.array(sorted(rows), pa.int64()))
    taken = pa.concat_tables([taken, *(table.schema.empty_table().select(range(key_count)),)])
    if absent:
        extra = pa.table(
            {f.name: pa.array([a[i] for a in absent], f.type) for i, f in enumerate(fields)}
        )
        taken = pa.concat_tables([taken, extra.cast(taken.schema)])
    names = [field.name for field in fields]
    distinct = (
        taken.group_by(names).aggregate([]).select(names).sort_by([(n, "ascending") for n in names])
    )
    return distinct.combine_chunks().to_batches()[0]


def expected_rows(table, keys):
    """The rows of `table` that have one of `keys`, found the slow way."""
    wanted = {tuple(row.values()) for row in keys.to_pylist()}
    names = keys.schema.names
    mask = [tuple(row.values()) in wanted for row in table.select(names).to_pylist()]
    return table.filter(pa.array(mask))


def write(folder, table, name="file.parquet", **options):
    options = {"row_group_size": 700, "max_rows_per_page": 64, "write_page_index": True} | options
    pq.write_table(table, folder.path / name, **options)
    return name


def write_filtered(folder, table, name="file.parquet"):
    """Write a sealed file with a Bloom filter for each key column, as our writer does."""
    filters = {key: {"ndv": 700, "fpp": 0.01} for key in table.schema.names if key[0] == "k"}
    with SealedOutput((folder.path / name).open("wb")) as output:
        writer = pq.ParquetWriter(
            output,
            table.schema,
            max_rows_per_page=64,
            write_page_index=True,
            bloom_filter_options=filters,
        )
        writer.write_table(table, row_group_size=700)
        output.hold()
        writer.close()
    return name


def assert_found(folder, name, table, key_count, rows, absent=(), columns=None):
    """Look up the keys of `rows`: all at once, and single ones; in a bucket too."""
    keys = keys_of(table, key_count, rows, absent)
    one, other = keys.slice(0, 1), keys.slice(keys.num_rows // 2, 1)
    reader = LookupReader(folder)
    in_bucket = LookupReader(CountedFolder(folder.path, is_remote=True))
    askings = [(keys, reader), (one, reader), (other, reader), (one, in_bucket), (other, in_bucket)]
    for asked, asked_of in askings:
        (found,) = asked_of.look_up([name], asked, table.schema, columns)
        expected = expected_rows(table, asked)
        expected = expected if columns is None else expected.select(columns)
        assert found.schema == expected.schema
        found.validate(full=True)
        assert found.to_pylist() == expected.to_pylist()


class TestKeys:
    """Every key type, one or several columns."""

    @pytest.mark.parametrize("write", [write, write_filtered])
    @pytest.mark.parametrize("key_type", KEY_TYPES)
    def test_keys_of_every_type_are_found(self, folder, key_type, write):
        """A key of any type brings all its rows, though they lie in several pages and row groups."""
        table = sorted_table([key_type], 3_000, fields=VALUE_FIELDS[:2])
        name = write(folder, table)

        assert_found(folder, name, table, 1, range(0, 3_000, 37))

    @pytest.mark.parametrize("write", [write, write_filtered])
    @pytest.mark.parametrize("seed", range(8))
    def test_composite_keys_are_found(self, folder, seed, write):
        """Two or three key columns of mixed types find the rows that equal all of them, no others."""
        r = random.Random(seed)
        types = r.sample(sorted(KEY_TYPES), r.choice((2, 3)))
        table = sorted_table(types, 2_000, seed, VALUE_FIELDS[:1])
        name = write(folder, table)
        other = [tuple(KEY_TYPES[t][1](r) for t in types) for _ in range(20)]

        assert_found(folder, name, table, len(types), range(0, 2_000, 41), other)

    def test_a_first_column_with_few_values_is_narrowed_by_the_second(self, folder):
        """Where many pages have the same first value, only pages that may hold the second are read."""
        table = pa.table(
            {"k0": [1] * 5_000 + [2] * 5_000, "k1": list(range(5_000)) * 2, "v": range(10_000)}
        )
        table = table.cast(
            pa.schema([pa.field(n, pa.int64(), nullable=False) for n in table.schema.names])
        )
        name = write(
            folder, table, row_group_size=10_000, max_rows_per_page=100, use_dictionary=False
        )
        reader = LookupReader(folder)
        for number in (77, 4_999):
            keys = keys_of(table, 2, [number])
            reader.look_up([name], keys, table.schema)
            folder.reads.clear()

            (found,) = reader.look_up([name], keys, table.schema)

            assert found.to_pylist() == [{"k0": 1, "k1": number, "v": number}]
            assert len([r for ranges in folder.reads for r in ranges]) <= 4

    def test_absent_keys_have_no_rows(self, folder):
        """Keys below, between and above those of the file have no rows."""
        table = pa.table({"k": pa.array(range(0, 2_000, 2), pa.int64())})
        name = write(folder, table)

        found = [
            LookupReader(folder).look_up([name], batch([key]), table.schema)[0].num_rows
            for key in (-5, 1, 999, 5_000)
        ]

        assert found == [0, 0, 0, 0]

    def test_a_key_outside_every_page_reads_no_page(self, folder):
        """What the bounds rule out costs no read once the file is open."""
        table = pa.table({"k": pa.array(range(1_000), pa.int64())})
        name = write(folder, table)
        reader = LookupReader(folder)
        reader.look_up([name], batch([5_000]), table.schema)
        folder.reads.clear()

        reader.look_up([name], batch([6_000]), table.schema)

        assert folder.reads == []

    def test_a_hit_reads_two_rounds_of_single_pages(self, folder):
        """First the key's page, then one page of each other column, in one call."""
        table = pa.table({n: pa.array(range(10_000), pa.int64()) for n in ("k", "v", "w")})
        name = write(
            folder, table, row_group_size=5_000, max_rows_per_page=100, use_dictionary=False
        )
        reader = LookupReader(folder)
        reader.look_up([name], batch([7_777]), table.schema)
        folder.reads.clear()

        (found,) = reader.look_up([name], batch([7_777]), table.schema)

        assert found.to_pylist() == [{"k": 7_777, "v": 7_777, "w": 7_777}]
        assert [len(ranges) for ranges in folder.reads] == [1, 2]
        assert folder.bytes_read() < 3 * 1_000

    def test_no_keys_find_nothing(self, folder):
        """An empty batch of keys gives empty tables of the right schema."""
        table = pa.table({"k": pa.array([1], pa.int64())})
        name = write(folder, table)

        (found,) = LookupReader(folder).look_up(
            [
                name,
            ][:1],
            batch([]),
            table.schema,
        )

        assert found.num_rows == 0
        assert found.schema == table.schema

    @pytest.mark.soak
    @given(
        st.lists(st.binary(max_size=5), min_size=1, max_size=60),
        st.lists(st.binary(max_size=5), max_size=9),
    )
    @settings(
        max_examples=tries(60, soak=2_000),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    def test_any_bytes_are_found_exactly(self, folder, stored, others):
        """Trailing zero bytes, empty keys and bytes from 0x80 up are keys like any other."""
        table = pa.table({"k": sorted(stored), "v": list(range(len(stored)))})
        table = table.cast(
            pa.schema([pa.field("k", pa.binary(), False), pa.field("v", pa.int64())])
        )
        name = write(folder, table, max_rows_per_page=3, row_group_size=11)
        keys = batch(sorted({*stored[::2], *others}), pa.binary())

        (found,) = LookupReader(folder).look_up([name], keys, table.schema)

        assert found.to_pylist() == expected_rows(table, keys).to_pylist()


def batch(values, kind=None):
    return pa.RecordBatch.from_arrays([pa.array(values, kind or pa.int64())], names=["k"])


class TestFiles:
    """Files as different writers and settings make them."""

    @pytest.mark.parametrize("version", ["1.0", "2.0"])
    @pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none", "lz4", "brotli"])
    @pytest.mark.parametrize("dictionary", [True, False])
    def test_every_codec_and_page_version(self, folder, version, codec, dictionary):
        """Values of every type come back from version 1 and 2 pages, with and without dictionary."""
        table = sorted_table(["string"], 1_500)
        name = write(
            folder,
            table,
            compression=codec,
            use_dictionary=dictionary,
            data_page_version=version,
            write_page_checksum=True,
        )

        assert_found(folder, name, table, 1, range(0, 1_500, 50))

    @pytest.mark.parametrize("version", ["1.0", "2.0"])
    @pytest.mark.parametrize(
        "encodings",
        [
            {
                "k0": "DELTA_BYTE_ARRAY",
                "whole": "DELTA_BINARY_PACKED",
                "plain": "DELTA_LENGTH_BYTE_ARRAY",
            },
            {
                "k0": "DELTA_LENGTH_BYTE_ARRAY",
                "real": "BYTE_STREAM_SPLIT",
                "half": "BYTE_STREAM_SPLIT",
            },
            {
                "k0": "PLAIN",
                "whole": "BYTE_STREAM_SPLIT",
                "small": "DELTA_BINARY_PACKED",
                "flag": "RLE",
            },
        ],
    )
    def test_every_encoding(self, folder, version, encodings):
        """Encodings that this reader leaves to pyarrow give the same rows."""
        table = sorted_table(["even string"], 1_500)
        name = write(
            folder,
            table,
            use_dictionary=False,
            column_encoding=encodings,
            data_page_version=version,
        )

        assert_found(folder, name, table, 1, range(0, 1_500, 50))

    @pytest.mark.parametrize(
        "options",
        [
            {"write_page_index": False},
            {"write_page_index": False, "write_statistics": False},
            {"write_statistics": False},
            {"write_page_index": False, "use_dictionary": False, "data_page_version": "2.0"},
            {"row_group_size": 10_000, "max_rows_per_page": 10_000},
            {"row_group_size": 30},
            {"max_rows_per_page": 1, "row_group_size": 500},
        ],
        ids=str,
    )
    def test_files_without_indexes_or_statistics(self, folder, options):
        """A missing index or statistic costs reads, never rows."""
        table = sorted_table(["string"], 1_200)
        name = write(folder, table, **options)

        assert_found(folder, name, table, 1, range(0, 1_200, 45))

    def test_columns_in_the_order_wanted(self, folder):
        """Only the columns asked for come back, in the order asked, key columns too."""
        table = sorted_table(["int64", "string"], 1_000)
        name = write(folder, table)

        assert_found(
            folder, name, table, 2, range(0, 1_000, 99), columns=["text", "k1", "whole", "k0"]
        )
        assert_found(folder, name, table, 2, range(0, 1_000, 99), columns=["k1"])
        assert_found(folder, name, table, 2, range(0, 1_000, 99), columns=["tags"])

    def test_long_keys_without_statistics(self, folder):
        """Keys over 4,096 bytes have no statistics, and are found all the same."""
        texts = sorted({c * n + str(i) for i, c in enumerate("abcdefgh" * 40) for n in (1, 5_000)})
        table = pa.table({"k": texts, "v": range(len(texts))})
        table = table.cast(
            pa.schema([pa.field("k", pa.string(), False), pa.field("v", pa.int64())])
        )
        name = write(folder, table, max_rows_per_page=7, row_group_size=100)

        for text in texts[::23]:
            keys = batch([text], pa.string())
            (found,) = LookupReader(folder).look_up([name], keys, table.schema)
            assert found.column("k").to_pylist() == [text]
        assert_found(folder, name, table, 1, range(0, len(texts), 19), [("absent",)])

    def test_keys_with_a_long_common_prefix(self, folder):
        """Keys that differ only behind the bytes that bounds compare are told apart."""
        texts = ["p" * 300 + f"{i:05d}" for i in range(2_000)]
        table = pa.table({"k": texts}).cast(pa.schema([pa.field("k", pa.string(), False)]))
        name = write(folder, table)

        assert_found(folder, name, table, 1, range(0, 2_000, 97), [("p" * 300,)])

    @pytest.mark.parametrize("width", [3, 300, 70_000])
    def test_values_of_many_lengths(self, folder, width):
        """Byte arrays of one, two and three length bytes are cut apart correctly."""
        r = random.Random(width)
        values = [bytes(r.choices(b"\0abc", k=r.randint(0, width))) for _ in range(120)]
        table = pa.table({"k": pa.array(range(120), pa.int64()), "v": values})
        name = write(folder, table, max_rows_per_page=50, use_dictionary=False)

        assert_found(folder, name, table, 1, range(0, 120, 7))

    def test_one_key_fills_the_file(self, folder):
        """A key with many rows brings them all, in file order."""
        table = pa.table(
            {"k": pa.array([7] * 20_000, pa.int64()), "v": pa.array(range(20_000), pa.int64())}
        )
        name = write(folder, table, row_group_size=6_000)

        (found,) = LookupReader(folder).look_up([name], batch([7]), table.schema)

        assert found.equals(table)

    def test_rounds_are_cut_by_size(self, folder, monkeypatch):
        """What is larger than a round is read in several, and comes out whole."""
        table = sorted_table(["even string"], 3_000)
        name = write(folder, table, row_group_size=2_000)
        monkeypatch.setattr("sleeper.lookup.key_search.ROUND_BYTES", 2_000)

        assert_found(folder, name, table, 1, range(0, 3_000, 3))

    def test_an_empty_file_has_no_rows(self, folder):
        """A file without rows is a file like any other."""
        table = sorted_table(["string"], 0)
        name = write(folder, table)
        keys = batch(["x"], pa.string()).rename_columns(["k0"])

        assert LookupReader(folder).look_up([name], keys, table.schema)[0].equals(table)

    def test_several_files_answer_in_their_order(self, folder):
        """Each file gives one table; many keys take the files side by side and keep the order."""
        tables = [sorted_table(["even string"], 900, seed, VALUE_FIELDS[:3]) for seed in range(5)]
        names = [write(folder, table, f"{i}.parquet") for i, table in enumerate(tables)]
        keys = keys_of(tables[0], 1, range(900))

        remote = CountedFolder(folder.path, is_remote=True)

        for count in (1, 5, keys.num_rows):
            asked = keys.slice(0, count)
            for reader in (LookupReader(folder), LookupReader(remote)):
                found = reader.look_up(names, asked, tables[0].schema)
                expected = [expected_rows(table, asked).to_pylist() for table in tables]
                assert [table.to_pylist() for table in found] == expected


SIMPLE_FIELDS = [f for f in VALUE_FIELDS if f.name not in ("counts", "half")]


class TestWriters:
    """Files that other programs wrote."""

    def test_datafusion(self, folder):
        """DataFusion (parquet-rs) shortens statistics and writes its own encodings."""
        table = sorted_table(["string"], 2_500, fields=SIMPLE_FIELDS)
        config = {
            "datafusion.execution.parquet.data_page_row_count_limit": "100",
            "datafusion.execution.parquet.write_batch_size": "50",
            "datafusion.execution.parquet.max_row_group_size": "900",
            "datafusion.execution.parquet.statistics_truncate_length": "4",
            "datafusion.execution.parquet.column_index_truncate_length": "4",
            "datafusion.execution.target_partitions": "1",
        }
        context = datafusion.SessionContext(datafusion.SessionConfig(config))
        frame = context.from_arrow(table)
        frame.write_parquet(
            str(folder.path / "file.parquet"), compression="zstd", compression_level=3
        )
        written = pq.read_table(folder.path / "file.parquet").cast(table.schema)

        assert_found(folder, "file.parquet", written, 1, range(0, 2_500, 50))

    def test_polars(self, folder):
        """polars writes no page index, nullable columns and large strings."""
        table = sorted_table(["string"], 2_000, fields=SIMPLE_FIELDS)
        frame = pl.from_arrow(table)
        frame.write_parquet(folder.path / "file.parquet", row_group_size=700, data_page_size=4_000)

        assert_found(folder, "file.parquet", table, 1, range(0, 2_000, 50))

    def test_duckdb(self, folder):
        """DuckDB writes no page index, and its own choice of encodings."""
        table = sorted_table(["string"], 5_000, fields=SIMPLE_FIELDS)
        path = folder.path / "file.parquet"
        connection = duckdb.connect()
        connection.register("rows", table)
        connection.sql(
            f"copy (select * from rows) to '{path}' (row_group_size 2048, compression zstd, parquet_version v2)"
        )

        assert_found(folder, "file.parquet", table, 1, range(0, 5_000, 99))

    def test_datafusion_finds_the_same(self, folder):
        """DataFusion, asked with SQL, finds what this reader finds."""
        table = sorted_table(["int64", "even string"], 3_000, fields=VALUE_FIELDS[:3])
        name = write(folder, table)
        context = datafusion.SessionContext()
        context.register_parquet("t", str(folder.path / name))
        reader = LookupReader(folder)

        for row in range(0, 3_000, 301):
            keys = keys_of(table, 2, [row])
            number, text = (keys.column(i)[0].as_py() for i in (0, 1))
            (found,) = reader.look_up([name], keys, table.schema)
            other = context.sql(
                f"select * from t where k0 = {number} and k1 = '{text}'"
            ).to_pydict()
            assert sorted(found.to_pydict()["whole"]) == sorted(other["whole"])


class TestErrors:
    """What cannot be answered is said."""

    def test_a_type_that_differs_from_the_schema_is_named(self, folder):
        """The error names file and column."""
        name = write(folder, pa.table({"k": pa.array([1], pa.int64()), "v": ["x"]}))
        schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int32())])

        with pytest.raises(DataDamaged, match=r"file\.parquet.*'v'.*Restore"):
            LookupReader(folder).look_up([name], batch([1]), schema)

    def test_a_missing_column_is_named(self, folder):
        """The error names file and column."""
        name = write(folder, pa.table({"k": pa.array([1], pa.int64())}))
        schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int32())])

        with pytest.raises(DataDamaged, match=r"file\.parquet.*no column 'v'"):
            LookupReader(folder).look_up([name], batch([1]), schema)

    def test_a_timestamp_of_another_unit_is_refused(self, folder):
        """A file in milliseconds is never read as microseconds."""
        name = write(folder, pa.table({"k": pa.array([1], pa.timestamp("ms"))}))
        schema = pa.schema([pa.field("k", pa.timestamp("us"))])

        with pytest.raises(DataDamaged, match="'k'"):
            LookupReader(folder).look_up([name], batch([1], pa.timestamp("us")), schema)

    @pytest.mark.parametrize(
        "body", [b"", b"PAR1", b"no parquet file at all", b"PAR1" + b"\xff" * 4 + b"PAR1"]
    )
    def test_what_is_no_parquet_file_is_refused(self, folder, body):
        """Other bytes are called damaged, with the file's name."""
        (folder.path / "odd").write_bytes(body)

        with pytest.raises(DataDamaged, match="'odd'"):
            LookupReader(folder).look_up(
                ["odd"], batch([1]), pa.schema([pa.field("k", pa.int64())])
            )

    def test_an_unsorted_file_is_refused(self, folder):
        """Row groups out of key order are noticed by their statistics."""
        name = write(folder, pa.table({"k": pa.array(range(3_000, 0, -1), pa.int64())}))

        with pytest.raises(DataDamaged, match="key order"):
            LookupReader(folder).look_up([name], batch([5]), pa.schema([pa.field("k", pa.int64())]))

    def test_a_missing_file_is_named(self, folder):
        """A file that is gone, known before or not, is missing data and not a passing storage failure."""
        name = write(folder, pa.table({"k": pa.array([1], pa.int64())}))
        schema = pa.schema([pa.field("k", pa.int64())])

        class Emptied:
            is_remote = False
            files = folder

            def size(self, key):
                return self.read(lambda: folder.size(key), key)

            def read_ranges(self, key, ranges):
                return self.read(lambda: folder.read_ranges(key, ranges), key)

            def read(self, get, key):
                if self.files is None:
                    raise ObjectNotFound(f"there is no object {key}")
                return get()

        files = Emptied()
        reader = LookupReader(files)
        reader.look_up([name], batch([1]), schema)
        files.files = None

        with pytest.raises(DataDamaged, match=r"file\.parquet.*missing"):
            reader.look_up([name], batch([1]), schema)
        with pytest.raises(DataDamaged, match=r"file\.parquet.*missing"):
            LookupReader(files).look_up([name], batch([1]), schema)

    def test_a_storage_error_is_not_called_damage(self, folder):
        """What the storage raises stays what it is, and what is no Sleeper error becomes one."""
        name = write(folder, pa.table({"k": pa.array([1], pa.int64())}))

        class Broken:
            is_remote = False

            def size(self, key):
                return folder.size(key)

            def read_ranges(self, key, ranges):
                raise OSError("input/output error")

        with pytest.raises(StorageFailed, match=r"file\.parquet"):
            LookupReader(Broken()).look_up(
                [name], batch([1]), pa.schema([pa.field("k", pa.int64())])
            )


class TestCache:
    """Indexes are kept, within a bound."""

    def test_a_second_look_up_reads_no_footer(self, folder):
        """The same key again reads pages only."""
        table = sorted_table(["int64"], 2_000, fields=VALUE_FIELDS[:1])
        name = write(folder, table)
        keys = keys_of(table, 1, [1_000])
        reader = LookupReader(folder)
        reader.look_up([name], keys, table.schema)
        tail = (folder.path / name).stat().st_size - 2_000
        folder.reads.clear()

        reader.look_up([name], keys, table.schema)

        assert all(offset + length < tail for ranges in folder.reads for offset, length in ranges)

    def test_a_cache_of_nothing_answers_all_the_same(self, folder):
        """The bound limits what is kept, not what is answered."""
        table = sorted_table(["int64"], 2_000, fields=VALUE_FIELDS[:1])
        name = write(folder, table)
        keys = keys_of(table, 1, [1_000])
        reader = LookupReader(folder, cache_bytes=0)

        for _ in range(2):
            (found,) = reader.look_up([name], keys, table.schema)
            assert found.equals(expected_rows(table, keys))

    def test_large_indexes_are_read_in_parts(self, folder, monkeypatch):
        """Where the index area is too large to hold, each index is read when it is needed."""
        table = sorted_table(["string"], 2_000)
        name = write(folder, table)
        monkeypatch.setattr("sleeper.lookup.parquet.file_end.FIRST_READ_BYTES", 100)
        monkeypatch.setattr("sleeper.lookup.parquet.file_end.HELD_BYTES_MAX", 0)

        assert_found(folder, name, table, 1, range(0, 2_000, 99))
