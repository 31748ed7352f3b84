"""A job id makes an ingest safe to repeat: its rows are in the table once, whatever happens."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = [{"id": n} for n in range(10)]


@pytest.fixture
def table():
    return sleeper.connect("memory://").create_table("t", SCHEMA, row_keys=["id"], split_points=[5])


def test_a_repeated_job_changes_nothing(table):
    """The second run reports what the first one did, and adds no row."""
    first = table.ingest(ROWS, job_id="monday")
    second = table.ingest(ROWS, job_id="monday")

    assert not first.already_committed
    assert second.already_committed
    assert second.transaction == first.transaction
    assert (second.rows_read, second.rows_written) == (10, 10)
    assert table.query().to_pylist() == ROWS


def test_the_id_names_the_work_and_not_its_input(table):
    """Other rows under a used id are not looked at: choose another id for other data."""
    table.ingest(ROWS, job_id="monday")

    table.ingest([{"id": 99}], job_id="monday")

    assert table.query(key=99).to_pylist() == []


def test_without_an_id_rows_are_added_again(table):
    """Two ingests are two ingests; equal rows are no duplicates to a table."""
    table.ingest(ROWS)
    table.ingest(ROWS)

    assert table.query().to_arrow().num_rows == 20


def test_a_failed_job_may_run_again(table):
    """What failed has used nothing up: the same id works once the input is right."""
    with pytest.raises(sleeper.InputRefused):
        table.ingest([*ROWS, {"id": None}], job_id="monday")

    assert table.ingest(ROWS, job_id="monday").rows_written == 10
    assert table.query().to_pylist() == ROWS


def test_a_job_becomes_visible_at_once(table):
    """Its files in all leaves come in one transaction: no query sees a part of it."""
    before = table.state().number

    result = table.ingest(ROWS, job_id="monday")

    assert len({reference.partition_id for reference in result.files}) == 2
    assert result.transaction == before + 1
