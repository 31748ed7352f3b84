"""The state store on a transaction log: what it looks at, keeps and saves."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from datetime import timedelta
from itertools import count, pairwise
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.errors import (
    DataDamaged,
    FileAlreadyExists,
    FormatTooNew,
    ObjectNotFound,
    StorageFailed,
    StorageFull,
    VersionNotFound,
)
from sleeper.model.authors import Author
from sleeper.model.partitions import tree_from_split_points
from sleeper.state import log_store
from sleeper.state.log_store import SnapshotRule, TransactionLogStateStore
from sleeper.state.transactions.files import AddFiles, ClearFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from tests.patience import PATIENCE_S
from tests.unit.state.small_tables import NOON, ROOT, SCHEMA, contents, ref

OFTEN = SnapshotRule(entries_min=3, changed_share=1000, entries_max=10)
NEVER = SnapshotRule(entries_min=10**9, entries_max=10**9)


class Log:
    """A log in a dictionary that counts what it is asked."""

    def __init__(self):
        self.entries, self.asked = {}, Counter()

    def append(self, number, body):
        self.asked["append"] += 1
        return self.entries.setdefault(number, body) == body

    def read(self, number):
        self.asked["read"] += 1
        return self.entries.get(number)

    def writer_lock(self, pause):
        return nullcontext()

    def read_after(self, number, *, up_to=None):
        self.asked["look"] += 1
        while number != up_to and number + 1 in self.entries:
            number += 1
            self.asked["entry"] += 1
            yield number, self.entries[number]


class Snapshots:
    """Snapshots in a dictionary; `failure` is raised by `save`."""

    keeps_newest = False

    def __init__(self):
        self.parts, self.failure, self.listings = {}, None, 0

    def save(self, number, parts):
        if self.failure:
            raise self.failure
        new = number not in self.parts
        self.parts.setdefault(number, dict(parts))
        return new

    def numbers(self):
        self.listings += 1
        return tuple(sorted(self.parts))

    def load(self, number, part):
        try:
            return self.parts[number][part]
        except KeyError:
            raise ObjectNotFound(f"snapshot {number} has no {part}") from None


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.time = NOON

    def __call__(self):
        return self.time


class Place:
    """One table's storage, and stores that are opened on it like processes."""

    def __init__(self):
        self.log, self.snapshots, self.clock, self.ids = Log(), Snapshots(), Clock(), count()

    def open(self, rule=NEVER, **options):
        return TransactionLogStateStore(
            self.log,
            self.snapshots,
            SCHEMA,
            now=self.clock,
            new_id=lambda: f"id-{next(self.ids)}",
            pause=lambda attempt: None,
            snapshot_rule=rule,
            **options,
        )

    def filled(self, files, rule=NEVER):
        """Open a store and commit: partitions, then file 2, file 3, ... as transactions 2, 3, ..."""
        store = self.open(rule)
        store.commit(InitialisePartitions(partitions=(ROOT,)))
        for number in range(2, files + 2):
            store.commit(add(number))
        return store


def add(number):
    return AddFiles(references=(ref(f"file-{number:03d}"),))


def filenames(state):
    return [each.filename for each in state.references()]


@pytest.fixture
def place():
    return Place()


def test_a_commit_of_very_many_partitions_is_followed_by_a_snapshot(place, monkeypatch):
    """Given a tree that is large, then who opens the table decodes no entry; others have none."""
    monkeypatch.setattr(log_store, "_NEW_PARTITIONS_MAX", 2)
    place.filled(1)
    assert not place.snapshots.parts

    other = Place()
    tree = tree_from_split_points(SCHEMA, [2, 3], new_id=lambda: f"part-{next(other.ids)}")
    made = InitialisePartitions(partitions=tuple(tree.partitions.values()))
    other.open().commit(made)
    other.open().commit(ClearFiles())

    assert [*other.snapshots.parts] == [1]
    assert other.open().state().partitions == made.tree


def test_a_change_is_not_validated_again_for_its_author():
    """A tree of very many leaves takes seconds to check."""
    made = InitialisePartitions(partitions=(ROOT,))

    signed = made.signed(Author(by="ann"))

    assert (signed.author, made.author) == (Author(by="ann"), None)
    assert signed == made
    assert signed.tree is made.tree


