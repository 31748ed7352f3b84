"""One simulated world: parties that take turns at every storage call, as one seed decides.

Each party is a thread, and exactly one thread runs at any time: a party gives its turn away before
each call, the draw of the seed says who goes on, and the others wait for their own semaphore. So a
seed repeats a run exactly. Time is a number that calls advance, and that leaps now and then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Semaphore, Thread
from typing import Any, Protocol

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
CALL_TAKES = timedelta(milliseconds=20)
LEAPS_MIN = (1, 10, 35, 70, 200)
READS_FAIL = 0.15  # as often as writes do: there are five times as many
NEAR = 60.0
"""A clock that is wrong by so many minutes at most is one that somebody set by hand."""


class Killed(BaseException):
    """The process is dead. Not an Exception: nothing in the product may handle it."""


@dataclass(frozen=True)
class Weather:
    """How often things go wrong in one run: each run has its own, so that some are mild.

    Attributes:
        faults: The chance of each kind of fault, at a call that can have it.
        stay: The chance that a party goes on for another call before another has its turn.
        leap: The chance that time leaps before a call.
        sleep: The chance that a party rests before a call, for as many calls of the others.
        clocks: How far clocks of processes may be wrong, in minutes.
    """

    faults: dict[str, float]
    stay: float
    leap: float
    sleep: float
    clocks: Sequence[float]

    @classmethod
    def of(cls, draw: random.Random, clocks: Sequence[float]) -> Weather:
        total = draw.choice([0.0, 0.03, 0.1, 0.25])
        parts = {kind: draw.choice([0, 1, 1, 4]) * SHARES.get(kind, 1.0) for kind in FAULTS}
        whole = sum(parts.values()) or 1.0
        return cls(
            faults={kind: total * part / whole for kind, part in parts.items()},
            stay=draw.choice([0.0, 0.5, 0.8, 0.95]),
            leap=draw.choice([0.0, 0.01, 0.04]),
            sleep=draw.choice([0.0, 0.01, 0.05]),
            clocks=draw.choice([[0.0], [each for each in clocks if abs(each) < NEAR], clocks]),
        )


READS = ("failed", "death before")
WRITES = ("outage", "refused", "failed", "lost", "late", "death before", "death after", "stop")
FAULTS = (*WRITES, "clock jump")
"""`refused`: storage says that nothing was stored. `failed`: no answer, and nothing done. `lost`:
no answer, and done. `late`: no answer, and done some calls later. An outage: the next calls of the
party have no answer either, done or not. A death before a call, or after it. A process that is stopped before a call, while time leaps. A clock that jumps."""
SHARES = {"outage": 2.0}  # most calls that could begin one only fail


class Work(Protocol):
    """What a party does with its life, from a fresh start until it is killed."""

    def __call__(self, life: Life) -> None: ...


@dataclass
class Life:
    """One process of a party: it dies once, and another one follows it."""

    party: Party
    dead: bool = False
    busy_with: Any = None
    fails: int = 0  # so many more calls of an outage

    @property
    def world(self) -> World:
        return self.party.world

    def die(self) -> None:
        self.dead = True
        raise Killed


@dataclass
class Party:
    """One that takes part: a thread, with a life after the other."""

    name: str
    world: World
    work: Work
    turn: Semaphore = field(default_factory=lambda: Semaphore(0))
    clock_error: timedelta = timedelta(0)
    rests_until: int = 0
    turns: int = 1  # so many times as often as others it has its turn
    over: bool = False
    life: Life | None = None

    def run(self) -> None:
        """Live again and again, until the world ends."""
        self.turn.acquire()
        world = self.world
        try:
            while not world.ended:
                self.life = life = Life(self)
                self.set_clock()
                try:
                    self.work(life)
                except Killed:
                    life.dead = True
                self.rests_until = world.steps + world.draw.randrange(1, 20)
                world.give_turn(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - it goes to whoever runs the world
            world.fail(error)
        finally:
            self.over = True
            world.leave()

    def set_clock(self) -> None:
        self.clock_error = timedelta(minutes=self.world.draw.choice(self.world.weather.clocks))


class World:
    """What all parties share: the turn, the time, the draw, and what happened.

    Args:
        draw: Decides everything.
        weather: How often things go wrong.
        steps_max: After so many calls all parties are dead.
        start: When it begins.

    Attributes:
        trace: Each call, by whom, with its fault: what a seed repeats exactly.
        counts: How often each fault was injected, and each verb came to which end.
        is_remote: Whether storage is slow, so that processes send requests beside others.
    """

    def __init__(
        self, draw: random.Random, weather: Weather, steps_max: int, start: datetime = NOON
    ) -> None:
        self.draw = draw
        self.is_remote = bool(draw.getstate()[1][0] & 1)  # does not change later draws
        self.weather = weather
        self.steps_max = steps_max
        self.now = start
        self.steps = 0
        self.ended = False
        self.failure: BaseException | None = None
        self.parties: list[Party] = []
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        self._on_their_way: list[tuple[int, Callable[[], object]]] = []
        self._end = Semaphore(0)

    def add(self, name: str, work: Work, turns: int = 1) -> None:
        self.parties.append(Party(name, self, work, turns=turns))

    def run(self) -> None:
        """Let all parties live until the last call; raise what one of them found wrong."""
        threads = [Thread(target=party.run, daemon=True) for party in self.parties]
        for thread in threads:
            thread.start()
        self._choose().turn.release()
        self._end.acquire()
        for thread in threads:
            thread.join()
        self.let_all_arrive()
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException) -> None:
        """End the world, because something is wrong."""
        self.failure = self.failure or error
        self.ended = True

    # ------------------------------------------------------------ turns

    def step(self, life: Life, what: str) -> None:
        """Give the turn away before a call, and come back when it is this party's again."""
        if life.dead:
            raise Killed
        self.give_turn(life.party)
        self._pass_time(life)
        if life.dead:
            raise Killed

    def give_turn(self, party: Party) -> None:
        if self.ended:
            raise Killed
        draw = self.draw
        if draw.random() < self.weather.sleep:
            party.rests_until = self.steps + draw.randrange(5, 60)
        if draw.random() < self.weather.stay and party.rests_until <= self.steps:
            return
        following = self._choose()
        if following is not party:
            following.turn.release()
            party.turn.acquire()
            if self.ended:
                raise Killed

    def leave(self) -> None:
        """A thread ends; another one that has not ended goes on, so that it ends too."""
        for party in self.parties:
            if not party.over:
                party.turn.release()
                return
        self._end.release()

    def _choose(self) -> Party:
        awake = [party for party in self.parties if party.rests_until <= self.steps]
        if awake:
            return self.draw.choice([party for party in awake for _ in range(party.turns)])
        following = min(self.parties, key=lambda party: party.rests_until)
        self.steps = following.rests_until  # all rest: so do the calls that are counted
        return following

    # ------------------------------------------------------------ time

    def _pass_time(self, life: Life) -> None:
        self.steps += 1
        self.now += CALL_TAKES
        if self.draw.random() < self.weather.leap:
            self.leap(timedelta(minutes=self.draw.choice(LEAPS_MIN)))
        party = life.party
        if self.draw.random() < self.weather.faults["clock jump"]:
            party.set_clock()
            self.counts["clock jump"] += 1
        self._arrive(lambda due: due <= self.steps)
        if self.steps >= self.steps_max:
            self.ended = True
            raise Killed

    def ticks_s(self) -> float:
        """What a clock says that is never set."""
        return (self.now - NOON).total_seconds()

    def sleep(self, life: Life, seconds: float) -> None:
        """Let a process wait; others go on."""
        self.now += timedelta(seconds=seconds)
        self.step(life, "sleep")

    def leap(self, by: timedelta) -> None:
        """Let much time pass at once."""
        self.now += by
        self.counts["leap of time"] += 1
        self.trace.append(f"time leaps {by}")

    def send(self, arrive: Callable[[], object]) -> None:
        """Let a call happen some calls later, whoever has sent it."""
        self._on_their_way.append((self.steps + self.draw.randrange(1, 40), arrive))

    def let_all_arrive(self) -> None:
        self._arrive(lambda due: True)

    def _arrive(self, is_due: Callable[[int], bool]) -> None:
        if not self._on_their_way:
            return
        due = [arrive for at, arrive in self._on_their_way if is_due(at)]
        self._on_their_way = [each for each in self._on_their_way if not is_due(each[0])]
        for arrive in due:
            arrive()

    # ------------------------------------------------------------ what goes wrong

    def fault(self, life: Life, what: str, kinds: Sequence[str]) -> str:
        """Draw what goes wrong with a call, of the kinds that can; mostly nothing."""
        chance = self.draw.random() / (1 if kinds is WRITES else READS_FAIL)
        kind = self._drawn(chance, kinds)
        if kind == "outage" and not what.startswith("create"):  # where it is hardest to tell truly
            kind = "failed"
        if kind == "outage":
            self.counts[kind] += 1
            life.fails = self.draw.randrange(2, 12)
        if kind == "stop":
            life.party.rests_until = self.steps + self.draw.randrange(5, 40)
            self.leap(timedelta(minutes=self.draw.choice(LEAPS_MIN)))
            self.step(life, f"{what} after a stop")
        elif life.fails and not kind.startswith("death"):
            life.fails -= 1
            kind = self.draw.choice(["failed", "lost", "late"]) if kinds is WRITES else "failed"
        if kind:
            self.counts[kind] += 1
        self.note(life, what, kind)
        return kind

    def _drawn(self, chance: float, kinds: Sequence[str]) -> str:
        for kind in kinds:
            chance -= self.weather.faults[kind]
            if chance < 0:
                return kind
        return ""

    def note(self, life: Life, what: str, fault: str) -> None:
        self.trace.append(f"{self.steps} {life.party.name} {what} {fault}")
