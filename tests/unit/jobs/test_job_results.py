"""Files with the results of queries."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.rows import Rows
from sleeper.errors import (
    BadRequest,
    JobInvalid,
    QueryInvalid,
    ResultsIncomplete,
    StorageFailed,
)
from sleeper.jobs.job_results import JobResults
from sleeper.model.formats.results import ResultsPublishing
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.storage.memory import MemoryObjects

TABLE = pa.table({"n": range(20_000)})
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def noon() -> datetime:
    """The time of the storage."""
    return NOON


@pytest.fixture
def objects() -> MemoryObjects:
    """An empty place."""
    return MemoryObjects(noon)


def written(
    objects: MemoryObjects, publishing: ResultsPublishing, **properties: str
) -> pq.ParquetFile:
    """The file of a query with 20,000 rows; names of properties have `_` for each dot."""
    texts = {name.replace("_", "."): text for name, text in properties.items()}
    results = JobResults(objects, InstanceProperties(texts), noon)
    rows = Rows(iter(TABLE.to_batches()), TABLE.schema, transaction=1)

    assert results.write_query("q", "table", rows, publishing) == 20_000

    (info,) = objects.listing("query_results/query-q/")
    assert results.query_location("q", "table") == objects.url(info.key)
    return pq.ParquetFile(io.BytesIO(objects.read(info.key)))


def test_a_query_says_how_its_file_is_laid_out(objects):
    """Its own options win over the instance's properties (QRY-10)."""
    publishing = ResultsPublishing(compression="gzip", row_group_bytes=80_000)

    file = written(objects, publishing, sleeper_default_query_results_rowgroup_size="8K")

    assert file.metadata.num_row_groups == 2
    assert file.metadata.row_group(0).column(0).compression == "GZIP"


@pytest.mark.parametrize(("size", "groups"), [("40K", 4), ("8M", 1)])
def test_the_instance_says_what_a_query_does_not(objects, size, groups):
    """By upstream's properties (QRY-10)."""
    file = written(objects, ResultsPublishing(), sleeper_default_query_results_rowgroup_size=size)

    assert file.metadata.num_row_groups == groups
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_query_that_is_run_twice_has_one_file(objects):
    """The second replaces the first."""
    results = JobResults(objects, InstanceProperties(), noon)
    assert results.query_file("q", "table") is None

    written(objects, ResultsPublishing())
    written(objects, ResultsPublishing())

    (info,) = objects.listing("query_results/")
    assert results.query_file("q", "table") == info.key


@pytest.mark.parametrize("other", ["another", "", "table/q"])
def test_a_query_does_not_take_the_rows_of_another_table_for_its_own(objects, other):
    """The message says that its id was used."""
    results = JobResults(objects, InstanceProperties(), noon)
    written(objects, ResultsPublishing())

    with pytest.raises(JobInvalid, match="'q' was used for a query of another table"):
        results.query_file("q", other)


def test_a_file_that_an_earlier_version_wrote_counts_as_the_querys(objects):
    """Its name does not say the table; it goes after its days like others."""
    name = uuid.uuid5(uuid.UUID("6f0f3ed0-0f7e-4d53-9d0c-1b7a5a3c8e11"), "q")
    key = f"query_results/query-q/{name}.parquet"
    objects.put(key, b"")
    results = JobResults(objects, InstanceProperties(), lambda: NOON + timedelta(days=99))

    assert results.query_file("q", "table") == key
    assert results.delete_expired() == 1


