"""A log on a store that lets two writers create one entry: whoever lost its entry is told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sleeper.errors import CommitOverwritten, StorageFailed, StorageReadOnly
from sleeper.storage.followed_log import NO_CHECKS, CheckedTransactionLog, CommitChecks, open_log
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.transaction_log import ObjectTransactionLog

PREFIX = "statestore/transactions/"
KEY = PREFIX + "{:020d}.json"


class SlowlyWritingObjects(MemoryObjects):
    """Objects that a rival writes too: right after a create, where `rival` holds a body."""

    def __init__(self):
        super().__init__(lambda: datetime(2026, 5, 4, tzinfo=UTC))
        self.rival = None
        self.keys_read = []

    def create(self, key, body):
        created = super().create(key, body)
        if self.rival is not None:
            self.put(key, self.rival)
            self.rival = None
        return created

    def read(self, key):
        self.keys_read.append(key)
        return super().read(key)


@pytest.fixture
def objects():
    return SlowlyWritingObjects()


@pytest.fixture
def log(objects):
    return open_log(objects, PREFIX, CommitChecks(read_back=True))


def test_an_entry_that_is_replaced_at_once_is_reported(objects, log):
    """The server said that it was created; the read after it finds another's."""
    objects.rival = b"theirs"

    with pytest.raises(CommitOverwritten, match=r"entry 1 of the log, was replaced") as told:
        log.append(1, b"ours")

    assert not told.value.retryable
    assert "same job ids" in str(told.value)


def test_an_entry_that_is_gone_is_reported(objects, log):
    """A store that acknowledges and does not keep is no better."""
    log.append(1, b"ours")
    objects.delete([KEY.format(1)])

    with pytest.raises(CommitOverwritten, match="is gone"):
        list(log.read_after(1))


@pytest.mark.parametrize("look", ["read", "append"])
def test_an_entry_that_is_replaced_later_is_reported_at_the_next_look(objects, log, look):
    """The rival was still on its way when the entry was read back. Whatever comes next finds it."""
    log.append(1, b"ours")
    objects.put(KEY.format(1), b"theirs")

    for _ in range(2):
        with pytest.raises(CommitOverwritten):
            _ = list(log.read_after(1)) if look == "read" else log.append(2, b"more")

    assert objects.read(KEY.format(2)) is None


def test_an_entry_of_others_that_is_replaced_after_it_was_read_is_reported(objects, log):
    """A state was built on it that nobody else has."""
    objects.put(KEY.format(1), b"first")
    seen = list(log.read_after(0))
    objects.put(KEY.format(1), b"second")

    with pytest.raises(CommitOverwritten):
        log.append(2, b"ours")

    assert seen == [(1, b"first")]


def test_an_entry_that_was_read_to_compare_a_copy_is_compared_before_an_append(objects, log):
    """A process that opened from a copy reads entry 4 by its number, and builds on it."""
    objects.put(KEY.format(4), b"first")
    seen = log.read(4)
    objects.put(KEY.format(4), b"second")

    looked = list(log.read_after(4))
    with pytest.raises(CommitOverwritten):
        log.append(5, b"ours")

    assert (seen, looked) == (b"first", [])
    assert objects.read(KEY.format(5)) is None


def test_entries_that_follow_one_that_was_read_are_read_again_as_ever(objects, log):
    """Given a process that opened from a copy of entry 4, then entry 5 is compared at the next look."""
    for number in (4, 5):
        objects.put(KEY.format(number), b"first")
    log.read(4)
    seen = list(log.read_after(4))
    objects.put(KEY.format(5), b"second")

    with pytest.raises(CommitOverwritten):
        list(log.read_after(5))
    assert seen == [(5, b"first")]


def test_the_last_entry_is_read_again_once(objects, log):
    """Looks where nothing is new cost one read, as ever."""
    log.append(1, b"ours")
    list(log.read_after(1))
    objects.keys_read.clear()

    list(log.read_after(1))

    assert objects.keys_read == [KEY.format(2)]


def test_a_lost_race_is_no_damage(objects, log):
    """The number was taken before: nothing of ours was acknowledged."""
    objects.put(KEY.format(1), b"theirs")

    assert log.append(1, b"ours") is False


def test_a_read_back_that_fails_is_an_append_without_an_answer(objects, log):
    """The caller finds out as it does after any lost reply."""

    def fail(key):
        raise StorageFailed(f"cannot read {key}")

    objects.read = fail
    with pytest.raises(StorageFailed):
        log.append(1, b"ours")
    del objects.read

    assert log.append(1, b"ours")


def test_a_store_that_is_refused_is_not_written_to(objects):
    """The check before a commit raises when it begins, so that its entry is not sent."""

    def refuse():
        raise StorageReadOnly("the server failed a check")

    log = open_log(objects, PREFIX, CommitChecks(before_commit=refuse))

    with pytest.raises(StorageReadOnly), log.writer_lock(lambda: None):
        log.append(1, b"ours")
    assert objects.read(KEY.format(1)) is None


def test_without_checks_nothing_is_read_back(objects):
    """A folder and Amazon's own servers are trusted: an append is one request."""
    plain = open_log(objects, PREFIX, NO_CHECKS)

    plain.append(1, b"ours")

    assert objects.keys_read == []
    assert isinstance(plain, ObjectTransactionLog)
    assert not isinstance(plain, CheckedTransactionLog)
