"""Every point at which an operation can die, lose a reply, be refused, or be overtaken.

An operation is run over healthy storage first, to count its calls. Then it is run again for each
call and each kind of fault, on a copy of the same objects. What is left behind is opened by the
next process, held against what was there before and what should be there after, and the
operation is run once more. Storage that two runs left alike is looked at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.errors import (
    CommitRefused,
    CommitUnknown,
    NotFound,
    PartitionMergeRefused,
    SleeperError,
    SplitInvalid,
    StorageFailed,
    TableAlreadyExists,
    TableNotFound,
)
from sleeper.instance.instance import Instance
from sleeper.model.partitions import split_partition
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.partitions import SplitPartition
from sleeper.storage.memory import MemoryObjects
from sleeper.tables import upsert
from sleeper.tables.push_down import push_down_references
from tests.any_order.faults import Call, Fault, Faults, FaultyObjects, Killed
from tests.any_order.whole_instance import (
    NOON,
    as_tuples,
    check_instance,
    copy_of,
    counted_ids,
    image_of,
    multiset,
    open_instance,
    orphans,
)
from tests.soak import some

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
OLD = pa.table({"k": [1, 11, 12], "v": ["a", "b", "c"]}, schema=SCHEMA)
NEW = pa.table({"k": [12, 2, 1, 30], "v": ["d", "e", "f", None]}, schema=SCHEMA)
OTHER = pa.table({"k": [3, 12], "v": ["g", "h"]}, schema=SCHEMA)
STRATEGY = "sleeper.table.ingest.file.writing.strategy"
DEATHS = ("before", "after")
FAILURES = ("lost", "refused")
OUTAGE_CALLS = 40


# ---------------------------------------------------------------- operations


@dataclass(frozen=True)
class Operation:
    """Something that one process does to an instance.

    Attributes:
        run: Does it, with a handle of its own.
        done: What running it once more may say when it was done already.
        clears_up: Whether it deletes files, or writes a snapshot, once its change is made, so that
            a failure may be told of a change that has happened. To run it again is safe all the
            same.
        faults_from: What the first call is named that may fail: those before it fail as they do
            in another operation of this file.
        prepare: What the instance is like before, but for the table `t` with old rows.
    """

    name: str
    run: Callable[[Instance], Any]
    done: tuple[type[SleeperError], ...] = ()
    clears_up: bool = False
    faults_from: str = ""
    prepare: Callable[[Instance], object] = lambda instance: None

    def __str__(self) -> str:
        return self.name


def ingest(rows, job_id):
    return lambda instance: instance.table("t").ingest(rows, job_id=job_id)


def one_reference_per_leaf(instance):
    instance.table("t").set_properties({STRATEGY: "one_reference_per_leaf"})


def come_to_the_eve_of_a_snapshot(instance):
    """Commit what has no rows, so that a snapshot is due after the next commit."""
    store = instance.table("t")._current().store
    for number in range(store.state().number, 99):
        job = CommittedJob(job_id=f"empty-{number}", keep_until=NOON, rows_read=0, rows_written=0)
        store.commit(AddFiles(job=job))


def split_the_upper_leaf(instance):
    store = instance.table("t")._current().store
    leaf = store.refresh().tree.leaf_of((15,))
    parent, lower, upper = split_partition(leaf, 20, new_id=instance._context.new_id)
    return store.commit(SplitPartition(parent=parent, children=(lower, upper)))


def files_on_a_split_partition(instance):
    """Two files on each leaf, and then one of the leaves is split."""
    instance.table("t").ingest(OTHER, job_id="other")
    split_the_upper_leaf(instance)


def one_large_leaf(instance):
    """Five rows on the upper leaf, four on the other."""
    table = instance.table("t")
    table.ingest(OTHER, job_id="other")
    table.ingest(pa.table({"k": [2, 4, 12, 30], "v": ["i"] * 4}, schema=SCHEMA), job_id="more")
    table.set_properties({"sleeper.table.partition.splitting.threshold": "5"})


def files_replaced(instance):
    """Files that were compacted, and wait for the collector."""
    instance.table("t").ingest(OTHER, job_id="other")
    instance.table("t").compact(all_files=True)


def parts_of_a_file_on_two_leaves(instance):
    """Files on a partition, whose references were pushed down when it was split."""
    files_on_a_split_partition(instance)
    table = instance.table("t")
    opened = table._current()
    push_down_references(opened)


def merge_small_leaves(instance):
    """Merge two leaves, or say what stands in the way of all."""
    reasons = [each.reason for each in instance.table("t").merge_partitions(rows_below=4)]
    if reasons and None not in reasons:
        raise PartitionMergeRefused(str(reasons))


def old_files_left_behind(instance):
    """A job that was killed four days ago had written a file and its sketch, another one file."""
    surroundings = instance._context
    long_ago = MemoryObjects(lambda: NOON - timedelta(days=4))
    for name in ("killed-job.parquet", "killed-job.sketches", "other.parquet"):
        key = f"{instance.table('t').table_id}/data/partition_x/{name}"
        long_ago.put(key, b"unfinished business")
    surroundings.objects._bodies.by_key.update(long_ago._bodies.by_key)


def create_another(instance):
    return instance.create_table("u", SCHEMA, row_keys=["k"], split_points=[5])


def upsert_many(instance):
    """Replace rows as if they were many: older files lose the keys of the new ones."""
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(upsert, "REGIONS_MAX", 0)
        return instance.table("t").upsert(NEW, job_id="upserted")


INGEST = Operation("ingest", ingest(NEW, "job"))
INGEST_ONE_FILE = Operation("ingest-one-file", ingest(NEW, "job"), prepare=one_reference_per_leaf)
INGEST_NOTHING = Operation("ingest-nothing", ingest(NEW.slice(0, 0), "job"))
INGEST_AND_SNAPSHOT = Operation(
    "ingest-and-snapshot",
    ingest(NEW, "job"),
    faults_from="create statestore/transactions",
    prepare=come_to_the_eve_of_a_snapshot,
)
INGEST_OTHER = Operation("ingest-other", ingest(OTHER, "other"))
SPLIT = Operation("split", split_the_upper_leaf, done=(CommitRefused, SplitInvalid))
CREATE = Operation("create", create_another, done=(TableAlreadyExists,))
RENAME = Operation("rename", lambda i: i.table("t").rename("renamed"), done=(TableNotFound,))
REINITIALISE = Operation("reinitialise", lambda i: i.table("t").reinitialise(), clears_up=True)
REPARTITION = Operation(
    "repartition", lambda i: i.table("t").reinitialise([3, 6, 9]), clears_up=True
)
DELETE = Operation("delete", lambda i: i.delete_table("t"), done=(TableNotFound,), clears_up=True)
SET = Operation("set", lambda i: i.table("t").set_properties({STRATEGY: "one_reference_per_leaf"}))
OFFLINE = Operation("offline", lambda i: i.table("t").set_online(online=False))
DOWNGRADE = Operation("downgrade", lambda i: i.table("t").downgrade(), clears_up=True)
UPGRADE = Operation("upgrade", lambda i: i.table("t").upgrade(), prepare=DOWNGRADE.run)

COMPACT = Operation(
    "compact",
    lambda i: i.table("t").compact(all_files=True),
    prepare=files_on_a_split_partition,
)
DELETE_WHERE = Operation(
    "delete-where",
    lambda i: i.table("t").delete(where="k < 15 AND v <> 'b'", job_id="deleted"),
    prepare=files_on_a_split_partition,
)
DELETE_KEYS = Operation(
    "delete-keys",
    # Others may have given the table format 1.
    lambda i: (UPGRADE.run(i), i.table("t").delete(keys=[1, 10, 12, 20], job_id="deleted")),
    prepare=files_on_a_split_partition,
)
UPSERT = Operation(
    "upsert",
    lambda i: i.table("t").upsert(NEW, job_id="upserted"),
    prepare=files_on_a_split_partition,
)
UPSERT_FORMAT_1 = Operation(
    "upsert-format-1",
    lambda i: i.table("t").upsert(NEW, job_id="upserted"),
    prepare=lambda i: (files_on_a_split_partition(i), DOWNGRADE.run(i)),
)
UPSERT_RANGES = Operation(
    "upsert-ranges",
    upsert_many,
    prepare=files_on_a_split_partition,
)
PURGE = Operation(
    "purge",
    lambda i: i.table("t").purge(keys=[1, 10, 12, 20]),
    clears_up=True,
    prepare=lambda i: (
        files_on_a_split_partition(i),
        i.table("t").delete(keys=[11, 12]),
    ),
)
UPGRADE_AND_PURGE = Operation("upgrade-and-purge", lambda i: (UPGRADE.run(i), PURGE.run(i)))
SPLIT_LARGE = Operation(
    "split-large", lambda i: i.table("t").split_partitions(), prepare=one_large_leaf
)
COLLECT = Operation(
    "collect-garbage",
    lambda i: i.table("t").collect_garbage(force=True),
    clears_up=True,
    prepare=files_replaced,
)

MERGE = Operation(
    "merge",
    merge_small_leaves,
    prepare=parts_of_a_file_on_two_leaves,
)
SWEEP = Operation(
    "sweep", lambda i: i.table("t").sweep_orphans(), clears_up=True, prepare=old_files_left_behind
)

INGESTS = (INGEST, INGEST_ONE_FILE, INGEST_NOTHING, INGEST_AND_SNAPSHOT)
OTHERS = (
    SPLIT,
    CREATE,
    RENAME,
    REINITIALISE,
    REPARTITION,
    DELETE,
    SET,
    OFFLINE,
    UPGRADE,
    DOWNGRADE,
)
UPKEEP = (
    *(COMPACT, DELETE_WHERE, DELETE_KEYS, UPSERT, UPSERT_FORMAT_1, UPSERT_RANGES),
    SPLIT_LARGE,
    *(MERGE, COLLECT, SWEEP),
)
SMALL = (INGEST, SPLIT, CREATE, RENAME, REPARTITION, DELETE)
OVERTAKING = (INGEST, INGEST_OTHER, *OTHERS, *UPKEEP, UPGRADE_AND_PURGE)


# ---------------------------------------------------------------- running and looking


@cache
def prepared(operation: Operation) -> MemoryObjects:
    """The instance before the operation: a table of two leaves with old rows. Work on copies."""
    objects = MemoryObjects(lambda: NOON)
    instance = open_instance(objects, counted_ids())
    instance.create_table("t", SCHEMA, row_keys=["k"], split_points=[10])
    instance.table("t").ingest(OLD, job_id="old")
    operation.prepare(instance)
    return objects


@dataclass
class Run:
    """One run of an operation by a process of its own, and how it ended."""

    objects: MemoryObjects
    faults: Faults
    instance: Instance
    outcome: str
    error: BaseException | None = None


def run(operation: Operation, before: MemoryObjects, faults: Faults, first_id: int) -> Run:
    """Run an operation over a copy of some objects."""
    objects = copy_of(before)
    instance = open_instance(FaultyObjects(objects, faults), counted_ids(first_id))
    done = Run(objects, faults, instance, "acknowledged")
    try:
        operation.run(instance)
    except (Killed, SleeperError) as error:
        done.outcome, done.error = type(error).__name__, error
    return done


@cache
def healthy_run(operation: Operation) -> Run:
    """The operation over healthy storage."""
    done = run(operation, prepared(operation), Faults(), 1_000)
    assert done.outcome == "acknowledged"
    return done


def calls_of(operation: Operation) -> range:
    """The calls that may fail while the operation runs over healthy storage."""
    names = healthy_run(operation).faults.names
    starts = (n for n, name in enumerate(names) if name.startswith(operation.faults_from))
    return range(next(starts), len(names))


SEEN: dict[Any, dict[str, Any]] = {}
SEEN_MAX = 20_000  # what a soak may hold in memory


def seen(objects: MemoryObjects) -> dict[str, Any]:
    """All that a user can tell of an instance, once it was checked. The same objects: the same."""
    image = image_of(objects)
    if image not in SEEN:
        if len(SEEN) >= SEEN_MAX:
            SEEN.clear()
        SEEN[image] = look_at(objects)
    return SEEN[image]


def look_at(objects: MemoryObjects) -> dict[str, Any]:
    """Check an instance, and ask for all of it."""
    instance = open_instance(objects, counted_ids(9_000_000))
    stored = check_instance(objects, instance)
    told = {}
    for record in instance.tables():
        table = instance.table(record.name)
        with table.query() as answer:
            rows = multiset(as_tuples(answer.to_arrow()))
        assert rows == multiset(stored[record.name])
        leaves = [leaf.region for leaf in table.state().tree.leaves()]
        settings = {
            name: value
            for name, value in record.properties.items()
            if not name.endswith(("table.id", "table.name"))
        }
        told[record.name] = (rows, leaves, record.online, settings, table.state().format)
    return told


@dataclass
class Effect:
    """What an operation does: what can be seen before it and after it."""

    operation: Operation
    before: MemoryObjects
    old: dict[str, Any]
    new: dict[str, Any]
    calls: range
    runs: int = 0
    outcomes: set[str] = field(default_factory=set)
    images: dict[Any, MemoryObjects] = field(default_factory=dict)

    @classmethod
    def of(cls, operation: Operation) -> Effect:
        before, after = prepared(operation), healthy_run(operation).objects
        return cls(operation, before, seen(before), seen(after), calls_of(operation))

    def check(self, done: Run) -> None:
        """Check what one faulty run left, unless another left and told the same."""
        self.runs += 1
        self.outcomes.add(done.outcome)
        check_error(done)
        place = (image_of(done.objects), done.outcome)
        if place in self.images:
            return
        self.images[place] = done.objects
        now = seen(done.objects)
        assert now in (self.old, self.new), "neither wholly there nor wholly absent"
        if done.outcome == "acknowledged":
            assert now == self.new, "an acknowledged change was lost"
        if isinstance(done.error, StorageFailed) and not self.operation.clears_up:
            assert now == self.old, "told that nothing was done, and something was"
        objects = copy_of(done.objects)
        self.check_again(open_instance(objects, counted_ids(8_000_000)), objects, now)

    def check_again(self, instance: Instance, objects: MemoryObjects, now: dict[str, Any]) -> None:
        """I4: whoever runs the operation again finds it done, or does it: exactly once."""
        try:
            self.operation.run(instance)
        except self.operation.done:
            assert now == self.new
        assert seen(objects) == self.new
        # What was deleted in part is known to whoever goes on, so nothing is left for a sweep.
        assert self.operation not in (COLLECT, SWEEP) or not has_orphans(objects)


def has_orphans(objects: MemoryObjects) -> bool:
    """Whether files were left that nobody references; they belong to no row that counts."""
    instance = open_instance(objects, counted_ids(9_500_000))
    return any(
        orphans(objects.under(record.table_id), instance.table(record.name))
        for record in instance.tables()
    )


def check_error(done: Run) -> None:
    """Only what the house promises is raised; an unknown outcome is unknown indeed."""
    if done.error is None or isinstance(done.error, Killed):
        return
    assert isinstance(done.error, (StorageFailed, CommitUnknown)), done.error
    if isinstance(done.error, CommitUnknown):
        assert truth_is_unknown(done.faults.seen), [call.name for call in done.faults.seen]


def truth_is_unknown(calls: list[Call]) -> bool:
    """Whether an entry was sent without an answer, and nothing since has told its fate.

    A read that finds no entry tells nothing: what was sent may still be on its way. What comes
    after must not have deleted anything.
    """
    sent: dict[str, int] = {}
    for place, call in enumerate(calls):
        verb, _, key = call.name.partition(" ")
        if verb == "create" and call.fault:
            sent.setdefault(key, place)
        elif key in sent and not call.fault and call.answer is not None:
            del sent[key]
    if not sent:
        return False
    first = min(sent.values())
    return not any(call.name.startswith("delete") for call in calls[first:])


# ---------------------------------------------------------------- one fault


MANY_CALLS = 40
"""Of a verb with more calls, `make test` lets some fail, and `make soak` each of them."""


def deaths_in(calls: range) -> list[Fault]:
    """The deaths before and after calls, or some of many."""
    return [Fault(call, kind) for call in some(calls, at_most=MANY_CALLS) for kind in DEATHS]


@pytest.mark.soak
@pytest.mark.parametrize("operation", [*INGESTS, *OTHERS, *UPKEEP], ids=str)
class TestEveryPoint:
    """F1, F2: one operation, one fault, at each call that it makes."""

    def test_of_death_leaves_all_or_nothing(self, operation):
        """I1 to I4: killed before or after any call, it is wholly done or not at all."""
        effect = Effect.of(operation)
        deaths = deaths_in(effect.calls)

        for death in deaths:
            effect.check(run(operation, effect.before, Faults((death,)), 1_000))

        assert effect.runs == len(deaths) >= 6
        assert effect.outcomes == {"Killed"}
        assert len(effect.images) >= 2  # the old and the new were both left by some death

    @pytest.mark.parametrize("kind", FAILURES)
    def test_of_failure_is_told_truly(self, operation, kind):
        """I1, I2: a lost reply or a refused call ends in success, or in the error that is so."""
        effect = Effect.of(operation)
        calls = some(effect.calls, at_most=MANY_CALLS)

        for call in calls:
            done = run(operation, effect.before, Faults((Fault(call, kind),)), 1_000)
            effect.check(done)
            if done.outcome != "acknowledged":  # it lives on, and does again what it could not
                effect.check_again(done.instance, done.objects, seen(done.objects))

        assert effect.runs == len(calls) >= 3
        assert effect.outcomes <= {"acknowledged", "StorageFailed"}
        assert len(effect.images) >= 2

    @pytest.mark.parametrize("kind", FAILURES)
    def test_of_a_long_outage_is_told_truly(self, operation, kind):
        """F3: from each call on every call fails, until the operation gives up."""
        effect = Effect.of(operation)
        calls = some(effect.calls, at_most=MANY_CALLS)

        for start in calls:
            plan = tuple(Fault(call, kind) for call in range(start, start + OUTAGE_CALLS))
            effect.check(run(operation, effect.before, Faults(plan), 1_000))

        assert effect.runs == len(calls) >= 3
        assert "CommitUnknown" in effect.outcomes or operation is SWEEP  # which commits nothing


@pytest.mark.parametrize("kind", DEATHS)
def test_a_downgrade_that_died_anywhere_is_completed_by_the_next(kind):
    """Versions that know format 1 alone find a snapshot of it, and nothing later of format 2."""
    before = prepared(DOWNGRADE)

    for call in calls_of(DOWNGRADE):
        dead = run(DOWNGRADE, before, Faults((Fault(call, kind),)), 1_000)
        table = open_instance(dead.objects, counted_ids(2_000)).table("t")
        change = table.downgrade()

        files = dead.objects.under(table.table_id)
        snapshots = [info.key for info in files.listing("statestore/snapshots/")]
        newest = max(key for key in snapshots if key.endswith("-partitions.parquet"))
        about = pq.read_schema(pa.BufferReader(files.read(newest))).metadata
        assert about[b"sleeper.format"] == b"1", dead.faults.names[call]
        assert int(about[b"sleeper.transaction"]) == change.transaction == table.state().number


@pytest.mark.parametrize("kind", [*DEATHS, *FAILURES])
def test_a_purge_that_ended_anywhere_is_completed_by_the_next(kind):
    """DEL-4: given limits that are keys, and a deletion that names some, the proof is whole."""
    before = prepared(PURGE)
    wanted = seen(healthy_run(PURGE).objects)["t"][0]
    calls = calls_of(PURGE)[5 * (*DEATHS, *FAILURES).index(kind) :]  # other calls for each

    for call in some(calls, one_in=19):
        dead = run(PURGE, before, Faults((Fault(call, kind),)), 1_000)
        table = open_instance(dead.objects, counted_ids(2_000)).table("t")
        proof = table.purge(keys=[1, 10, 12, 20])

        name = dead.faults.names[call]
        assert proof.finished, (name, proof.findings)
        assert len(table.purges()) <= 2, name  # it goes on, or had ended
        assert all(each.finished for each in table.purges()), name
        assert {10, 20}.isdisjoint(table.split_points()), name
        assert seen(dead.objects)["t"][0] == wanted, name
        assert table.verify().findings == (), name


@pytest.mark.parametrize("operation", INGESTS, ids=str)
def test_an_ingest_that_fails_before_its_commit_takes_its_files_away(operation):
    """
    ING-8: while storage fails only once, a run that tells of failure leaves no file behind; a
    run that cannot know leaves all of them.
    """
    before = prepared(operation)
    failed = 0

    for call in calls_of(operation):
        done = run(operation, before, Faults((Fault(call, "refused"),)), 1_000)
        failed += isinstance(done.error, StorageFailed)
        assert not has_orphans(done.objects), done.faults.names[call]

    assert failed >= 3 or operation.faults_from


def test_an_ingest_that_fails_leaves_no_thread_behind():
    """
    Whoever keeps the error keeps the frames of the run alive. The sort's thread must have ended
    all the same: if that were left to Python's garbage collector, it could stop the process.
    """
    before = prepared(INGEST)
    failed = []

    for call in calls_of(INGEST):
        done = run(INGEST, before, Faults((Fault(call, "refused"),)), 1_000)
        failed += [done.error] if isinstance(done.error, StorageFailed) else []
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("sleeper-sort")]

    assert len(failed) >= 3


def test_dead_ingests_leave_orphans_and_nothing_else():
    """What a death leaves is not referenced by any version; the next run does not need it."""
    effect = Effect.of(INGEST)

    for call in effect.calls:
        effect.check(run(INGEST, effect.before, Faults((Fault(call, "after"),)), 1_000))

    with_orphans = sum(map(has_orphans, effect.images.values()))
    assert with_orphans >= 2  # one file of two, or both: sketches lie in them


# ---------------------------------------------------------------- two faults


@pytest.mark.soak
@pytest.mark.parametrize("operation", [*SMALL, *UPKEEP], ids=str)
def test_two_processes_die_at_any_two_points_and_the_third_succeeds(operation):
    """F1 in pairs: the second, which does the same again, may die wherever it likes too."""
    effect = Effect.of(operation)
    left: dict[Any, MemoryObjects] = {}
    pairs = 0

    for death in deaths_in(effect.calls):
        first = run(operation, effect.before, Faults((death,)), 1_000)
        left.setdefault(image_of(first.objects), first.objects)
    seconds = [
        (before, Fault(call, kind))
        for before in left.values()
        for call in range(run(operation, before, Faults(), 2_000).faults.calls)
        for kind in DEATHS
    ]
    for before, fault in some(seconds, at_most=60):
        done = run(operation, before, Faults((fault,)), 2_000)
        pairs += 1
        if done.outcome == "Killed":
            effect.check(done)
        else:
            assert isinstance(done.error, operation.done)

    assert len(left) >= 2
    assert pairs >= 20
    assert len(effect.images) >= len(left)


@pytest.mark.soak
@pytest.mark.parametrize("operation", [*SMALL, *UPKEEP], ids=str)
def test_a_failure_and_then_a_death_or_a_failure_leave_all_or_nothing(operation):
    """F2 in pairs: the second fault may hit the very look that clears up the first."""
    effect = Effect.of(operation)

    # Later than so many calls after the first the run is what it was, one call longer.
    reach = 5 if operation in UPKEEP else 11
    plans = [
        (Fault(first, failure), Fault(second, kind))
        for first in effect.calls
        for failure in FAILURES
        for second in range(first + 1, min(first + reach, effect.calls.stop + 4))
        for kind in (*DEATHS, *FAILURES)
    ]
    for plan in some(plans, one_in=3, at_most=100 if operation in UPKEEP else 150):
        effect.check(run(operation, effect.before, Faults(plan), 1_000))

    assert effect.runs >= len(effect.calls)
    assert {"Killed", "acknowledged", "StorageFailed"} <= effect.outcomes


# ---------------------------------------------------------------- two processes at a time


def told(operation: Operation, instance: Instance) -> str:
    """Run an operation and say how it ended, in one word."""
    try:
        operation.run(instance)
    except (CommitRefused, NotFound, SplitInvalid, TableAlreadyExists):
        return "refused"
    return "done"


def without_leaves(turn: tuple[str, str, Any]) -> tuple[str, str, Any]:
    """What two operations came to, but for the leaves of tables."""
    one, two, tables = turn
    return one, two, {name: (rows, *rest) for name, (rows, _, *rest) in tables.items()}


FIRST: dict[Any, tuple[str, MemoryObjects]] = {}


def after_first(operation: Operation, before: MemoryObjects) -> tuple[str, MemoryObjects]:
    """What the first of two operations is told and leaves. The same objects: the same.

    Many begin alike, and what follows works on copies.
    """
    place = (operation, image_of(before))
    if place not in FIRST:
        objects = copy_of(before)
        said = told(operation, open_instance(objects, counted_ids(1_000)))
        FIRST[place] = said, objects
    return FIRST[place]


@dataclass
class Overtaking:
    """What two operations come to one after the other, and so what they may come to at once."""

    slow: Operation
    fast: Operation
    before: MemoryObjects

    def __post_init__(self) -> None:
        one, two, end = self.in_turn(self.slow, self.fast)
        other_two, other_one, other_end = self.in_turn(self.fast, self.slow)
        self.turns = [(one, two, end), (other_one, other_two, other_end)]
        _, alone = self.alone(self.fast)
        # The slow one may be refused: it planned from what is no longer so. Then it did nothing.
        self.turns.append(("refused", "done", alone))
        if self.fast == MERGE and self.slow in (COMPACT, DELETE_WHERE, UPSERT_FORMAT_1, PURGE):
            # It leaves jobs in peace.
            self.turns.append(("done", "refused", self.alone(self.slow)[1]))
        if RENAME in (self.slow, self.fast):
            # Who has found a table by its name holds it by its id: a rename refuses nobody.
            self.turns += [("done", "done", end), ("done", "done", other_end)]

    def alone(self, operation: Operation) -> tuple[str, Any]:
        said, objects = after_first(operation, self.before)
        return said, seen(objects)

    def in_turn(self, first: Operation, second: Operation) -> tuple[str, str, Any]:
        one, objects = after_first(first, self.before)
        objects = copy_of(objects)
        two = told(second, open_instance(objects, counted_ids(2_000)))
        return one, two, seen(objects)

    def check_at(self, call: int, *kinds: str) -> str:
        """The fast one runs whole before this call of the slow one, which may fail as well."""
        plan = tuple(Fault(call, kind) for kind in kinds)
        objects, faults, said = copy_of(self.before), Faults(plan), []
        other = open_instance(objects, counted_ids(2_000))
        faults.meanwhile[call] = lambda: said.append(told(self.fast, other))
        mine = told(self.slow, open_instance(FaultyObjects(objects, faults), counted_ids(1_000)))
        if said:  # else the slow one ended before that call
            name = faults.names[call]
            found, turns = (mine, *said, seen(objects)), self.turns
            if self.slow is PURGE:  # where it splits instead hangs on the rows of that moment
                found, *turns = map(without_leaves, [found, *turns])
            assert found in turns, (self.fast.name, name)
        return faults.names[call] if said else ""


@cache
def overtaking(slow: Operation, fast: Operation) -> Overtaking:
    """What two operations come to; other tests of the same two know it already."""
    return Overtaking(slow, fast, prepared(slow))


ONE_TURN_IN = {20: 3, 30: 5, 50: 7, 100: 31, 1_000: 47}
"""Of a verb with so many calls at most, each other verb overtakes one in so many; all of them
together overtake every call of most verbs, and every second call of the longest."""


@pytest.mark.soak
@pytest.mark.parametrize("slow", [INGEST, *OTHERS, *UPKEEP, PURGE], ids=str)
def test_a_process_that_is_overtaken_ends_as_if_they_had_taken_turns(slow):
    """
    F5, I3, I10: while one process rests before any of its calls, another does a whole operation.
    What both are told and what is there at the end is as if one had come after the other, or as
    if the slow one had never come, and was told so.
    """
    calls = calls_of(slow)
    one_in = next(few for most, few in ONE_TURN_IN.items() if len(calls) <= most)
    apart = max(1, one_in // len(OVERTAKING))
    checked = 0

    for place, fast in enumerate(OVERTAKING):
        if (slow, fast) == (DELETE_KEYS, DOWNGRADE):
            continue  # whoever upgrades and then deletes is refused rightly in between
        pair = overtaking(slow, fast)
        first = apart * place % one_in  # other calls for each
        for call in some([*calls[first:], *calls[:first]], one_in=one_in):
            pair.check_at(call)
            checked += 1

    assert checked >= len(OVERTAKING) >= 10


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("slow", SMALL, ids=str)
def test_a_process_whose_entry_fails_as_another_takes_its_number_tells_them_apart(slow, kind):
    """
    F2 with F5, I3: the entry under the number that was sent is another's. It is not taken for
    one's own, whatever became of the reply.
    """
    contested = set()

    for fast in OVERTAKING:
        pair = overtaking(slow, fast)
        contested |= {pair.check_at(call, kind) for call in entries_of(slow)}

    assert any(name.startswith("create ") for name in contested)


def entries_of(operation: Operation) -> list[int]:
    """The calls that create an entry of a log."""
    names = healthy_run(operation).faults.names
    return [number for number, name in enumerate(names) if name.startswith("create ")]
