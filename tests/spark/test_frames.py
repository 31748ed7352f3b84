"""Rows as a DataFrame: by Spark's Parquet reader where that is right, else by the data source."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from weakref import WeakSet

import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper import DecimalType, Field, ListType, MapType, Primitive, Schema
from sleeper.engine.writing import data_file
from sleeper.errors import BadRequest, MissingExtra, QueryInvalid, VersionNotFound
from sleeper.spark import worker_python
from sleeper.spark.data_source.schema import to_spark_schema

EVERYTHING = Schema(
    row_keys=[Field("id", Primitive.STRING)],
    sort_keys=[Field("at", Primitive.TIMESTAMP)],
    values=[
        Field("small", Primitive.INT, nullable=True),
        Field("large", Primitive.LONG),
        Field("body", Primitive.BYTES),
        Field("day", Primitive.DATE),
        Field("clock", Primitive.TIMESTAMP_NTZ),
        Field("float", Primitive.FLOAT),
        Field("double", Primitive.DOUBLE),
        Field("flag", Primitive.BOOLEAN),
        Field("price", DecimalType(12, 3)),
        Field("list", ListType(Primitive.STRING)),
        Field("map", MapType(Primitive.STRING, Primitive.LONG)),
        Field("a.b `c`", Primitive.STRING),
    ],
)
COUNTS = Schema(row_keys=[Field("id", Primitive.STRING)], values=[Field("n", Primitive.LONG)])


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


def row(key, number):
    """A row with a value of every type, and values that two zones or calendars disagree on."""
    return {
        "id": key,
        "at": datetime(1890, 1, 1, 12, 0, number, 123456, tzinfo=UTC),
        "small": None if number % 2 else -number,
        "large": 2**62 + number,
        "body": bytes([number, 255]),
        "day": date(1500, 1, 1 + number),
        "clock": datetime(2024, 3, 31, 2, 30, number, 654321),
        "float": number / 4,
        "double": number / 3,
        "flag": number % 2 == 0,
        "price": Decimal(number) / 8,
        "list": ["x"] * number,
        "map": {"n": number},
        "a.b `c`": f"odd {number}",
    }


def rows_of(frame):
    """A DataFrame's rows as Arrow tells them: whatever zone Python's own clock has."""
    return Counter(map(repr, frame.toArrow().to_pylist(maps_as_pydicts="strict")))


def rows_queried(table, **asked):
    return Counter(map(repr, table.query(**asked).to_pylist()))


def is_plain_parquet(frame):
    """Spark names the files of its own reader alone."""
    return bool(frame.inputFiles())


def test_damaged_pages_are_an_error_and_never_rows(spark, instance, tmp_path):
    """Spark's own reader compares pages with their checksums, which it does not unless told."""
    schema = Schema(row_keys=[Field("id", Primitive.LONG)], values=[Field("x", Primitive.DOUBLE)])
    table = instance.create_table(
        "t", schema, properties={"sleeper.table.parquet.compression.codec": "uncompressed"}
    )
    table.ingest([{"id": n, "x": n / 3} for n in range(100)])
    (file,) = tmp_path.glob("instance/*/data/*/*.parquet")
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(1)
    body = bytearray(file.read_bytes())
    body[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 0x04
    file.write_bytes(body)
    frame = table.to_spark(spark)

    assert is_plain_parquet(frame)
    with pytest.raises(Exception, match="CRC checksum verification failed"):
        frame.collect()


@pytest.mark.parametrize("version", ["files as they are now", "files of an older version"])
def test_filters_keep_rows_whose_number_is_not_a_number(spark, instance, monkeypatch, version):
    """
    NaN is greater than every number to Spark. Statistics of files written once leave it out, so
    no filter on such a column may be pushed into them; filters on keys still are.
    """
    if version == "files of an older version":
        monkeypatch.setattr(data_file, "columns_with_statistics", lambda _: True)
    values = [Field("double", Primitive.DOUBLE, nullable=True), Field("float", Primitive.FLOAT)]
    schema = Schema(row_keys=[Field("id", Primitive.LONG)], values=values)
    table = instance.create_table("numbers", schema)
    numbers = [math.nan, 1.5, None]
    table.ingest([{"id": n, "double": x, "float": x or 1.5} for n, x in enumerate(numbers)])

    frame = table.to_spark(spark)

    assert is_plain_parquet(frame)
    assert [kind for _, kind in frame.dtypes] == ["bigint", "double", "float"]
    for column in ("double", "float"):
        for condition in ("{} > 2", "not {} = 1.5", "{} = double('NaN')", "{} < 1 or {} > 1.6"):
            found = frame.filter(condition.replace("{}", column)).collect()
            assert [row.id for row in found] == [0], condition
        assert frame.filter(f"id = 1 and {column} = 1.5").count() == 1


@pytest.mark.every_spark
def test_whole_files_are_read_by_sparks_own_parquet_reader(spark, instance):
    """
    Where every file belongs to one leaf and nothing is processed, Spark's Parquet reader gives
    the rows that a query gives, of every type, and the columns asked for.
    """
    table = instance.create_table("t", EVERYTHING, split_points=["g", "p"])
    table.ingest([row(key, number) for number, key in enumerate("axgqbz\U0001f600")])
    table.ingest([row("g", 9)])

    everything = table.to_spark(spark)
    some = table.to_spark(spark, range={"id": ("b", "q")}, columns=["a.b `c`", "id"])

    assert is_plain_parquet(everything)
    assert is_plain_parquet(some)
    assert some.columns == ["a.b `c`", "id"]
    assert rows_of(everything) == rows_queried(table)
    assert rows_of(some) == rows_queried(table, range={"id": ("b", "q")}, columns=some.columns)


@pytest.mark.every_spark
def test_shared_and_processed_files_are_read_by_the_data_source(spark, instance):
    """
    Files that several leaves reference, and rows that a table unites, come through the data
    source: the rows of a query, with the schema's own types and nullability.
    """
    shared = instance.create_table(
        "shared",
        EVERYTHING,
        split_points=["g"],
        properties={"sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf"},
    )
    shared.ingest([row(key, number) for number, key in enumerate("axgqbz")])
    united = instance.create_table(
        "united", COUNTS, properties={"sleeper.table.aggregations": "sum(n)"}
    )
    for _ in range(3):
        united.ingest([{"id": "a", "n": 1}, {"id": "b", "n": 2}])

    frame = shared.to_spark(spark, keys=["a", "z", "none"])

    assert not is_plain_parquet(frame)
    assert frame.schema == to_spark_schema(EVERYTHING)
    assert rows_of(frame) == rows_queried(shared, keys=["a", "z", "none"])
    assert rows_of(united.to_spark(spark)) == rows_queried(united)


def test_files_of_a_partition_that_was_split_are_read_by_sparks_own_parquet_reader(spark, instance):
    """A split moves no file: rows of the parent's file are in the table whole, each once."""
    table = instance.create_table(
        "t", COUNTS, properties={"sleeper.table.partition.splitting.threshold": "10"}
    )
    table.ingest([{"id": f"{n:02}", "n": n} for n in range(30)])
    table.split_partitions()

    everything = table.to_spark(spark)
    some = table.to_spark(spark, range={"id": ("10", "25")})

    assert table.state().tree.leaf_count > 1
    assert is_plain_parquet(everything)
    assert is_plain_parquet(some)
    assert rows_of(everything) == rows_queried(table)
    assert rows_of(some) == rows_queried(table, range={"id": ("10", "25")})
    begun = table.to_spark(spark, prefix={"id": "1"})
    assert rows_of(begun) == rows_queried(table, prefix={"id": "1"}) != Counter()


def test_a_frame_is_the_table_as_it_was(spark, instance):
    """A DataFrame stands for one transaction: `as_of`, or the newest when it was made."""
    table = instance.create_table("t", COUNTS)
    first = table.ingest([{"id": "a", "n": 1}]).transaction
    now = table.to_spark(spark)
    table.ingest([{"id": "b", "n": 2}])

    assert now.count() == 1
    assert table.to_spark(spark, as_of=first).count() == 1
    assert table.to_spark(spark).count() == 2
    with pytest.raises(VersionNotFound):
        table.to_spark(spark, as_of=99)


def test_a_table_without_rows_has_its_columns(spark, instance):
    """An empty table, or a range without files, is an empty DataFrame of the right schema."""
    table = instance.create_table("t", EVERYTHING)

    frame = table.to_spark(spark, columns=["price", "id"])

    assert frame.count() == 0
    assert frame.schema == to_spark_schema(EVERYTHING, ["price", "id"])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Primitive.INT, [-(2**31), -1, 0, 2**31 - 1]),
        (Primitive.LONG, [-(2**63), 0, 2**53 + 1, 2**63 - 1]),
        (Primitive.STRING, ["", "a", "a\0", "a'\\b", "\ufffd", "\U0001f600"]),
        (Primitive.BYTES, [b"", b"\0", b"a\xff", b"\xff"]),
        (Primitive.DATE, [date(1, 1, 1), date(1582, 10, 10), date(2024, 2, 29)]),
        (
            Primitive.TIMESTAMP,
            [datetime(1, 1, 2, tzinfo=UTC), datetime(2024, 3, 31, 1, 30, 0, 1, tzinfo=UTC)],
        ),
        (Primitive.TIMESTAMP_NTZ, [datetime(1, 1, 2), datetime(2024, 3, 31, 2, 30, 0, 1)]),
    ],
    ids=lambda given: given.name if isinstance(given, Primitive) else "",
)
def test_keys_of_every_type_are_found(spark, instance, kind, values):
    """Keys and ranges mean to Spark what they mean to a query, at every type's ends too (rule QRY-20)."""
    table = instance.create_table("t", Schema(row_keys=[Field("k", kind)]))
    table.ingest([{"k": value} for value in values])

    one = table.to_spark(spark, keys=values[-2:])
    some = table.to_spark(spark, range={"k": (values[0], False, values[-1], True)})

    assert is_plain_parquet(one)
    assert rows_of(one) == rows_queried(table, keys=values[-2:])
    assert rows_of(some) == rows_queried(table, range={"k": (values[0], False, values[-1], True)})


