"""`format("sleeper")`: a table as Spark's own words read and write it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.errors import BadRequest, QueryInvalid, VersionNotFound
from sleeper.interfaces.spark_source import SleeperSource
from sleeper.spark.column_names import columns_from_text, columns_to_text
from sleeper.spark.data_source import reader as source_reader
from sleeper.state.plans.exports import leaves_to_cut

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = Schema(
    row_keys=[Field("id", Primitive.STRING)],
    sort_keys=[Field("at", Primitive.TIMESTAMP)],
    values=[Field("n", Primitive.LONG, nullable=True), Field("odd, `name`", Primitive.INT)],
)
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
DDL = "id string, at timestamp, n long, `odd, ``name``` int"


@pytest.fixture
def table(tmp_path):
    """Three leaves, which meet at g and p."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    return instance.create_table("t", SCHEMA, split_points=["g", "p"])


def rows(keys, n=1):
    return [{"id": key, "at": NOON, "n": n, "odd, `name`": 7} for key in keys]


def named(given, table, **options):
    """A reader or writer of Spark that is told of the table."""
    return given.format("sleeper").options(instance=table._context.url, table=table.name, **options)


def frame_of(spark, given):
    listed = [tuple(row.values()) for row in given]
    return spark.createDataFrame(listed, DDL)


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


def files_in(table):
    """Every data file in the table's folder, whether the table knows it or not."""
    return {info.key for info in table.open_for_spark().table_files.files.listing("data/")}


@pytest.mark.every_spark
def test_a_table_is_read_without_any_registration(spark, table):
    """
    Spark finds the source by itself; it reads the columns, in the order, and the regions that
    the options name, with exactly the schema's types.
    """
    table.ingest(rows("abhxz"))

    everything = named(spark.read, table).load()
    some = named(
        spark.read,
        table,
        columns="`odd, ``name```, id",
        regions='[{"id": {"min": "b", "max": "h", "maxInclusive": true}}, {"id": {"min": "z"}}]',
    ).load()

    assert everything.schema.simpleString() == (
        "struct<id:string,at:timestamp,n:bigint,odd, `name`:int>"
    )
    assert [field.nullable for field in everything.schema] == [False, False, True, False]
    assert ids(everything) == [*"abhxz"]
    assert sorted(map(tuple, some.collect())) == [(7, "b"), (7, "h"), (7, "z")]


def tasks_of(table, **options):
    """What each task of a read returns: the keys, in their order."""
    asked = CaseInsensitiveDict(instance=table._context.url, table=table.name, **options)
    source = SleeperSource(asked)
    reader = source.reader(source.schema())
    return [
        [key for batch in reader.read(task) for key in batch.column("id").to_pylist()]
        for task in reader.partitions()
    ]


def test_neighbouring_leaves_share_a_task_until_they_have_enough_rows(spark, table, monkeypatch):
    """
    Given leaves of a few rows, then one task reads them all, since a task costs more than that;
    given leaves with rows enough, each is a task, and there is none for leaves without files.
    """
    table.ingest(rows("abxz"))

    assert tasks_of(table) == [[*"abxz"]]
    assert named(spark.read, table).load().rdd.getNumPartitions() == 1

    monkeypatch.setattr(source_reader, "TASK_ROWS", 2)

    assert tasks_of(table) == [[*"ab"], [*"xz"]]


def test_a_large_leaf_is_read_by_several_tasks(table, monkeypatch):
    """
    Given a leaf of far more rows than a task should have, in two files that are merged, then
    several tasks read it, each a range of its keys, and together each row once, in key order.
    """
    for start in (0, 1):
        table.ingest(rows([f"h{n:05}" for n in range(start, 4000, 2)]))
    table.ingest(rows("az"))
    monkeypatch.setattr(source_reader, "TASK_ROWS", 1)
    monkeypatch.setattr(source_reader, "leaves_to_cut", partial(leaves_to_cut, cut_rows=1000))

    tasks = tasks_of(table)

    assert len(tasks) == 6
    assert [key for keys in tasks for key in keys] == ["a", *(f"h{n:05}" for n in range(4000)), "z"]
    assert all(800 <= len(keys) <= 1200 for keys in tasks[1:-1])
    assert [
        key
        for keys in tasks_of(table, regions='[{"id": {"min": "h02500", "max": "h03500"}}]')
        for key in keys
    ] == [f"h{n:05}" for n in range(2500, 3500)]


def test_a_read_may_be_of_an_older_state(spark, table):
    """The option `as_of` reads the table as it was after a transaction."""
    first = table.ingest(rows("a")).transaction
    table.ingest(rows("b"))

    assert ids(named(spark.read, table, as_of=first).load()) == ["a"]


@pytest.mark.every_spark
@pytest.mark.parametrize("enabled", ["true", "false"])
def test_one_frame_may_be_filtered_in_many_ways(spark, table, enabled):
    """
    Whatever Spark's setting for pushing filters is, a loaded DataFrame gives the right rows
    under one filter, then under another, and without any (Spark itself mixes them up).
    """
    table.ingest(rows("abhxz"))
    spark.conf.set(PUSHDOWN, enabled)
    try:
        frame = named(spark.read, table).load()

        assert ids(frame.filter("id >= 'x'")) == ["x", "z"]
        assert ids(frame.filter("id = 'a'").union(frame.filter("id > 'b'"))) == [*"ahxz"]
        assert ids(frame) == [*"abhxz"]
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.mark.every_spark
def test_a_frame_is_added_in_one_transaction_and_once(spark, table):
    """
    All tasks' files come with one commit; a job id that was committed before changes nothing.
    """
    before = table.refresh()
    frame = frame_of(spark, rows("zxhba")).repartition(2)

    for _ in range(2):
        named(frame.write, table, job_id="load-1").mode("append").save()

    assert table.refresh() == before + 1
    assert table.query().to_pylist() == rows("abhxz")
    assert {*files_in(table)} == {reference.filename for reference in table.references()}


