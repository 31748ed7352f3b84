"""Commits to DynamoDBStateStore of more items than one transaction writes.

They are several transactions behind one: a process that ends between any two leaves the state of
before, or that of after, for every reader, and the next writer puts the rest in order.
"""

from __future__ import annotations

from itertools import count

import pytest

from sleeper.errors import CommitTooLarge, DataDamaged, StorageFailed
from sleeper.model.partitions import tree_from_split_points
from sleeper.state.transactions.files import AddFiles, Claim, ClaimFiles, ClearFiles
from sleeper.state.transactions.partitions import InitialisePartitions
from sleeper.storage.aws.state import dynamo_revisions, staged_commit
from tests.contracts.servers.dynamo import dynamo_endpoint, new_id
from tests.contracts.servers.dynamo_answers import done_without_a_reply, refused
from tests.contracts.state.s3_revision_stores import Requests, add, names
from tests.contracts.state.test_dynamodb_items_trouble import WRITE, World, at, job
from tests.soak import some
from tests.unit.state.small_tables import SCHEMA, contents, ref

__all__ = ["dynamo_endpoint"]

TABLES = ("active-files", "file-ref-count", "partitions", "state-commits")
MANY = 160


class Killed(BaseException):
    """The process is no more."""


def fresh(world, *, refs=0):
    """Another table on the same server, of one leaf, and some files."""
    world.prefix = f"sleeper-{new_id()}-"
    store = world.new_store()
    for first in range(0, refs, 45):
        some_refs = [ref(f"old{n}") for n in range(first, min(first + 45, refs))]
        store.commit(AddFiles(references=tuple(some_refs)))
    return store


def reinitialisation(points):
    """What removes all files, and makes new partitions."""
    numbers = count()
    tree = tree_from_split_points(SCHEMA, points, new_id=lambda: f"new{next(numbers)}")
    return [ClearFiles(), InitialisePartitions(partitions=tuple(tree.partitions.values()))]


def import_of(leaves):
    """What adds a file to each leaf, as a job."""
    references = (ref(f"file-{n}", leaf) for n, leaf in enumerate(leaves))
    return AddFiles(references=tuple(references), job=job("import"))


def staged(world):
    """The items with changes of commits."""
    return [key for key in world.items("state-commits") if key.startswith("staged#")]


def plain(world):
    """Return all items of the table, as any other program sees them, but for the revision's."""
    return {
        (table, key): {name: value for name, value in item.items() if "Updat" not in name}
        for table in TABLES
        for key, item in world.items(table).items()
        if key != "revision"
    }


class KilledAt:
    """Ends a process before or after its nth write."""

    def __init__(self, number, moment):
        self.number, self.moment, self.writes = number, moment, 0

    def __call__(self, operation, number, request):
        self.writes += operation not in {"GetItem", "Query", "DescribeTable"}
        if self.writes != self.number:
            return
        if self.moment == "after":
            done_without_a_reply(request)
        raise Killed


@pytest.fixture
def world(dynamo_endpoint):
    return World(dynamo_endpoint)


class TestCommits:
    """What was refused before, or took a table without readers."""

    @pytest.mark.parametrize("files", [50, 161, 700])
    def test_files_of_any_number_are_one_commit(self, world, files):
        """Two changes for each file, and a job: above 49 files it is more than one transaction."""
        store = fresh(world)

        state = store.commit(import_of(["root"] * files))

        assert (state.number, len(state.references())) == (2, files)
        found = world.store().refresh()
        assert contents(found) == contents(state)
        assert [each for each, _ in found.jobs.records()] == ["import"]
        assert len(world.items("active-files")) == len(world.items("file-ref-count")) == files
        assert staged(world) == []
        assert "Staged" not in world.items("state-commits")["revision"]
        assert store.commit(add("next")).number == 3

    def test_files_are_removed_and_partitions_made_by_one_commit(self, world):
        """A reinitialisation of 160 references and 120 leaves, and an import over them all."""
        store = fresh(world, refs=MANY)
        before = store.state().number

        done = store.commit_group(reinitialisation(range(1, 120)), together=True)
        leaves = [each.partition_id for each in done.state.tree.leaves()]
        state = store.commit(import_of(leaves))

        assert done.refusals == (None, None)
        assert (done.state.number, state.number) == (before + 1, before + 2)
        assert len(leaves) == 120
        assert contents(world.store().refresh()) == contents(state)
        assert {key for key in world.items("file-ref-count") if key.startswith("old")} == set()
        assert staged(world) == []

    def test_it_costs_a_few_requests_more(self, world):
        """One with the changes, one that commits them, one for 99 of them, two to end it, two looks."""
        store = fresh(world)

        asked, _ = world.asked(lambda: store.commit(import_of(["root"] * 100)))

        assert asked == {"GetItem": 3, WRITE: 2 + 3 + 1, "BatchWriteItem": 1}

    def test_a_commit_that_nobody_can_read_is_refused(self, world, monkeypatch):
        """What every reader would hold in memory is bounded; the whole group is refused then."""
        monkeypatch.setattr(dynamo_revisions, "_COMMIT_BYTES_MAX", 50_000)
        store = fresh(world, refs=10)
        before = plain(world)

        with pytest.raises(CommitTooLarge, match=r"DynamoDBStateStore takes .* MB together"):
            store.commit(import_of(["root"] * 300))
        done = store.commit_group(reinitialisation(range(1, 400)), together=True)

        assert [type(each) for each in done.refusals] == [CommitTooLarge] * 2
        assert done.state.number == store.refresh().number == 2
        assert plain(world) == before

    def test_a_store_of_before_refuses_what_is_staged(self, world):
        """It reads formats below 100, and would see a part of the commit."""
        store = fresh(world)
        plain_format = store.state().format
        world.requests.meet = KilledAt(3, "before")
        with pytest.raises(Killed):
            store.commit(import_of(["root"] * 100))
        world.requests.meet = lambda *_: None

        assert world.items("state-commits")["revision"]["Format"] == {"N": str(100 + plain_format)}
        world.store().commit(add("next"))
        assert world.items("state-commits")["revision"]["Format"] == {"N": str(plain_format)}