def test_a_folder_that_spark_would_take_for_a_pattern_is_read_all_the_same(spark, tmp_path):
    """Spark reads `*` and brackets in paths as patterns; the data source does not."""
    instance = sleeper.connect(tmp_path / "a[1]*", create=True)
    table = instance.create_table("t", COUNTS)
    table.ingest([{"id": "a", "n": 1}])

    frame = table.to_spark(spark)

    assert not is_plain_parquet(frame)
    assert rows_of(frame) == rows_queried(table)


def test_a_python_without_sleeper_is_named(instance):
    """Spark looks for data sources in a Python of its own; where that has none, it says which."""

    class Session:
        """A session whose Python finds nothing."""

        conf = property(lambda self: {})
        read = property(lambda self: self)
        format = options = lambda self, *_, **__: self

        def load(self):
            raise RuntimeError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: sleeper.")

    united = instance.create_table(
        "united", COUNTS, properties={"sleeper.table.aggregations": "sum(n)"}
    )
    united.ingest([{"id": "a", "n": 1}])

    with pytest.raises(MissingExtra, match="Set PYSPARK_PYTHON"):
        united.to_spark(Session())


def test_workers_with_another_version_of_sleeper_are_named(spark, instance, monkeypatch):
    """Before a read needs them, workers are asked for their version of Sleeper."""
    united = instance.create_table(
        "united", COUNTS, properties={"sleeper.table.aggregations": "sum(n)"}
    )
    united.ingest([{"id": "a", "n": 1}])
    monkeypatch.setattr(worker_python, "_checked", WeakSet())
    monkeypatch.setattr(worker_python, "version", lambda _: "99.1")

    with pytest.raises(MissingExtra, match=r"workers have Sleeper .*, and this process has 99\.1"):
        united.to_spark(spark)


def test_what_cannot_be_asked_is_refused_before_spark_is(spark, instance):
    """Unknown columns, two questions at once and a memory:// instance are told as ever."""
    table = instance.create_table("t", COUNTS)
    in_memory = sleeper.connect("memory://").create_table("t", COUNTS)

    with pytest.raises(QueryInvalid, match="no column 'x'"):
        table.to_spark(spark, columns=["x"])
    with pytest.raises(QueryInvalid, match="not by several"):
        table.to_spark(spark, key="a", keys=["b"])
    with pytest.raises(BadRequest, match="memory://"):
        in_memory.to_spark(spark)


def test_deleted_rows_are_in_no_frame(spark, instance):
    """Given a deletion, then Spark's own Parquet reader, which would read whole files, is not used
    until the files are written anew; either way rows are those of a query.
    """
    table = instance.create_table("t", COUNTS, split_points=["m"])
    table.ingest([{"id": key, "n": 1} for key in "abcxyz"])
    table.delete(range={"id": ("b", "y")})

    assert rows_of(table.to_spark(spark)) == rows_queried(table)
    assert table.to_spark(spark).count() == 3
    table.compact(all_files=True)
    assert rows_of(table.to_spark(spark)) == rows_queried(table)
