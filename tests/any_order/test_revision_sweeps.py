"""Writers, readers and sweeps of one state in S3, each of which interrupts the others at any call.

A seed decides at which calls of a process another one does something whole, or the process dies, and
which replies get lost.
Sweeps delete what they may at any age: that a slow writer never commits what was swept must not
depend on clocks.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from sleeper.errors import (
    CommitContended,
    CommitRefused,
    CommitUnknown,
    StorageFailed,
    VersionNotFound,
)
from sleeper.state.revision_store import RevisionStateStore
from sleeper.state.state_store import SweepLimits
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.storage.aws.state import s3_revisions
from sleeper.storage.aws.state.revision_items import FOLDERS, is_kept, stored_revision
from sleeper.storage.aws.state.s3_revisions import S3StateRevisions
from sleeper.storage.memory import MemoryObjects
from tests.soak import FIRST_SEED, tries
from tests.unit.state.small_tables import ROOT, SCHEMA, contents, ref, split

STEPS = 30
INTERRUPTED, DIES, LOST = 0.25, 0.02, 0.1
DEPTH_MAX = 3


class Died(BaseException):
    """The process is gone."""


class Tables:
    """What the adapter uses of DynamoDB, in memory: one table. Replies to transactions get lost."""

    def __init__(self, chance):
        self.items, self.done, self.chance = {}, set(), chance

    def name(self, table):
        return table.name

    def make(self, *tables):
        pass

    def get(self, table, key):
        found = self.items.get(_key(key))
        return None if found is None else dict(found)

    def query(self, table, condition, values):
        return iter([dict(self.items[key]) for key in sorted(self.items)])

    def update(self, table, key, expression, values, *, condition):
        item = self.items.get(_key(key))
        if item is not None and item["CURRENT_UUID"] == values[":commit"]:
            self.items[_key(key)] = item | {"HISTORY": values[":history"]}

    def delete(self, table, keys):
        return sum(self.items.pop(_key(key), None) is not None for key in keys)

    def write_all(self, parts, token):
        current, kept = parts
        done = self._write(current["Put"], kept["Put"], token)
        if self.chance() < LOST:
            raise StorageFailed("no reply")
        if self.chance() < LOST:  # no reply, and it is sent again
            if self.chance() < LOST * 5:
                self.done.clear()  # after ten minutes
            done = self._write(current["Put"], kept["Put"], token)
        return [] if done else [0]

    def _write(self, current, kept, token):
        if token in self.done:
            return True
        found = self.items.get(_key(current["Item"]))
        wanted = current.get("ExpressionAttributeValues", {}).get(":replaced")
        if wanted != (None if found is None else found["CURRENT_UUID"]):
            return False
        for put in (current, kept):
            self.items[_key(put["Item"])] = put["Item"]
        self.done.add(token)
        return True


def _key(item):
    return item["REVISION_ID_KEY"]["S"]


class Watched:
    """Something whose calls a process makes: before and after each, others may do something."""

    def __init__(self, inner, moment):
        self._inner, self._moment = inner, moment

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name == "name":
            return found

        def call(*arguments, **options):
            self._moment()
            result = found(*arguments, **options)
            if name in ("query", "listing"):
                result = iter([*result])
            self._moment()
            return result

        return call


class World:
    """One table, and processes by their numbers; those that are at work are not interrupted."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.time = datetime(2026, 5, 4, 12, tzinfo=UTC)
        self.tables = Tables(self.random.random)
        self.objects = MemoryObjects(lambda: self.time)
        self.ids = count()
        self.depth = 0
        self.acknowledged, self.states, self.ends = set(), {}, Counter()
        self.idle = []
        store = self.start(first=True)
        store.commit(InitialisePartitions(partitions=(ROOT,)))
        self.idle = [store, self.start(), self.start()]

    def start(self, *, first=False):
        moment = (lambda: None) if first else self.moment
        revisions = S3StateRevisions(
            Watched(self.tables, moment),
            "t",
            Watched(self.objects, moment),
            SCHEMA,
            is_new=first,
        )
        return RevisionStateStore(
            revisions,
            SCHEMA,
            storage_time=lambda: self.time,
            ticks_s=lambda: 0.0,
            new_id=lambda: f"id-{next(self.ids)}",
            pause=lambda attempt: None,
            attempts=6,
        )

    def moment(self):
        """Something happens here, or nothing."""
        if self.depth < DEPTH_MAX and self.random.random() < INTERRUPTED:
            self.step()
        if self.random.random() < DIES:
            raise Died

    def step(self):
        """Let one of the idle processes do something."""
        if not self.idle:
            return
        store = self.idle.pop(self.random.randrange(len(self.idle)))
        do = self.random.choice(
            [self.add, self.add, self.split, self.sweep, self.sweep, self.look, self.look_back]
        )
        self.depth += 1
        try:
            do(store)
            self.ends[do.__name__] += 1
        except (CommitContended, CommitUnknown) as error:
            self.ends[type(error).__name__] += 1
        except Died:
            self.ends["died"] += 1
            store = self.start()
        finally:
            self.depth -= 1
        self.idle.append(store)
        self.time += timedelta(seconds=self.random.choice([0, 0, 1, 3_600, 10_000_000]))

    def add(self, store):
        name = f"file-{next(self.ids)}"
        store.refresh()
        leaf = self.random.choice(store.state().leaf_partitions()).partition_id
        with suppress(CommitRefused):
            store.commit(AddFiles(references=(ref(name, leaf),)))
            self.acknowledged.add(name)

    def split(self, store):
        leaves = store.refresh().leaf_partitions()
        if len(leaves) < 3:
            number = next(self.ids)
            with suppress(CommitRefused):
                store.commit(split(leaves[-1], 1_000 * number, f"L{number}", f"R{number}"))

    def sweep(self, store):
        kept = timedelta(seconds=self.random.choice([0, 10, 10_000]))
        limits = SweepLimits(
            versions_min=self.random.choice([1, 2, 5]),
            kept_since=self.time - kept,
            orphans_before=self.time + timedelta(days=10_000),
        )
        self.ends["swept"] += len(store.sweep(limits, delete=True).objects)

    def look(self, store):
        self.note(store.refresh())

    def look_back(self, store):
        newest = store.refresh().number
        with suppress(VersionNotFound):
            self.note(store.at(self.random.randint(1, newest)))

    def note(self, state):
        """Every process sees the same state under one number."""
        seen = self.states.setdefault(state.number, contents(state))
        assert contents(state) == seen

    def check(self):
        """Whoever has died: the newest and every kept revision are whole, nothing is lost."""
        reader = self.start(first=True)
        newest = reader.refresh()
        self.note(newest)
        assert self.acknowledged <= {each.filename for each in newest.references()}
        for item in list(self.tables.items.values()):
            stored = stored_revision(item)
            found = reader._revisions.at(stored.number) if is_kept(item) else newest
            self.note(found)
        named = {
            part
            for item in self.tables.items.values()
            for part in stored_revision(item).parts.values()
        }
        listed = {info.key for folder in FOLDERS for info in self.objects.listing(folder)}
        assert named <= listed


@pytest.mark.soak
def test_nothing_that_is_named_is_ever_swept(monkeypatch):
    """Given any order of commits, deaths and sweeps, then every state that is kept is whole."""
    monkeypatch.setattr(s3_revisions, "_at_once", lambda do, pieces: [do(each) for each in pieces])
    ends = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + tries(8, soak=4_000)):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
            world.check()
        except BaseException as error:
            error.add_note(f"in the world of seed {seed}")
            raise
        ends += world.ends

    assert {"add", "split", "sweep", "look", "look_back", "died", "swept"} <= {*ends}
