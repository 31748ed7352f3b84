"""What a query sees of changes by others and by its own process, with and without `max_age`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count

import pyarrow as pa
import pytest

from sleeper.errors import QueryInvalid, TableNotFound
from sleeper.instance.instance import Instance
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from tests.simulated_process import simulated_process

SCHEMA = pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
MAX_AGE = "sleeper.table.statestore.transactionlog.time.between.transaction.checks.ms"


class Remote:
    """Objects like those of a bucket: requests beside others come after what their caller does."""

    is_remote = True

    def __init__(self, inner, world):
        self._inner, self._world = inner, world

    def beside(self, work):
        return cache(work)

    def read(self, key):
        self._world.reads.append(key)
        return self._inner.read(key)

    def under(self, prefix):
        return Remote(self._inner.under(prefix), self._world)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class World:
    """A simulated clock, and processes with a table."""

    def __init__(self, *, is_remote):
        self.now = datetime(2026, 5, 4, 12, tzinfo=UTC)
        self.reads = []
        self._objects = MemoryObjects(lambda: self.now)
        if is_remote:
            self._objects = Remote(self._objects, self)
        self._ids = count()

    def process(self, name):
        """What another process has open: this one takes changes at one URL for its own."""
        return Instance(
            Place(f"memory://{name}", self._objects),
            {"sleeper.id": "ages"},
            process=simulated_process(
                now=lambda: self.now,
                new_id=lambda: f"{next(self._ids):08x}-0000-4000-8000-000000000000",
            ),
        )

    def wait(self, **time):
        self.now += timedelta(**time)


@pytest.fixture(params=[False, True], ids=["near", "remote"])
def world(request):
    return World(is_remote=request.param)


@pytest.fixture
def here(world):
    """This process, with a table of one row that it has read."""
    table = world.process("here").create_table("t", SCHEMA, row_keys=["id"])
    table.ingest([{"id": 1, "n": 10}])
    assert rows(table) == [10]
    return table


@pytest.fixture
def there(world, here):
    """The same table in another process."""
    return world.process("there").table("t")


def rows(table, **options):
    return [row["n"] for row in table.query(key=1, **options).to_pylist()]


QUESTIONS = {
    "key": {"key": 1},
    "keys": {"keys": [1]},
    "range": {"range": {"id": (0, 9)}},
    "all": {},
}


@pytest.mark.parametrize("asked", QUESTIONS.values(), ids=QUESTIONS)
def test_a_query_sees_what_others_committed_before_it(here, there, asked):
    """Given a cached state and a commit by another process, then the answer is of the newest."""
    there.ingest([{"id": 1, "n": 20}])

    found = here.query(**asked)

    assert sorted(row["n"] for row in found.to_pylist()) == [10, 20]
    assert found.transaction == here.refresh()


def test_a_query_uses_properties_that_others_set_before_it(here, there):
    """Given a filter that another process sets, then the answer that was begun is not used."""
    there.set_properties({"sleeper.table.aggregations": "sum(n)"})
    there.ingest([{"id": 1, "n": 20}])

    assert rows(here) == [30]


@pytest.mark.parametrize("asked", QUESTIONS.values(), ids=QUESTIONS)
def test_files_that_others_collected_are_not_missed(world, here, there, asked, caplog):
    """Given that the cached state's file is gone, then the newest state answers."""
    caplog.set_level(logging.INFO, logger="sleeper.tables.open_table")
    there.set_properties({"sleeper.table.gc.delay.minutes": 1})
    there.ingest([{"id": 1, "n": 20}])
    there.compact(all_files=True)
    world.wait(minutes=9)
    assert there.collect_garbage().deleted

    found = here.query(**asked).to_pylist()

    assert sorted(row["n"] for row in found) == [10, 20]
    told = [record.message for record in caplog.records if "is read anew" in record.message]
    assert not told or "t is read anew, at transaction" in told[0]


