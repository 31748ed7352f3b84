"""Run a simulated world from one seed, and check what is left when all are dead."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from hashlib import sha256

import pyarrow as pa

from sleeper.engine.rows import Rows
from tests.any_order.whole_instance import check_leaves_cover_the_key_space, rows_in_files
from tests.simulator.changes import CHANGES, change_for_ever, delete_for_ever, purge, purge_for_ever
from tests.simulator.parties import (
    CARE,
    GC_DELAY,
    ORPHAN_AGE,
    PROPERTIES,
    SCHEMA,
    STRATEGIES,
    STRATEGY,
    THRESHOLD,
    THRESHOLDS,
    Process,
    Shared,
    care_for_ever,
    clean_for_ever,
    ingest,
    ingest_for_ever,
    read_for_ever,
)
from tests.simulator.stand_in_engine import rows_of, rows_of_table, stand_in_engine
from tests.simulator.truth import Truth
from tests.simulator.world import FAULTS, Life, Weather, World

ROLES: dict[str, Callable[[Process], None]] = {
    "ingest": ingest_for_ever,
    "care": care_for_ever,
    "clean": clean_for_ever,
    "read": read_for_ever,
    "change": change_for_ever,
    "delete": delete_for_ever,
    "purge": purge_for_ever,
}
STEPS = 400
BEGINNINGS = 24
OTHERS = ((), ("delete",), ("delete",), ("change",), ("delete", "change"), ("purge", "delete"))
STEPS_OF_A_PURGE = 2
TURNS_OF_A_PURGE = 3
"""To purge keys takes some hundreds of calls: a world with that has so many times as many, and who
does it has its turn so many times as often as others."""
CLOCKS = (0.0, 0.0, 0.5, -0.5, 7.0, -7.0, 60.0, -60.0, 5e3, -5e3, 5e6, -5e6)
CALM = Weather(dict.fromkeys(FAULTS, 0.0), stay=1.0, leap=0.0, sleep=0.0, clocks=[0.0])


@dataclass(frozen=True)
class Outcome:
    """What one run came to.

    Attributes:
        seed: Repeats it.
        steps: Calls of all parties.
        trace: A hash of every call in its order.
        counts: How often which fault was injected.
        ends: How often each verb came to which end.
    """

    seed: int
    steps: int
    trace: str
    counts: Counter[str]
    ends: Counter[str]


def simulate(seed: int, steps: int = STEPS, *, watched: bool = True) -> Outcome:
    """Run one world; raise what was found wrong.

    Args:
        seed: Decides everything.
        steps: The world ends after so many calls.
        watched: Whether the whole table is read after each entry of its log, by a process whose
            calls do not fail.

    Raises:
        AssertionError: something is not as it must be.
    """
    collecting, threads = gc.isenabled(), pa.cpu_count()
    gc.disable()  # no generator may be closed at a time that depends on other things
    pa.set_cpu_count(1)  # nor may groups come in the order in which threads end
    try:
        with stand_in_engine():
            return _simulate(seed, steps, watched)
    finally:
        pa.set_cpu_count(threads)
        if collecting:
            gc.enable()


def _simulate(seed: int, steps: int, watched: bool) -> Outcome:
    draw = random.Random(seed)
    shared = begun(draw.randrange(BEGINNINGS)).copy_for(
        World(draw, Weather.of(draw, CLOCKS), steps)
    )
    world = shared.world
    more = draw.choices([*ROLES], k=draw.randrange(0, 2))
    roles = ["ingest", "care", "read", *draw.choice(OTHERS), *more]
    if "purge" in roles:
        world.steps_max *= STEPS_OF_A_PURGE
    for place, role in enumerate(roles):
        turns = TURNS_OF_A_PURGE if role == "purge" else 1
        world.add(f"{role}-{place}", partial(live, shared, ROLES[role]), turns)
    if watched:
        shared.watch = partial(check_newest, alone(shared, random.Random(seed)))
    world.run()
    shared.watch = None
    check_end(shared)
    trace = sha256("\n".join(world.trace).encode()).hexdigest()
    return Outcome(seed, world.steps, trace, world.counts, shared.ends)


def live(shared: Shared, work: Callable[[Process], None], life: Life) -> None:
    work(shared.process(life))


def alone(shared: Shared, draw: random.Random | None = None) -> Process:
    """A process whose calls neither fail nor wait; others wait for it, or have not begun."""
    draw = draw or shared.world.draw
    quiet = World(draw, CALM, steps_max=1_000_000, start=shared.world.now)
    quiet.add("alone", lambda life: None)
    return shared.process(Life(quiet.parties[0]))


@cache
def begun(number: int) -> Shared:
    """A table to begin with: a few things were done to it, and none of them failed.

    Made once for each number; runs work on copies.
    """
    draw = random.Random(number)
    shared = Shared(World(draw, CALM, steps_max=0), Truth(GC_DELAY))
    process = alone(shared)
    properties = {**PROPERTIES, STRATEGY: STRATEGIES[number % 2]}
    properties[THRESHOLD] = draw.choice(THRESHOLDS)
    points = sorted(draw.sample(range(3, 14), number % 3))
    process.handle = process.instance.create_table(
        "t", SCHEMA, row_keys=["k"], sort_keys=["n"], split_points=points, properties=properties
    )
    verbs = {name: CARE[name] for name in CARE if name != "tune"}  # each is one more entry to read
    verbs |= {name: CHANGES[name] for name in ("delete many", "delete where")}
    if number // 2 % 2:
        verbs |= {name: CHANGES[name] for name in ("alter", "delete")}
    else:
        process.handle.downgrade()
    for _ in range(number):
        shared.world.now += timedelta(minutes=draw.choice([0, 1, 30]))
        verb = draw.choice([*["ingest"] * 9, *verbs])
        if verb == "ingest":
            ingest(process, None, draw.choice(["ingest", "ingest", "ingest", "upsert"]))
        else:
            verbs[verb](process, process.handle)
    if number % 4:
        process.handle._current().store.write_snapshot()  # so that few entries are read each time
    return shared


def check_end(shared: Shared) -> None:
    """All are dead. A fresh process reads the table, cleans up, and finds nothing left over."""
    world, truth = shared.world, shared.truth
    check_table(alone(shared))
    world.now += timedelta(days=1)
    if shared.open_purges:
        go_on_with_purge(alone(shared))
    table = alone(shared).table()
    has_deletes = bool(table.state().deletes)
    table.compact(all_files=has_deletes)  # takes back what dead processes had claimed
    world.now += ORPHAN_AGE + timedelta(days=1)
    process = alone(shared)
    table = process.table()
    table.collect_garbage()
    table.sweep_orphans()
    check_table(alone(shared))
    files = shared.objects.under(table.table_id)
    known = {each.filename for each in table.state().references()}
    stored = {info.key for info in files.listing("data/")}
    assert stored == known, "something is left over, or missing"
    assert truth.number == table.state().number
    assert table.state().deletes == (), "a deletion that every file obeys is kept"


def go_on_with_purge(process: Process) -> None:
    """Nobody adds rows any more: a purge goes on, and finds no key at the end."""
    shared = process.shared
    finished = shared.ends["purges finished"]
    purge(process, process.table())
    assert shared.ends["purges finished"] > finished, "a purge has found keys that it has left"


def check_newest(process: Process) -> None:
    """Every row of the newest version is read once."""
    shared, truth = process.shared, process.truth
    with process.table().query() as answer:
        assert answer.transaction == truth.number
        check_all_rows(truth, answer, truth.newest_schema)
    shared.ends["versions read"] += 1


def check_table(process: Process) -> None:
    """Every row is read once, and its file is where it belongs; old versions are kept."""
    shared, truth = process.shared, process.truth
    table = process.table()
    state = table.state()
    assert state.number == truth.number
    with table.query() as answer:
        check_all_rows(truth, answer, truth.newest_schema)
    check_leaves_cover_the_key_space(state.tree)
    rows_in_files(shared.objects.under(table.table_id), table, rows_of)
    assert table.report_files().rows == sum(each.row_count for each in state.references())
    kept = [n for n in range(1, truth.number) if truth.must_be_readable(n, shared.world.now)]
    for number in sorted({*kept[:1], *process.draw.sample(kept, min(2, len(kept)))}):
        with table.query(as_of=number) as answer:
            check_all_rows(truth, answer, truth.versions[number].schema)


def check_all_rows(truth: Truth, answer: Rows, schema: int) -> None:
    """All rows and columns of a version are as the truth has them."""
    columns, found = truth.schemas[schema], answer.to_arrow()
    assert found.column_names == [each.name for each in columns]
    assert answer.transaction is not None
    truth.check_rows(answer.transaction, rows_of_table(found), lambda row: True, columns)
