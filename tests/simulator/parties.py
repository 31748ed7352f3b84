"""What the parties of a simulated world do: ingest and upsert, take care of the table, read it.

What changes the table by a call of its own is a `Change`, which the truth compares with what comes
into being meanwhile: the process is busy with it. Other changes are in `changes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from sleeper.errors import (
    CommitUnknown,
    DataDamaged,
    QueryInvalid,
    SleeperError,
    VersionNotFound,
)
from sleeper.instance.instance import Instance
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from sleeper.tables.table import Table
from tests.simulated_process import simulated_process
from tests.simulator.simulated_objects import SimulatedObjects
from tests.simulator.stand_in_engine import REGIONS_MAX, rows_of_table
from tests.simulator.truth import BASE, Attempt, Change, Columns, Truth, Upsert
from tests.simulator.world import Life, World

KEYS = range(16)
NAMES = ("t", "u")
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("attempt", pa.string()),
    ]
)
ADDED = ("x", "y", "z")
"""Names of columns that come and go."""
GC_DELAY = timedelta(minutes=60)
ORPHAN_AGE = timedelta(hours=3)
THRESHOLD = "sleeper.table.partition.splitting.threshold"
THRESHOLDS = ("4", "8", "100")
PROPERTIES = {
    "sleeper.table.compaction.files.batch.size": "3",
    "sleeper.table.compaction.job.lease.minutes": "30",
    "sleeper.table.gc.delay.minutes": str(GC_DELAY // timedelta(minutes=1)),
    "sleeper.table.gc.orphan.age.minutes": str(ORPHAN_AGE // timedelta(minutes=1)),
}
STRATEGY = "sleeper.table.ingest.file.writing.strategy"
STRATEGIES = ("one_file_per_leaf", "one_reference_per_leaf")


class Shared:
    """What the parties of one world have in common.

    Attributes:
        objects: What is stored.
        truth: What the table holds.
        open_jobs: Jobs that somebody should do (again).
        open_purges: Keys of a purge that has begun, and that somebody should go on with.
        ends: How often each verb came to which end.
        watch: Called after each entry of the table's log; None for nothing.
    """

    def __init__(self, world: World, truth: Truth) -> None:
        self.world = world
        self.truth = truth
        self.objects = MemoryObjects(lambda: world.now)
        self.open_jobs: list[str] = []
        self.open_purges: list[tuple[int, ...]] = []
        self.ends: Counter[str] = Counter()
        self.ids = 0
        self.watch: Callable[[], None] | None = None

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
                sleep=lambda seconds: life.world.sleep(life, seconds),
                new_id=self.new_id,
                back_off=lambda attempt: life.world.step(life, "pause"),
            ),
        )
        return Process(life, self, instance)

    def created(self, key: str, body: bytes, doing: Change | None) -> None:
        before = self.truth.number
        try:
            self.truth.created(key, body, self.world.now, doing, self.objects.read)
            if self.watch is not None and self.truth.number > before:
                self.watch()
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

    def change(
        self,
        change: Change,
        table: Table,
        call: Callable[[Table], Any],
        denies: Callable[[SleeperError], bool] = lambda error: not isinstance(error, CommitUnknown),
    ) -> Any:
        """Make a change, and note an error that says that it was not made; others leave it open."""
        self.life.busy_with = change
        try:
            return call(table)
        except SleeperError as error:
            if denies(error):
                self.truth.denies(change, error)
            raise
        finally:
            self.life.busy_with = None

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
        verb = "upsert" if draw.random() < 0.2 else "ingest"
        if ingest(process, job, verb) and job in shared.open_jobs and draw.random() < 0.7:
            shared.open_jobs.remove(job)


def ingest(process: Process, job: str | None, verb: str = "ingest") -> bool:
    """Do a job by a verb: `upsert` deletes the rows of its keys, or writes those of many out."""
    draw, truth, life = process.draw, process.truth, process.life
    keys = [draw.choice(KEYS) for _ in range(draw.randrange(1, 10 if verb == "ingest" else 15))]
    if process.shared.open_purges and draw.random() < 0.9:  # who is asked to stop adding them
        (purged,) = process.shared.open_purges
        keys = [key for key in keys if key not in purged] or [min({*KEYS} - {*purged})]
    ignores = draw.random() < 0.3

    def rest(done: int, total: int | None) -> None:
        life.world.step(life, "read input")

    def work(table: Table) -> None:
        kind = Upsert if verb == "upsert" else Attempt
        attempt = truth.begin(job, keys, filled_columns(draw, table), kind)
        rows, options = input_of(attempt), {"job_id": job, "ignore_extra_columns": ignores}
        result = process.change(
            attempt, table, lambda table: getattr(table, verb)(rows, progress=rest, **options)
        )
        truth.acknowledged(attempt, result)
        if verb == "upsert" and not result.already_committed:
            gone = truth.gone_between(result.transaction - 1, result.transaction)
            process.shared.ends[
                "rows replaced" if len(keys) <= REGIONS_MAX else "many replaced"
            ] += gone

    return process.do(verb, work)


def filled_columns(draw: Any, table: Table) -> list[str]:
    """Added columns that rows get a value in: some that may be null, and all others."""
    added = table.schema.values[1:]
    return [each.name for each in added if not each.nullable or draw.random() < 0.6]


def input_of(attempt: Attempt) -> pa.Table:
    columns = [list(column) for column in zip(*attempt.rows, strict=True)]
    rows = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)
    for name, value in attempt.fills.items():
        rows = rows.append_column(name, pa.array([value] * len(rows), pa.string()))
    return rows


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
    table.set_properties({THRESHOLD: process.draw.choice(THRESHOLDS)})


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
        verb = process.draw.choice([*["compact"] * 4, *CARE])
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
    names = names_to_ask_for(draw, table)
    before, number, known = truth.number, as_of, truth.newest_schema
    try:
        with table.query(**asked, columns=names, as_of=as_of) as answer:
            number, schema = answer.transaction, table.schema.number
            found = answer.to_arrow()
    except QueryInvalid as error:
        of_then = range(known, truth.newest_schema + 1)
        if as_of is not None:
            of_then = [truth.versions[as_of].schema]
        if not any(columns_named(truth.schemas[each], names) is None for each in of_then):
            raise AssertionError(f"columns {names} cannot be read: {error}") from error
        raise
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
    if as_of is not None:
        schema = truth.versions[number].schema
    assert as_of is not None or schema >= known, "a reader does not see how columns were changed"
    assert schema >= truth.versions[number].schema
    columns = columns_named(truth.schemas[schema], names)
    assert columns is not None, f"a column of {names} is not there"
    assert found.column_names == [each.name for each in columns]
    rows = rows_of_table(found)
    truth.check_rows(number, rows, wanted, columns)
    process.shared.ends["rows read"] += len(rows)
    added = [at for at, each in enumerate(columns) if each not in BASE]
    process.shared.ends["added values read"] += sum(
        row[at] is not None for row in rows for at in added
    )


def question(draw: Any) -> tuple[dict[str, Any], Callable[[Any], bool]]:
    way = draw.random()
    if way < 0.4:
        return {}, lambda row: True
    low, *more = sorted(draw.sample(KEYS, draw.randrange(2, 6)))
    if way < 0.6:
        return {"range": {"k": (low, more[0])}}, lambda row: low <= row[0] < more[0]
    return {"keys": [low, *more]}, lambda row: row[0] in (low, *more)


def names_to_ask_for(draw: Any, table: Table) -> list[str] | None:
    """Names of some columns, which need not be there; None for all."""
    way = draw.random()
    if way < 0.4:
        return None
    if way < 0.7:
        return SCHEMA.names
    names = [*table.schema.columns] if way < 0.95 else [*SCHEMA.names, *ADDED]
    return draw.sample(names, draw.randrange(1, len(names) + 1))


def columns_named(columns: Columns, names: list[str] | None) -> Columns | None:
    """The columns of these names, or all; None if one is missing."""
    if names is None:
        return columns
    by_name = {each.name: each for each in columns}
    return tuple(by_name[name] for name in names) if by_name.keys() >= {*names} else None
