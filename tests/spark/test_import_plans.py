"""How a bulk import is divided: two levels of shuffle, footers by tasks, skew, one evaluation."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import sleeper
from sleeper.errors import InputSchemaMismatch, NullKeys
from sleeper.spark import bulk_import as by_spark
from sleeper.spark.block_shuffle.shuffle import hashed_keys, one_task_a_row
from sleeper.tables import bulk_import as verb
from tests.spark.any_tables import check_files

NUMBERS = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64(), False)])
NAMES = count()
ROWS = 320_000


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


def table_of(instance, points=(), **properties):
    return instance.create_table(
        f"t{next(NAMES)}",
        NUMBERS,
        row_keys=["id"],
        split_points=points,
        properties={
            "sleeper.table.bulk.import.min.leaf.partitions": "1",
            **properties,
        },
    )


def files(folder: Path, *tables: pa.Table, row_group_rows: int = 500) -> Path:
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number:03}.parquet", row_group_size=row_group_rows)
    return folder


def shuffled_numbers(row_count: int, parts: int, seed: int = 3) -> list[pa.Table]:
    ids = np.random.default_rng(seed).permutation(row_count)
    return [pa.table({"id": part, "n": part * 3}, NUMBERS) for part in np.array_split(ids, parts)]


def everything(table) -> pa.Table:
    return table.query().to_arrow()


@pytest.fixture
def two_levels(monkeypatch):
    """Have imports of any size take two levels of shuffle, in small buckets and tasks."""
    plan = by_spark.plan_import

    def planned(known):
        return replace(
            plan(known),
            levels=2,
            ranges=3,
            slots=2,
            map_task_bytes=4000,
            bucket_rows=max(1, known.row_count // 7),
            buckets=7,
        )

    monkeypatch.setattr(by_spark, "plan_import", planned)


class TestTwoLevels:
    """Rows reach their buckets by way of ranges of buckets."""

    @pytest.mark.every_spark
    @pytest.mark.parametrize("kind", ["files", "frame"])
    def test_bring_every_row_to_its_leaf(self, spark, instance, tmp_path, two_levels, kind):
        """Files and DataFrames are imported by two levels as by one: each row once, in order."""
        inputs = files(tmp_path / "in", *shuffled_numbers(6000, 5))
        table = table_of(instance, points=[700, 701, 2000, 5500])
        data = inputs if kind == "files" else spark.read.parquet(str(inputs))

        result = table.bulk_import(data, engine="spark" if kind == "files" else "auto", spark=spark)

        assert result.rows_written == 6000
        assert everything(table)["id"].to_pylist() == list(range(6000))
        check_files(table, tmp_path / "instance")

    def test_write_nothing_where_rows_are_refused(self, spark, instance, tmp_path, two_levels):
        """A null key in one file refuses the import, with the count of all; no file is left."""
        nullable = pa.schema([pa.field("id", pa.int64()), NUMBERS.field("n")])
        bad = pa.table({"id": [1, None, 3, None], "n": [1, 2, 3, 4]}, nullable)
        inputs = files(tmp_path / "in", *shuffled_numbers(3000, 3), bad)
        table = table_of(instance, points=[1000, 2000])

        with pytest.raises(NullKeys, match="2 of 3,004 rows"):
            table.bulk_import(inputs, engine="spark", spark=spark)

        folder = tmp_path / "instance" / table.table_id / "data"
        assert [*folder.rglob("*.parquet")] == []


class TestManyFiles:
    """Footers and parts of the input go to tasks, where there are many."""

    @pytest.fixture(autouse=True)
    def few_are_many(self, monkeypatch):
        monkeypatch.setattr(verb, "FILES_READ_HERE", 3)
        monkeypatch.setattr(by_spark, "_TASKS_IN_CLOSURE", 2)
        monkeypatch.setattr("sleeper.spark.footers._FILES_OF_A_TASK", 2)
        monkeypatch.setattr("sleeper.spark.import_plan.TASK_BYTES_MIN", 4096)

    @pytest.mark.every_spark
    def test_are_imported_as_few_are(self, spark, instance, tmp_path):
        """Seven files, two footers a task and a task for some row groups: every row comes once."""
        inputs = files(
            tmp_path / "in", *shuffled_numbers(7000, 6), pa.table({"id": [], "n": []}, NUMBERS)
        )
        table = table_of(instance, points=[3000])

        result = table.bulk_import(inputs, engine="spark", spark=spark)

        assert (result.rows_read, result.rows_written) == (7000, 7000)
        assert everything(table)["n"].to_pylist() == [3 * n for n in range(7000)]

    def test_name_the_first_whose_columns_do_not_fit(self, spark, instance, tmp_path):
        """A column of another type refuses the import, and the message names the file."""
        wrong = pa.table({"id": [1], "n": ["one"]})
        inputs = files(tmp_path / "in", *shuffled_numbers(900, 4), wrong, wrong)
        table = table_of(instance)

        with pytest.raises(InputSchemaMismatch, match=r"004\.parquet"):
            table.bulk_import(inputs, engine="spark", spark=spark)

        assert table.query().count() == 0

    def test_are_read_here_by_the_local_engine(self, instance, tmp_path):
        """No Spark is started to read footers for an import that needs none."""
        inputs = files(tmp_path / "in", *shuffled_numbers(800, 5))
        table = table_of(instance)

        assert table.bulk_import(inputs).engine == "local"


@pytest.fixture
def small_tasks(monkeypatch):
    """Have DataFrames be written by ten tasks, from pieces of 10,000 rows. Yields rows of each."""
    plan, checked = by_spark.plan_import, by_spark.check_files
    rows_of_tasks: list[int] = []

    def planned(known):
        size = ROWS * 16 // 10
        return replace(plan(known), buckets=10, bucket_bytes=size, piece_memory_bytes=1, levels=1)

    def looked_at(written, target):
        rows_of_tasks.extend(each.rows_in for each in written)
        checked(written, target)

    monkeypatch.setattr(by_spark, "plan_import", planned)
    monkeypatch.setattr(by_spark, "check_files", looked_at)
    return rows_of_tasks


def overlap(table, references) -> float:
    """Return the share of a leaf's rows that lie inside of another file's keys, in two files."""
    ends = []
    for reference in references:
        keys = pq.read_table(
            table.open_for_spark().table_files.files.url(reference.filename), columns=["id"]
        )["id"].to_pylist()
        assert keys == sorted(keys)
        ends.append((keys[0], keys[-1], keys))
    ends.sort()
    total = sum(len(keys) for *_, keys in ends)
    inside = sum(sum(key < before[1] for key in keys) for before, (_, _, keys) in pairwise(ends))
    return inside / total


class TestDataFrames:
    """A DataFrame whose rows are not known before it runs."""

    def test_is_evaluated_once_where_the_table_is_split(self, spark, instance, tmp_path):
        """
        Given a table with leaves enough and a DataFrame whose function counts its calls, when it is
        imported, then each row was evaluated once: no sample was taken.
        """
        calls = tmp_path / "calls"
        calls.mkdir()

        @F.udf("long")
        def counted(number):
            with (calls / f"{number}").open("a") as file:
                file.write("x")
            return number * 3

        rows = spark.range(0, 600, 1, 4).select("id", counted("id").alias("n"))
        table = instance.create_table(
            "split", NUMBERS, row_keys=["id"], split_points=[100, 200, 300, 400]
        )

        table.bulk_import(rows)

        assert {path.read_text() for path in calls.iterdir()} == {"x"}
        assert everything(table)["n"].to_pylist() == [3 * n for n in range(600)]

    def test_is_sampled_where_the_table_is_not_split(self, spark, instance):
        """Rows for two leaves that a property demands are looked at before they are moved."""
        table = instance.create_table(
            "one-leaf",
            NUMBERS,
            row_keys=["id"],
            properties={
                "sleeper.table.bulk.import.min.leaf.partitions": "2",
                "sleeper.table.partition.splitting.min.rows": "1",
            },
        )

        result = table.bulk_import(spark.range(50).selectExpr("id", "id AS n"))

        assert result.leaves_after == 2

    def test_with_most_rows_in_one_leaf_is_written_by_several_tasks(
        self, spark, instance, tmp_path, monkeypatch
    ):
        """
        Given a table with leaves enough, so that no key is sampled, when nearly all rows fall into
        one leaf, then several tasks write it, each the rows of some map tasks, and none is lost.
        """
        monkeypatch.setattr(by_spark, "_SPLIT_BYTES_MIN", 1 << 20)
        plan = by_spark.plan_import
        monkeypatch.setattr(
            by_spark, "plan_import", lambda known: replace(plan(known), bucket_bytes=1 << 19)
        )
        rows = spark.range(0, 400_000, 1, 8).selectExpr(
            "if(id % 10 = 0, id, 1000000 + (id * 7919) % 400000) AS id", "xxhash64(id) AS n"
        )
        table = table_of(instance, points=[100_000, 200_000, 1_000_000])

        result = table.bulk_import(rows)

        heavy = [file for file in result.files if file.row_count > 20_000]
        assert result.rows_written == table.query().count() == 400_000
        assert len({file.partition_id for file in heavy}) == 1
        assert len(heavy) >= 3
        check_files(table, tmp_path / "instance")
        assert spark.conf.get("spark.sql.adaptive.coalescePartitions.enabled") == "true"

    @pytest.mark.every_spark
    @pytest.mark.parametrize("points", [range(20_000, ROWS, 20_000), []], ids=["16", "1"])
    def test_with_most_rows_in_one_leaf_gives_tasks_equal_shares(
        self, spark, instance, tmp_path, small_tasks, points
    ):
        """
        Given a DataFrame of two partitions with 90 % of its rows in one leaf, or a table of one
        leaf, when it is imported and no key is sampled, then no task writes more than twice the
        rows of the median, the files of the leaf are ranges of its keys, and each row is there.
        """
        rows = spark.range(0, ROWS, 1, 2).selectExpr(
            "if(id % 10 = 0, id, 60000 + (id * 7919) % 20000) AS id", "xxhash64(id) AS n"
        )
        table = table_of(instance, points=points)

        result = table.bulk_import(rows)

        counts = sorted(small_tasks)
        assert len(counts) >= 7
        assert counts[-1] <= 2 * median(counts)
        assert result.rows_written == table.query().count() == ROWS
        hot = max(result.files, key=lambda each: each.row_count).partition_id
        inside = [each for each in result.files if each.partition_id == hot]
        assert len(inside) >= 6
        assert overlap(table, inside) <= 0.5
        assert sum(each.partition_id != hot for each in result.files) == max(0, len(points))
        check_files(table, tmp_path / "instance")

    def test_of_sorted_rows_writes_one_file_a_leaf(self, spark, instance, small_tasks):
        """
        Given a DataFrame in key order, each of whose partitions has rows of few leaves, when it is
        imported, then no leaf counts as one that has most rows: each is one file.
        """
        table = table_of(instance, points=range(20_000, ROWS, 20_000))

        result = table.bulk_import(spark.range(0, ROWS, 1, 4).selectExpr("id", "id AS n"))

        assert result.rows_written == ROWS
        assert len(result.files) == 16

    @pytest.mark.every_spark
    def test_is_refused_by_each_of_its_tasks(self, spark, instance, tmp_path, small_tasks):
        """Given parts of leaves and one null key, then nothing is written, and the null counted."""
        rows = spark.range(0, ROWS, 1, 2).selectExpr(
            "if(id = 7, null, if(id % 10 = 0, id, 60000 + id % 20000)) AS id", "id AS n"
        )
        table = table_of(instance, points=range(20_000, ROWS, 20_000))

        with pytest.raises(NullKeys, match="1 of 320,000 rows"):
            table.bulk_import(rows)

        folder = tmp_path / "instance" / table.table_id / "data"
        assert [*folder.rglob("*.parquet")] == []


class TestShuffleKeys:
    """Numbers that Spark's hash brings to each partition."""

    @pytest.mark.every_spark
    @pytest.mark.parametrize("places", [1, 2, 37, 1000])
    def test_reach_each_partition_once(self, spark, places):
        """Spark's own hash of these numbers, by the number of partitions, counts from 0."""
        keys = spark.createDataFrame([(key,) for key in hashed_keys(places)], "place int")

        found = keys.select(F.pmod(F.hash("place"), F.lit(places)).alias("at")).collect()

        assert [row["at"] for row in found] == list(range(places))

    @pytest.mark.every_spark
    def test_give_each_row_a_task_of_its_own(self, spark):
        """A row comes to one partition, and no partition has two."""
        rows = one_task_a_row(spark, pa.table({"name": [f"n{n}" for n in range(23)]}))

        found = rows.select("name", F.spark_partition_id().alias("at")).collect()

        assert sorted(row["at"] for row in found) == list(range(23))
        assert {row["name"]: row["at"] for row in found} == {f"n{n}": n for n in range(23)}
