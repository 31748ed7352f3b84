"""Files with the results of queries."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.rows import Rows
from sleeper.jobs.job_results import JobResults
from sleeper.model.formats.results_publishing import ResultsPublishing
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.storage.memory import MemoryObjects

TABLE = pa.table({"n": range(20_000)})


@pytest.fixture
def objects() -> MemoryObjects:
    """An empty place."""
    return MemoryObjects(lambda: datetime(2026, 6, 1, tzinfo=UTC))


def written(
    objects: MemoryObjects, publishing: ResultsPublishing, **properties: str
) -> pq.ParquetFile:
    """The file of a query with 20,000 rows; names of properties have `_` for each dot."""
    texts = {name.replace("_", "."): text for name, text in properties.items()}
    results = JobResults(objects, InstanceProperties(texts))
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
    results = JobResults(objects, InstanceProperties())
    assert not results.has_query("q")

    written(objects, ResultsPublishing())
    written(objects, ResultsPublishing())

    assert results.has_query("q")
