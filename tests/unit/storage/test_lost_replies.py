"""A storage that loses requests and replies: what was done is known, or said to be unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

import pytest

from sleeper.errors import (
    CommitContended,
    CommitUnknown,
    InstanceGone,
    StorageFailed,
    StorageFull,
    StorageReadOnly,
)
from sleeper.model.tables import TableRecord
from sleeper.state.table_index import ATTEMPTS
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.table_index import object_table_index
from sleeper.storage.transaction_log import ObjectTransactionLog

TRADES = TableRecord("1", "trades")
QUOTES = TableRecord("2", "quotes")


def no_pause(attempt):
    """Go on at once."""


class UnreliableObjects(MemoryObjects):
    """Objects whose next calls meet the troubles in `creates` and `reads`, then none.

    A trouble of `create` is one of: "request lost" (nothing happens, no answer), "reply lost"
    (it is stored, no answer), "repeated" (the client repeats it by itself after a lost reply, so
    it is stored and the answer is that it is taken), "full", or a rival's call to make first.
    """

    def __init__(self):
        super().__init__(lambda: datetime(2026, 5, 4, tzinfo=UTC))
        self.creates = []
        self.reads = []

    def create(self, key, body):
        trouble = self.creates.pop(0) if self.creates else None
        if trouble == "request lost":
            raise StorageFailed(f"no answer about {key}")
        if trouble == "full":
            raise StorageFull(f"no space for {key}")
        if callable(trouble):
            trouble(key)
        created = super().create(key, body)
        if trouble == "reply lost":
            raise StorageFailed(f"no answer about {key}")
        return created and trouble != "repeated"

    def read(self, key):
        if self.reads and self.reads.pop(0) == "lost":
            raise StorageFailed(f"cannot read {key}")
        return super().read(key)


@pytest.fixture
def objects():
    return UnreliableObjects()


@pytest.fixture
def index(objects):
    numbers = count()
    opened = object_table_index(objects, new_id=lambda: f"id-{next(numbers)}", pause=no_pause)
    assert opened.all() == ()
    return opened


def reopened(objects):
    """Return what somebody else sees, who opens the index now."""
    return object_table_index(objects, new_id=lambda: "other", pause=no_pause).all()


class TestTransactionLog:
    """Appending to a log of objects."""

    def test_an_own_entry_that_is_told_taken_counts_as_appended(self, objects):
        """A client that repeats a request by itself is refused by its own first attempt."""
        objects.creates = ["repeated"]

        appended = ObjectTransactionLog(objects).append(1, b"mine")

        assert appended

    def test_an_append_without_an_answer_can_be_repeated(self, objects):
        """Whether the request or the reply was lost, the same append again settles it."""
        log = ObjectTransactionLog(objects)
        objects.creates = ["reply lost", None, "request lost", None]

        for number in (1, 2):
            with pytest.raises(StorageFailed):
                log.append(number, b"mine")
            assert log.append(number, b"mine")

        assert list(log.read_after(0)) == [(1, b"mine"), (2, b"mine")]

    def test_what_was_not_answered_or_taken_is_logged(self, objects, caplog):
        """Retries stand in the log, with the entry."""
        caplog.set_level("INFO")
        log = ObjectTransactionLog(objects)
        objects.creates = ["request lost"]

        with pytest.raises(StorageFailed):
            log.append(1, b"mine")
        log.append(1, b"theirs")
        log.append(1, b"mine")

        lost, taken = [record.getMessage() for record in caplog.records]
        assert lost.startswith(f"it is unknown whether {log.key(1)} was appended")
        assert taken.startswith(f"{log.key(1)} was taken by another writer")

    @pytest.mark.parametrize("refusal", [StorageFull, StorageReadOnly, InstanceGone])
    def test_what_was_refused_is_not_said_to_be_unknown(self, objects, caplog, refusal):
        """A full disk took nothing. Whoever appends gets the error, and the log has no line."""
        log = ObjectTransactionLog(objects)

        def refuse(key, body):
            raise refusal(f"{key} was not written")

        objects.create = refuse
        with pytest.raises(refusal):
            log.append(1, b"mine")

        assert caplog.records == []

    def test_the_line_of_a_lost_reply_is_short(self, objects, caplog):
        """The error has all that is known, and what to do; the log has what happened."""
        log = ObjectTransactionLog(objects)

        def lose(key, body):
            raise StorageFailed(f"cannot write {key}: {'debug output ' * 90}. Check the server.")

        objects.create = lose
        with pytest.raises(StorageFailed, match="Check the server"):
            log.append(1, b"mine")

        (line,) = [record.getMessage() for record in caplog.records]
        assert len(line) < 300


class TestSnapshotStore:
    """Saving snapshots as objects."""

    def test_a_snapshot_without_its_last_part_does_not_count(self, objects, caplog):
        """A writer that dies half-way leaves nothing to be loaded; the next one completes it."""
        snapshots = ObjectSnapshotStore(objects)
        objects.creates = [None, "request lost"]
        parts = {"partitions.parquet": b"p", "files.parquet": b"f"}

        with pytest.raises(StorageFailed):
            snapshots.save(3, parts)
        half_way = snapshots.numbers()
        saved = snapshots.save(3, parts)

        assert (half_way, saved, snapshots.numbers()) == ((), True, (3,))
        assert "snapshot 3 was not saved" in caplog.text

    def test_the_part_that_makes_a_snapshot_count_comes_last(self, objects):
        """Any other order would let half a snapshot be loaded."""
        with pytest.raises(ValueError, match="last part"):
            ObjectSnapshotStore(objects).save(3, {"files.parquet": b"", "partitions.parquet": b""})

    def test_other_objects_among_the_snapshots_are_left_alone(self, objects):
        """A name that is no snapshot's is not taken for one."""
        for name in ("notes.txt", "7-files.parquet", f"{7:020d}-files.parquet.bak"):
            objects.put(f"statestore/snapshots/{name}", b"")

        assert ObjectSnapshotStore(objects).numbers() == ()


