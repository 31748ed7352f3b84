"""A table in remote storage opens from a copy of a new state, which decides nothing."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count

import pyarrow as pa
import pytest

from sleeper.errors import StorageFailed, TableNotFound
from sleeper.instance.instance import Instance
from sleeper.state import newest_copy
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from tests.simulated_process import simulated_process

SCHEMA = pa.schema([("id", pa.int64())])
COPY = "statestore/snapshots/newest"
INDEX_COPY = "tables/checkpoints/newest.json"


class Remote:
    """Objects like those of a bucket, which record what is read and refuse some writes."""

    is_remote = True

    def __init__(self, inner, told, prefix=""):
        self._inner, self._told, self._prefix = inner, told, prefix

    def beside(self, work):
        return cache(work)

    def read(self, key):
        self._told["read"].append(key)
        return self._inner.read(key)

    def listing(self, prefix="", after=""):
        self._told["listed"].append(prefix)
        return self._inner.listing(prefix, after)

    def put(self, key, body):
        if key in self._told["refused"]:
            raise StorageFailed(f"{key} cannot be written")
        self._inner.put(key, body)

    def under(self, prefix):
        return Remote(self._inner.under(prefix), self._told)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class World:
    """A remote storage, and processes that open its instance."""

    def __init__(self):
        self.now = datetime(2026, 5, 4, 12, tzinfo=UTC)
        self.told = {"read": [], "listed": [], "refused": set()}
        self.objects = Remote(MemoryObjects(lambda: self.now), self.told)
        self._ids = count()
        self.folder = None

    def process(self, **properties):
        return Instance(
            Place("memory://", self.objects),
            {"sleeper.id": "copies", **properties},
            process=simulated_process(
                now=lambda: self.now,
                new_id=lambda: f"{next(self._ids):08x}-0000-4000-8000-000000000000",
            ),
        )

    def forget(self):
        self.told["read"].clear()
        self.told["listed"].clear()

    def copy(self):
        return self.folder.read(COPY)


@pytest.fixture
def world():
    """A table with an entry that makes its partitions, and nine that each add a row."""
    return filled(World())


def filled(world):
    table = world.process().create_table("t", SCHEMA, row_keys=["id"])
    world.folder = world.objects.under(table.table_id)
    for number in range(9):
        table.ingest([{"id": number}])
    return world


def ids(instance):
    return [row["id"] for row in instance.table("t").query().to_pylist()]


def names(keys):
    """What was read of the table's state and of the index, in short."""
    return [key.rpartition("/")[2].lstrip("0") for key in keys if "data/" not in key]


def test_a_table_opens_from_the_copy_and_one_look(world):
    """Given a copy of the newest state, then no listing, snapshot or old entry is read."""
    world.forget()

    assert ids(world.process()) == [*range(9)]
    assert sorted(names(world.told["read"])) == [
        "11.json",  # the table's log: no newer entry
        "2.json",  # the index: for the table, and before the query
        "2.json",
        "newest",
        "newest.json",
    ]
    assert world.told["listed"] == []


def test_an_older_copy_is_gone_on_from(world):
    """Given that a slower writer left an older state, then the entries after it are read."""
    copy = world.copy()
    table = world.process().table("t")
    for number in range(9, 14):
        table.ingest([{"id": number}])
    world.folder.put(COPY, copy)

    assert ids(world.process()) == [*range(14)]


def test_a_handle_whose_read_was_not_begun_goes_on_from_an_older_copy(world):
    """Given a handle that is first asked for its state, then it reads the entries after the copy."""
    copy = world.copy()
    newest = world.process().table("t").ingest([{"id": 9}]).transaction
    world.folder.put(COPY, copy)

    assert world.process().table("t").refresh() == newest


def test_an_older_copy_of_the_index_is_gone_on_from(world):
    """Given a copy without a table that was added later, then the table is found."""
    copy = world.objects.read(INDEX_COPY)
    world.process().create_table("u", SCHEMA, row_keys=["id"])
    world.process().table("t").rename("v")
    world.objects.put(INDEX_COPY, copy)

    assert [record.name for record in world.process().tables()] == ["u", "v"]
    assert world.process().table("u").query().to_pylist() == []
    assert len(world.process().table("v").query().to_pylist()) == 9


def test_a_name_that_went_to_another_table_opens_that_one(world):
    """Given a table that was begun to be opened by an old copy, then the look decides."""
    copy = world.objects.read(INDEX_COPY)
    world.process().table("t").rename("old")
    world.process().create_table("t", SCHEMA, row_keys=["id"])
    world.objects.put(INDEX_COPY, copy)

    assert ids(world.process()) == []


def changed(body, **fields):
    head, _, parts = body.partition(b"\n")
    return json.dumps(json.loads(head) | fields).encode() + b"\n" + parts