class TestReading:
    """What a store looks at, and when."""

    def test_an_empty_place_is_an_empty_table(self, place):
        """Before the first transaction there is nothing, and that is no error."""
        assert place.open().state().number == 0

    def test_a_store_looks_at_nothing_until_it_is_asked(self, place):
        """Opening costs nothing; idle means idle."""
        place.open()

        assert not place.log.asked
        assert place.snapshots.listings == 0

    def test_state_is_what_was_seen_last(self, place):
        """After the first time it asks storage for nothing."""
        reader = place.open()
        reader.state()
        place.filled(2)
        before = place.log.asked.copy()

        assert reader.state().number == 0
        assert place.log.asked == before

    def test_refresh_sees_every_commit(self, place):
        """Whoever made it."""
        reader = place.open()
        reader.state()
        place.filled(2)

        assert filenames(reader.refresh()) == ["file-002", "file-003"]
        assert reader.state().number == 3

    def test_nothing_new_costs_one_look(self, place):
        """And returns the very same state."""
        store = place.filled(2)
        before = store.refresh()
        place.log.asked.clear()

        assert store.refresh() is before
        assert place.log.asked == {"look": 1}

    def test_opening_reads_the_newest_snapshot_and_what_follows(self, place):
        """Entries that the snapshot covers are not read."""
        place.filled(6, OFTEN)
        place.open().commit(add(50))
        place.log.asked.clear()

        opened = place.open().state()

        assert max(place.snapshots.parts) == 6
        assert place.log.asked["entry"] == opened.number - 6
        assert len(filenames(opened)) == 7

    def test_own_commits_are_seen_at_once(self, place):
        """Without another look at the log."""
        store = place.filled(1)

        assert store.state().number == 2


class TestAt:
    """Every transaction number is a version."""

    def test_gives_the_state_after_any_transaction(self, place):
        """With snapshots in between or not."""
        store = place.filled(8, OFTEN)

        for number in range(1, 10):
            found = store.at(number)
            assert found.number == number
            assert len(filenames(found)) == number - 1

    def test_begins_before_the_first(self, place):
        """Version 0 is the empty table."""
        assert place.filled(1).at(0).partitions is None

    def test_sees_commits_of_others(self, place):
        """A version that is newer than what the store has seen."""
        reader = place.open()
        reader.state()
        place.filled(2)

        assert reader.at(2).number == 2

    @pytest.mark.parametrize("number", [-1, 4])
    def test_does_not_find_what_never_was(self, place, number):
        """The message says which is the newest."""
        with pytest.raises(VersionNotFound, match="the newest is 3"):
            place.filled(2).at(number)

    def test_does_not_find_what_is_kept_no_longer(self, place):
        """Old entries and snapshots may be deleted; later versions stay."""
        store = place.filled(8, OFTEN)
        oldest = min(place.snapshots.parts)
        for number in range(1, oldest + 1):
            del place.log.entries[number]

        with pytest.raises(VersionNotFound, match="no longer kept"):
            store.at(oldest - 1)
        assert store.at(oldest + 1).number == oldest + 1

    def test_the_held_version_costs_nothing(self, place):
        """A reader that is pinned to the newest does not look again."""
        store = place.filled(2)
        place.log.asked.clear()

        assert store.at(3) is store.state()
        assert not place.log.asked


