"""A state in Parquet objects with a revision item in DynamoDB: what it costs, keeps and sweeps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from sleeper.errors import DataDamaged, ObjectNotFound, VersionNotFound
from sleeper.model.files import ClaimOwner
from sleeper.state.state_store import SweepLimits
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import Claim, ClaimFiles, RenewClaims, SweepOrphans
from sleeper.storage.aws.state.revision_items import CURRENT, REVISIONS, number_in, revision_key
from tests.contracts.servers.dynamo import dynamo_endpoint, new_id
from tests.contracts.state.s3_revision_stores import World, add, names
from tests.unit.state.small_tables import ROOT, contents, split

__all__ = ["dynamo_endpoint"]

HOUR = timedelta(hours=1)


@pytest.fixture
def world(dynamo_endpoint):
    return World(dynamo_endpoint)


@pytest.fixture
def store(world):
    return world.new_store()


def item(world, key=CURRENT):
    found = world.requests.client.get_item(
        TableName=f"{world.prefix}table-revisions", Key=revision_key(world.table_id, key)
    )
    return found.get("Item")


def limits(world, *, versions_min=1, kept=timedelta(0), orphans=timedelta(0)):
    now = world.clock()
    return SweepLimits(
        versions_min=versions_min, kept_since=now - kept, orphans_before=now - orphans
    )


class TestRequests:
    """What each operation asks of DynamoDB and of the objects."""

    def test_a_look_without_news_is_one_read(self, world, store):
        """Of the item, consistent."""
        bodies = []
        world.requests.meet = lambda operation, number, request: bodies.append(request.body)

        asked, state = world.asked(store.refresh)

        assert asked == {"GetItem": 1}
        assert state is store.state()
        assert b'"ConsistentRead": true' in bodies[0]

    def test_a_commit_is_a_read_the_changed_parts_and_a_transaction(self, world, store):
        """Files without a job change one part alone."""
        asked, _ = world.asked(lambda: store.commit(add("a")))

        assert asked == {"GetItem": 1, "put": 1, "TransactWriteItems": 1}
        assert [key for key in world.objects.stored() if "/000000000002-" in key] == [
            item(world)["FILES"]["S"]
        ]

    def test_a_commit_of_a_job_writes_two_parts(self, world, store):
        """The files and the jobs, at once."""
        job = CommittedJob(
            job_id="job", keep_until=world.clock() + HOUR, rows_read=1, rows_written=1
        )

        asked, state = world.asked(lambda: store.commit(replace(add("a"), job=job)))

        assert asked == {"GetItem": 1, "put": 2, "TransactWriteItems": 1}
        assert contents(world.store().refresh()) == contents(state)

    def test_a_commit_that_changes_no_part_writes_none(self, world, store):
        """The time of a sweep is in the item."""
        asked, state = world.asked(lambda: store.commit(SweepOrphans(before=world.clock())))

        assert asked == {"GetItem": 1, "TransactWriteItems": 1}
        assert world.store().refresh().swept_before == state.swept_before == world.clock()

    def test_another_process_reads_the_parts_that_changed(self, world, store):
        """A split changes the partitions alone."""
        reader = world.store()
        first, _ = world.asked(reader.refresh)
        store.commit(split(ROOT, 50, "L", "R"))

        asked, state = world.asked(reader.refresh)

        assert first == {"GetItem": 1, "read": 3}
        assert asked == {"GetItem": 1, "read": 1}
        assert contents(state) == contents(store.state())

    def test_an_older_state_costs_what_differs_from_the_newest(self, world, store):
        """Two reads of items, and one of the files."""
        store.commit(add("a"))
        store.commit(add("b"))

        asked, state = world.asked(lambda: store.at(2))

        assert asked == {"GetItem": 2, "read": 1}
        assert (state.number, names(state)) == (2, ["a"])

    def test_a_lost_race_costs_a_look_at_who_has_the_number(self, world, store):
        """Its objects are deleted, and it is done again after the other's."""
        slow = world.store()
        slow.refresh()
        rivals = iter([lambda: store.commit(add("rival"))])
        slow._revisions._objects.meet = lambda moment, operation, key: (
            next(rivals, lambda: None)() if (moment, operation) == ("after", "put") else None
        )

        state = slow.commit(add("mine"))

        assert (state.number, names(state)) == (3, ["mine", "rival"])
        assert len([key for key in world.objects.stored() if "/files/" in key]) == 3

    def test_a_look_at_times_is_remembered_by_an_update(self, world, store):
        """Once for each commit; it reads no part."""
        store.commit(add("a"))
        reader = world.store()
        reader.refresh()

        asked, _ = world.asked(lambda: reader.dates_stored_before(world.clock()))
        again, _ = world.asked(lambda: world.store().dates_stored_before(world.clock()))

        assert asked == {"GetItem": 1, "UpdateItem": 1}
        assert again == {"GetItem": 1, "read": 3}

    def test_a_remembered_look_of_an_older_commit_is_dropped(self, world, store):
        """The item is that of a newer one."""
        old = store._held
        store.commit(add("a"))
        before = item(world)

        store._revisions.remember(old)

        assert item(world) == before


