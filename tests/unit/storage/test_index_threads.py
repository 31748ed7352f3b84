"""Many threads share one handle on the table index: a slow read of one keeps no other waiting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier, Event

import pytest

from sleeper.model.tables import TableRecord
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.table_index import object_table_index

TRADES = TableRecord("1", "trades")
QUOTES = TableRecord("2", "quotes")
WAIT_S = 20


class SlowObjects(MemoryObjects):
    """Objects that call a function around reads, and before creating."""

    def __init__(self):
        super().__init__(lambda: datetime(2026, 5, 4, tzinfo=UTC))
        self.before_read = self.after_read = self.before_create = lambda key: None

    def read(self, key):
        self.before_read(key)
        body = super().read(key)
        self.after_read(key)
        return body

    def create(self, key, body):
        self.before_create(key)
        return super().create(key, body)


@pytest.fixture
def objects():
    return SlowObjects()


@pytest.fixture
def index(objects):
    ids = iter("abcdefgh")
    index = object_table_index(objects, new_id=lambda: next(ids), pause=lambda attempt: None)
    index.add(TRADES)
    return index


def test_look_ups_read_storage_at_the_same_time(objects, index):
    """Eight threads are within a read of storage at once; a lock would let in one at a time."""
    all_inside = Barrier(8, timeout=WAIT_S)
    objects.before_read = lambda key: all_inside.wait()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: index.by_name("trades"), range(8)))

    assert found == [TRADES] * 8


def test_a_look_up_does_not_wait_for_a_change(objects, index):
    """A change hangs in its write, and look-ups of other threads are answered."""
    writing, answered = Event(), Event()

    def hang(key):
        writing.set()
        assert answered.wait(WAIT_S)

    objects.before_create = hang
    with ThreadPoolExecutor(1) as threads:
        change = threads.submit(index.add, QUOTES)
        assert writing.wait(WAIT_S)
        found = index.by_name("trades")
        answered.set()
        change.result()

    assert found == TRADES
    assert index.all() == (QUOTES, TRADES)


def test_a_reader_that_is_late_does_not_bring_back_old_records(objects, index):
    """It read before the change and ends after it: what is newer stays."""
    reading, changed = Event(), Event()

    def stay_behind(key):
        objects.after_read = lambda key: None
        reading.set()
        assert changed.wait(WAIT_S)

    objects.after_read = stay_behind
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(index.all)
        assert reading.wait(WAIT_S)
        index.add(QUOTES)
        changed.set()
        seen = late.result()

    assert seen == (QUOTES, TRADES)
    assert index._held.number == 2