class TestSnapshots:
    """When snapshots are written, and what becomes of bad ones."""

    def test_are_written_after_so_many_entries_when_much_has_changed(self, place):
        """A small table changes wholly in a few commits."""
        place.filled(6, SnapshotRule(entries_min=3, changed_share=1, entries_max=100))

        assert sorted(place.snapshots.parts) == [3]

    def test_wait_while_little_has_changed(self, place):
        """A commit must not pay for writing a table that it hardly touched."""
        store = place.filled(1)
        store.commit(AddFiles(references=tuple(ref(f"many-{n}") for n in range(1000))))
        store = place.open(SnapshotRule(entries_min=3, changed_share=20, entries_max=8))
        for number in range(10, 14):
            store.commit(add(number))

        assert sorted(place.snapshots.parts) == [4]
        for number in range(20, 29):
            store.commit(add(number))
        assert sorted(place.snapshots.parts) == [4, 12]

    def test_of_others_count_as_well(self, place):
        """Two committing stores do not write twice what one has written."""
        first, second = place.filled(1, OFTEN), place.open(OFTEN)
        for number in range(10, 30, 2):
            first.commit(add(number))
            second.commit(add(number + 1))

        gaps = [b - a for a, b in pairwise(sorted(place.snapshots.parts))]
        assert min(gaps) >= OFTEN.entries_min

    def test_that_fail_do_not_fail_the_commit(self, place):
        """The commit has happened. Why the snapshot failed can be asked, and it is tried again."""
        place.snapshots.failure = StorageFull("disk full")
        store = place.filled(4, OFTEN)

        assert store.state().number == 5
        assert isinstance(store.snapshot_failure, StorageFull)

        place.snapshots.failure = None
        for number in range(10, 13):
            store.commit(add(number))
        assert store.snapshot_failure is None
        assert len(place.snapshots.parts) == 1

    def test_that_are_damaged_are_passed_over(self, place):
        """For an older one, or for the whole log."""
        expected = contents(place.filled(8, OFTEN).state())
        damaged = sorted(place.snapshots.parts, reverse=True)
        assert len(damaged) == 3

        for number in damaged:
            place.snapshots.parts[number]["files.parquet"] = b"PAR1"
            assert contents(place.open().state()) == expected

    def test_that_vanish_while_they_are_read_are_passed_over(self, place):
        """Somebody deleted the snapshot between the listing and the load."""
        expected = contents(place.filled(8, OFTEN).state())
        del place.snapshots.parts[max(place.snapshots.parts)]["partitions.parquet"]

        assert contents(place.open().state()) == expected

    def test_of_a_newer_format_are_not_passed_over(self, place):
        """An old Sleeper must not write to a table of a newer one."""
        place.filled(4, OFTEN)
        newer = pa.BufferOutputStream()
        pq.write_table(pa.table({}).replace_schema_metadata({"sleeper.format": "3"}), newer)
        place.snapshots.parts[3]["jobs.parquet"] = newer.getvalue().to_pybytes()

        with pytest.raises(FormatTooNew):
            place.open().state()

    def test_that_are_written_while_the_log_is_read_are_looked_for(self, place, monkeypatch):
        """Given a purge that ends the versions before its snapshot, a new reader begins there."""
        expected = contents(place.filled(4).state())
        read_after = place.log.read_after

        def purged_meanwhile(number):
            monkeypatch.setattr(place.log, "read_after", read_after)
            place.open().write_snapshot()
            for old in place.log.entries:
                place.log.entries[old] = b""
            return read_after(number)

        monkeypatch.setattr(place.log, "read_after", purged_meanwhile)

        assert contents(place.open().state()) == expected

    def test_that_are_all_damaged_do_not_make_an_empty_table(self, place):
        """Their entries were deleted: better no answer than a wrong one."""
        place.filled(4, OFTEN)
        place.log.entries.clear()
        place.snapshots.parts[3]["files.parquet"] = b""

        with pytest.raises(DataDamaged, match=r"log ends at 0.* snapshot of transaction 3"):
            place.open().state()