class TestStates:
    """What is written is what is read."""

    def test_every_part_is_read_as_it_was_written(self, world, store):
        """By another process, with history, times and claims."""
        for commit in (add("a"), split(ROOT, 50, "L", "R"), add("b", partition_id="L")):
            store.commit(commit)

        reader = world.store()

        assert contents(reader.refresh()) == contents(store.state())
        assert reader._held.history == store._held.history

    def test_claims_that_are_renewed_are_read(self, world, store):
        """Although no file has changed."""
        store.commit(add("a"))
        claim = Claim(job_id="job", partition_id="root", filenames=("a",))
        store.commit(
            ClaimFiles(
                assignments=(claim,), owner=ClaimOwner(host="here", pid=1, worker_id="worker")
            )
        )
        before = store.state().claims
        world.clock.time += HOUR

        asked, _ = world.asked(lambda: store.commit(RenewClaims(job_ids=("job",))))

        assert asked == {"GetItem": 1, "put": 1, "TransactWriteItems": 1}
        assert world.store().refresh().claims == store.state().claims != before

    def test_writers_at_once_lose_nothing(self, world, store):
        """Four threads of four processes commit five files each."""

        def commit_five(writer):
            mine = world.store(attempts=100)
            for n in range(5):
                mine.commit(add(f"{writer}-{n}"))

        with ThreadPoolExecutor(4) as threads:
            [*threads.map(commit_five, range(4))]

        state = world.store().refresh()
        assert (state.number, len(names(state))) == (21, 20)
        kept = {part for n in range(1, 22) for part in _parts(item(world, f"REVISION_{n:012d}"))}
        assert set(world.objects.stored()) == kept

    def test_a_commit_may_hold_thousands_of_files(self, world, store):
        """There is no limit."""
        many = [f"file-{n}" for n in range(3_000)]

        store.commit(add(*many))

        assert names(world.store().refresh()) == sorted(many)

    def test_a_table_that_is_not_there_says_where_it_was_looked_for(self, world, store):
        """It would otherwise look empty; nothing is made."""
        elsewhere = World(world.endpoint, f"sleeper-{new_id()}-")
        gone = elsewhere.store()

        with pytest.raises(ObjectNotFound, match=r"table-revisions.*AWS_REGION"):
            gone.refresh()
        assert elsewhere.requests.seen == {"GetItem": 1}
        store.delete()
        with pytest.raises(ObjectNotFound, match="is not in"):
            store.commit(add("late"))

    def test_deleting_removes_the_items_of_the_table_alone(self, world, store):
        """And can be repeated."""
        store.commit(add("a"))
        other = world.new_store(table_id="other")
        other.commit(add("b"))

        store.delete()
        store.delete()

        assert [item(world, key) for key in (CURRENT, "REVISION_000000000002")] == [None, None]
        assert names(other.refresh()) == ["b"]
        elsewhere = World(world.endpoint, f"sleeper-{new_id()}-")
        elsewhere.store().delete()  # without a DynamoDB table


