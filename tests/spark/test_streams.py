"""A table at both ends of a stream: every row once, whatever is started again."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.errors import BadRequest, TableNotFound, VersionNotFound
from sleeper.interfaces.spark_source import SleeperSource
from sleeper.model import paths
from sleeper.model.files import FileReference
from sleeper.state.transactions.files import Claim, ClaimFiles, DeleteFiles, ReplaceFiles

SCHEMA = Schema(
    row_keys=[Field("id", Primitive.STRING)],
    values=[Field("n", Primitive.LONG), Field("at", Primitive.TIMESTAMP)],
)
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    """Two leaves, which meet at m."""
    return instance.create_table("from", SCHEMA, split_points=["m"])


@pytest.fixture
def copy(instance):
    return instance.create_table("to", SCHEMA)


def rows(keys, n=1):
    return [{"id": key, "n": n, "at": NOON} for key in keys]


def ids(table):
    return "".join(row["id"] for row in table.query(columns=["id"]).to_pylist())


def options_of(table, **more):
    return {"instance": table._context.url, "table": table.name, **more}


def run(spark, table, copy, checkpoint, **options):
    """Stream what is there from one table to the other, and end."""
    stream = spark.readStream.format("sleeper").options(**options_of(table, **options)).load()
    query = (
        stream.writeStream.format("sleeper")
        .options(**options_of(copy, checkpointLocation=str(checkpoint)))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def compact(table, partition_id):
    """What a compaction commits: one file in place of a partition's files, of which it is a copy."""
    opened = table.open_for_spark()
    inputs = tuple(
        each.filename for each in table.references() if each.partition_id == partition_id
    )
    output = paths.data_file(partition_id, f"compacted-{len(inputs)}")
    opened.table_files.files.put(output, opened.table_files.files.read(inputs[0]))
    opened.store.commit(
        ClaimFiles(assignments=(Claim(job_id="job", partition_id=partition_id, filenames=inputs),))
    )
    opened.store.commit(
        ReplaceFiles(
            job_id="job",
            inputs=inputs,
            output=FileReference(filename=output, partition_id=partition_id, row_count=1),
        )
    )
    return inputs


@pytest.mark.every_spark
def test_a_stream_goes_on_where_it_was(spark, table, copy, tmp_path):
    """
    `earliest` is the table as it is, then what is added. Started again from its checkpoint,
    a stream brings every row once; a compaction brings none.
    """
    table.ingest(rows("az"))
    run(spark, table, copy, tmp_path / "checkpoint", **{"from": "earliest"})
    first = ids(copy)
    table.ingest(rows("b"))
    compact(table, table.references()[-1].partition_id)
    table.ingest(rows("xb", n=2))

    run(spark, table, copy, tmp_path / "checkpoint", **{"from": "earliest"})

    assert (first, ids(copy)) == ("az", "abbxz")
    assert copy.query(key="x").to_pylist() == rows("x", n=2)


def test_a_repeated_micro_batch_changes_nothing(spark, table, copy, tmp_path):
    """
    When Spark dies after a micro-batch was added, and before it noted that, it runs the
    micro-batch again. The table knows it, and leaves no second copy of a file either.
    """
    table.ingest(rows("az"))
    checkpoint = tmp_path / "checkpoint"
    query = run(spark, table, copy, checkpoint, **{"from": "earliest"})
    before, files = copy.refresh(), copy.references()
    for noted in (checkpoint / "commits").iterdir():
        noted.unlink()

    repeated = run(spark, table, copy, checkpoint, **{"from": "earliest"})

    assert repeated.id == query.id
    assert copy.refresh() == before
    assert copy.references() == files
    assert [job_id for job_id, _ in copy.state().jobs.records()] == [f"{query.id}-0"]
    stored = copy.open_for_spark().table_files.files.listing("data/")
    assert len([*stored]) == len(files)


@pytest.mark.every_version
def test_a_stream_that_replaces_rows_is_refused(spark, table, copy, tmp_path):
    """A table is added to: `complete` output would have to overwrite it."""
    table.ingest(rows("az"))
    stream = spark.readStream.format("sleeper").options(**options_of(table)).load()

    query = (
        stream.groupBy("id", "at")
        .count()
        .withColumnRenamed("count", "n")
        .writeStream.format("sleeper")
        .outputMode("complete")
        .options(**options_of(copy, checkpointLocation=str(tmp_path / "checkpoint")))
    )

    with pytest.raises(PySparkException, match="never overwritten"):
        query.start().awaitTermination()


def test_filters_apply_to_streamed_rows_and_aggregations_do_not(spark, instance, copy, tmp_path):
    """Rows come as they were added, one by one; those that are too old do not come."""
    now = datetime.now(UTC).replace(microsecond=0)
    summing = instance.create_table(
        "summing",
        Schema(row_keys=SCHEMA.row_keys, sort_keys=[Field("at", Primitive.TIMESTAMP)],
               values=[Field("n", Primitive.LONG)]),
        properties={
            "sleeper.table.filters": "ageOff(at,3600000)",
            "sleeper.table.aggregations": "sum(n)",
        },
    )  # fmt: skip
    start = summing.refresh()
    for n in (1, 2):
        summing.ingest([{"id": "a", "at": now, "n": n}])
    summing.ingest([{"id": "old", "at": NOON, "n": 3}])

    run(spark, summing, copy, tmp_path / "checkpoint", **{"from": str(start)})

    assert sorted(row["n"] for row in copy.query().to_pylist()) == [1, 2]


