"""A writer is stopped between its look at the time and the creation of its entry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pyarrow as pa
import pytest

from sleeper.instance.instance import Instance
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from tests.simulated_process import simulated_process

SCHEMA = pa.schema([("id", pa.int64())])
DELAY = timedelta(minutes=15)


class World:
    """Objects in memory, their clock, and what happens before the next entry is created."""

    def __init__(self):
        self.now = datetime(2026, 5, 4, 12, tzinfo=UTC)
        self.before_entry = []
        self.looks = 0
        numbers = count()
        self.instance = Instance(
            Place("memory://", Stopping(MemoryObjects(lambda: self.now), self)),
            {"sleeper.id": "late"},
            process=simulated_process(
                now=lambda: self.now,
                new_id=lambda: f"{next(numbers):08x}-0000-4000-8000-000000000000",
            ),
        )

    def wait(self, **time):
        self.now += timedelta(**time)


class Stopping:
    """Objects whose writers are stopped before they create an entry."""

    def __init__(self, inner, world):
        self._inner, self._world = inner, world

    def create(self, key, body):
        if "transactions/" in key and self._world.before_entry:
            self._world.before_entry.pop()()
        return self._inner.create(key, body)

    def stored_at(self, key):
        self._world.looks += 1
        return self._inner.stored_at(key)

    def under(self, prefix):
        return Stopping(self._inner.under(prefix), self._world)

    def __getattr__(self, name):
        return getattr(self._inner, name)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def table(world):
    """Two files that no job has claimed yet."""
    table = world.instance.create_table("t", SCHEMA, row_keys=["id"])
    for number in (1, 2):
        table.ingest(pa.table({"id": [number]}))
    return table


def compact_and_stop_before_the_last_entry(world, table, **stop):
    """Compact; the entry that replaces the files is dated now, and stored after a while."""
    world.before_entry = [lambda: world.wait(**stop), lambda: None]
    (job,) = table.compact(all_files=True).jobs
    assert job.failure is None
    assert not world.before_entry


class TestAWriterThatIsStoppedBeforeItsEntry:
    """Its files were the newest version's until the entry was there."""

    def test_takes_no_files_from_readers_that_are_younger_than_the_delay(self, world, table):
        """Given an entry stored 20 minutes after its date, and a reader just before it."""
        number = table.state().number + 1  # after the claim
        compact_and_stop_before_the_last_entry(world, table, minutes=20)

        world.wait(minutes=14)
        early, planned = table.collect_garbage(), table.garbage()
        answer = table.query(as_of=number).to_pylist()

        assert (early.deleted, list(planned)) == ((), [])
        assert answer == [{"id": 1}, {"id": 2}]

    def test_has_its_garbage_collected_the_delay_after_its_entry(self, world, table):
        """Not before, and strictly later."""
        compact_and_stop_before_the_last_entry(world, table, minutes=20)

        world.wait(minutes=15)
        due = table.collect_garbage()
        world.wait(seconds=1)

        assert due.deleted == ()
        assert len(table.collect_garbage().deleted) == 2

    def test_keeps_no_older_garbage_from_the_collector(self, world, table):
        """What an entry before it has freed is collected in time."""
        compact_and_stop_before_the_last_entry(world, table, minutes=0)
        table.ingest(pa.table({"id": [3]}))
        compact_and_stop_before_the_last_entry(world, table, minutes=20)
        table.ingest(pa.table({"id": [4]}))

        assert len(table.collect_garbage().deleted) == 2

    def test_does_not_date_the_entries_of_others(self, world, table):
        """An entry that comes after it is dated after it, and is judged by its own time."""
        compact_and_stop_before_the_last_entry(world, table, minutes=20)
        table.ingest(pa.table({"id": [3]}))
        table.compact(all_files=True)
        world.wait(minutes=15, seconds=1)

        assert len(table.collect_garbage().deleted) == 4


class TestRequests:
    """What the collector asks the log."""

    def test_without_garbage_are_none(self, world, table):
        """A table without files to collect costs no look."""
        table.collect_garbage()

        assert world.looks == 0

    def test_are_one_where_nothing_was_committed_for_long(self, world, table):
        """The newest entry is old enough, so all are."""
        table.compact(all_files=True)
        world.wait(hours=1)
        run = table.collect_garbage()

        assert len(run.deleted) == 2
        assert world.looks == 1

    def test_grow_with_the_digits_of_the_number_of_entries(self, world, table):
        """25 entries that are younger than the delay cost ten looks."""
        table.compact(all_files=True)
        world.wait(hours=1)
        for _ in range(25):
            table.set_properties({"sleeper.table.gc.delay.minutes": "15"})
            table.ingest(pa.table({"id": [5]}))
        run = table.collect_garbage()

        assert len(run.deleted) == 2
        assert world.looks <= 10