class TestSweeps:
    """Which revisions are kept, and what is deleted with the others."""

    @pytest.fixture
    def store(self, world):
        store = world.new_store()
        for name in "abcd":
            world.clock.time += HOUR
            store.commit(add(name))  # 2 to 5
        world.clock.time += HOUR
        return store

    def test_the_last_revisions_are_kept(self, world, store):
        """Given five, when three are kept, then two are gone, with the objects of none other."""
        before = world.objects.stored()

        swept = store.sweep(limits(world, versions_min=3), delete=True)

        gone = [number_in(info.key) for info in swept.objects]
        assert gone == [1, 2]
        assert set(world.objects.stored()) == set(before) - {info.key for info in swept.objects}
        assert [names(store.at(number)) for number in (3, 4, 5)] == [
            ["a", "b"],
            ["a", "b", "c"],
            ["a", "b", "c", "d"],
        ]
        for number in (1, 2):
            with pytest.raises(VersionNotFound, match="no longer kept"):
                store.at(number)
        assert contents(world.store().refresh()) == contents(store.state())

    def test_revisions_of_a_time_are_kept(self, world, store):
        """Those that were the newest one since then: two commits were in the last two hours."""
        store.dates_stored_before(world.clock())  # a look at the newest
        world.clock.time += timedelta(minutes=1)

        swept = store.sweep(limits(world, kept=2 * HOUR), delete=True)

        assert [number_in(info.key) for info in swept.objects] == [1, 2]
        assert names(store.at(3)) == ["a", "b"]
        with pytest.raises(VersionNotFound):
            store.at(2)

    def test_nothing_is_deleted_to_look(self, world, store):
        """It is told what would be."""
        before = world.objects.stored()

        found = store.sweep(limits(world), delete=False)

        assert len(found.objects) == 4
        assert world.objects.stored() == before
        assert names(store.at(2)) == ["a"]

    def test_a_second_sweep_finds_nothing(self, world, store):
        """Nor does one of a table without revisions."""
        store.sweep(limits(world), delete=True)

        assert store.sweep(limits(world), delete=True).objects == ()
        assert names(store.refresh()) == ["a", "b", "c", "d"]

    def test_what_killed_writers_left_is_deleted_when_it_is_old(self, world, store):
        """Given objects that no item names, when their number is taken and they are old."""
        left = "statestore/files/000000000005-killed-files.parquet"
        ahead = "statestore/files/000000000006-killed-files.parquet"
        other = "statestore/files/notes.txt"
        for key in (left, ahead, other):
            world.objects.put(key, b"...")

        young = store.sweep(limits(world, versions_min=9, orphans=HOUR), delete=True)
        world.clock.time += 2 * HOUR
        old = store.sweep(limits(world, versions_min=9, orphans=HOUR), delete=True)

        assert young.objects == ()
        assert [info.key for info in old.objects] == [left]
        assert world.objects.read(ahead) is not None  # its writer may still commit it
        assert world.objects.read(other) is not None

    def test_a_sweep_that_is_killed_is_finished_by_the_next(self, world, store):
        """Items are deleted before objects: no item names a part that is gone."""

        def die(moment, operation, key):
            if operation == "delete":
                raise KeyboardInterrupt

        world.objects.meet = die
        with pytest.raises(KeyboardInterrupt):
            store.sweep(limits(world), delete=True)
        world.objects.meet = lambda *_: None

        with pytest.raises(VersionNotFound):
            store.at(2)
        assert len(store.sweep(limits(world), delete=True).objects) == 4


class TestDamage:
    """Parts that are missing or wrong."""

    @pytest.mark.parametrize("kind", ["missing", "a bad checksum", "empty"])
    def test_a_damaged_part_is_named_and_older_states_can_be_read(self, world, store, kind):
        """Given damaged files of the newest state, then an earlier transaction still answers."""
        store.commit(add("a"))
        store.commit(add("b"))
        key = item(world)["FILES"]["S"]
        body = world.objects.read(key)
        if kind == "missing":
            world.objects.delete([key])
        else:
            spoilt = body[:60] + bytes([body[60] ^ 1]) + body[61:]
            world.objects.put(key, b"" if kind == "empty" else spoilt)
        reader = world.store()

        with pytest.raises(DataDamaged, match=rf"(?s){key}.*as_of.*restore the object"):
            reader.refresh()
        assert names(reader.at(2)) == ["a"]
        with pytest.raises(DataDamaged, match=key):
            reader.at(3)
        with pytest.raises(DataDamaged, match=key):
            reader.at(9)
        world.objects.put(key, body)
        assert names(reader.refresh()) == ["a", "b"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("FILES", {"S": "statestore/files/../../other"}),
            ("CURRENT_REVISION", {"S": "many"}),
            ("JOBS", None),
            ("HISTORY", {"S": "{}"}),
            ("AT", {"S": "noon"}),
        ],
    )
    def test_a_damaged_item_is_told(self, world, store, name, value):
        """It is not followed."""
        spoilt = item(world) | {name: value}
        kept = {each: value for each, value in spoilt.items() if value is not None}
        world.requests.client.put_item(TableName=f"{world.prefix}{REVISIONS.name}", Item=kept)

        with pytest.raises(DataDamaged, match=r"revision.*damaged"):
            world.store().refresh()


def _parts(found):
    return [found[name]["S"] for name in ("FILES", "PARTITIONS", "JOBS")]
