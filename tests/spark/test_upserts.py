"""Rows that Spark writes replace those of the same row keys: imports, frames and streams (DEL-3)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict

import sleeper
from sleeper.errors import BadRequest, InputRefused, RowsChanged
from sleeper.interfaces.spark_source import SleeperSource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
DDL = "k long, v string"
LEAVES = {
    "sleeper.table.bulk.import.min.leaf.partitions": 4,
    "sleeper.table.partition.splitting.min.rows": 1,
}


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    """A table of one leaf with 3,000 rows."""
    made = instance.create_table("t", SCHEMA, row_keys=["k"], properties=LEAVES)
    made.ingest(rows(range(3_000), "old"))
    return made


def rows(keys, value):
    numbers = [*keys]
    return pa.table({"k": numbers, "v": [value] * len(numbers)}, schema=SCHEMA)


def frame_of(spark, keys, value):
    return spark.createDataFrame([(key, value) for key in keys], DDL)


def named(given, table, **options):
    """A reader or writer of Spark that is told of the table."""
    return given.format("sleeper").options(instance=table._context.url, table=table.name, **options)


def values(table):
    """The value of each key; a key that is there twice is an error."""
    found = table.query().to_arrow()
    by_key = dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(by_key) == found.num_rows
    return by_key


def files_in(table):
    """Every data file in the table's folder, whether the table knows it or not."""
    return {info.key for info in table.open_for_spark().table_files.files.listing("data/")}


@pytest.mark.every_spark
@pytest.mark.parametrize("of", ["frame", "files"])
def test_an_import_replaces_rows_and_adds_new_ones_in_leaves_that_it_made(
    spark, table, tmp_path, of
):
    """Given rows of which half have keys that are there, each key has its newest row, once."""
    before = table.refresh()
    keys = range(1_500, 4_500)
    pq.write_table(rows(keys, "new"), tmp_path / "new.parquet")
    data = frame_of(spark, keys, "new") if of == "frame" else str(tmp_path / "new.parquet")

    done = table.bulk_import(data, "job", engine="spark", spark=spark, upsert=True)
    again = table.bulk_import(data, "job", engine="spark", spark=spark, upsert=True)

    assert (done.engine, done.rows_written, done.leaves_after) == ("spark", 3_000, 4)
    assert values(table) == {k: "old" if k < 1_500 else "new" for k in range(4_500)}
    assert table.count(as_of=before) == 3_000
    assert table.count(as_of=done.transaction - 1, where="v = 'new'") == 0
    assert again.already_committed
    assert table.verify().clean


def test_leaves_of_a_table_of_format_1_are_written_anew(spark, instance):
    """Given no deletions that readers could be told of, the old rows go all the same."""
    old = instance.create_table("old", SCHEMA, row_keys=["k"], split_points=[1_000])
    old.downgrade()
    old.ingest(rows(range(3_000), "old"))

    old.bulk_import(frame_of(spark, range(1_500, 2_000), "new"), upsert=True)

    assert values(old) == {k: "new" if 1_500 <= k < 2_000 else "old" for k in range(3_000)}


@pytest.mark.every_spark
def test_a_frame_is_written_by_the_data_source(spark, table):
    """Given the option, rows that are there are replaced; given a repeated job, nothing is."""
    new = frame_of(spark, [7, 8, 9_000], "new").coalesce(1)

    named(new.write, table, upsert="true", job_id="job").mode("append").save()
    table.upsert(rows([7], "newer"))
    named(new.write, table, upsert="TRUE", job_id="job").mode("append").save()

    assert table.query(keys=[7, 8, 9, 9_000]).to_arrow()["v"].to_pylist() == [
        "newer",
        "new",
        "old",
        "new",
    ]
    assert table.count() == 3_001


@pytest.mark.every_version
def test_each_micro_batch_of_a_stream_replaces_rows(spark, instance, table, tmp_path):
    """Given a stream of changes, the last row of a key stays; started again, it goes on."""
    changes = instance.create_table("changes", SCHEMA, row_keys=["k"])
    start = changes.refresh()

    def run():
        stream = named(spark.readStream, changes, **{"from": str(start)}).load()
        query = (
            named(stream.writeStream, table, upsert="true", checkpointLocation=str(tmp_path / "at"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    changes.ingest(rows([1, 2], "first"))
    run()
    changes.ingest(rows([2, 3], "second"))
    run()
    run()

    assert {k: v for k, v in values(table).items() if v != "old"} == {
        1: "first",
        2: "second",
        3: "second",
    }
    assert table.count() == 3_000


class TestRefused:
    """What is refused changes nothing, and leaves no file behind."""

    @pytest.mark.parametrize("upsert", [False, True])
    def test_a_table_that_others_have_changed_since(self, spark, table, upsert):
        """Given a row that came after the version that the import relies on."""
        read = table.refresh()
        table.ingest(rows([9_000], "old"))
        files = files_in(table)

        with pytest.raises(RowsChanged):
            new = frame_of(spark, range(100, 300), "new")
            table.bulk_import(new, upsert=upsert, if_unchanged_since=read)

        assert table.count(where="v = 'old'") == table.count() == 3_001
        assert files_in(table) == files

    @pytest.mark.parametrize("by", ["import", "data source"])
    def test_a_key_that_is_there_twice(self, spark, table, by):
        """Two tasks may have written it: the driver finds out."""
        files = files_in(table)
        twice = frame_of(spark, [5, *range(200), 5], "new").repartition(3)

        with pytest.raises((InputRefused, PySparkException), match="two rows of the input have"):
            if by == "import":
                table.bulk_import(twice, upsert=True)
            else:
                named(twice.write, table, upsert="true").mode("append").save()

        assert table.count(where="v = 'old'") == table.count() == 3_000
        assert files_in(table) == files

    def test_a_table_that_aggregates(self, spark, instance):
        """It unites rows of equal keys, and a part would replace a sum."""
        schema = pa.schema([("k", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
        sums = {"sleeper.table.aggregations": "sum(n)"}
        table = instance.create_table("sums", schema, row_keys=["k"], properties=sums)
        table.ingest([{"k": 1, "n": 5}])
        new = spark.createDataFrame([(1, 1)], "k long, n long")

        with pytest.raises((BadRequest, PySparkException), match="unites rows of equal keys"):
            named(new.write, table, upsert="true").mode("append").save()
        with pytest.raises(BadRequest, match="unites rows of equal keys"):
            table.bulk_import(new, upsert=True)

        assert table.query().to_pylist() == [{"k": 1, "n": 5}]

    def test_an_option_that_is_neither_true_nor_false(self):
        """A word that is taken for false would add rows beside the old ones."""
        source = SleeperSource(CaseInsensitiveDict({"Upsert": "yes"}))

        with pytest.raises(BadRequest, match="option 'upsert' is 'true' or 'false', not 'yes'"):
            source.upsert()
