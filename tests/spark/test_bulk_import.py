"""Bulk import by Spark: every row arrives, once, in its leaf, in order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.errors import (
    AlreadyExists,
    BadRequest,
    CommitContended,
    InputNotFound,
    InputRefused,
    InputSchemaMismatch,
    InputUnreadable,
    InsufficientData,
    NullKeys,
)
from sleeper.model.partitions import split_partition
from sleeper.spark.data_source.schema import to_spark_schema
from sleeper.state.log_store import TransactionLogStateStore
from sleeper.state.transactions.partitions import SplitPartition
from tests.soak import tries
from tests.spark.any_tables import check_files, multiset, rows_of, schemas

MIN_LEAVES = "sleeper.table.bulk.import.min.leaf.partitions"
MIN_ROWS = "sleeper.table.partition.splitting.min.rows"
NUMBERS = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64(), False)])
NAMES = count()


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


def descriptions(spark, newest: int) -> set[str]:
    """What Spark's web page calls the newest jobs of this session, which come first there."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    return {jobs.apply(n).description().toString() for n in range(min(newest, jobs.size()))}


def numbers(low: int, high: int) -> pa.Table:
    return pa.table({"id": range(low, high), "n": [2 * n for n in range(low, high)]}, NUMBERS)


def table_of(instance, *, points=(), properties=None, schema=NUMBERS, min_leaves=1):
    return instance.create_table(
        f"t{next(NAMES)}",
        schema,
        row_keys=["id"] if schema is NUMBERS else None,
        split_points=points,
        properties={MIN_LEAVES: str(min_leaves), **(properties or {})},
    )


def written(folder: Path, *tables: pa.Table, row_group_rows: int = 1000) -> Path:
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(
            table,
            folder / f"{number}.parquet",
            row_group_size=row_group_rows,
            use_dictionary=False,
        )
    return folder


def everything(table) -> pa.Table:
    return table.query().to_arrow()


# ---------------------------------------------------------------- rows in, rows out


@pytest.mark.every_spark
def test_files_are_imported_into_many_leaves(spark, instance, tmp_path):
    """Rows of files with row groups of different sizes come out in key order (rules BLK-5 to BLK-7)."""
    inputs = tmp_path / "in"
    written(inputs, numbers(5000, 9000), numbers(0, 5000).slice(100), row_group_rows=700)
    pq.write_table(numbers(0, 100), inputs / "all-in-one.parquet")
    table = table_of(instance, points=range(500, 9000, 500))

    result = table.bulk_import(inputs, "first", engine="spark", spark=spark)

    assert (result.engine, result.rows_read, result.rows_written) == ("spark", 9000, 9000)
    assert everything(table).equals(numbers(0, 9000))
    assert len(result.files) == 18
    check_files(table, tmp_path / "instance")


@pytest.mark.every_spark
def test_a_data_frame_is_imported_and_splits_the_tree_first(spark, instance, tmp_path):
    """A DataFrame gets as many leaves as a bulk import wants, by a sample of its keys (rule BLK-10)."""
    rows = spark.range(4000).selectExpr("id * 7 % 4001 AS id", "id AS n")
    table = table_of(instance, min_leaves=16, properties={MIN_ROWS: "10"})

    result = table.bulk_import(rows)

    assert (result.leaves_before, result.leaves_after) == (1, 16)
    assert result.rows_written == 4000
    assert sorted(everything(table)["n"].to_pylist()) == list(range(4000))
    sizes = [reference.row_count for reference in table.references()]
    assert min(sizes) >= 0.8 * 250
    assert max(sizes) <= 1.25 * 250
    check_files(table, tmp_path / "instance")


@pytest.mark.soak
@settings(
    max_examples=tries(10, soak=200),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example is two Spark jobs
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schemas(), st.data())
def test_spark_and_the_local_engine_make_the_same_table(spark, tmp_path, schema, data):
    """Whatever the schema, rows and tree, both engines write the same rows, sorted, in their leaves."""
    rows = data.draw(rows_of(schema), "rows")
    points = sorted({*data.draw(st.lists(st.sampled_from(rows["k0"].to_pylist()), max_size=4))})
    folder = tmp_path / f"{next(NAMES)}"
    folder.mkdir()
    inputs = written(folder / "in", rows, row_group_rows=data.draw(st.integers(1, 60)))
    instance = sleeper.connect(folder / "instance", create=True)
    with_spark = table_of(instance, schema=schema)
    locally = table_of(instance, schema=schema)
    for table in (with_spark, locally):
        for at in points:
            split_leaf(table, at)

    by_spark = with_spark.bulk_import(inputs, engine="spark", spark=spark)
    by_local = locally.bulk_import(inputs, engine="local")

    assert by_spark.rows_written == by_local.rows_written == rows.num_rows
    assert multiset(everything(with_spark)) == multiset(rows) == multiset(everything(locally))
    keys = schema.key_names
    assert everything(with_spark).select(keys).equals(everything(locally).select(keys))
    check_files(with_spark, folder / "instance")


