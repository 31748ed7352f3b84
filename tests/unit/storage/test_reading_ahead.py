"""Entries of a log in a remote storage are read several at once, and yielded in order."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sleeper.storage.memory import MemoryObjects
from sleeper.storage.transaction_log import ObjectTransactionLog


class Remote(MemoryObjects):
    """Objects whose reads are recorded in groups: those that are sent at once."""

    def __init__(self):
        super().__init__(now=lambda: datetime(2026, 5, 4, tzinfo=UTC))
        self.groups, self.before_read = [], {}
        self._begun = []

    @property
    def is_remote(self):
        return True

    def beside(self, work):
        self._begun.append(work)

        def answer():
            if work in self._begun:
                self.groups.append(len(self._begun))
                self._begun = []
            return work()

        return answer

    def read(self, key):
        self.before_read.pop(key, lambda: None)()
        return super().read(key)


@pytest.fixture
def objects():
    return Remote()


@pytest.fixture
def log(objects):
    return ObjectTransactionLog(objects)


def append(log, *numbers):
    for number in numbers:
        log.objects.create(log.key(number), b"%d" % number)


def test_entries_up_to_one_that_is_there_are_sent_for_at_once(log):
    """Given that the last 50 of 100 are wanted, then no request is for another one."""
    append(log, *range(1, 101))

    assert [number for number, _ in log.read_after(50, up_to=100)] == [*range(51, 101)]

    assert log.objects.groups == [32, 18]


@pytest.mark.parametrize("entries", [0, 1, 2, 3, 10, 100])
def test_all_entries_are_read_in_order(log, entries):
    """Given so many entries, then all come, each once and with its number."""
    append(log, *range(1, entries + 1))

    assert [*log.read_after(0)] == [(n, b"%d" % n) for n in range(1, entries + 1)]


def test_a_log_without_new_entries_costs_one_read(log, objects):
    """Given no new entry, then one is read."""
    append(log, 1, 2, 3)

    assert [*log.read_after(3)] == []
    assert objects.groups == [1]


def test_a_long_log_takes_few_round_trips(log, objects):
    """Given 39 entries, then they are read in six groups, twice as many each time."""
    append(log, *range(1, 40))

    assert len([*log.read_after(0)]) == 39
    assert objects.groups == [1, 2, 4, 8, 16, 32]


def test_an_entry_that_came_meanwhile_does_not_make_a_gap(log, objects):
    """Given entries 2 and 3, created after 2 was read and before 3 was, then both are yielded."""
    append(log, 1)
    objects.before_read[log.key(3)] = lambda: append(log, 2, 3)

    assert [number for number, _ in log.read_after(0)] == [1, 2, 3]


def test_nothing_is_yielded_after_a_gap(log):
    """Given a log whose entry 3 is missing, then it ends at 2, as if it were read one by one."""
    append(log, 1, 2, 4, 5)

    assert [number for number, _ in log.read_after(0)] == [1, 2]
