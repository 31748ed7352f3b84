"""A driver on a cluster tells the tracker how its job went, wherever it runs."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InputRefused
from sleeper.model.formats.bulk_import_job import BulkImportJob
from sleeper.model.jobs.statuses import JobState
from sleeper.workers.driver_run import reported_run

SCHEMA = pa.schema([("id", pa.int64())])
JOB = BulkImportJob(id="june", table_name="t", files=("june.parquet",))
PLACE = "bulk_import/june-the-run.json"


@pytest.fixture
def instance(tmp_path):
    opened = sleeper.connect(tmp_path / "instance", create=True)
    opened.create_table("t", SCHEMA, row_keys=["id"])
    return opened


def test_a_run_that_ends_well_is_finished(instance):
    """Given the job as it was saved, then the run has the id that its place names."""
    table = instance.table("t")
    with reported_run(instance, table.table_id, JOB, PLACE) as reported:
        assert instance.jobs.job("june").state is JobState.IN_PROGRESS
        reported(table.bulk_import([{"id": 1}, {"id": 2}], "june", engine="local"))

    status = instance.jobs.job("june")
    assert status.state is JobState.FINISHED
    assert status.furthest_run.run_id == "the-run"
    assert status.furthest_run.rows_written == 2
    assert status.platform == "spark driver"


def test_a_run_that_fails_is_told_with_its_reasons(instance):
    """Given input that does not fit, then the error goes on to the driver, and to the tracker."""
    table = instance.table("t")
    with (
        pytest.raises(InputRefused),
        reported_run(instance, table.table_id, JOB, PLACE) as reported,
    ):
        reported(table.bulk_import([{"wrong": 1}], "june", engine="local"))

    status = instance.jobs.job("june")
    assert status.state is JobState.FAILED
    assert status.is_over
    assert status.reasons