class TestReader:
    """What the reader of a stream answers, without Spark."""

    def reader(self, table, **options):
        source = SleeperSource(CaseInsensitiveDict(options_of(table, **options)))
        return source.streamReader(source.schema())

    def read(self, reader, start, end):
        """The ids of a micro-batch; offsets as Spark keeps them, as text."""
        start, end = json.loads(json.dumps([start, end]))
        batches = [b for part in reader.partitions(start, end) for b in reader.read(part)]
        return "".join(sorted(key for batch in batches for key in batch["id"].to_pylist()))

    def test_begins_where_it_is_told(self, table):
        """`latest` is now, a number is after that transaction, `earliest` is before everything."""
        first = table.ingest(rows("a")).transaction
        second = table.ingest(rows("b")).transaction

        latest, number, earliest = (
            self.reader(table, **given)
            for given in ({}, {"from": str(first)}, {"from": "earliest"})
        )

        assert latest.initialOffset() == {"transaction": second}
        assert number.initialOffset() == {"transaction": first}
        end = number.latestOffset(number.initialOffset())
        assert end == {"transaction": second}
        assert self.read(number, number.initialOffset(), end) == "b"
        assert self.read(earliest, earliest.initialOffset(), end) == "ab"

    def test_says_that_nothing_is_new_where_no_rows_came(self, table):
        """Transactions that add no files make no micro-batch."""
        table.ingest(rows("a"))
        reader = self.reader(table)
        start = reader.initialOffset()
        old = reader.latestOffset()
        compact(table, table.references()[0].partition_id)

        assert reader.latestOffset(start) == start
        assert reader.latestOffset() == old
        added = table.ingest(rows("b")).transaction
        assert reader.latestOffset(start) == reader.latestOffset() == {"transaction": added}

    def test_takes_as_many_files_as_it_may(self, table):
        """A micro-batch is ended by its limit of files, between two transactions."""
        from pyspark.sql.streaming.datasource import ReadMaxFiles  # noqa: PLC0415 - not in 4.0

        start = table.refresh()
        ends = [table.ingest(rows(keys)).transaction for keys in ("a", "bz", "c")]
        reader = self.reader(table, max_files_per_trigger="1", **{"from": str(start)})
        limit = reader.getDefaultReadLimit()

        taken = [{"transaction": start}]
        for _ in range(4):
            taken.append(reader.latestOffset(taken[-1], limit))

        assert limit == ReadMaxFiles(1)
        assert [each["transaction"] for each in taken] == [start, *ends, ends[-1]]
        assert self.read(reader, taken[1], taken[2]) == "bz"

    def test_ends_with_what_was_there_when_it_is_to_end(self, table):
        """`availableNow` leaves what comes later to the next run."""
        start = {"transaction": table.refresh()}
        there = table.ingest(rows("a")).transaction
        reader = self.reader(table)
        reader.prepareForTriggerAvailableNow()
        table.ingest(rows("b"))

        assert reader.latestOffset(start) == {"transaction": there}
        assert reader.latestOffset({"transaction": there}) == {"transaction": there}

    def test_a_shared_file_comes_once(self, instance):
        """A file that several leaves reference is one file of new rows."""
        table = instance.create_table(
            "shared",
            SCHEMA,
            split_points=["m"],
            properties={"sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf"},
        )
        start = {"transaction": table.refresh()}
        table.ingest(rows("azb"))
        reader = self.reader(table, regions='[{"id": {"min": "b"}}]')

        assert self.read(reader, start, reader.latestOffset(start)) == "bz"

    def test_files_that_are_gone_are_told_with_what_to_do(self, table):
        """
        A stream that was stopped for longer than garbage is kept may have lost files that it
        had yet to read. It says so, instead of leaving rows out.
        """
        start = {"transaction": table.refresh()}
        end = {"transaction": table.ingest(rows("a")).transaction}
        replaced = compact(table, table.references()[0].partition_id)
        table.open_for_spark().store.commit(DeleteFiles(filenames=replaced))
        reader = self.reader(table, **{"from": "earliest"})

        with pytest.raises(VersionNotFound, match="start the stream again with a new checkpoint"):
            reader.partitions(start, end)
        with pytest.raises(VersionNotFound, match="start the stream again with a new checkpoint"):
            reader.partitions(reader.initialOffset(), end)

    def test_another_table_of_that_name_is_noticed(self, instance, table):
        """A checkpoint of a table that was deleted and made anew does not go on in silence."""
        offset = {"transaction": table.ingest(rows("a")).transaction + 10}
        reader = self.reader(table)

        with pytest.raises(VersionNotFound, match="deleted and made again"):
            reader.latestOffset(offset)
        with pytest.raises(VersionNotFound, match="has no transaction 3"):
            reader.partitions({"transaction": 2}, offset)
        instance.delete_table(table.name)
        with pytest.raises(TableNotFound, match="was deleted"):
            reader.latestOffset(offset)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"from": "now"}, "'earliest', 'latest' or a transaction number"),
            ({"as_of": "1"}, "a stream begins at option 'from'"),
            ({"max_files_per_trigger": "0"}, "must be 1 or more"),
        ],
    )
    def test_wrong_options_are_refused(self, table, options, message):
        """Each option is checked when the stream is made."""
        with pytest.raises(BadRequest, match=message):
            self.reader(table, **options)
