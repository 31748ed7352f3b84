"""What the parties of a simulated world do: ingest, take care of the table, read it, change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from sleeper.errors import (
    CommitUnknown,
    DataDamaged,
    SleeperError,
    TableAlreadyExists,
    VersionNotFound,
)
from sleeper.instance.instance import Instance
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from sleeper.tables.table import Table
from tests.simulated_process import simulated_process
from tests.simulator.simulated_objects import SimulatedObjects
from tests.simulator.truth import Truth
from tests.simulator.world import Life, World

KEYS = range(24)
NAMES = ("t", "u")
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("attempt", pa.string()),
    ]
)
GC_DELAY = timedelta(minutes=60)
ORPHAN_AGE = timedelta(hours=3)
THRESHOLD = "sleeper.table.partition.splitting.threshold"
PROPERTIES = {
    THRESHOLD: "8",
    "sleeper.table.compaction.files.batch.size": "3",
    "sleeper.table.compaction.job.lease.minutes": "30",
    "sleeper.table.gc.delay.minutes": str(GC_DELAY // timedelta(minutes=1)),
    "sleeper.table.gc.orphan.age.minutes": str(ORPHAN_AGE // timedelta(minutes=1)),
}
STRATEGY = "sleeper.table.ingest.file.writing.strategy"
STRATEGIES = ("one_file_per_leaf", "one_reference_per_leaf")
CHANGES = (
    (STRATEGY, STRATEGIES),
    ("sleeper.table.compaction.files.batch.size", ("2", "3", "12")),
)


class Shared:
    """What the parties of one world have in common.

    Attributes:
        objects: What is stored.
        truth: What the table holds.
        open_jobs: Jobs that somebody should do (again).
        ends: How often each verb came to which end.
    """

    def __init__(self, world: World, truth: Truth) -> None:
        self.world = world
        self.truth = truth
        self.objects = MemoryObjects(lambda: world.now)
        self.open_jobs: list[str] = []
        self.ends: Counter[str] = Counter()
        self.ids = 0

    def copy_for(self, world: World) -> Shared:
        """The same in another world: what happens there does not happen here."""
        copied = Shared(world, self.truth.copy())
        copied.objects._bodies.by_key.update(self.objects._bodies.by_key)
        copied.ids = self.ids
        world.now = self.world.now
        return copied

    def new_id(self) -> str:
        """Ids in a row. Their first eight characters, which name a table, differ as well."""
        self.ids += 1
        return f"{self.ids:08x}-id"

    def process(self, life: Life) -> Process:
        """Start a process: an instance of its own, on the objects of all."""
        instance = Instance(
            Place("memory://", SimulatedObjects(self.objects, life, self.created)),
            {"sleeper.id": "simulated"},
            process=simulated_process(
                now=lambda: self.world.now + life.party.clock_error,
                ticks_s=self.world.ticks_s,
                new_id=self.new_id,
                back_off=lambda attempt: life.world.step(life, "pause"),
            ),
        )
        return Process(life, self, instance)

    def created(self, key: str, body: bytes) -> None:
        try:
            self.truth.created(key, body, self.world.now)
        except AssertionError as wrong:  # nothing in the product may handle it
            self.world.fail(wrong)


@dataclass
class Process:
    """One life of a party, with what it has open."""

    life: Life
    shared: Shared
    instance: Instance
    handle: Table | None = None

    @property
    def draw(self) -> Any:
        return self.life.world.draw

    @property
    def truth(self) -> Truth:
        return self.shared.truth

    def table(self) -> Table:
        """The table, by whichever name it has; mostly the handle that was open before."""
        if self.handle is None or self.draw.random() < 0.1:
            (record,) = self.instance.tables()
            self.handle = self.instance.table(record.name)
        return self.handle

    def do(self, verb: str, work: Callable[[Table], object]) -> bool:
        """Do something that may fail as storage does; tell whether it came to its end."""
        world, began = self.life.world, self.life.world.now
        error: SleeperError | None = None
        try:
            work(self.table())
        except SleeperError as failure:
            error = failure
        if isinstance(error, DataDamaged) and world.now - began < self.truth.gc_delay:
            raise AssertionError(f"{verb} found data damaged") from error
        self.shared.ends[f"{verb}: {type(error).__name__ if error else 'done'}"] += 1
        return error is None


# ---------------------------------------------------------------- ingest


def ingest_for_ever(process: Process) -> None:
    """Do jobs: new ones, those that failed before, those of others, and jobs without a name."""
    draw, shared = process.draw, process.shared
    while True:
        way = draw.random()
        if shared.open_jobs and way < 0.5:
            job = draw.choice(shared.open_jobs)
        elif way < 0.85:
            job = f"job-{draw.randrange(12)}"
            shared.open_jobs.append(job)
        else:
            job = None
        if ingest(process, job) and job in shared.open_jobs and draw.random() < 0.7:
            shared.open_jobs.remove(job)


def ingest(process: Process, job: str | None) -> bool:
    draw, truth, life = process.draw, process.truth, process.life
    attempt = truth.begin(job, [draw.choice(KEYS) for _ in range(draw.randrange(1, 6))])
    columns = [list(column) for column in zip(*attempt.rows, strict=True)]
    rows = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)

    def rest(done: int, total: int | None) -> None:
        life.world.step(life, "read input")

    def work(table: Table) -> None:
        life.busy_with = attempt
        try:
            result = table.ingest(rows, job_id=job, progress=rest)
        except CommitUnknown:
            raise
        except SleeperError as error:
            truth.denies(attempt, error)
            raise
        finally:
            life.busy_with = None
        truth.acknowledged(attempt, result)

    return process.do("ingest", work)


# ---------------------------------------------------------------- maintenance


def compact(process: Process, table: Table) -> None:
    summary = table.compact(all_files=process.draw.random() < 0.6)
    for job in summary.jobs:
        end = type(job.failure).__name__ if job.failure else "done"
        process.shared.ends[f"compaction job: {end}"] += 1


def split(process: Process, table: Table) -> None:
    done = sum(each.reason is None for each in table.split_partitions())
    process.shared.ends["leaves split"] += done


def merge(process: Process, table: Table) -> None:
    threshold = table.properties.splitting.threshold_rows
    done = sum(each.reason is None for each in table.merge_partitions(rows_below=threshold))
    process.shared.ends["leaves merged"] += done


def tune(process: Process, table: Table) -> None:
    """Let leaves be split that were merged, or merged that were split."""
    table.set_properties({THRESHOLD: process.draw.choice(["4", "8", "100"])})


def collect(process: Process, table: Table) -> None:
    process.shared.ends["files collected"] += len(table.collect_garbage().deleted)


def sweep(process: Process, table: Table) -> None:
    process.shared.ends["orphans swept"] += len(table.sweep_orphans().orphans)


CARE = {
    "compact": compact,
    "split": split,
    "merge": merge,
    "gc": collect,
    "sweep": sweep,
    "tune": tune,
}


def care_for_ever(process: Process) -> None:
    """Take care of the table, in any order of verbs."""
    while True:
        verb = process.draw.choice(["compact", "compact", *CARE])
        process.do(verb, lambda table: CARE[verb](process, table))  # noqa: B023


def clean_for_ever(process: Process) -> None:
    """Delete what nobody needs."""
    while True:
        verb = process.draw.choice(["gc", "gc", "sweep"])
        process.do(verb, lambda table: CARE[verb](process, table))  # noqa: B023


# ---------------------------------------------------------------- readers


def read_for_ever(process: Process) -> None:
    """Ask for the newest rows, or for those of an older version."""
    while True:
        as_of = None
        if process.draw.random() < 0.3 and process.truth.number:
            as_of = process.draw.randrange(1, process.truth.number + 1)
        process.do("query" if as_of is None else "as of", lambda table: ask(process, table, as_of))  # noqa: B023


def ask(process: Process, table: Table, as_of: int | None) -> None:
    truth, world, draw = process.truth, process.life.world, process.draw
    asked, wanted = question(draw)
    before, number = truth.number, as_of
    try:
        with table.query(**asked, as_of=as_of) as answer:
            number = answer.transaction
            found = answer.to_arrow()
    except (DataDamaged, VersionNotFound) as error:
        if as_of is not None and isinstance(error, DataDamaged):
            raise AssertionError(f"deleted version {as_of} counts as damage") from error
        held = number if number is not None else before
        if truth.must_be_readable(held, world.now):
            raise AssertionError(f"version {held} cannot be read: {error}") from error
        process.shared.ends["too late"] += 1
        return
    assert number is not None
    assert as_of is not None or number >= before, "a reader does not see what was committed"
    rows = [*zip(*(column.to_pylist() for column in found.columns), strict=True)]
    truth.check_rows(number, rows, wanted)
    process.shared.ends["rows read"] += len(rows)


def question(draw: Any) -> tuple[dict[str, Any], Callable[[Any], bool]]:
    way = draw.random()
    if way < 0.4:
        return {}, lambda row: True
    low, *more = sorted(draw.sample(KEYS, draw.randrange(2, 6)))
    if way < 0.6:
        return {"range": {"k": (low, more[0])}}, lambda row: low <= row[0] < more[0]
    return {"keys": [low, *more]}, lambda row: row[0] in (low, *more)


# ---------------------------------------------------------------- admin


def change_for_ever(process: Process) -> None:
    """Rename the table and set its properties, now and then."""
    draw = process.draw
    while True:
        if draw.random() < 0.5:
            process.do("rename", lambda table: rename(process, table))
        else:
            name, values = draw.choice(CHANGES)
            value = draw.choice(values)
            process.do("set", lambda table: table.set_properties({name: value}))  # noqa: B023
        process.life.party.rests_until = process.life.world.steps + draw.randrange(10, 80)


def rename(process: Process, table: Table) -> None:
    with suppress(TableAlreadyExists):
        table.rename(process.draw.choice(NAMES))


ROLES: dict[str, Callable[[Process], None]] = {
    "ingest": ingest_for_ever,
    "care": care_for_ever,
    "clean": clean_for_ever,
    "read": read_for_ever,
    "change": change_for_ever,
}