class TestExpiry:
    """Results are deleted when they are older than the instance keeps them (QRY-10, EXP-3)."""

    @pytest.fixture
    def objects(self) -> MemoryObjects:
        """A place where each object is an hour newer than the one before."""
        hours = itertools.count()
        return MemoryObjects(lambda: NOON + timedelta(hours=next(hours)))

    def results(self, objects: MemoryObjects, after: timedelta) -> JobResults:
        """Results a while after noon. Queries are kept for two days, exports for one."""
        properties = {
            "sleeper.query.results.bucket.expiry.days": "2",
            "sleeper.bulk.export.results.bucket.expiry.days": "1",
        }
        return JobResults(objects, InstanceProperties(properties), lambda: NOON + after)

    def test_a_querys_file_goes_after_its_days(self, objects):
        """Not before, and not with other files that somebody put beside it."""
        written(objects, ResultsPublishing())
        objects.put("query_results/query-q/mine.parquet", b"")
        objects.put("query_results/mine.parquet", b"")

        assert self.results(objects, timedelta(days=2)).delete_expired() == 0
        assert self.results(objects, timedelta(days=2, hours=9)).delete_expired() == 1

        left = [info.key for info in objects.listing()]
        assert left == ["query_results/mine.parquet", "query_results/query-q/mine.parquet"]

    def test_an_export_goes_as_a_whole_and_by_its_newest_file(self, objects, caplog):
        """One that is still being written is younger than its first file."""
        caplog.set_level("INFO")
        for name in ("part-00000.parquet", "part-00001.parquet", "_SUCCESS"):
            objects.put(f"bulk_export/table/export/{name}", b"")
        others = ["bulk_export/mine.parquet", "bulk_export/table/mine.parquet", "table/data/f"]
        for key in others:
            objects.put(key, b"")

        assert self.results(objects, timedelta(days=1, hours=2)).delete_expired() == 0
        assert self.results(objects, timedelta(days=9)).delete_expired() == 1

        assert [info.key for info in objects.listing()] == others
        assert "deleting the results" in caplog.text
        assert "bulk_export/table/export/_SUCCESS" in caplog.text

    def test_the_clock_is_not_asked_where_there_is_nothing(self, objects):
        """Asking a bucket for its time is a request."""

        def time() -> datetime:
            raise AssertionError("asked")

        assert JobResults(objects, InstanceProperties(), time).delete_expired() == 0


class Answers:
    """A queue that takes some messages, and then fails."""

    def __init__(self, taken: int = 99) -> None:
        self.taken, self.bodies = taken, []

    def send(self, url: str, body: str) -> None:
        if len(self.bodies) == self.taken:
            raise StorageFailed(f"{url} is busy")
        self.bodies.append(json.loads(body))


class TestMessages:
    """Rows that go to a queue (QRY-11)."""

    @staticmethod
    def sent(answers: Answers, table: pa.Table, **publishing) -> int:
        """Send rows of one field as messages; return how many rows that were."""
        schema = Schema(row_keys=[Field(table.schema.names[0], Primitive.LONG)])
        results = JobResults(
            MemoryObjects(noon),
            InstanceProperties({"sleeper.query.processor.results.batch.size": "9000"}),
            noon,
            queue=answers,
        )
        rows = Rows(iter(table.to_batches()), table.schema, transaction=1)
        publishing = ResultsPublishing(**{"queue_url": "http://q", **publishing})
        return results.send_query("q", rows, schema, publishing)

    def test_the_query_or_the_instance_says_how_many_rows_a_message_has(self):
        """The query first."""
        mine, instances = Answers(), Answers()

        assert self.sent(mine, TABLE, batch_rows=12_000) == 20_000
        assert self.sent(instances, TABLE) == 20_000

        assert [len(each["rows"]) for each in mine.bodies] == [12_000, 8_000]
        assert [len(each["rows"]) for each in instances.bodies] == [9_000, 9_000, 2_000]
        assert [row["n"] for each in mine.bodies for row in each["rows"]] == [*range(20_000)]

    def test_a_message_is_never_longer_than_a_queue_takes(self):
        """Then it has fewer rows."""
        answers = Answers()
        table = pa.table({"text": ["x" * 100_000] * 5})

        assert self.sent(answers, table) == 5

        assert [len(each["rows"]) for each in answers.bodies] == [2, 2, 1]

    def test_a_failure_before_any_row_may_be_tried_again(self):
        """It is the failure itself."""
        with pytest.raises(StorageFailed, match="busy"):
            self.sent(Answers(taken=0), TABLE)
        with pytest.raises(QueryInvalid, match="300,011 bytes"):
            self.sent(Answers(), pa.table({"text": ["x" * 300_000]}))

    def test_a_failure_after_some_rows_says_how_many(self):
        """Trying again would send them twice."""
        with pytest.raises(ResultsIncomplete, match=r"9000 rows of query 'q'.*http://q") as caught:
            self.sent(Answers(taken=1), TABLE)

        assert caught.value.rows_sent == 9_000
        assert not caught.value.retryable
        assert pickle.loads(pickle.dumps(caught.value)).rows_sent == 9_000

    def test_without_a_queue_nothing_is_read(self):
        """As a message that was checked always names one."""
        with pytest.raises(BadRequest, match="names no queue"):
            self.sent(Answers(), TABLE, queue_url=None)