def test_a_table_that_others_deleted_is_not_found(world, here):
    """Given a cached state and a deletion, then no row of it is returned."""
    world.process("there").delete_table("t")

    with pytest.raises(TableNotFound):
        rows(here)
    with pytest.raises(TableNotFound):
        here.state()


def test_within_the_age_no_request_is_made(world, here):
    """Given a look ten seconds ago, then a query that allows ten seconds does not look."""
    world.wait(seconds=10)
    world.reads.clear()

    assert rows(here, max_age=10) == [10]
    assert world.reads == []


@pytest.mark.parametrize("age", [10, 10.0, timedelta(seconds=10)])
def test_commits_of_others_are_seen_when_the_age_has_passed(world, here, there, age):
    """Given a commit within the age, then it is missed, and found once the last look is older."""
    there.ingest([{"id": 1, "n": 20}])
    world.wait(seconds=10)
    assert rows(here, max_age=age) == [10]

    world.wait(milliseconds=1)

    assert sorted(rows(here, max_age=age)) == [10, 20]


def test_the_age_counts_from_the_last_look(world, here, there):
    """Given queries that do not look, then they do not make the next one wait longer."""
    there.ingest([{"id": 1, "n": 20}])
    for _ in range(3):
        world.wait(seconds=4)
        found = rows(here, max_age=10)

    assert sorted(found) == [10, 20]


@pytest.mark.parametrize("other", ["the same handle", "another handle", "another instance"])
def test_a_process_always_sees_its_own_commits(world, here, other):
    """Given a commit by any handle of the process, then the next query finds it."""
    instance = world.process("here")
    writer = {
        "the same handle": here,
        "another handle": instance.table("t"),
        "another instance": world.process("here").table("t"),
    }[other]
    assert rows(here, max_age=600) == [10]

    writer.ingest([{"id": 1, "n": 20}])

    assert sorted(rows(here, max_age=600)) == [10, 20]


def test_a_process_always_sees_its_own_changes_of_properties(world, here):
    """Given properties set by another handle of the process, then the next query uses them."""
    here.ingest([{"id": 1, "n": 20}])
    assert sorted(rows(here, max_age=600)) == [10, 20]

    world.process("here").table("t").set_properties({"sleeper.table.aggregations": "sum(n)"})

    assert rows(here, max_age=600) == [30]


def test_a_process_does_not_find_a_table_that_it_deleted(world, here):
    """Given a deletion by another handle of the process, then the age does not matter."""
    assert rows(here, max_age=600) == [10]

    world.process("here").delete_table("t")

    with pytest.raises(TableNotFound):
        rows(here, max_age=600)


def test_the_property_is_the_age_of_queries_that_do_not_say_it(world, here, there):
    """Given the table's property, then it holds for queries without max_age, and 0 overrides it."""
    here.set_properties({MAX_AGE: 5_000})
    assert rows(here) == [10]
    there.ingest([{"id": 1, "n": 20}])
    world.wait(seconds=5)

    assert rows(here) == [10]
    assert sorted(rows(here, max_age=0)) == [10, 20]


def test_a_file_that_was_collected_within_the_age_is_not_missed(world, here, there):
    """Given an age longer than files are kept, then a look-up whose file is gone looks anew."""
    there.set_properties({"sleeper.table.gc.delay.minutes": 1})
    there.ingest([{"id": 1, "n": 20}])
    there.compact(all_files=True)
    world.wait(minutes=9)
    assert there.collect_garbage().deleted

    assert sorted(rows(here, max_age=3_600)) == [10, 20]


@pytest.mark.parametrize("age", ["1", True, -1, float("nan"), timedelta(seconds=-1)])
def test_an_age_that_is_none_is_refused(here, age):
    """Given something else than seconds, then the error names the argument."""
    with pytest.raises(QueryInvalid, match="max_age"):
        rows(here, max_age=age)