def split_leaf(table, at) -> None:
    """Split the leaf that a value of the first row key falls into, there, if it can be."""
    tree, ids = table.state().tree, count(len(table.state().tree))
    for leaf in list(tree.leaves()):
        keys = leaf.region.ranges[0]
        if keys.min < at and (keys.max is None or at < keys.max):
            parent, *children = split_partition(leaf, at, new_id=lambda: f"s{next(ids)}")
            table._current().store.commit(SplitPartition(parent=parent, children=tuple(children)))
            return


def test_a_leaf_of_half_the_rows_is_written_by_several_tasks(spark, instance, tmp_path):
    """A leaf far larger than others gets several files, each a range of its keys, and loses no row."""
    wide = pa.schema([*NUMBERS, pa.field("text", pa.string(), False)])
    rows = numbers(0, 200_000).append_column(wide.field(2), [["x" * 500] * 200_000])
    inputs = written(tmp_path / "in", rows, row_group_rows=50_000)
    table = instance.create_table(
        "skewed",
        wide,
        row_keys=["id"],
        split_points=[100, 200, 300],
        properties={MIN_LEAVES: "1"},
    )

    result = table.bulk_import(inputs, engine="spark", spark=spark)

    heavy = [file for file in result.files if file.row_count > 1000]
    assert len({file.partition_id for file in heavy}) == 1
    assert len(heavy) > 1
    assert everything(table).select(["id", "n"]).equals(numbers(0, 200_000))
    check_files(table, tmp_path / "instance")


def test_filters_and_aggregations_are_applied_as_by_standard_ingest(spark, instance, tmp_path):
    """Rows of equal keys become one when they are imported (rule BLK-11, ours)."""
    once = numbers(0, 500)
    inputs = written(tmp_path / "in", once, once, once)
    properties = {"sleeper.table.aggregations": "sum(n)"}
    table = table_of(instance, points=[100, 300], properties=properties)

    result = table.bulk_import(inputs, engine="spark", spark=spark)

    assert (result.rows_read, result.rows_written) == (1500, 500)
    assert everything(table)["n"].to_pylist() == [6 * n for n in range(500)]


def test_an_empty_input_adds_nothing(spark, instance, tmp_path):
    """Files without rows are imported, and only the job's id is remembered."""
    inputs = written(tmp_path / "in", numbers(0, 0))
    table = table_of(instance)

    result = table.bulk_import(inputs, "empty", engine="spark", spark=spark)

    assert (result.rows_written, result.files) == (0, ())
    assert table.bulk_import(inputs, "empty", engine="spark", spark=spark).already_committed


# ---------------------------------------------------------------- once, and only once


def test_the_same_job_changes_nothing_the_second_time(spark, instance, tmp_path):
    """A job that was committed is recognised before its input is looked for (rule ING-2)."""
    inputs = written(tmp_path / "in", numbers(0, 50))
    table = table_of(instance)
    first = table.bulk_import(inputs, "job", engine="spark", spark=spark)

    again = table.bulk_import(tmp_path / "gone", "job", engine="spark", spark=spark)

    assert again.already_committed
    assert again.transaction == first.transaction
    assert table.query().count() == 50


def test_a_job_that_runs_twice_at_once_is_committed_once(spark, instance, tmp_path):
    """Two runs of one job id do the work twice and add the rows once; both are told where."""
    inputs = written(tmp_path / "in", numbers(0, 500))
    table = table_of(instance, points=[250])
    start = threading.Barrier(2)

    def run(_):
        start.wait()
        return instance.table(table.name).bulk_import(inputs, "job", engine="spark", spark=spark)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, range(2)))

    assert sorted(result.already_committed for result in results) == [False, True]
    assert len({result.transaction for result in results}) == 1
    assert everything(table).equals(numbers(0, 500))


def test_a_leaf_split_meanwhile_keeps_its_rows(spark, instance, tmp_path):
    """A leaf that somebody splits while rows are on their way holds their file as an ancestor."""
    inputs = written(tmp_path / "in", numbers(0, 500))
    table = table_of(instance, points=[250])
    done = []

    def split_once(_rows, _total):
        if not done:
            done.append(True)
            split_leaf(table, 100)

    table.bulk_import(inputs, engine="spark", spark=spark, progress=split_once)

    assert done
    assert len(table.split_points()) == 2
    assert everything(table).equals(numbers(0, 500))
    assert table.query(range={"id": (90, 110)}).to_arrow().equals(numbers(90, 110))