class TestCatchingUp:
    """A store that comes back to a log which has moved on without it."""

    @pytest.fixture
    def left_behind(self, place):
        """A store at transaction 2; the log is at 9, with a snapshot of 6 and from 5 on."""
        reader = place.filled(1)
        writer = place.open(OFTEN)
        for number in range(3, 10):
            writer.commit(add(number))
        kept = max(place.snapshots.parts)
        for number in range(1, kept + 1):
            place.log.entries[number] = b""
        return reader

    def test_starts_again_from_a_snapshot_beyond_unreadable_entries(self, left_behind):
        """What a snapshot covers need not be readable any longer."""
        assert left_behind.refresh().number == 9

    def test_commits_from_there_as_well(self, left_behind):
        """The commit goes to the end of the log, not into its past."""
        assert left_behind.commit(add(10)).number == 10

    def test_does_not_pass_over_what_only_a_newer_sleeper_knows(self, place):
        """A snapshot beyond it holds less than the entry says, to a reader that is too old."""
        reader = place.filled(1)
        writer = place.open(OFTEN)
        for number in range(3, 10):
            writer.commit(add(number))
        place.log.entries[3] = place.log.entries[3].replace(b"ADD_FILES", b"MERGE_BRANCH")
        assert max(place.snapshots.parts) > 3

        with pytest.raises(FormatTooNew, match="MERGE_BRANCH"):
            reader.refresh()
        with pytest.raises(FormatTooNew, match="MERGE_BRANCH"):
            reader.commit(add(10))

    def test_says_so_when_no_snapshot_reaches_further(self, place):
        """Then the entry is needed, and its damage is told."""
        reader = place.filled(2)
        place.open().commit(add(10))
        place.log.entries[4] = b"{"

        with pytest.raises(DataDamaged, match="entry 4"):
            reader.refresh()
        with pytest.raises(DataDamaged, match="entry 4"):
            reader.commit(add(11))

    def test_does_not_take_deleted_entries_for_the_end_of_the_log(self, place):
        """A store that slept for long asks for snapshots before it trusts the log."""
        sleeper = place.filled(1)
        writer = place.open(OFTEN)
        for number in range(3, 10):
            writer.commit(add(number))
        for number in range(1, max(place.snapshots.parts) + 1):
            del place.log.entries[number]
        place.clock.time += timedelta(days=2)

        assert sleeper.commit(add(10)).number == 10
        assert len(filenames(place.open().state())) == 9


class TestThreads:
    """One store in many threads."""

    def test_readers_do_not_wait_for_a_commit(self, place):
        """While an append hangs, the state can be read and brought up to date."""
        store = place.filled(1)
        hanging, go_on = Event(), Event()
        append = place.log.append

        def slow_append(number, body):
            hanging.set()
            assert go_on.wait(PATIENCE_S)
            return append(number, body)

        place.log.append = slow_append
        committing = Thread(target=store.commit, args=(add(9),))
        committing.start()
        assert hanging.wait(PATIENCE_S)

        seen = [store.state().number, store.refresh().number, store.at(1).number]
        go_on.set()
        committing.join(PATIENCE_S)

        assert seen == [2, 2, 1]
        assert store.state().number == 3

    def test_a_slow_reader_does_not_take_the_state_back(self, place):
        """A refresh that began before a commit and ends after it leaves the newer state there."""
        store = place.filled(1)
        place.open().commit(add(7))
        reading, go_on = Event(), Event()
        read_after = place.log.read_after

        def slow_look(number):
            found = list(read_after(number))
            reading.set()
            assert go_on.wait(PATIENCE_S)
            return iter(found)

        place.log.read_after = slow_look
        refreshing = Thread(target=store.refresh)
        refreshing.start()
        assert reading.wait(PATIENCE_S)
        place.log.read_after = read_after
        store.commit(add(8))
        go_on.set()
        refreshing.join(PATIENCE_S)

        assert store.state().number == 4

    def test_commits_of_many_threads_all_happen(self, place):
        """One after the other, without a lost race among themselves."""
        store = place.filled(0)
        threads = [
            Thread(target=lambda start=start: [store.commit(add(start + n)) for n in range(20)])
            for start in (100, 200, 300, 400)
        ]

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)

        assert store.state().number == 81
        assert place.log.asked["append"] == 81
        assert len(filenames(place.open().state())) == 80


class TestRefusals:
    """What a store does when a commit fails."""

    def test_a_refused_commit_leaves_the_store_caught_up(self, place):
        """Who is refused sees why in the state, without another look."""
        store = place.open()
        store.state()
        place.filled(1)

        with pytest.raises(FileAlreadyExists):
            store.commit(add(2))
        assert store.state().number == 2

    def test_storage_that_fails_leaves_the_state_as_it_was(self, place):
        """The store can be used again as soon as storage can."""
        store = place.filled(1)
        read_after = place.log.read_after

        def fails(number):
            raise StorageFailed("no answer")

        place.log.read_after = fails
        with pytest.raises(StorageFailed):
            store.commit(add(3))
        with pytest.raises(StorageFailed):
            store.refresh()
        place.log.read_after = read_after

        assert store.commit(add(3)).number == 3
