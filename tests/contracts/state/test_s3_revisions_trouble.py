"""Trouble with a state in objects and DynamoDB: lost replies, killed writers, races with a sweep."""

from __future__ import annotations

from itertools import count

import pytest

from sleeper.errors import CommitUnknown, DataDamaged, StorageFailed, StorageReadOnly
from tests.contracts.servers.dynamo import dynamo_endpoint, new_id
from tests.contracts.servers.dynamo_answers import cancelled, done_without_a_reply, refused, sent
from tests.contracts.state.s3_revision_stores import Requests, World, add, names, no_answer
from tests.contracts.state.test_s3_revisions import limits

__all__ = ["dynamo_endpoint"]

TRANSACTION = "TransactWriteItems"


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def world(dynamo_endpoint):
    return World(dynamo_endpoint)


@pytest.fixture
def store(world):
    return world.new_store()


def at_transaction(number, answer):
    """Return what meets the requests: an answer to this transaction, counted from 1."""
    return lambda operation, n, request: (
        answer(request) if (operation, n) == (TRANSACTION, number) else None
    )


def when(moment, operation, do):
    """Return what meets objects: something that happens once, at this moment of an operation."""
    times = count()
    return lambda at, what, key: (
        do() if (at, what) == (moment, operation) and not next(times) else None
    )


def die(*_):
    raise Killed


class TestLostReplies:
    """A commit is there once, whichever reply is lost."""

    @pytest.mark.parametrize("attempts", [1, 3], ids=["asked by us", "by boto3"])
    def test_of_the_transaction(self, world, store, attempts):
        """Its token is the commit's id, so that it is done once."""
        store.commit(add("a"))
        requests = Requests(world.endpoint, attempts)
        requests.meet = at_transaction(1, done_without_a_reply)

        state = world.store(requests=requests).commit(add("b"))

        assert (state.number, names(state)) == (3, ["a", "b"])
        assert names(world.store().refresh()) == ["a", "b"]

    def test_of_the_transaction_when_another_commit_follows(self, world, store):
        """The item of the revision tells by its id whose it is; its objects stay."""

        def lost(request):
            done_without_a_reply(request)
            world.store().commit(add("next"))
            return refused(request, "InternalServerError", 500)

        requests = Requests(world.endpoint)
        requests.meet = at_transaction(1, lost)

        state = world.store(requests=requests).commit(add("mine"))

        assert names(state) == ["mine"]
        assert names(world.store().refresh()) == ["mine", "next"]
        assert names(world.store().at(2)) == ["mine"]

    def test_of_a_transaction_that_the_server_has_forgotten(self, world, store):
        """Given a refusal of what was done and followed, then it is known by the revision's item."""

        def lost(request):
            done_without_a_reply(request)
            world.store().commit(add("next"))
            return refused(request, "InternalServerError", 500)

        requests = Requests(world.endpoint)
        requests.meet = lambda operation, n, request: (
            {1: lost, 2: lambda request: cancelled(request, {1: "ConditionalCheckFailed"})}[n](
                request
            )
            if operation == TRANSACTION
            else None
        )

        state = world.store(requests=requests).commit(add("mine"))

        assert names(state) == ["mine"]
        assert requests.seen[TRANSACTION] == 2
        assert names(world.store().at(2)) == ["mine"]

    def test_of_an_object(self, world, store):
        """It is written again, with the same bytes."""
        world.objects.meet = when("after", "put", no_answer)

        state = store.commit(add("a"))

        assert names(state) == names(world.store().refresh()) == ["a"]
        assert len(world.objects.stored()) == 4

    def test_of_every_request_of_the_first_commit(self, dynamo_endpoint):
        """Tables are made, and the first revision is there once."""
        world = World(dynamo_endpoint, f"sleeper-{new_id()}-")
        requests = Requests(world.endpoint, 3)
        lost = set()

        def lose_each_once(operation, number, request):
            if operation in lost:
                return None
            lost.add(operation)
            assert sent(request).status_code < 500
            return refused(request, "InternalServerError", 500)

        requests.meet = lose_each_once

        store = world.new_store(requests=requests)

        assert store.refresh().number == 1
        assert {"CreateTable", "GetItem", TRANSACTION} <= lost


