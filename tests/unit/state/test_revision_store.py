"""The state store that replaces whole states: what it reads, keeps and commits."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from sleeper.errors import (
    BadRequest,
    CommitContended,
    CommitTooLarge,
    CommitUnknown,
    DataDamaged,
    FileAlreadyExists,
    StorageFailed,
    VersionNotFound,
)
from sleeper.state.revision_store import RevisionHistory, RevisionStateStore
from sleeper.state.state_store import SweepLimits
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from tests.unit.state.memory_revisions import MemoryRevisions
from tests.unit.state.small_tables import LATER, NOON, ROOT, SCHEMA, ref

IDS = count()


def open_store(revisions, *, now=NOON, attempts=10):
    return RevisionStateStore(
        revisions,
        SCHEMA,
        storage_time=(lambda: now) if not callable(now) else now,
        ticks_s=lambda: 0.0,
        new_id=lambda: f"commit-{next(IDS)}",
        pause=lambda attempt: None,
        attempts=attempts,
    )


def add(*names):
    return AddFiles(references=tuple(ref(name) for name in names))


def names(state):
    return [each.filename for each in state.references()]


@pytest.fixture
def revisions():
    return MemoryRevisions()


@pytest.fixture
def store(revisions):
    opened = open_store(revisions)
    opened.commit(InitialisePartitions(partitions=(ROOT,)))
    return opened


class TestCommits:
    """A commit replaces the revision that it was made from."""

    def test_each_commit_is_the_next_revision(self, store, revisions):
        """Another process sees it, with the schema and the date."""
        store.commit(add("a"))

        seen = open_store(revisions).refresh()
        assert (seen.number, names(seen), seen.at) == (2, ["a"], NOON + timedelta(milliseconds=1))
        assert seen.schemas == {1: SCHEMA}

    def test_a_commit_is_made_again_from_what_a_faster_writer_left(self, store, revisions):
        """Both are there, in their order."""
        revisions.rival = lambda: open_store(revisions).commit(add("rival"))

        state = store.commit(add("mine"))

        assert (state.number, names(state)) == (3, ["mine", "rival"])

    def test_a_writer_that_is_always_too_late_says_so(self, store, revisions):
        """Nothing of it was written."""
        hasty = open_store(revisions, attempts=1)
        hasty.state()
        revisions.rival = lambda: store.commit(add("rival"))

        with pytest.raises(CommitContended, match="Nothing was written"):
            hasty.commit(add("mine"))
        assert names(store.refresh()) == ["rival"]

    def test_a_lost_reply_is_found_out(self, store, revisions):
        """Given a commit without a reply, even if others follow, then it is there once."""
        revisions.lose_reply = True

        state = store.commit(add("mine"))

        assert names(state) == ["mine"]
        assert names(store.refresh()) == ["mine"]

    def test_a_request_that_is_repeated_beneath_is_known_as_the_own(self, store, revisions):
        """Given a client that repeats a replacement by itself, which is refused by the first."""
        answer = revisions.replace
        revisions.replace = lambda before, after: answer(before, after) and answer(before, after)

        state = store.commit(add("mine"))

        assert (state.number, names(state)) == (2, ["mine"])
        assert store.refresh().number == 2

    def test_a_lost_reply_after_which_too_many_others_commit_is_unknown(self, store, revisions):
        """Given a lost reply and 40 commits before the look at it, then nobody can tell any more."""
        answer = revisions.replace

        def stored_then_overtaken(before, after):
            answer(before, after)
            revisions.replace = answer
            rival = open_store(revisions)
            for number in range(40):
                rival.commit(add(f"rival-{number}"))
            raise StorageFailed("no reply")

        revisions.replace = stored_then_overtaken
        with pytest.raises(CommitUnknown, match="no longer known: there were 40 after it"):
            store.commit(add("mine"))

        assert len(names(store.refresh())) == 41
        assert len(names(store.commit(add("next")))) == 42

    def test_a_value_that_no_store_can_keep_is_refused(self, store, revisions):
        """Before anything is written, as by a store that writes entries."""
        with pytest.raises(BadRequest, match=r"a data file is named"):
            store.commit_group([add("good"), add("../outside")])

        assert revisions.newest.state.number == 1

    def test_storage_that_never_answers_leaves_it_unknown(self, store, revisions):
        """The writer must not take its files back."""
        answer = revisions.replace

        def stored_but_silent(before, after):
            answer(before, after)
            revisions.fail = True
            raise StorageFailed("no reply")

        revisions.replace = stored_but_silent
        with pytest.raises(CommitUnknown):
            store.commit(add("mine"))
        revisions.replace, revisions.fail = answer, False

        assert names(store.refresh()) == ["mine"]

    def test_a_refused_transaction_is_left_out(self, store):
        """The others of its group are committed in one revision."""
        store.commit(add("a"))

        done = store.commit_group([add("a"), add("b")])

        assert isinstance(done.refusals[0], FileAlreadyExists)
        assert done.refusals[1] is None
        assert (done.state.number, names(done.state)) == (3, ["a", "b"])

    def test_a_refused_transaction_keeps_those_out_that_belong_together(self, store):
        """None of its group is committed."""
        store.commit(add("a"))

        done = store.commit_group([add("b"), add("a")], together=True)

        assert [type(each) for each in done.refusals] == [type(None), FileAlreadyExists]
        assert (done.state.number, names(store.refresh())) == (2, ["a"])

    def test_what_changes_nothing_writes_nothing(self, store, revisions):
        """Nor does a group of which every transaction is refused."""
        store.commit(add("a"))
        revisions.asked.clear()

        store.commit_group([add("a")])

        assert revisions.asked == {"refresh": 1}

    def test_costs_one_read_and_one_write(self, store, revisions):
        """Without other writers."""
        revisions.asked.clear()

        store.commit(add("a"))

        assert revisions.asked == {"refresh": 1, "replace": 1}


class TestLimits:
    """A store that takes only so much at once."""

    @pytest.fixture
    def revisions(self):
        return MemoryRevisions(files_max=2)

    def test_a_transaction_that_never_fits_is_refused(self, store):
        """With the limit, and what to do."""
        with pytest.raises(CommitTooLarge, match=r"takes 2 references.*migrate-state"):
            store.commit(add("a", "b", "c"))
        assert names(store.refresh()) == []

    def test_a_group_becomes_several_revisions(self, store):
        """Each with as many as fit; those that never fit, and others, are refused in place."""
        group = [add("a"), add("b"), add("c", "d", "e"), add("a"), add("f"), add("g", "h")]

        done = store.commit_group(group)

        kinds = [type(each) for each in done.refusals]
        none = type(None)
        assert kinds == [none, none, CommitTooLarge, FileAlreadyExists, none, none]
        assert (done.state.number, names(done.state)) == (4, ["a", "b", "f", "g", "h"])

    @pytest.mark.parametrize("group", [[add("a"), add("b", "c")], [add("a", "b"), add("c")]])
    def test_a_group_that_belongs_together_is_refused_whole(self, store, group):
        """If one revision cannot hold it, though each of its transactions would fit alone."""
        done = store.commit_group(group, together=True)

        assert [type(each) for each in done.refusals] == [CommitTooLarge] * 2
        assert done.state.number == 1
        assert names(store.refresh()) == []
        assert store.commit_group([add("a"), add("b")], together=True).state.number == 2

    def test_a_failure_between_two_of_them_leaves_it_unknown(self, store, revisions):
        """Because some transactions are there."""
        answer, calls = revisions.refresh, count()

        def refresh(known):
            revisions.fail = next(calls) >= 1
            return answer(known)

        revisions.refresh = refresh
        with pytest.raises(CommitUnknown, match="some transactions of the group"):
            store.commit_group([add("a", "b"), add("c")])
        revisions.refresh, revisions.fail = answer, False

        assert names(store.refresh()) == ["a", "b"]


class TestReading:
    """Reads of the newest state and of older ones."""

    def test_nothing_new_costs_one_read(self, store, revisions):
        """The cached state costs none."""
        revisions.asked.clear()

        assert store.state() is store.refresh()
        assert revisions.asked == {"refresh": 1}

    def test_the_version_that_is_held_costs_no_read(self, store, revisions):
        """Whatever others have committed since."""
        held = store.state()
        open_store(revisions).commit(add("a"))
        revisions.asked.clear()

        assert store.at(held.number) is held
        assert not revisions.asked

    def test_older_states_are_read_while_they_are_kept(self, store, revisions):
        """And refused with the name of a store that keeps them."""
        store.commit(add("a"))
        store.commit(add("b"))

        assert names(store.at(2)) == ["a"]
        assert names(store.at(3)) == ["a", "b"]
        del revisions.kept[2]
        with pytest.raises(VersionNotFound, match="TransactionLogStateStore"):
            store.at(2)
        with pytest.raises(VersionNotFound, match="no transaction 9; the newest is 3"):
            store.at(9)

    def test_older_states_are_read_although_the_newest_is_damaged(self, store, revisions):
        """What is not kept is told with the damage."""
        store.commit(add("a"))

        def damaged(known):
            raise DataDamaged("a part of state 3 is missing")

        revisions.refresh = damaged

        assert names(store.at(2)) == ["a"]
        with pytest.raises(DataDamaged, match="state 3"):
            store.at(9)


class TestTimes:
    """When commits were stored, which may be later than their dates."""

    def test_a_commit_is_known_to_be_old_from_the_second_look_on(self, store):
        """Given the last commit, when it is looked at twice, then the first look proves its age."""
        clock = [NOON]
        watcher = open_store(store._revisions, now=lambda: clock[0])  # the same revisions
        date = watcher.refresh().at

        clock[0] = LATER
        assert watcher.dates_stored_before(LATER - timedelta(minutes=1)) <= date
        clock[0] = LATER + timedelta(hours=1)

        assert watcher.dates_stored_before(LATER + timedelta(minutes=1)) > date

    def test_a_following_commit_proves_the_age_of_the_one_before(self):
        """Its writer had read it when it looked at the clock."""
        history = RevisionHistory().followed_by("one", before=None, now=NOON)

        history = history.followed_by("two", before=NOON, now=LATER)

        assert history.dates_stored_before(LATER) == NOON + timedelta(microseconds=1)
        assert history.dates_stored_before(NOON).year == 1

    def test_a_sweep_knows_by_dates_what_was_replaced_before_a_time(self, store, revisions):
        """Given a time, then the revisions get the date before which commits were stored by it."""
        store.commit(add("a"))
        limits = SweepLimits(versions_min=3, kept_since=LATER, orphans_before=NOON)

        store.sweep(limits, delete=True)

        assert revisions.limits.kept_since == store.dates_stored_before(LATER) < LATER
        assert (revisions.limits.versions_min, revisions.limits.orphans_before) == (3, NOON)

    def test_old_looks_are_thinned_and_still_reach_back(self):
        """Given thousands of commits, then any age is known to within its own length."""
        history, date = RevisionHistory(), None
        for second in range(5_000):
            now = NOON + timedelta(seconds=second)
            history, date = history.followed_by(f"{second}", before=date, now=now), now

        assert len(history.looks) <= 32
        for age in (10, 100, 1_000, 4_000):
            time = NOON + timedelta(seconds=5_000 - age)
            known = history.dates_stored_before(time)
            assert timedelta(0) <= time - known <= timedelta(seconds=age)
        assert RevisionHistory.from_json(history.to_json()) == history

    def test_a_clock_that_is_set_back_leaves_looks_in_order(self):
        """Given more looks than are kept, at times that jump, then each proves something."""
        history, date = RevisionHistory(), NOON
        for number in range(200):
            date += timedelta(milliseconds=1)
            second = (number * 37) % 60  # back and forth, by one second among others
            history = history.looked_at(date, NOON + timedelta(seconds=second))
            history = history.looked_at(date, NOON + timedelta(seconds=second - 1))
            looks = [looked for looked, _ in history.looks]
            assert looks == sorted({*looks})
            assert history.dates_stored_before(LATER) == date + timedelta(microseconds=1)

    def test_a_look_at_a_wrong_clock_is_forgotten(self):
        """Given looks a year ahead, when the clock is set right, then newer looks count."""
        history = RevisionHistory()
        for second in range(40):
            ahead = NOON + timedelta(days=365, seconds=second)
            history = history.looked_at(NOON + timedelta(seconds=second), ahead)

        history = history.looked_at(NOON + timedelta(seconds=60), LATER)

        assert history.looks == ((LATER, NOON + timedelta(seconds=60)),)

    def test_only_the_last_commits_are_known_by_their_ids(self):
        """Which is enough for a writer that lost a reply."""
        history = RevisionHistory()
        for number in range(1, 101):
            history = history.followed_by(f"id-{number}", before=None, now=NOON)

        assert history.commit_id(100, newest=100) == "id-100"
        assert history.commit_id(90, newest=100) == "id-90"
        assert history.commit_id(101, newest=100) is None
        assert history.commit_id(10, newest=100) is None