# ---------------------------------------------------------------- what is refused


@pytest.mark.every_spark
def test_rows_without_a_key_are_refused_with_a_count(spark, instance, tmp_path):
    """A null key refuses the import; nothing becomes visible (rule ING-14)."""
    nullable = pa.schema([pa.field("id", pa.int64()), NUMBERS.field("n")])
    some = pa.table({"id": [1, None, 3], "n": [1, 2, 3]}, nullable)
    inputs = written(tmp_path / "in", some, numbers(10, 20), some)
    table = table_of(instance, points=[2])

    with pytest.raises(NullKeys, match="2 of 16 rows") as refused:
        table.bulk_import(inputs, engine="spark", spark=spark)

    assert refused.value.null_counts == {"id": 2}
    assert table.query().count() == 0


def test_rows_without_a_key_may_be_set_aside(spark, instance, tmp_path):
    """They go to files in a folder, and the others into the table."""
    nullable = pa.schema([pa.field("id", pa.int64()), NUMBERS.field("n")])
    some = pa.table({"id": [1, None, 3], "n": [1, 2, 3]}, nullable)
    inputs = written(tmp_path / "in", some, numbers(10, 20), some.slice(1))
    table = table_of(instance)
    aside = tmp_path / "aside"

    result = table.bulk_import(inputs, engine="spark", spark=spark, set_aside=aside)

    assert (result.rows_read, result.rows_written, result.rows_set_aside) == (15, 13, 2)
    assert pq.read_table(aside)["n"].to_pylist() == [2, 2]


def test_rows_set_aside_for_one_job_are_not_replaced_by_another(spark, instance, tmp_path):
    """A folder with something in it is refused, and nothing is imported."""
    nullable = pa.schema([pa.field("id", pa.int64()), NUMBERS.field("n")])
    some = pa.table({"id": [1, None, 3], "n": [1, 2, 3]}, nullable)
    inputs = written(tmp_path / "in", some)
    first, second = table_of(instance), table_of(instance)
    first.bulk_import(inputs, engine="spark", spark=spark, set_aside=tmp_path / "aside")

    with pytest.raises(AlreadyExists, match="name a folder that does not exist yet"):
        second.bulk_import(inputs, engine="spark", spark=spark, set_aside=tmp_path / "aside")

    assert second.query().count() == 0
    assert pq.read_table(tmp_path / "aside")["n"].to_pylist() == [2]


def test_an_import_that_fails_sets_no_row_aside(spark, instance, tmp_path):
    """The folder is not there, so the same rows in another number of tasks are there once."""
    table = table_of(instance)
    rows = spark.createDataFrame([(None, 1), (None, 2), (3, 3), (4, 4)], "id long, n long")
    broken = rows.selectExpr("id", "if(n = 4, null, n) AS n").repartition(4)

    with pytest.raises(InputRefused, match="n"):
        table.bulk_import(broken, set_aside=tmp_path / "aside")
    left = [path.name for path in tmp_path.iterdir()]
    result = table.bulk_import(rows.coalesce(1), set_aside=tmp_path / "aside")

    assert left == ["instance"]
    assert (result.rows_written, result.rows_set_aside) == (2, 2)
    assert sorted(pq.read_table(tmp_path / "aside")["n"].to_pylist()) == [1, 2]


def test_rows_set_aside_go_when_the_import_is_not_committed(spark, instance, tmp_path, monkeypatch):
    """A commit that is refused leaves neither the rows with a key nor those without."""
    table = table_of(instance)
    rows = spark.createDataFrame([(None, 1), (2, 2)], "id long, n long")

    def refuse(*_, **__):
        raise CommitContended("others were faster")

    with monkeypatch.context() as patched, pytest.raises(CommitContended):
        patched.setattr(TransactionLogStateStore, "commit", refuse)
        table.bulk_import(rows, set_aside=tmp_path / "aside")

    assert not (tmp_path / "aside").exists()
    assert table.query().count() == 0


def test_a_column_of_another_type_in_one_of_many_files_names_the_file(spark, instance, tmp_path):
    """Types are compared before Spark is asked for anything (rule ING-14)."""
    wrong = pa.table({"id": [1], "n": ["one"]})
    inputs = written(tmp_path / "in", numbers(0, 5), wrong, numbers(5, 9))
    table = table_of(instance)

    with pytest.raises(InputSchemaMismatch, match=r"1\.parquet"):
        table.bulk_import(inputs, engine="spark", spark=spark)