DAMAGE = {
    "empty": lambda _: b"",
    "cut": lambda body: body[: len(body) // 2],
    "without parts' ends": lambda body: body[:-1],
    "another number": lambda body: changed(body, number=3),
    "flipped": lambda body: (
        body[:-400] + bytes(255 - each for each in body[-400:-300]) + body[-300:]
    ),
    "a newer format": lambda body: changed(body, format=2),
    "a snapshot that is not there": lambda body: changed(body, parts={}),
    "not an object": lambda _: b"[1]\n",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_copy_that_cannot_be_used_is_left_aside(world, damage, caplog):
    """Given damage, then the log is read, and the warning says so; the next commit mends it."""
    world.folder.put(COPY, damage(world.copy()))

    assert ids(world.process()) == [*range(9)]
    assert "the copy of the newest state is not used" in caplog.text

    world.process().table("t").ingest([{"id": 9}])
    caplog.clear()
    assert ids(world.process()) == [*range(10)]
    assert not caplog.text


def test_a_copy_that_cannot_be_saved_fails_no_commit(world, caplog):
    """Given a store that refuses the copies, then tables and rows are there, with a warning."""
    world.told["refused"] |= {COPY, INDEX_COPY}

    world.process().table("t").ingest([{"id": 9}])
    world.process().create_table("u", SCHEMA, row_keys=["id"])

    assert "the copy of transaction 11 was not saved" in caplog.text
    assert "the copy of the newest tables was not saved" in caplog.text
    assert ids(world.process()) == [*range(10)]


UNTRUSTED = {"sleeper.statestore.commit.read.back": "always"}
ENTRY = "statestore/transactions/{:020d}.json"
INDEX_ENTRY = "tables/index/{:020d}.json"


def test_where_a_store_is_not_trusted_the_entry_of_a_copy_is_read(world):
    """Given that entries are read back, then a copy opens a table, and is compared with its entry."""
    world.process(**UNTRUSTED).table("t").ingest([{"id": 9}])
    world.forget()

    assert ids(world.process(**UNTRUSTED)) == [*range(10)]
    assert sorted(names(world.told["read"])) == [
        "1.json",  # the index
        "11.json",  # the table's log
        "12.json",
        "2.json",
        "2.json",
        "newest",
        "newest.json",
    ]
    assert world.told["listed"] == []


@pytest.fixture
def lost(world):
    """Let two writers create entry 11, of which the copy has the one that was lost."""
    table = world.process(**UNTRUSTED).table("t")
    table.ingest([{"id": 40}])
    copy = world.copy()
    world.folder.delete([ENTRY.format(11), COPY])
    world.now += timedelta(seconds=1)
    world.process(**UNTRUSTED).table("t").ingest([{"id": 41}])
    world.folder.put(COPY, copy)
    return copy


@pytest.mark.parametrize("more", [0, 1, 3])
def test_the_copy_of_a_lost_entry_is_not_used(world, lost, more, caplog):
    """Given an entry that another writer replaced, and later ones, then the log is read, and it is said."""
    table = world.process(**UNTRUSTED).table("t")
    for number in range(50, 50 + more):
        table.ingest([{"id": number}])
    world.folder.put(COPY, lost)
    caplog.clear()

    assert ids(world.process(**UNTRUSTED)) == [*range(9), 41, *range(50, 50 + more)]
    assert "its entry 11 is not the one in the log" in caplog.text


def test_whoever_commits_after_the_copy_of_a_lost_entry_goes_on_from_the_log(world, lost):
    """Given a process whose first call is a commit, then its entry follows the one in the log."""
    table = world.process(**UNTRUSTED).table("t")
    table._known()

    table.ingest([{"id": 42}])

    assert ids(world.process()) == [*range(9), 41, 42]
    assert findings(world) == []


def test_a_handle_that_waits_for_minutes_with_a_lost_copy_goes_on_from_the_log(world, lost):
    """Given a first look long after the table was opened, then the log decides, and nothing fails."""
    instance = world.process(**UNTRUSTED)
    table = instance.table("t")
    world.now += timedelta(minutes=3)

    assert [row["id"] for row in table.query().to_pylist()] == [*range(9), 41]


def test_the_copy_of_an_entry_that_is_gone_is_not_used(world):
    """Given a log that ends before its copy, then a reader has what the log has."""
    world.process(**UNTRUSTED).table("t").ingest([{"id": 40}])
    world.folder.delete([ENTRY.format(11)])

    assert ids(world.process(**UNTRUSTED)) == [*range(9)]


def test_the_copy_of_a_lost_table_is_not_used(world):
    """Given two writers that both created an entry of the index, then it has one of the tables."""
    world.process(**UNTRUSTED).create_table("mine", SCHEMA, row_keys=["id"])
    copy = world.objects.read(INDEX_COPY)
    world.objects.delete([INDEX_ENTRY.format(2), INDEX_COPY])
    world.process(**UNTRUSTED).create_table("theirs", SCHEMA, row_keys=["id"])
    world.objects.put(INDEX_COPY, copy)

    assert [each.name for each in world.process(**UNTRUSTED).tables()] == ["t", "theirs"]
    world.objects.put(INDEX_COPY, copy)
    with pytest.raises(TableNotFound):
        world.process(**UNTRUSTED).table("mine")
    world.process(**UNTRUSTED).table("theirs").rename("ours")
    assert [each.name for each in world.process(**UNTRUSTED).tables()] == ["ours", "t"]


def test_a_table_of_format_1_has_no_copy_where_a_store_is_not_trusted():
    """Given entries without digests, with which nothing can be compared, then the log is read."""
    world = World()
    made = world.process(**UNTRUSTED).create_table("t", SCHEMA, row_keys=["id"])
    world.folder = world.objects.under(made.table_id)
    made.downgrade()
    world.folder.delete([COPY])
    made.ingest([{"id": 3}])
    assert world.copy() is None

    world.process().table("t").ingest([{"id": 4}])
    assert world.copy() is not None
    world.forget()

    assert ids(world.process(**UNTRUSTED)) == [3, 4]
    assert "3.json" in names(world.told["read"])[4:]


def test_processes_that_open_from_a_copy_still_write_snapshots(world):
    """Given one commit a process, then a snapshot comes as often as by one process."""
    for number in range(9, 105):
        world.process().table("t").ingest([], job_id=f"{number}")

    found = [info.key for info in world.folder.listing("statestore/snapshots/")]

    assert len([key for key in found if key.endswith("files.parquet")]) == 1


def test_a_larger_state_is_copied_less_often(world, monkeypatch):
    """Given a state that costs more to copy, then several entries come before the next copy."""
    monkeypatch.setattr(newest_copy, "_SIZE_PER_ENTRY", 5)
    table, copies = world.process().table("t"), set()
    for number in range(20):
        table.ingest([], job_id=f"{number}")
        copies.add(json.loads(world.copy().partition(b"\n")[0])["number"])

    assert 4 <= len(copies) < 12
    assert ids(world.process()) == [*range(9)]


def test_of_a_very_large_state_the_copy_names_the_snapshot(world, monkeypatch):
    """Given a state that is too large to copy, then a reader loads the snapshot without a list."""
    monkeypatch.setattr(newest_copy, "_SIZE_MAX", 5)
    table = world.process().table("t")
    for number in range(100):
        table.ingest([], job_id=f"{number}")
    told = json.loads(world.copy().partition(b"\n")[0])
    world.forget()

    assert told["parts"] == {}
    assert told["number"] == told["snapshot"] > 90
    assert ids(world.process()) == [*range(9)]
    assert world.told["listed"] == []


def test_who_is_far_behind_looks_for_a_snapshot(world):
    """Given a copy of 140 entries ago, as versions without copies leave it, then a snapshot serves."""
    copy = world.copy()
    table = world.process().table("t")
    for number in range(140):
        table.ingest([], job_id=f"{number}")
    world.folder.put(COPY, copy)
    world.forget()

    assert ids(world.process()) == [*range(9)]
    assert "statestore/snapshots/" in world.told["listed"]


def test_a_query_sees_what_came_after_the_copy_was_read(world):
    """Given a handle that was opened before a commit, then its first query sees the commit."""
    opened = world.process().table("t")
    opened._known()

    world.process().table("t").ingest([{"id": 9}])

    assert len(opened.query().to_pylist()) == 10


def test_older_versions_are_read_as_before(world):
    """Given a table that was opened from a copy, then the log has every version."""
    table = world.process().table("t")

    assert [len(table.query(as_of=n).to_pylist()) for n in (1, 2, 10)] == [0, 1, 9]


def test_the_copy_goes_with_the_table(world):
    """Given a deleted table, then nothing of it is left."""
    world.process().delete_table("t")

    assert [info.key for info in world.folder.listing()] == []


def test_a_copy_that_cannot_be_read_does_not_fail_the_first_query(world, caplog):
    """Given a failure of the read that was begun, then the query reads by itself."""
    caplog.set_level(logging.INFO)
    inner, failures = world.objects._inner, [StorageFailed("no answer")]

    class Failing(Remote):
        def read(self, key):
            if key == COPY and failures:
                raise failures.pop()
            return super().read(key)

        def under(self, prefix):
            return Failing(self._inner.under(prefix), self._told)

    world.objects = Failing(inner, world.told)
    world.now += timedelta(hours=2)

    assert ids(world.process()) == [*range(9)]
    assert "the state of table t is read anew: no answer" in caplog.text


def findings(world):
    (found,) = world.process().verify().tables
    return sorted({str(each.kind) for each in found.findings})


def test_a_copy_that_differs_from_the_log_is_found(world):
    """
    Given no copy but the right one, then the copy of another table at the same transaction, and
    then one that cannot be read, then `verify` reports it, and what readers make of it.
    """
    clean = findings(world)
    other = World()
    other._ids = count(1000)
    world.folder.put(COPY, filled(other).copy())
    differing = findings(world)
    world.folder.put(COPY, b"garbled")

    assert clean == []
    assert {"snapshot", "state"} <= set(differing)
    assert findings(world) == ["snapshot"]