COMMITS = {
    "import": (0, lambda store: store.commit(import_of(["root"] * MANY))),
    "reinitialise": (
        MANY,
        lambda store: store.commit_group(reinitialisation(range(1, 60)), together=True),
    ),
}


@pytest.mark.parametrize("what", COMMITS)
class TestDeaths:
    """A process that ends before or after any of its writes, and who comes next."""

    @pytest.fixture(autouse=True)
    def _small_pieces(self, monkeypatch):
        """Changes are in several items, stored by several transactions."""
        monkeypatch.setattr(staged_commit, "_PIECE_BYTES", 2_500)
        monkeypatch.setattr(staged_commit, "BYTES_MAX", 26_000)
        monkeypatch.setattr(dynamo_revisions, "BYTES_MAX", 26_000)

    @pytest.mark.soak
    def test_all_is_old_or_new_for_every_reader(self, world, what):
        """Before and after every write; the next writer leaves what an undisturbed one does."""
        refs, commit = COMMITS[what]
        before = contents(fresh(world, refs=refs).state())
        asked, _ = world.asked(lambda: commit(world.store()))
        after, items = contents(world.store().refresh()), plain(world)
        writes = sum(times for name, times in asked.items() if name not in {"GetItem", "Query"})
        assert writes >= 8
        seen = []
        for number in some(range(1, writes + 1), one_in=2):
            for moment in ("before", "after"):
                seen.append(self._killed(world, what, KilledAt(number, moment), before, after))
                assert plain(world).keys() == items.keys() | {
                    ("file-ref-count", "next"),
                    ("active-files", f"{self.leaf}|next"),
                }
        assert {*seen} == {"old", "new"}
        assert seen == sorted(seen, reverse=True)  # old until the one write that commits, then new

    def _killed(self, world, what, death, before, after):
        refs, commit = COMMITS[what]
        fresh(world, refs=refs)
        number = world.store().refresh().number
        dying = Requests(world.endpoint)
        store = world.store(dying)
        store.refresh()
        dying.meet = death
        with pytest.raises(Killed):
            commit(store)
        state = world.store().refresh()
        found = "new" if state.number > number else "old"
        assert contents(state) == (after if found == "new" else before)
        assert contents(world.store().refresh()) == contents(state)  # nothing was changed by a look

        successor = world.store()
        if found == "old":
            commit(successor)
        self.leaf = successor.refresh().tree.leaf_of((1,)).partition_id
        last = successor.commit(add("next", partition_id=self.leaf))
        assert last.number == number + 2
        assert contents(world.store().refresh()) == contents(last)
        assert staged(world) == []
        return found

    def test_a_write_that_fails_is_told_truly(self, world, what):
        """Storage refuses from some write on: nothing is done, or it is done and says so."""
        refs, commit = COMMITS[what]
        outcomes = set()
        for number in some(range(1, 9), one_in=2):
            fresh(world, refs=refs)
            requests = Requests(world.endpoint)
            store = world.store(requests)
            known = store.refresh().number
            writes = count(1)
            requests.meet = lambda operation, n, request, writes=writes, number=number: (
                refused(request, "AccessDeniedException")
                if operation in {WRITE, "UpdateItem", "BatchWriteItem"} and next(writes) >= number
                else None
            )
            try:
                commit(store)
            except StorageFailed:
                outcomes.add("refused")
                assert world.store().refresh().number == known
            else:
                outcomes.add("done")
                assert world.store().refresh().number == known + 1
        assert outcomes == {"refused", "done"}


