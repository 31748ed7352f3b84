"""A state that is moved from one state store to another: what each store does with it."""

from __future__ import annotations

from datetime import timedelta
from itertools import count, product

import pytest

from sleeper.errors import DataDamaged, StateMoved, TableChanged, VersionNotFound
from sleeper.model.tables import StateMove
from sleeper.state.log_store import TransactionLogStateStore
from sleeper.state.revision_store import RevisionStateStore
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.moves import MoveState
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.snapshots import ObjectSnapshotStore
from sleeper.storage.transaction_log import ObjectTransactionLog
from tests.unit.state.memory_revisions import MemoryRevisions
from tests.unit.state.small_tables import NOON, ROOT, SCHEMA, contents, ref

IDS = count()
MOMENT = timedelta(microseconds=1)


class LogPlace:
    """A log and snapshots in memory."""

    def __init__(self):
        self.objects = MemoryObjects(lambda: NOON)

    def open(self, here=None):
        return TransactionLogStateStore(
            ObjectTransactionLog(self.objects),
            ObjectSnapshotStore(self.objects),
            SCHEMA,
            now=lambda: NOON,
            new_id=lambda: f"id-{next(IDS)}",
            pause=lambda attempt: None,
            here=here,
        )


class RevisionPlace:
    """Revisions in memory."""

    def __init__(self):
        self.revisions = MemoryRevisions()

    def open(self, here=None):
        return RevisionStateStore(
            self.revisions,
            SCHEMA,
            storage_time=lambda: NOON,
            ticks_s=lambda: 0.0,
            new_id=lambda: f"id-{next(IDS)}",
            pause=lambda attempt: None,
            here=here,
        )


KINDS = (LogPlace, RevisionPlace)
PAIRS = list(product(KINDS, KINDS))


def add(*names):
    return AddFiles(references=tuple(ref(name) for name in names))


def names(state):
    return [each.filename for each in state.references()]


def filled(place):
    """A table at transaction 3 with two files."""
    store = place.open()
    store.commit(InitialisePartitions(partitions=(ROOT,)))
    store.commit(add("a"))
    store.commit(add("b"))
    return store


def move_to(old, place, token="5a"):
    """Copy the state to a place, say there that it moved, and seal the old store."""
    state = old.refresh()
    move = StateMove("Other", state.number + 1, token)
    new = place.open(move)
    new.begin_with(state)
    new.commit(MoveState(move=move))
    old.commit(MoveState(move=move))
    return move


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0].__name__}-to-{pair[1].__name__}")
def places(request):
    """The place of a table with two files, and an empty one."""
    return [kind() for kind in request.param]


class TestTheNewStore:
    """The store that the state was moved to."""

    def test_has_the_same_state_and_goes_on_with_its_numbers(self, places):
        """The move is transaction 4 in both stores, so the next one is 5."""
        old, new_place = filled(places[0]), places[1]

        move = move_to(old, new_place)

        moved = new_place.open(move).refresh()
        assert contents(moved) == contents(old.refresh())
        state = new_place.open(move).commit(add("c"))
        assert (state.number, names(state)) == (5, ["a", "b", "c"])
        assert names(new_place.open(move).refresh()) == ["a", "b", "c"]

    def test_refuses_versions_from_before_the_move(self, places):
        """And says why they are gone."""
        move = move_to(filled(places[0]), places[1])

        with pytest.raises(
            VersionNotFound, match=r"transaction 4 moved the table's state to Other"
        ):
            places[1].open(move).at(2)

    def test_without_the_move_itself_is_damaged(self, places):
        """Given a store that has the state, but not the transaction that brought it."""
        old, new_place = filled(places[0]), places[1]
        move = StateMove("Other", 4, "5a")
        new_place.open(move).begin_with(old.refresh())

        with pytest.raises(DataDamaged, match="holds transaction 3"):
            new_place.open(move).commit(add("c"))

    def test_can_be_left_again(self, places):
        """A state that is moved twice is in the third store, and only there."""
        first_move = move_to(filled(places[0]), places[1])
        second = places[1].open(first_move)
        second.commit(add("c"))
        third_place = type(places[0])()

        second_move = move_to(second, third_place, token="6b")

        assert names(third_place.open(second_move).commit(add("d"))) == ["a", "b", "c", "d"]
        with pytest.raises(StateMoved):
            second.commit(add("e"))


class TestTheOldStore:
    """The store that the state was moved from: it is sealed."""

    def test_refuses_every_commit_and_says_where_the_state_is(self, places):
        """Also by a writer that had it open before, and one that opens it anew."""
        old = filled(places[0])
        other = places[0].open()
        other.state()

        move_to(old, places[1])

        for store in (old, other, places[0].open()):
            with pytest.raises(StateMoved, match="moved to Other by transaction 4"):
                store.commit(add("c"))
            assert names(store.refresh()) == ["a", "b"]

    def test_is_not_sealed_after_others_have_committed(self, places):
        """The copy lacks what they have committed, so the move is refused."""
        old = filled(places[0])
        move = StateMove("Other", 4, "5a")
        places[0].open().commit(add("c"))

        with pytest.raises(TableChanged, match="others have committed"):
            old.commit(MoveState(move=move))
        assert names(places[0].open().commit(add("d"))) == ["a", "b", "c", "d"]

    def test_refuses_a_second_move(self, places):
        """Given two migrations at once, the first that seals the store decides."""
        old = filled(places[0])
        move_to(old, places[1])
        late = StateMove("Other", 5, "6b")

        with pytest.raises(StateMoved):
            old.commit(MoveState(move=late))


class TestTheLog:
    """A log that begins with a move."""

    @pytest.fixture
    def place(self):
        return LogPlace()

    def test_refuses_to_be_read_from_before_the_move(self, place):
        """A reader that stands at 2 would take the gap for the end of the log."""
        move = move_to(filled(LogPlace()), place)
        log = place.open(move).log

        with pytest.raises(VersionNotFound, match="left earlier versions behind"):
            list(log.read_after(2))
        assert [number for number, _ in log.read_after(3)] == [4]
        assert (log.read(3), log.stored_at(3)) == (None, None)

    def test_without_its_first_snapshot_is_damaged(self, place):
        """It must not look like an empty table, nor begin again with entry 1."""
        move = move_to(filled(LogPlace()), place)
        place.objects.delete([info.key for info in place.objects.listing("statestore/snapshots/")])

        with pytest.raises(DataDamaged, match="Restore snapshot 3 of move 4-5a"):
            place.open(move).refresh()

    def test_knows_when_the_move_was_stored(self, place):
        """So garbage can be collected before there is another commit."""
        move = move_to(filled(LogPlace()), place)
        store = place.open(move)

        assert store.dates_stored_before(NOON + timedelta(hours=1)) == store.state().at + MOMENT