class TestRefusals:
    """DynamoDB does not do it now, or never."""

    @pytest.mark.parametrize(
        "answer",
        [
            lambda request: cancelled(request, {1: "TransactionConflict"}),
            lambda request: cancelled(request, {1: "ThrottlingError"}),
            lambda request: refused(request, "TransactionInProgressException"),
            lambda request: refused(request, "ThrottlingException"),
            lambda request: refused(request, "ProvisionedThroughputExceededException"),
        ],
    )
    def test_what_was_not_done_now_is_done_again(self, world, store, answer):
        """Without new objects."""
        requests = Requests(world.endpoint)
        requests.meet = at_transaction(1, answer)

        state = world.store(requests=requests, pauses=lambda attempt: None).commit(add("a"))

        assert names(state) == ["a"]
        assert len(world.objects.stored()) == 4

    def test_what_is_denied_is_told(self, world, store):
        """And nothing was committed."""
        requests = Requests(world.endpoint)
        requests.meet = lambda operation, n, request: (
            refused(request, "AccessDeniedException") if operation == TRANSACTION else None
        )

        with pytest.raises(StorageReadOnly, match="tables sleeper-"):
            world.store(requests=requests).commit(add("a"))
        assert names(store.refresh()) == []

    def test_without_any_answer_it_is_unknown(self, world, store):
        """The objects stay: the transaction may still be done."""
        requests = Requests(world.endpoint)
        silent = world.store(requests=requests)
        silent.refresh()

        def fail_once_written(operation, number, request):
            if operation == TRANSACTION:
                done_without_a_reply(request)
            if requests.seen[TRANSACTION]:
                return refused(request, "InternalServerError", 500)
            return None

        requests.meet = fail_once_written
        with pytest.raises(CommitUnknown):
            silent.commit(add("a"))
        assert names(store.refresh()) == ["a"]

    def test_an_object_that_cannot_be_written_ends_the_commit(self, world, store):
        """No transaction is sent."""
        world.objects.meet = lambda moment, operation, key: (
            no_answer() if operation == "put" else None
        )
        world.requests.seen.clear()

        with pytest.raises((CommitUnknown, StorageFailed)):
            store.commit(add("a"))
        assert TRANSACTION not in world.requests.seen
        assert names(store.refresh()) == []

    def test_the_loser_of_a_race_keeps_what_it_cannot_delete(self, world, store, caplog):
        """The commit is made again; a sweep deletes it later."""
        slow = world.store()
        slow.refresh()
        times = count()

        def meet(moment, operation, key):
            if (moment, operation) == ("after", "put") and not next(times):
                store.commit(add("rival"))
            if operation == "delete":
                no_answer()

        world.objects.meet = meet
        state = slow.commit(add("mine"))
        world.objects.meet = lambda *_: None

        assert names(state) == ["mine", "rival"]
        assert "left for the sweep of orphans" in caplog.text
        swept = store.sweep(limits(world, versions_min=9), delete=True)
        assert swept.objects == ()  # it is as young as can be
        world.clock.time += (world.clock.time - world.clock.time.replace(year=2000)) / 1000
        assert len(store.sweep(limits(world, versions_min=9), delete=True).objects) == 1


class TestKilled:
    """Writers that end at any moment."""

    def test_between_objects_and_item(self, world, store):
        """Nothing was committed; the next commit takes the number, and a sweep what was left."""
        world.objects.meet = when("after", "put", die)
        with pytest.raises(Killed):
            store.commit(add("killed"))
        world.objects.meet = lambda *_: None
        other = world.store()

        state = other.commit(add("next"))

        assert (state.number, names(state)) == (2, ["next"])
        world.clock.time = world.clock.time.replace(year=world.clock.time.year + 1)
        swept = other.sweep(limits(world, versions_min=9), delete=True)
        assert len(swept.objects) == 1
        assert names(world.store().refresh()) == ["next"]

    def test_after_the_item(self, world, store):
        """It is committed."""
        requests = Requests(world.endpoint)

        def killed(request):
            done_without_a_reply(request)
            raise Killed

        requests.meet = at_transaction(1, killed)
        with pytest.raises(Killed):
            world.store(requests=requests).commit(add("a"))

        assert names(store.refresh()) == ["a"]

    def test_a_writer_that_slept_through_a_sweep_is_too_late(self, world, store):
        """Given its objects were swept, then its commit is refused, and made anew."""
        slow = world.store()
        slow.refresh()
        times = count()

        def meanwhile(moment, operation, key):
            if (moment, operation) == ("after", "put") and not next(times):
                store.commit(add("next"))
                world.clock.time = world.clock.time.replace(year=world.clock.time.year + 1)
                assert store.sweep(limits(world), delete=True).objects

        world.objects.meet = meanwhile
        state = slow.commit(add("slow"))

        assert names(state) == names(world.store().refresh()) == ["next", "slow"]


class TestReadersBesideASweep:
    """A reader that has the item, and not yet the objects."""

    def test_begins_again_if_its_revision_is_swept(self, world, store):
        """It reads the newest one then."""
        reader = world.store()

        def replaced_and_swept():
            world.clock.time = world.clock.time.replace(year=world.clock.time.year + 1)
            store.commit(add("a"))
            store.dates_stored_before(world.clock())
            world.clock.time = world.clock.time.replace(year=world.clock.time.year + 1)
            assert store.sweep(limits(world), delete=True).objects

        world.objects.meet = when("before", "read", replaced_and_swept)

        assert names(reader.refresh()) == ["a"]

    def test_of_an_old_revision_is_told_that_it_is_gone(self, world, store):
        """As if it had come later."""
        store.commit(add("a"))
        store.commit(add("b"))
        reader = world.store()
        reader.refresh()

        def swept():
            world.clock.time = world.clock.time.replace(year=world.clock.time.year + 1)
            store.dates_stored_before(world.clock())
            world.clock.time = world.clock.time.replace(year=world.clock.time.year + 1)
            assert store.sweep(limits(world), delete=True).objects

        world.objects.meet = when("before", "read", swept)

        assert reader._revisions.at(2) is None

    def test_an_object_that_is_missing_without_a_sweep_is_damage(self, world, store):
        """The reader does not look for ever."""
        store.commit(add("a"))
        world.objects.delete([key for key in world.objects.stored() if "/files/" in key])

        with pytest.raises(DataDamaged, match="is missing"):
            world.store().refresh()
