"""A job id makes an ingest safe to repeat: its rows are in the table once, whatever happens."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.storage.transaction_log import ObjectTransactionLog

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


def test_a_repeated_job_needs_its_input_no_longer(table, tmp_path):
    """Its id is looked up first, so a file that was deleted after the first run is no failure."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path)
    table.ingest(path, job_id="monday")
    path.unlink()

    assert table.ingest(path, job_id="monday").already_committed


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


@pytest.mark.parametrize("blank", ["", "  \t"])
@pytest.mark.parametrize("door", ["ingest", "upsert", "bulk_import"])
def test_a_blank_id_is_refused(table, door, blank):
    """Whoever names work by an empty variable would have its rows twice if it is repeated (ING-9)."""
    with pytest.raises(sleeper.BadRequest, match="job_id is blank: give a text that names this"):
        getattr(table, door)(ROWS, job_id=blank)

    assert table.query().count() == 0


@pytest.mark.parametrize("door", ["ingest", "bulk_import"])
def test_an_id_is_made_where_none_is_given(table, door):
    """Each time another, so the second rows are not taken for the first (ING-9)."""
    first = getattr(table, door)(ROWS, job_id=None)
    second = getattr(table, door)([{"id": 99}])

    assert not second.already_committed
    assert first.job_id.strip()
    assert second.job_id.strip()
    assert first.job_id != second.job_id
    assert table.query().count() == 11


def test_a_made_id_is_remembered_like_any_other(table):
    """Whoever repeats the work under it adds nothing."""
    first = table.ingest(ROWS)

    again = table.ingest(ROWS, job_id=first.job_id)

    assert again.already_committed
    assert again.transaction == first.transaction


@pytest.mark.parametrize("door", ["ingest", "bulk_import"])
def test_an_id_is_text(table, door):
    """A number is refused, not stored as something else."""
    with pytest.raises(sleeper.BadRequest, match="job_id must be a string, not 7"):
        getattr(table, door)(ROWS, job_id=7)


@pytest.mark.parametrize("happened", [True, False])
def test_work_without_an_id_can_be_repeated_when_nobody_knows(table, monkeypatch, happened):
    """The error names the id that was made; under it the rows are in the table once."""
    append, read = ObjectTransactionLog.append, ObjectTransactionLog.read

    def append_in_silence(log, number, body):
        if happened:
            append(log, number, body)
        monkeypatch.setattr(ObjectTransactionLog, "read", read_nothing)
        raise sleeper.StorageFailed("no answer")

    def read_nothing(log, number):
        raise sleeper.StorageFailed("no answer")

    monkeypatch.setattr(ObjectTransactionLog, "append", append_in_silence)
    with pytest.raises(sleeper.CommitUnknown) as unknown:
        table.ingest(ROWS)
    monkeypatch.setattr(ObjectTransactionLog, "append", append)
    monkeypatch.setattr(ObjectTransactionLog, "read", read)
    named = re.search(r"run it again with job_id='([^']+)'", str(unknown.value))

    again = table.ingest(ROWS, job_id=named[1])

    assert f"--job-id {named[1]}" in str(unknown.value)
    assert again.already_committed == happened
    assert table.query().to_pylist() == ROWS
