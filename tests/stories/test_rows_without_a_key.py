"""Rows that have no key: refused with a count, or set aside in a file of their own."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.state.log_store import TransactionLogStateStore

SCHEMA = pa.schema([("plate", pa.string()), ("speed", pa.int64())])
ROWS = [{"plate": "A 1", "speed": 50}, {"plate": None, "speed": 90}, {"plate": "B 2", "speed": 30}]


def test_rows_without_a_key_are_set_aside(tmp_path):
    """The others go in; the file holds the rest as they came, to be mended and tried again."""
    table = sleeper.connect("memory://").create_table("radar", SCHEMA, row_keys=["plate"])
    aside = tmp_path / "no-plate.parquet"

    with pytest.raises(sleeper.InputRefused, match="1 of 3 rows"):
        table.ingest(ROWS)
    result = table.ingest(ROWS, set_aside=aside)

    assert (result.rows_read, result.rows_written, result.rows_set_aside) == (3, 2, 1)
    assert table.query().to_pylist() == [ROWS[0], ROWS[2]]
    assert pq.read_table(aside).to_pylist() == [ROWS[1]]


def test_nothing_to_set_aside_makes_no_file(tmp_path):
    """A file means that there is something in it."""
    table = sleeper.connect("memory://").create_table("radar", SCHEMA, row_keys=["plate"])

    table.ingest(ROWS[:1], set_aside=tmp_path / "aside.parquet")

    assert list(tmp_path.iterdir()) == []


def test_only_rows_without_a_key(tmp_path):
    """All rows may be set aside; then the table is as it was."""
    table = sleeper.connect("memory://").create_table("radar", SCHEMA, row_keys=["plate"])

    result = table.ingest(ROWS[1:2], set_aside=tmp_path / "aside.parquet")

    assert (result.rows_written, result.rows_set_aside) == (0, 1)
    assert table.state().number == 1
    assert pq.read_table(tmp_path / "aside.parquet").num_rows == 1


@pytest.fixture
def table():
    return sleeper.connect("memory://").create_table("radar", SCHEMA, row_keys=["plate"])


def test_a_file_that_is_there_is_never_replaced(table, tmp_path):
    """Neither another job's rows nor the input itself; the refusal comes before any row is read."""
    earlier = tmp_path / "aside.parquet"
    table.ingest(ROWS[:2], set_aside=earlier)
    source = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), source)
    before = table.state().number

    for data, target in [(ROWS, earlier), (source, source)]:
        with pytest.raises(sleeper.AlreadyExists, match="is there already"):
            table.ingest(data, set_aside=target)

    assert table.state().number == before
    assert pq.read_table(earlier).num_rows == 1
    assert pq.read_table(source).num_rows == 3


def test_of_two_jobs_with_one_file_the_second_changes_nothing(table, tmp_path):
    """Even when its rows were read already: each row is in the table, or in a file."""
    aside = tmp_path / "aside.parquet"
    others = []

    def meanwhile(*_):
        if not others:
            others.append(None)
            others.append(table.ingest([{"plate": None, "speed": 1}], set_aside=aside))

    with pytest.raises(sleeper.AlreadyExists):
        table.ingest(ROWS, set_aside=aside, progress=meanwhile)

    assert pq.read_table(aside).to_pylist() == [{"plate": None, "speed": 1}]
    assert table.query().count() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["aside.parquet"]


@pytest.mark.parametrize(
    ("error", "stays"), [(sleeper.CommitContended, False), (sleeper.CommitUnknown, True)]
)
def test_rows_set_aside_are_there_only_if_the_others_may_be(
    table, tmp_path, monkeypatch, error, stays
):
    """A commit that surely failed takes them along; otherwise they would be lost with it."""

    def fail(*_):
        raise error("no")

    monkeypatch.setattr(TransactionLogStateStore, "commit", fail)

    with pytest.raises(error):
        table.ingest(ROWS, set_aside=tmp_path / "aside.parquet")

    names = [path.name for path in tmp_path.iterdir()]
    assert names == (["aside.parquet"] if stays else [])


def test_rows_set_aside_are_durable_before_the_commit(table, tmp_path, monkeypatch):
    """After a power cut they are not gone while the others are in the table."""
    synced, committed = [], []
    fsync, commit = os.fsync, TransactionLogStateStore.commit
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(number), fsync(number)))
    monkeypatch.setattr(
        TransactionLogStateStore,
        "commit",
        lambda *given: (committed.append(len(synced)), commit(*given))[1],
    )

    table.ingest(ROWS, set_aside=tmp_path / "aside.parquet")

    assert committed == [2]  # the file, and the folder that names it
