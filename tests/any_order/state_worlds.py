"""Kinds of storage for the state of one table, which many processes use and which fails on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from sleeper.state.log_store import SnapshotRule, TransactionLogStateStore
from sleeper.state.revision_store import RevisionStateStore
from sleeper.state.state_store import StateStore
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.transaction_log import ObjectTransactionLog
from tests.any_order.faults import Faults, FaultyObjects
from tests.unit.state.memory_revisions import MemoryRevisions
from tests.unit.state.small_tables import NOON, SCHEMA

OFTEN = SnapshotRule(entries_min=3, changed_share=10**6, entries_max=5)
NEVER = SnapshotRule(entries_min=10**9, entries_max=10**9)
IDS = count()


@dataclass
class Process:
    """A process with its store, its faults, and what another does before its next commit."""

    faults: Faults
    store: StateStore
    rivals: list[Callable[[], object]]


class LogWorld:
    """A log of objects in memory, with snapshots."""

    changes_max = None
    first_version = 0
    commit_call = "create statestore/transactions"

    def __init__(self):
        self.objects = MemoryObjects(lambda: NOON)

    def start(self, faults=None):
        """Start a process that writes snapshots often."""
        faults, rivals = faults or Faults(), []
        return Process(faults, self._open(_Contested(self.objects, faults, rivals), OFTEN), rivals)

    def look(self):
        """Return the state as a process sees it that trusts in the log alone."""
        return self._open(self.objects, NEVER).state()

    def check(self, expected, contents_of):
        """With snapshots or with the whole log from its first entry: the same state."""
        log = ObjectTransactionLog(self.objects)
        elsewhere = ObjectSnapshotStore(MemoryObjects(lambda: NOON))
        alone = self._store(log, elsewhere, NEVER).state()
        with_snapshots = self._open(self.objects, OFTEN).state()
        assert contents_of(with_snapshots) == contents_of(alone) == expected
        assert [number for number, _ in log.read_after(0)] == list(range(1, alone.number + 1))

    def _open(self, objects, rule):
        return self._store(ObjectTransactionLog(objects), ObjectSnapshotStore(objects), rule)

    @staticmethod
    def _store(log, snapshots, rule):
        return TransactionLogStateStore(
            log,
            snapshots,
            SCHEMA,
            now=lambda: NOON,
            new_id=lambda: f"id-{next(IDS)}",
            pause=lambda attempt: None,
            snapshot_rule=rule,
        )


class RevisionWorld:
    """Whole states in memory; a commit changes any number of references."""

    changes_max = None
    first_version = 1
    commit_call = "replace"

    def __init__(self):
        self.revisions = MemoryRevisions(self.changes_max)

    def start(self, faults=None):
        """Start a process."""
        faults, rivals = faults or Faults(), []
        return Process(faults, self._store(FaultyRevisions(self.revisions, faults, rivals)), rivals)

    def look(self):
        """Return the state as a new process sees it."""
        return self._store(self.revisions).state()

    def check(self, expected, contents_of):
        """A new process sees what is expected; every version is there, and has its own commit."""
        newest = self.revisions.newest
        assert contents_of(newest.state) == expected
        assert [*self.revisions.kept] == list(range(1, newest.state.number + 1))
        ids = newest.history.commit_ids
        assert len({*ids}) == len(ids) == min(newest.state.number, 32)
        looks = [looked for looked, _ in newest.history.looks]
        assert looks == sorted(looks)

    @staticmethod
    def _store(revisions):
        return RevisionStateStore(
            revisions,
            SCHEMA,
            storage_time=lambda: NOON,
            ticks_s=lambda: 0.0,
            new_id=lambda: f"id-{next(IDS)}",
            pause=lambda attempt: None,
        )


class SmallRevisionWorld(RevisionWorld):
    """Whole states in memory; a commit may remove and add four references together."""

    changes_max = 4


WORLDS = {"log": LogWorld, "revisions": RevisionWorld, "small revisions": SmallRevisionWorld}


class FaultyRevisions:
    """Revisions that fail on request, or are replaced by a rival first."""

    def __init__(self, inner, faults, rivals):
        self._inner, self._faults, self._rivals = inner, faults, rivals
        self.limit, self.fits = inner.limit, inner.fits

    def refresh(self, known):
        return self._faults.run("refresh", lambda: self._inner.refresh(known))

    def replace(self, before, after):
        while self._rivals:
            self._rivals.pop()()
        return self._faults.run("replace", lambda: self._inner.replace(before, after))

    def remember(self, known):
        self._faults.run("remember", lambda: self._inner.remember(known))

    def at(self, number):
        return self._faults.run("at", lambda: self._inner.at(number))

    def delete(self):
        self._faults.run("delete", self._inner.delete)


class _Contested(FaultyObjects):
    """Objects on which another process may be faster."""

    def __init__(self, inner, faults, rivals):
        super().__init__(inner, faults)
        self._rivals = rivals

    def create(self, key, body):
        while self._rivals and "transactions" in key:
            self._rivals.pop()()
        return super().create(key, body)
