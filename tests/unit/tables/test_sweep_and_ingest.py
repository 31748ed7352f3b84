"""A sweep of orphans comes between a job's files and its commit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sleeper.errors import NewFilesTooOld
from sleeper.state.new_files import SweepGuard
from sleeper.state.transactions.files import SweepOrphans
from sleeper.storage.transaction_log import ObjectTransactionLog
from sleeper.tables import garbage
from tests.unit.tables.small_tables import NOON, ORPHAN_AGE, small_table, store_of

ROWS = [(1, "x"), (2, "y")]


class Time:
    """A clock that tests move; it is the storage's, and everybody's."""

    def __init__(self):
        self.now = NOON

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def table(time):
    return small_table(now=time)


@pytest.fixture
def before_commit(table, monkeypatch):
    """Have something done once, just before the next entry of the log is created."""
    append, waiting = ObjectTransactionLog.append, []

    def meanwhile(log, number, body):
        if waiting:
            waiting.pop()()
        return append(log, number, body)

    monkeypatch.setattr(ObjectTransactionLog, "append", meanwhile)
    return waiting.append


def sweep(table, time, age=ORPHAN_AGE):
    """Sweep as another process does."""
    store = store_of(table.objects, "t1", table.new_id, time)
    return garbage.sweep(age, delete=True, store=store, files=table.files)


def test_what_a_sweep_has_deleted_is_not_acknowledged(table, time, before_commit):
    """The ingest is refused and can be repeated; the log decides, however long it slept."""

    def sleep_and_sweep():
        time.now += 2 * ORPHAN_AGE
        assert len(sweep(table, time).orphans) == 1

    before_commit(sleep_and_sweep)
    with pytest.raises(NewFilesTooOld, match=r"sweep of orphans .*Run the job again"):
        table.ingest(ROWS, job_id="job")

    assert table.store.refresh().references() == []
    assert not table.ingest(ROWS, job_id="job").already_committed


def test_a_sweep_without_an_age_refuses_jobs_under_way(table, time, before_commit):
    """`force` deletes their files, and they do not come to be missing from the table."""

    def force():
        time.now += timedelta(seconds=1)
        assert len(sweep(table, time, timedelta()).orphans) == 1

    before_commit(force)
    with pytest.raises(NewFilesTooOld):
        table.ingest(ROWS)


def test_what_is_acknowledged_is_not_swept(table, time, before_commit):
    """A sweep that deletes other files does not disturb a job that began later."""
    table.files.put("data/partition_root/killed.parquet", b"half a file")
    time.now += 2 * ORPHAN_AGE

    before_commit(lambda: sweep(table, time))
    table.ingest(ROWS)

    (reference,) = table.store.refresh().references()
    assert table.keys() == {f"t1/{reference.filename}"}


def test_a_sweep_that_deletes_nothing_commits_nothing(table, time):
    """A table that nobody writes to has no new entries."""
    before = table.store.refresh().number

    sweep(table, time)

    assert table.store.refresh().number == before


class TestGuard:
    """`SweepGuard.check`: jobs that began long ago look at their files."""

    @pytest.fixture
    def guard(self, table, time):
        table.files.put("data/a.parquet", b"")
        return SweepGuard(files=table.files, started=time.now, orphan_age=ORPHAN_AGE)

    def test_a_job_that_began_lately_does_not_look(self, guard):
        """Up to half of the orphan age."""
        assert guard.check(["data/gone.parquet"], NOON + ORPHAN_AGE / 2) == NOON

    def test_a_file_that_is_young_enough_may_be_committed(self, guard, table, time):
        """The answer is the time of the oldest."""
        time.now += ORPHAN_AGE
        table.files.put("data/a.parquet", b"")

        assert guard.check(["data/a.parquet"], time.now + ORPHAN_AGE / 2) == time.now

    def test_a_file_that_is_gone_is_refused(self, guard):
        """Somebody has deleted it."""
        with pytest.raises(NewFilesTooOld, match=r"'data/gone\.parquet' is gone"):
            guard.check(["data/a.parquet", "data/gone.parquet"], NOON + ORPHAN_AGE * 0.6)

    def test_a_file_that_a_sweep_may_delete_next_is_refused(self, guard):
        """From three quarters of the orphan age on."""
        assert guard.check(["data/a.parquet"], NOON + ORPHAN_AGE * 0.75) == NOON
        with pytest.raises(NewFilesTooOld, match=r"gc\.orphan\.age\.minutes"):
            guard.check(["data/a.parquet"], NOON + ORPHAN_AGE * 0.76)


def test_the_time_of_a_sweep_never_goes_back(table):
    """An earlier sweep that commits later allows nothing again."""
    table.store.commit(SweepOrphans(before=NOON))
    after = table.store.commit(SweepOrphans(before=NOON - timedelta(days=1)))

    assert after.swept_before == NOON