class TestTableIndex:
    """Changing the table index."""

    @pytest.mark.parametrize(
        "creates",
        [
            ["reply lost"],
            ["request lost"],
            ["repeated"],
            ["request lost", "repeated"],
            ["request lost", "reply lost"],
            ["request lost", "request lost", "reply lost"],
        ],
        ids="-then-".join,
    )
    def test_a_change_happens_once_whatever_is_lost(self, objects, index, creates):
        """A lost request is sent again; a change that did arrive is recognised."""
        objects.creates = creates

        index.add(TRADES)
        index.add(QUOTES)

        assert index.all() == reopened(objects) == (QUOTES, TRADES)

    def test_a_lost_race_behind_a_lost_request_is_run_again(self, objects, index):
        """When the number turns out to be another's, the change moves on to the next one."""
        rival = object_table_index(objects, new_id=lambda: "rival's", pause=no_pause)
        log = ObjectTransactionLog(objects, "tables/index/")

        def rival_adds_then_request_is_lost(key):
            rival.add(QUOTES)
            raise StorageFailed(f"no answer about {key}")

        objects.creates = [rival_adds_then_request_is_lost]
        index.add(TRADES)

        assert reopened(objects) == (QUOTES, TRADES)
        assert len(list(log.read_after(0))) == 2

    @pytest.mark.parametrize(
        ("creates", "reads", "added"),
        [
            (["reply lost"], ["catching up", *["lost"] * 5], (TRADES,)),
            (["request lost"] * 3, ["catching up", *["lost"] * 3], ()),
            (["repeated"], ["catching up", *["lost"] * 6], (TRADES,)),
            (["request lost"] * 3, [], ()),
        ],
    )
    def test_what_nobody_can_know_is_called_unknown(self, objects, index, creates, reads, added):
        """The error names the entry to look for, and the index goes on from the truth."""
        objects.creates, objects.reads = [*creates], [*reads]

        with pytest.raises(CommitUnknown, match=r"tables/index/0{19}1\.json"):
            index.add(TRADES)

        assert index.all() == reopened(objects) == added

    def test_a_full_storage_is_told_as_it_is(self, objects, index):
        """It says that nothing was stored, so there is nothing unknown about it."""
        objects.creates = ["full"]

        with pytest.raises(StorageFull):
            index.add(TRADES)

        assert index.all() == ()

    def test_a_change_that_always_loses_the_race_gives_up(self, objects, index):
        """After as many attempts as there are, it says so, and that nothing was changed."""
        rival = ObjectTransactionLog(objects, "tables/index/")
        entry = b'{"entryId":"r","format":1,"change":{"type":"remove","tableId":"none"}}'
        objects.creates = [lambda key: objects.put(key, entry)] * ATTEMPTS

        with pytest.raises(CommitContended, match=f"{ATTEMPTS} attempts.*Nothing was written"):
            index.add(TRADES)

        assert index.all() == ()
        assert len(list(rival.read_after(0))) == ATTEMPTS
        index.add(TRADES)
        assert index.all() == (TRADES,)