def test_a_missing_or_spare_column_is_refused_or_left_out(spark, instance):
    """A DataFrame must have the table's columns; more of them only if they are to be ignored."""
    table = table_of(instance)
    rows = spark.range(5)

    with pytest.raises(InputSchemaMismatch, match="'n'"):
        table.bulk_import(rows)
    spare = rows.selectExpr("id", "id AS n", "'x' AS more")
    with pytest.raises(InputSchemaMismatch, match="more"):
        table.bulk_import(spare)

    assert table.bulk_import(spare, ignore_extra_columns=True).rows_written == 5


@pytest.mark.every_spark
def test_a_file_that_turns_out_damaged_is_named(spark, instance, tmp_path):
    """Pages that do not match their checksum refuse the import from inside a task (rule ING-11)."""
    inputs = written(tmp_path / "in", numbers(0, 50))
    bad = inputs / "bad.parquet"
    pq.write_table(numbers(50, 5000), bad, write_page_checksum=True, compression="none")
    body = bytearray(bad.read_bytes())
    body[1000] ^= 0xFF
    bad.write_bytes(body)
    table = table_of(instance, points=[1000])

    with pytest.raises(InputUnreadable, match=r"bad\.parquet"):
        table.bulk_import(inputs, engine="spark", spark=spark)

    assert table.query().count() == 0
    assert table.references() == []


def test_a_path_that_names_nothing_is_refused_before_spark_is_needed(instance, tmp_path):
    """No session is started for an input that is not there (rule ING-11)."""
    with pytest.raises(InputNotFound, match="nowhere"):
        table_of(instance).bulk_import(tmp_path / "nowhere", engine="spark")


def test_too_little_data_for_so_many_leaves_is_told(spark, instance, tmp_path):
    """With fewer rows than leaves want, the tree stays as it was (rule BLK-10)."""
    inputs = written(tmp_path / "in", numbers(0, 50))
    table = table_of(instance, min_leaves=256)

    with pytest.raises(InsufficientData, match="Required 256 minimum leaf partitions"):
        table.bulk_import(inputs, engine="spark", spark=spark)

    assert table.split_points() == []
    assert table.query().count() == 0


def test_a_small_input_needs_no_leaves(spark, instance, tmp_path):
    """Where nobody says how many leaves there must be, small files and frames go into one."""
    inputs = written(tmp_path / "in", numbers(0, 50))
    table = instance.create_table("small", NUMBERS, row_keys=["id"])

    by_file = table.bulk_import(inputs)
    by_frame = table.bulk_import(spark.range(50, 100).selectExpr("id", "id AS n"), spark=spark)

    assert (by_file.engine, by_file.leaves_after, len(by_file.files)) == ("local", 1, 1)
    assert (by_frame.engine, by_frame.leaves_after, len(by_frame.files)) == ("spark", 1, 1)
    assert table.query().count() == 100


def test_sparks_web_page_shows_table_job_and_step(spark, instance):
    """Every job of an import is described; those of others are as they were."""
    table = table_of(instance, min_leaves=2, properties={MIN_ROWS: "1"})

    result = table.bulk_import(spark.range(100).selectExpr("id", "id AS n"), "june", spark=spark)
    spark.range(3).count()

    assert len(result.files) == 2
    assert len(repr(result)) < 400
    title = f"sleeper: bulk import into {table.name}, job june: "
    steps = {f"Some({title}sample the keys)", f"Some({title}sort and write)"}
    assert steps | {"None"} <= descriptions(spark, newest=20)


def test_a_schema_of_spark_with_named_keys_makes_a_table(spark, instance):
    """
    `df.schema`, or the DataFrame, says columns, types and which values may be null; it does not say
    which are keys, and the message says how to.
    """
    frame = spark.sql("SELECT 1.5D AS price, 'a' AS id, DATE '2024-06-01' AS day, array(1) AS ns")

    with pytest.raises(BadRequest, match=r"a StructType of Spark .* give row_keys=\[...\]"):
        instance.create_table("t", frame.schema)
    table = instance.create_table("t", frame.schema, row_keys=["id"], sort_keys=["day"])
    other = instance.create_table("u", frame, row_keys=["id"], sort_keys=["day"])
    table.bulk_import(frame, spark=spark)

    assert table.schema == other.schema
    assert table.schema.columns == ("price", "id", "day", "ns")
    assert to_spark_schema(table.schema).simpleString() == frame.schema.simpleString()
    assert table.query().count() == 1