class TestTogether:
    """Several processes at once."""

    def test_of_two_large_commits_one_follows_the_other(self, world):
        """Given one that is staged when another is committed, then it is made anew."""
        store = fresh(world)
        rival = world.store(Requests(world.endpoint))
        rival.refresh()
        world.requests.seen.clear()
        theirs = [f"theirs{n}" for n in range(120)]
        world.requests.meet = at(WRITE, 2, lambda request: rival.commit(add(*theirs)) and None)

        state = store.commit(import_of(["root"] * 130))

        assert state.number == 3
        assert len(state.references()) == 250
        assert contents(world.store().refresh()) == contents(state)
        assert staged(world) == []

    @pytest.mark.parametrize("write", [3, 4, 5, 6])
    def test_a_writer_that_was_slow_changes_nothing_any_more(self, world, write):
        """Given others that end its commit, and remove its files, before it goes on."""
        store = fresh(world)
        rival = world.store(Requests(world.endpoint))
        world.requests.seen.clear()

        def overtake(request):
            rival.commit(ClearFiles())
            rival.commit(add("after"))

        writes = count(1)
        world.requests.meet = lambda operation, n, request: (
            overtake(request)
            if operation in {WRITE, "UpdateItem"} and next(writes) == write
            else None
        )

        state = store.commit(import_of(["root"] * 140))

        assert (state.number, len(state.references())) == (2, 140)
        found = world.store().refresh()
        assert (found.number, names(found)) == (4, ["after"])
        assert [*world.items("active-files")] == ["root|after"]
        assert [*world.items("file-ref-count")] == ["after"]
        assert staged(world) == []

    def test_readers_see_one_state_at_every_moment(self, world):
        """Before each write of a commit, a new process reads what was, or all of it."""
        fresh(world, refs=MANY)
        requests = Requests(world.endpoint)
        store = world.store(requests)
        before = contents(store.refresh())
        seen = []

        def look(operation, number, request):
            if operation not in {"GetItem", "Query"}:
                seen.append(contents(world.store(Requests(world.endpoint)).refresh()))

        requests.meet = look
        done = store.commit_group(reinitialisation(range(1, 40)), together=True)

        after = contents(done.state)
        assert len(seen) >= 6
        turn = seen.index(after)
        assert seen == [before] * turn + [after] * (len(seen) - turn)
        assert turn == 2

    def test_a_commit_that_ends_while_it_is_read_is_read_again(self, world):
        """Given a reader that has seen the revision item, and then no changes any more."""
        store = fresh(world)
        world.requests.meet = KilledAt(3, "before")
        with pytest.raises(Killed):
            store.commit(import_of(["root"] * 120))
        world.requests.meet = lambda *_: None
        rival = world.store(Requests(world.endpoint))
        reader = Requests(world.endpoint)
        reader.meet = at("GetItem", 2, lambda request: rival.commit(add("next")) and None)

        state = world.store(reader).refresh()

        assert (state.number, len(state.references())) == (3, 121)
        assert contents(state) == contents(rival.state())

    def test_changes_that_somebody_has_deleted_are_named(self, world):
        """They are all that is known of the commit."""
        store = fresh(world)
        world.requests.meet = KilledAt(3, "before")
        with pytest.raises(Killed):
            store.commit(import_of(["root"] * 120))
        world.requests.meet = lambda *_: None
        [key] = staged(world)
        world.remove("state-commits", key)

        for act in (lambda: world.store().refresh(), lambda: world.store().commit(add("b"))):
            with pytest.raises(DataDamaged, match="the changes of its last commit, 1 items"):
                act()

    def test_what_a_killed_writer_has_staged_goes_with_the_second_commit_after_it(self, world):
        """Until a commit there, its writer may live and make it."""
        store = fresh(world)
        world.requests.meet = KilledAt(2, "before")
        with pytest.raises(Killed):
            store.commit(import_of(["root"] * 120))
        world.requests.meet = lambda *_: None
        successor = world.store()

        successor.commit(add("a"))
        left = staged(world)
        successor.commit(add("b"))

        assert len(left) == 1
        assert staged(world) == []
        assert names(world.store().refresh()) == ["a", "b"]

    def test_a_table_is_deleted_with_what_is_staged(self, world):
        """Of a commit that was not ended."""
        store = fresh(world)
        world.requests.meet = KilledAt(4, "after")
        with pytest.raises(Killed):
            store.commit(import_of(["root"] * 120))
        world.requests.meet = lambda *_: None

        world.store().delete()

        assert plain(world) == {}


def test_the_first_commit_of_a_table_may_be_large(world):
    """The tables of DynamoDB are made for it."""
    store = world.store(is_new=True)

    state = store.commit(reinitialisation(range(1, 150))[1])

    assert state.number == 1
    assert len([*world.store().refresh().tree.leaves()]) == 150
    assert staged(world) == []


def test_claims_of_many_files_are_one_commit(world):
    """Though what plans them keeps to what one transaction holds."""
    store = fresh(world, refs=MANY)
    everything = tuple(each.filename for each in store.state().references())

    state = store.commit(
        ClaimFiles(assignments=(Claim(job_id="c", partition_id="root", filenames=everything),))
    )

    assert {each.job_id for each in world.store().refresh().references()} == {"c"}
    assert world.store().commit(ClearFiles()).number == state.number + 1