@pytest.mark.every_spark
def test_rows_that_do_not_fit_are_refused_as_ingest_does(spark, table):
    """
    A null key is told by its field's name, wrong columns before a task runs, and overwriting is
    refused. The table is as it was.
    """
    before = table.refresh()
    good = frame_of(spark, rows("abxz"))
    with_null = good.selectExpr("if(id = 'z', null, id) as id", "at", "n", "`odd, ``name```")
    extra = good.selectExpr("*", "1 as other")

    with pytest.raises(PySparkException, match="1 without 'id'"):
        named(with_null.repartitionByRange(4, "n", "id").write, table).mode("append").save()
    with pytest.raises(PySparkException, match=r"has columns \['other'\] that the table"):
        named(extra.write, table).mode("append").save()
    with pytest.raises(PySparkException, match="needs int64"):
        named(good.selectExpr("id", "at", "'x' as n", "`odd, ``name```").write, table).mode(
            "append"
        ).save()
    with pytest.raises(PySparkException, match="never overwritten"):
        named(good.write, table).mode("overwrite").save()

    assert table.refresh() == before


def test_files_are_deleted_only_when_they_cannot_be_in_the_table(table):
    """
    When a task failed, what the others wrote is deleted. When all succeeded, a commit was tried,
    and it may have reached the table though nobody heard of it: the files stay.
    """
    source = SleeperSource(CaseInsensitiveDict(instance=table._context.url, table=table.name))
    writer = source.writer(source.schema(), overwrite=False)
    tasks = [
        writer.write(iter(pa.Table.from_pylist(rows(key), table.arrow_schema).to_batches()))
        for key in "az"
    ]
    written = files_in(table)

    writer.abort(tasks)
    kept = files_in(table)
    writer.abort([*tasks, None])

    assert len(written) == 2
    assert kept == written
    assert files_in(table) == set()


@pytest.mark.every_spark
def test_what_is_wrong_is_told_in_our_words(spark, table):
    """An error of ours reaches the user through all of Spark's layers, with its advice."""
    with pytest.raises(PySparkException, match="no table 'tt'; did you mean 't'"):
        named(spark.read, table).option("table", "tt").load().count()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"instance": ""}, BadRequest, "needs option"),
        ({"columns": "id,,n"}, BadRequest, "names with commas between them"),
        ({"columns": "x"}, QueryInvalid, "the table has no column 'x'"),
        ({"as_of": "99"}, VersionNotFound, "no transaction 99"),
        ({"as_of": "new"}, BadRequest, "option 'as_of' is a number"),
        ({"colums": "id"}, BadRequest, "has no option 'colums'; did you mean 'columns'"),
        ({"keys": "a"}, BadRequest, "has no option 'keys'; it has instance, table, "),
        ({"push_filters": "true"}, BadRequest, "removed, because .* rows were missing"),
        ({"job_id": "a"}, BadRequest, "'job_id' is for a write or a stream write, not for a read"),
        ({"regions": '[{"n": {"min": 1}}]'}, QueryInvalid, 'Key "n" was not a row key field'),
        ({"path": "somewhere"}, BadRequest, "a table has no path"),
    ],
)
def test_wrong_options_are_refused(table, options, error, message):
    """Each option is checked, and the message names it."""
    asked = {"instance": table._context.url, "table": table.name, **options}
    source = SleeperSource(CaseInsensitiveDict(asked))

    with pytest.raises(error, match=message):
        source.reader(source.schema())


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_job_id_is_refused_before_rows_are_read(table, blank):
    """It names no work, and a repeated write would add the rows again."""
    asked = {"instance": table._context.url, "table": table.name, "job_id": blank}
    source = SleeperSource(CaseInsensitiveDict(asked))

    for make in (source.writer, source.streamWriter):
        with pytest.raises(BadRequest, match="job_id is blank"):
            make(source.schema(), False)


def test_a_schema_of_ones_own_must_be_the_tables(table):
    """Spark's `schema(...)` may choose columns; another type is refused, and told."""
    asked = CaseInsensitiveDict(instance=table._context.url, table=table.name)

    assert SleeperSource(asked).reader(StructType().add("n", LongType()).add("id", StringType()))
    with pytest.raises(
        QueryInvalid, match="'n' is bigint in the table, so it cannot be read as int"
    ):
        SleeperSource(asked).reader(StructType().add("n", IntegerType()))


def test_columns_are_read_as_they_are_written():
    """Names survive the option `columns`, with commas, backquotes and spaces in them."""
    names = ["id", "a,b", "`", "``x", " y ", "ü z"]

    assert columns_from_text(columns_to_text(names)) == names
    assert columns_from_text("id , n,`a,b` ,ü z") == ["id", "n", "a,b", "ü z"]
