"""Files with the results of queries."""

from __future__ import annotations

import io
import itertools
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.rows import Rows
from sleeper.jobs.job_results import JobResults
from sleeper.model.formats.results_publishing import ResultsPublishing
from sleeper.model.known_properties.typed import InstanceProperties
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

    assert results.write_query("q", rows, publishing) == 20_000

    (info,) = objects.listing("query_results/query-q/")
    assert results.query_location("q") == objects.url(info.key)
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
    assert not results.has_query("q")

    written(objects, ResultsPublishing())
    written(objects, ResultsPublishing())

    assert results.has_query("q")


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
