"""Purges of a table take turns where they replace entries of its log (rule DEL-4)."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from sleeper.errors import CommitContended
from sleeper.ports.clock import Clock
from sleeper.storage.memory import MemoryObjects
from sleeper.tables.purges.turns import LEFT_AFTER, TURNS, turn_of

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LEFT_AFTER_S = LEFT_AFTER.total_seconds()


class Waits(BaseException):
    """A purge waits for another one."""


class Objects:
    """Objects in memory; something may be done before each call."""

    def __init__(self, objects, before_call):
        self._objects, self._before_call = objects, before_call

    def __getattr__(self, name):
        method = getattr(self._objects, name)
        if name not in ("listing", "read", "put", "create", "delete"):
            return method

        def call(*given):
            self._before_call()
            return method(*given)

        return call


class World:
    """A table whose objects are in memory. Time passes where it is told to."""

    def __init__(self):
        self.time_s = 0.0
        self.objects = MemoryObjects(self._now)
        self.waited_s = 0.0

    def _now(self):
        return NOON + timedelta(seconds=self.time_s)

    def table(self, before_call=lambda: None, *, waits=True):
        def sleep(seconds):
            if not waits:
                raise Waits
            self.waited_s += seconds
            self.time_s += seconds

        clock = Clock(
            now=self._now, ticks_s=lambda: self.time_s, sleep=sleep, back_off=lambda _: None
        )
        return SimpleNamespace(
            name="t",
            context=SimpleNamespace(clock=clock),
            files=Objects(self.objects, before_call),
            store=SimpleNamespace(time=self._now),
        )

    def leave(self, purge_id):
        """A process with this purge is killed in its turn."""
        with suppress(KeyboardInterrupt), turn_of(self.table(), purge_id):
            raise KeyboardInterrupt


@pytest.fixture
def world():
    return World()


def count_calls(work):
    calls = []
    work(lambda: calls.append(True))
    return len(calls)


class TestAtOnce:
    """Two purges of different keys never replace entries at once."""

    @staticmethod
    def _change(table, purge_id, said):
        with turn_of(table, purge_id) as turn:
            said.append(f"{purge_id} begins")
            for _ in range(3):  # entries
                turn.keep()
                table.files.read("an entry")
                table.files.put("an entry", purge_id.encode())
            said.append(f"{purge_id} ends")

    @pytest.mark.parametrize("ended_before", [0, 1, 2])
    def test_whoever_comes_between_waits_or_ends_before(self, ended_before):
        """Given a second purge before each call of the first, their changes never overlap."""

        def begun():
            world = World()
            for number in range(ended_before):
                self._change(world.table(), f"earlier {number}", [])
            return world

        calls = count_calls(lambda note: self._change(begun().table(note), "one", []))
        ways = set()
        for place in range(calls):
            world, said, at = begun(), [], iter(range(calls * 2))

            def other(world=world, said=said, at=at, place=place):
                if next(at) != place:
                    return
                with suppress(Waits):
                    self._change(world.table(waits=False), "two", said)

            self._change(world.table(other), "one", said)
            if "two ends" not in said:
                self._change(world.table(waits=False), "two", said)
            assert said in (
                ["one begins", "one ends", "two begins", "two ends"],
                ["two begins", "two ends", "one begins", "one ends"],
            )
            ways.add(said[0])
            assert len([*world.objects.listing(TURNS)]) == 1
        assert ways == {"one begins", "two begins"}

    @pytest.mark.parametrize("place", [0, 1])
    def test_of_two_who_ask_for_the_same_number_one_waits(self, world, place):
        """Given another that has its turn since the look, or since the moment before, it waits."""
        at, inside = iter(range(100)), []

        def other():
            if next(at) == place:
                inside.append(turn_of(world.table(), "other"))
                inside[0].__enter__()

        with pytest.raises(Waits), turn_of(world.table(other, waits=False), "mine"):
            pass

        assert inside

    def test_one_that_is_killed_delays_another_by_a_minute(self, world):
        """Given a turn that nobody renews, another purge waits, and then goes on."""
        world.leave("killed")

        with turn_of(world.table(), "next"):
            pass

        assert LEFT_AFTER_S <= world.waited_s <= LEFT_AFTER_S + 2

    def test_the_purge_that_was_killed_goes_on_at_once(self, world):
        """Given the same keys again, which have the same purge, nobody waits."""
        world.leave("killed")

        with turn_of(world.table(), "killed"):
            pass

        assert world.waited_s == 0

    def test_another_purge_waits_for_a_process_that_its_own_purge_overtook(self, world):
        """Given one that stands still and does not know it, what it read before counts no more."""
        with turn_of(world.table(), "same") as still:
            with turn_of(world.table(), "same"):
                pass
            with turn_of(world.table(), "other"), pytest.raises(CommitContended):
                still.keep()
            assert LEFT_AFTER_S <= world.waited_s <= LEFT_AFTER_S + 2

    def test_a_turn_that_is_renewed_is_not_left(self, world):
        """Given a turn of ten minutes with entries all the time, another purge still waits."""
        table = world.table()
        with turn_of(table, "long") as turn:
            for _ in range(60):
                world.time_s += 10.5
                turn.keep()
            with pytest.raises(Waits), turn_of(world.table(waits=False), "other"):
                pass

    def test_an_object_of_somebody_else_is_waited_for(self, world):
        """Given what nobody can read in place of a turn, it counts until it is a minute old."""
        world.objects.put(f"{TURNS}{7:020d}.json", b"what is this")

        with turn_of(world.table(), "next"):
            pass

        assert world.waited_s >= LEFT_AFTER_S
        assert [each.key for each in world.objects.listing(TURNS)] == [f"{TURNS}{8:020d}.json"]


class TestLost:
    """Who cannot be sure to have the turn changes nothing more."""

    def test_by_a_process_that_stood_still(self, world):
        """Given no renewal for half a minute, it stops, though nobody has come."""
        with turn_of(world.table(), "slow") as turn:
            world.time_s += LEFT_AFTER_S / 2 + 1
            with pytest.raises(CommitContended, match="stood still for too long"):
                turn.keep()

    def test_by_a_request_that_takes_too_long(self, world):
        """Given a look at the turns that takes a minute, what it has read says nothing any more."""

        def slow():
            world.time_s += LEFT_AFTER_S * is_slow

        is_slow = False
        with turn_of(world.table(slow), "slow") as turn:
            world.time_s += LEFT_AFTER_S / 5
            is_slow = True
            with pytest.raises(CommitContended, match="stood still for too long"):
                turn.keep()

    def test_to_another_process_with_the_same_keys(self, world):
        """Given the same purge a second time, the first one says that the other goes on."""
        first = turn_of(world.table(), "same")
        second = turn_of(world.table(waits=False), "same")
        with first as one, second as two:
            world.time_s += LEFT_AFTER_S / 5
            two.keep()
            with pytest.raises(CommitContended, match="another process has taken it over"):
                one.keep()

    def test_is_not_looked_for_before_each_entry(self, world):
        """Given a thousand entries in a second, no request is made for the turn between them."""
        calls = []
        with turn_of(world.table(lambda: calls.append(True)), "quick") as turn:
            before = len(calls)
            for _ in range(1_000):
                turn.keep()
            assert len(calls) == before
