"""Writers whose clocks jump by years, on a storage whose clock is steady.

No row is lost or doubled, and no reader fails that is younger than the garbage delay. A writer may
be refused: then nothing has happened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from sleeper.errors import CommitRefused, SleeperError
from sleeper.instance.instance import Instance
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from tests.simulated_process import simulated_process
from tests.soak import FIRST_SEED, tries

START = datetime(2026, 5, 4, 12, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("job", pa.int64())])
DELAY = timedelta(minutes=15)
STEPS = 60
HISTORIES, CHUNKS = tries(6, soak=3_000), 6
JUMPS = [
    timedelta(days=days, minutes=minutes)
    for days, minutes in [(0, 0), (0, 0), (0, 0), (-4000, 0), (4000, 0), (-2, 0), (2, 0), (0, -7)]
]
WAITS = [timedelta(seconds=1), timedelta(minutes=4), timedelta(minutes=12), timedelta(hours=20)]
KILLED = 7  # of this job every other try dies before its commit, and leaves files behind


class Died(Exception):
    """The process of a writer ended."""


@dataclass
class World:
    """The storage and its clock, the writers, and what was acknowledged."""

    random: Random
    time: datetime = START
    committed: dict[int, int] = field(default_factory=dict)
    readers: list[tuple[datetime, Any, Counter[int]]] = field(default_factory=list)
    before_commit: list[Any] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.objects = _Meanwhile(MemoryObjects(now=lambda: self.time), self.before_commit)
        self.ids = count()
        self.writers = [Writer(self) for _ in range(3)]
        self.writers[0].instance.create_table(
            "t",
            SCHEMA,
            row_keys=["id"],
            split_points=[400],
            properties={
                "sleeper.table.gc.orphan.age.minutes": "120",
                "sleeper.table.partition.splitting.threshold": "40",
                "sleeper.table.compaction.files.batch.size": "3",
            },
        )

    @property
    def rows(self) -> Counter[int]:
        """How often each job's rows are to be there, by job."""
        return Counter(self.committed)

    def ticks_s(self) -> float:
        return (self.time - START).total_seconds()

    def other(self, writer: Writer) -> Writer:
        return self.random.choice([each for each in self.writers if each is not writer])


@dataclass(eq=False)
class Writer:
    """One process with a clock of its own."""

    world: World
    error: timedelta = timedelta()

    def __post_init__(self) -> None:
        world = self.world
        self.instance = Instance(
            Place("memory://", world.objects),
            {"sleeper.id": "clocks"},
            process=simulated_process(
                now=lambda: world.time + self.error,
                ticks_s=world.ticks_s,
                new_id=lambda: f"{next(world.ids):08d}-0000-4000-8000-000000000000",
            ),
        )

    @property
    def table(self) -> Any:
        return self.instance.table("t")

    def jump(self) -> None:
        self.error = self.world.random.choice(JUMPS)

    def wait(self) -> None:
        self.world.time += self.world.random.choice(WAITS)

    def ingest(self) -> None:
        world, job = self.world, self.world.random.randrange(12)
        rows = pa.table({"id": [job * 100 + n for n in range(20)], "job": [job] * 20})
        others = world.other(self)
        if job == KILLED and world.random.random() < 0.5:
            world.before_commit.append(_die)
        elif world.random.random() < 0.3:
            world.before_commit.append(lambda: _while_others_work(world, others))
        try:
            done = self.table.ingest(rows, job_id=f"job-{job}")
        except Died:
            return
        finally:
            world.before_commit.clear()
        assert done.already_committed == (job in world.committed)
        world.committed[job] = 20

    def compact(self) -> None:
        self.table.compact(all_files=self.world.random.random() < 0.5)

    def split(self) -> None:
        self.table.split_partitions()

    def collect(self) -> None:
        self.world.seen["deleted"] += len(self.table.collect_garbage().deleted)

    def sweep(self) -> None:
        self.world.seen["swept"] += len(self.table.sweep_orphans().orphans)

    def open_reader(self) -> None:
        self.world.readers.append((self.world.time, self.table.query(), self.world.rows))

    def read(self) -> None:
        for began, rows, expected in self.world.readers:
            try:
                found = Counter(rows.to_arrow()["job"].to_pylist())
            except SleeperError:
                assert self.world.time - began >= DELAY
                self.world.seen["late readers failed"] += 1
                continue
            assert found == expected
            self.world.seen["readers"] += 1
        self.world.readers.clear()


class _Meanwhile:
    """Objects that let others work just before an entry of the log is created."""

    def __init__(self, inner: Any, work: list[Any]) -> None:
        self._inner, self._work = inner, work

    def create(self, key: str, body: bytes) -> bool:
        if "transactions/" in key and self._work:
            self._work.pop()()
        return bool(self._inner.create(key, body))

    def under(self, prefix: str) -> _Meanwhile:
        return _Meanwhile(self._inner.under(prefix), self._work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _die() -> None:
    raise Died


def _while_others_work(world: World, other: Writer) -> None:
    """Time passes between the files of a job and its commit, and somebody cleans up."""
    world.time += world.random.choice([timedelta(minutes=20), timedelta(hours=30)])
    for work in (other.jump, other.sweep, other.collect):
        _attempt(world, work)


def _attempt(world: World, work: Any) -> None:
    """Do it; a refusal changes nothing."""
    try:
        work()
        world.seen[work.__name__] += 1
    except CommitRefused as refusal:
        world.seen[type(refusal).__name__] += 1


def run(seed: int) -> Counter[str]:
    """Live through the history of a seed; return what was done in it, and how often."""
    world = World(Random(seed))
    names = ["jump", "wait", "ingest", "ingest", "compact", "split", "collect", "sweep"]
    names += ["open_reader", "read"]

    for _ in range(STEPS):
        writer = world.random.choice(world.writers)
        _attempt(world, getattr(writer, world.random.choice(names)))
    for writer in world.writers:
        writer.read()
        found = Counter(writer.table.query().to_arrow()["job"].to_pylist())
        assert found == world.rows
    return world.seen


@pytest.mark.soak
@pytest.mark.parametrize("number", range(CHUNKS))
def test_clocks_that_jump_lose_and_double_no_row(number):
    """Ingests, their repetitions, compactions, splits, collections and sweeps, in any order."""
    size = HISTORIES // CHUNKS
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED + number * size, FIRST_SEED + (number + 1) * size):
        try:
            seen += run(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise

    print(f"{size} histories from seed {FIRST_SEED + number * size} on: {dict(seen)}")  # noqa: T201
    assert seen["ingest"] >= size
