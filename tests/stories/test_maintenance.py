"""A table that is written to all day stays quick: compaction, splitting, garbage collection."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import pytest

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import (
    BadRequest,
    ClockTooFarAhead,
    DataDamaged,
    FileReferenceNotAssignedToJob,
    StorageFailed,
)
from sleeper.model.files import ClaimOwner
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.state.plans.compactions import CompactionSettings, plan_compactions
from sleeper.state.transactions.files import Claim, ClaimFiles
from sleeper.storage.memory import MemoryObjects
from sleeper.tables.compact import run_here, run_jobs, write_output
from sleeper.tables.push_down import push_down_references
from tests.any_order.whole_instance import open_instance

SCHEMA = Schema(row_keys=[Field("id", Primitive.LONG)], values=[Field("n", Primitive.LONG)])
THRESHOLD = "sleeper.table.partition.splitting.threshold"
OTHER = ClaimOwner(host="elsewhere", pid=4711, worker_id="w-1")
DELAY = "sleeper.table.gc.delay.minutes"


class World:
    """An instance in memory with a clock to turn."""

    def __init__(self):
        self.now = datetime(2026, 6, 1, tzinfo=UTC)
        self.objects = MemoryObjects(lambda: self.now)
        numbers = count()
        self.instance = open_instance(
            self.objects, lambda: f"{next(numbers):08x}-id", lambda: self.now
        )

    def table(self, **properties):
        return self.instance.create_table("t", SCHEMA, properties=properties)

    def files(self, table):
        return self.objects.under(table.table_id)

    def waits(self, **time):
        self.now += timedelta(**time)


@pytest.fixture
def world():
    return World()


def lose_sketch(files, filename):
    """Cut the sketch off a file, as if another writer had made it: what it stands before stays."""
    body = bytearray(files.read(filename))
    place = body.rindex(b"SLPRSKP1")
    body[place : place + 8] = bytes(8)
    files.put(filename, bytes(body))


def run_job(table, job):
    """Run one job that somebody has claimed files for."""
    opened = table._current()
    write = partial(
        write_output,
        reading=lambda: opened.reader,
        files=opened.files,
        settings=WriteSettings(),
    )
    (result,) = run_jobs(
        [job],
        store=opened.store,
        files=opened.files,
        write=write,
        run=partial(run_here, workers=1),
        orphan_age=timedelta(days=3),
    )
    return result


def claim_a_job(table, job_id):
    """Claim the files of a job that another process is to run."""
    opened = table._current()
    settings = CompactionSettings.of(table.properties.compaction)
    state = opened.store.refresh()
    (job,) = plan_compactions(state, settings, all_files=True, new_id=lambda: job_id).jobs
    claim = Claim(job_id=job_id, partition_id=job.partition_id, filenames=job.inputs)
    opened.store.commit(ClaimFiles(assignments=(claim,), owner=OTHER))
    return job


def rows(numbers, n=0):
    return [{"id": number, "n": n} for number in numbers]


def compacted_table(world):
    """A table of which four files were compacted into one; the four wait for the collector."""
    table = world.table()
    for _ in range(4):
        table.ingest(rows(range(10)))
    table.compact()
    return table


def ids(table):
    return [row["id"] for row in table.query().to_pylist()]


class TestCompaction:
    """`table.compact`."""

    def test_many_small_files_become_one(self, world):
        """CMP-5, CMP-14: a leaf of twelve files has one afterwards, with the same rows."""
        table = world.table()
        for number in range(12):
            table.ingest(rows(range(number, 120, 12)))

        run = table.compact()

        (job,) = run.jobs
        assert (job.rows_read, job.rows_written, job.failure) == (120, 120, None)
        (reference,) = table.references()
        assert (reference.filename, reference.row_count) == (job.job.output, 120)
        assert ids(table) == list(range(120))

    def test_what_is_in_order_is_left_alone(self, world):
        """A second run has nothing to do, and commits nothing."""
        table = world.table()
        for _ in range(4):
            table.ingest(rows(range(10)))
        first = table.compact()

        again = table.compact()

        assert again.jobs == ()
        assert again.transaction == first.transaction
        assert again.plan.leaves[0].reason == "it has one file, and no other to merge it with"

    def test_what_would_be_done_can_be_asked(self, world):
        """`plan_compaction` changes nothing."""
        table = world.table()
        for _ in range(4):
            table.ingest(rows(range(10)))
        before = table.refresh()

        plan = table.plan_compaction()

        assert [len(job.inputs) for job in plan.jobs] == [4]
        assert table.refresh() == before

    def test_files_of_a_split_partition_become_whole_again(self, world):
        """FRF-4, FRF-5: references go down to all leaves; each leaf's part becomes a file."""
        table = world.table(**{THRESHOLD: "10"})
        table.ingest(rows(range(40)))
        table.split_partitions()
        table.split_partitions()

        run = table.compact(all_files=True)

        assert run.pushed_down == 2  # one to each half, by the second split; now to the quarters
        assert sorted(ref.row_count for ref in table.references()) == [10, 10, 10, 10]
        assert all(ref.whole_file for ref in table.references())
        assert ids(table) == list(range(40))

    def test_rows_that_are_too_old_go_and_equal_keys_become_one(self, world):
        """PRC-1: filters, then aggregations, as in every other place."""
        table = world.table(**{"sleeper.table.aggregations": "sum(n)"})
        for _ in range(4):
            table.ingest(rows(range(3), n=1))

        (job,) = table.compact().jobs

        assert (job.rows_read, job.rows_written) == (12, 3)
        assert table.query().to_pylist() == rows(range(3), n=4)

    def test_a_damaged_file_fails_its_job_alone(self, world):
        """The message names the file, its files are free again, and the rest is compacted."""
        table = world.instance.create_table("two", SCHEMA, split_points=[100])
        for _ in range(4):
            table.ingest(rows([1, 2, 3, 101, 102]))
        bad = table.references()[0]
        body = world.files(table).read(bad.filename)
        world.files(table).put(bad.filename, body[:40] + b"?" + body[41:])

        run = table.compact()

        (failed,) = run.failed
        assert isinstance(failed.failure, DataDamaged)
        assert bad.filename in str(failed.failure)
        assert len(run.jobs) == 2
        assert [ref for ref in table.references() if ref.job_id] == []
        assert table.query(key=101).to_arrow().num_rows == 4

    def test_a_missing_file_fails_its_job_alone(self, world):
        """It is named; what the other files have can be read."""
        table = world.instance.create_table("two", SCHEMA, split_points=[100])
        for _ in range(4):
            table.ingest(rows([1, 2, 101]))
        gone = table.references()[0]
        world.files(table).delete([gone.filename])

        run = table.compact()

        (failed,) = run.failed
        assert isinstance(failed.failure, DataDamaged)
        assert gone.filename in str(failed.failure)
        assert [ref for ref in table.references() if ref.job_id] == []
        key = 101 if gone.row_count == 2 else 1
        assert table.query(key=key).to_arrow().num_rows == 4

    def test_an_output_that_is_there_already_is_replaced(self, world):
        """CMP-16: the first attempt of a job was killed; the second writes the same file anew."""
        table = world.table()
        for _ in range(4):
            table.ingest(rows(range(10)))
        job = claim_a_job(table, "again")
        world.files(table).put(job.output, b"half of the first attempt")

        result = run_job(table, job)

        assert (result.failure, result.rows_written) == (None, 40)
        assert ids(table) == sorted([*range(10)] * 4)

    def test_inputs_of_planned_jobs_are_in_no_other_plan(self, world):
        """Rule CMP-1: a planner claims what it plans, so the next one finds nothing to do."""
        table = world.table()
        for _ in range(4):
            table.ingest(rows(range(10)))

        first = claim_a_job(table, "one")
        second = table.plan_compaction()

        assert len(first.inputs) == 4
        assert second.jobs == ()
        assert {reference.job_id for reference in table.references()} == {"one"}

    def test_a_job_that_never_ended_loses_its_files_in_time(self, world):
        """Its lease ends: the next run tells so and compacts them; the late finisher is refused."""
        table = world.table()
        for _ in range(4):
            table.ingest(rows(range(10)))
        late = claim_a_job(table, "late")

        world.waits(minutes=9)
        early = table.compact()
        world.waits(minutes=2)
        run = table.compact()

        assert (early.released, early.jobs) == ((), ())
        assert run.released == ("late",)
        assert len(run.jobs) == 1
        result = run_job(table, late)
        assert result.failure is not None
        assert world.files(table).read(late.output) is None
        assert ids(table) == sorted([*range(10)] * 4)

    def test_claims_say_who_has_files_and_since_when(self, world):
        """By job: the process, its machine, the age, and the end of the lease."""
        table = world.table()
        for _ in range(4):
            table.ingest(rows(range(10)))
        claim_a_job(table, "theirs")
        began = world.now

        world.waits(minutes=3)
        (claim,) = table.claims()

        assert (claim.job_id, str(claim.owner)) == ("theirs", "process 4711 on elsewhere")
        assert (len(claim.filenames), claim.age_s) == (4, 180)
        assert abs(claim.lease_ends - began - timedelta(minutes=10)) < timedelta(seconds=1)

    def test_claims_can_be_released(self, world, caplog):
        """At once: the next run has the files, and who held them is refused when it commits."""
        table = world.table()
        for _ in range(4):
            table.ingest(rows(range(10)))
        late = claim_a_job(table, "late")

        other = table.release_claims("another")
        released = table.release_claims("late")
        run = table.compact()

        assert other.claims == ()
        assert [claim.job_id for claim in released.claims] == ["late"]
        assert "job late of process 4711 on elsewhere" in caplog.text
        assert len(run.jobs) == 1
        assert run_job(table, late).failure is not None
        assert ids(table) == sorted([*range(10)] * 4)

    def test_claims_whose_lease_has_ended_can_be_released_alone(self, world):
        """Claims that are renewed, or new, stay."""
        table = world.table()
        for _ in range(4):
            table.ingest(rows(range(10)))
        claim_a_job(table, "theirs")

        world.waits(minutes=9)
        early = table.release_claims(expired_only=True)
        world.waits(minutes=2)
        released = table.release_claims(expired_only=True)

        assert early.claims == ()
        assert [claim.job_id for claim in released.claims] == ["theirs"]
        assert table.claims() == ()
        with pytest.raises(BadRequest, match="not both"):
            table.release_claims("theirs", expired_only=True)

    def test_jobs_are_claimed_a_few_at_a_time(self, world):
        """A run that is killed leaves claims of two jobs for each worker, not of all."""
        table = world.instance.create_table("nine", SCHEMA, split_points=[*range(10, 90, 10)])
        for _ in range(4):
            table.ingest(rows(range(0, 90, 2)))
        held = []

        run = table.compact(progress=lambda done, total: held.append(len(table.claims())))

        assert len(run.jobs) == 9
        assert max(held) <= 2
        assert table.claims() == ()

    def test_all_files_are_merged_until_each_leaf_has_one(self, world):
        """In rounds where there are more than a job takes; then nothing is left to do."""
        table = world.table(**{"sleeper.table.compaction.files.batch.size": "3"})
        for number in range(11):
            table.ingest(rows(range(number, 110, 11)))

        run = table.compact(all_files=True)
        again = table.compact(all_files=True)

        assert len(table.references()) == 1
        assert [job.failure for job in run.jobs] == [None] * len(run.jobs)
        assert (again.jobs, again.transaction) == ((), run.transaction)
        assert again.plan.leaves[0].reason == "it has one file already"
        assert ids(table) == list(range(110))

    def test_inputs_of_another_job_are_refused(self, world):
        """A job whose claims were given to another reads nothing."""
        table = world.table()
        table.ingest(rows(range(10)))
        opened = table._current()
        (reference,) = table.references()
        claim = Claim(job_id="theirs", partition_id="root", filenames=(reference.filename,))
        opened.store.commit(ClaimFiles(assignments=(claim,)))
        ours = CompactionJob(job_id="ours", partition_id="root", inputs=(reference.filename,))

        result = run_job(table, ours)

        assert isinstance(result.failure, FileReferenceNotAssignedToJob)
        assert table.references()[0].job_id == "theirs"

    def test_jobs_can_run_side_by_side(self, tmp_path):
        """Each in a process of its own; what comes out is the same."""
        with sleeper.connect(tmp_path / "instance", create=True) as instance:
            table = instance.create_table("t", SCHEMA, split_points=[100, 200])
            for _ in range(4):
                table.ingest(rows(range(0, 300, 7)))
            told = []

            run = table.compact(workers=2, progress=lambda *counts: told.append(counts))

            assert [job.failure for job in run.jobs] == [None] * 3
            assert told == [(1, 3), (2, 3), (3, 3)]
            assert len(table.references()) == 3
            assert ids(table) == sorted([*range(0, 300, 7)] * 4)

    def test_other_processes_cannot_reach_memory(self, world):
        """A `memory://` instance is told to be compacted here; no file is left claimed."""
        table = world.instance.create_table("two", SCHEMA, split_points=[100])
        for _ in range(4):
            table.ingest(rows([1, 101]))

        with pytest.raises(BadRequest, match="cannot be pickled"):
            table.compact(workers=2)

        assert [ref for ref in table.references() if ref.job_id] == []

    def test_what_is_interrupted_frees_its_files(self, world):
        """Ctrl-C after the first job: the next run need not wait for a lease to end."""
        table = world.instance.create_table("two", SCHEMA, split_points=[100])
        for _ in range(4):
            table.ingest(rows([1, 101]))

        def interrupt(done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            table.compact(progress=interrupt)

        assert [ref for ref in table.references() if ref.job_id] == []
        assert len(table.compact().jobs) == 1


class TestSplitting:
    """`table.split_partitions`."""

    def test_a_leaf_is_split_at_the_median_of_its_keys(self, world):
        """SPL-1, SPL-3 to SPL-5: from so many rows on."""
        table = world.table(**{THRESHOLD: "100"})
        table.ingest(rows(range(99)))
        assert table.split_partitions() == ()
        table.ingest(rows([99]))

        (result,) = table.split_partitions()

        assert (result.field, result.point) == ("id", 50)
        assert table.split_points() == [50]
        assert ids(table) == list(range(100))

    def test_estimates_count_too(self, world):
        """Ours: a leaf of nothing but parts of files is split again."""
        table = world.table(**{THRESHOLD: "10"})
        table.ingest(rows(range(40)))

        counts = [len(table.split_partitions()) for _ in range(4)]

        assert counts == [1, 2, 4, 0]
        assert table.split_points() == [5, 10, 15, 20, 25, 30, 35]

    def test_a_leaf_of_one_key_is_left(self, world):
        """SPL-3: no median lies between the ends; the result says so."""
        table = world.table(**{THRESHOLD: "5"})
        table.ingest(rows([7] * 10))

        (result,) = table.split_partitions()

        assert result.reason == "too many of its rows have the same key"
        assert table.split_points() == []

    def test_lost_sketches_are_no_failure(self, world):
        """Without them there is nothing to go by; the result says so."""
        table = world.table(**{THRESHOLD: "5"})
        table.ingest(rows(range(5_000)))  # of few rows, the keys are read
        lose_sketch(world.files(table), table.references()[0].filename)

        (result,) = table.split_partitions()

        assert result.reason == "none of its files has a sketch of any rows"

    def test_a_key_with_most_rows_is_cut_off(self, world):
        """SPL-3: the least key is the median, and the leaf is split above it."""
        table = world.table(**{THRESHOLD: "5"})
        table.ingest(rows([7] * 8 + [9, 11]))

        (result,) = table.split_partitions()

        assert (result.reason, table.split_points()) == (None, [9])
        assert ids(table) == [7] * 8 + [9, 11]

    def test_report_explain_and_split_agree(self, world):
        """Estimates count, references above leaves count, and leaves of one key are told."""
        table = world.table(**{THRESHOLD: "8"})
        table.ingest(rows([1] * 10 + [*range(10, 30)]))

        agreed = []
        for _ in range(6):
            sizes = table.leaf_sizes()
            explained = {size.partition.partition_id for size in sizes if size.will_be_split}
            reported = {
                each.partition_id for each in table.report_partitions() if each.will_be_split
            }
            refused = {size.partition.partition_id for size in sizes if size.obstacle}
            results = table.split_partitions()
            split = {result.partition_id for result in results if result.reason is None}
            left = {result.partition_id for result in results if result.reason is not None}
            agreed.append((explained == reported == split, refused == left))

        assert agreed == [(True, True)] * 6
        assert len(table.split_points()) > 2
        assert left

    def test_sizes_can_be_asked(self, world):
        """`leaf_sizes` says what would be split, and from when on."""
        table = world.table(**{THRESHOLD: "5"})
        table.ingest(rows(range(10)))

        (size,) = table.leaf_sizes()

        assert (size.row_count, size.threshold, size.too_large) == (10, 5, True)


class TestGarbage:
    """`table.collect_garbage`."""

    @pytest.fixture
    def table(self, world):
        """Four files were compacted into one."""
        return compacted_table(world)

    def test_replaced_files_are_deleted_after_the_delay(self, world, table):
        """GC-1, GC-2: strictly later than the delay."""
        world.waits(minutes=15)
        early = table.collect_garbage()
        world.waits(seconds=1)
        due = table.garbage()
        run = table.collect_garbage()

        assert early.deleted == ()
        assert list(run.deleted) == list(due)
        assert len(run.deleted) == 4
        left = {info.key for info in world.files(table).listing("data/")}
        (reference,) = table.references()
        assert left == {reference.filename}
        assert ids(table) == sorted([*range(10)] * 4)

    def test_a_second_run_finds_nothing(self, world, table):
        """GC-5: and commits nothing."""
        world.waits(hours=1)
        first = table.collect_garbage()

        assert table.collect_garbage().transaction == first.transaction

    def test_files_that_are_gone_already_count_as_deleted(self, world, table):
        """GC-2: a run that was killed after it deleted objects is completed by the next."""
        world.waits(hours=1)
        world.files(table).delete(table.garbage())

        assert len(table.collect_garbage().deleted) == 4

    def test_a_file_that_cannot_be_deleted_is_reported_and_stays(self, world, table, monkeypatch):
        """Rule GC-3: the others are deleted, and the next run tries again."""
        world.waits(hours=1)
        stuck, *others = table.garbage()
        delete = MemoryObjects.delete

        def refuse(objects, keys):
            if stuck in (keys := list(keys)):
                raise StorageFailed("that object is locked")
            delete(objects, keys)

        with monkeypatch.context() as patched:
            patched.setattr(MemoryObjects, "delete", refuse)
            run = table.collect_garbage()
        again = table.collect_garbage()

        assert run.failures == {stuck: "that object is locked"}
        assert run.deleted == tuple(others)
        assert again.deleted == (stuck,)

    def test_a_run_ends_at_its_limit(self, world, table):
        """Rules GC-2, GC-4: batches of one file, and no further batch after two files."""
        world.waits(hours=1)
        limits = {"sleeper.gc.batch.size": "1", "sleeper.gc.files.maximum": "2"}
        table._context.properties = InstanceProperties(limits)

        assert len(table.collect_garbage().deleted) == 2
        assert len(table.garbage()) == 2

    def test_versions_can_be_kept_for_as_of(self, world, table):
        """Files wait for as long as their versions are to be readable."""
        table.set_properties({"sleeper.table.versions.kept.minutes": "1440"})
        world.waits(hours=23)
        kept = table.collect_garbage()
        assert table.query(as_of=5).to_arrow().num_rows == 40
        world.waits(hours=2)

        assert kept.deleted == ()
        assert len(table.collect_garbage().deleted) == 4


class TestMerging:
    """`table.merge_partitions`."""

    def four_leaves(self, world, **properties):
        """Ten rows, split into four leaves, their references pushed down."""
        table = world.table(**{THRESHOLD: "3", **properties})
        table.ingest(rows(range(10)))
        table.split_partitions()
        table.split_partitions()
        assert table.split_points() == [2, 5, 7]
        table.set_properties({THRESHOLD: "1000"})
        opened = table._current()
        push_down_references(opened)
        return table

    def test_small_leaves_become_one_up_the_tree(self, world):
        """Two and two, until there are too many rows; rows and older versions read as before."""
        table = self.four_leaves(world)
        before = table.refresh()

        results = table.merge_partitions(rows_below=6)
        rest = table.merge_partitions(rows_below=11)

        assert [(result.row_count, result.reason) for result in results] == [(5, None), (5, None)]
        assert [(result.row_count, result.reason) for result in rest] == [(10, None)]
        assert table.split_points() == []
        assert ids(table) == list(range(10))
        assert table.query(as_of=before).to_arrow().num_rows == 10
        assert table.compact(all_files=True).jobs[0].rows_written == 10

    def test_none_are_merged_unless_it_was_asked_for(self, world):
        """Leaves made by split points are small for a while: the property begins at 0."""
        table = self.four_leaves(world)

        assert table.merge_partitions() == ()
        assert table.small_siblings() == ()

    def test_the_property_says_when(self, world):
        """`sleeper.table.partition.merging.threshold`."""
        table = self.four_leaves(world, **{"sleeper.table.partition.merging.threshold": "100"})

        assert len(table.merge_partitions()) == 3
        assert table.split_points() == []

    def test_what_is_split_again_at_once_is_not_merged(self, world):
        """More rows than a leaf may have are refused."""
        table = self.four_leaves(world)

        with pytest.raises(
            BadRequest, match=r"fewer than 1,001 rows.*a leaf of 1,000 rows is split"
        ):
            table.merge_partitions(rows_below=1001)

    def test_a_file_of_which_one_leaf_has_its_part_stands_in_the_way(self, world):
        """The other part was compacted; once both are, nothing stands in the way."""
        table = self.four_leaves(world)
        first = table.state().leaf_partitions()[0].partition_id
        opened = table._current()
        (reference,) = opened.store.state().files.references_on(first)
        job = CompactionJob(job_id="one", partition_id=first, inputs=(reference.filename,))
        claim = Claim(job_id="one", partition_id=first, filenames=job.inputs)
        opened.store.commit(ClaimFiles(assignments=(claim,)))
        at_work = table.small_siblings(rows_below=6)[0].obstacle
        run_job(table, job)

        results = table.merge_partitions(rows_below=6)

        assert at_work == "compaction job one is running there"
        assert [result.reason is None for result in results] == [False, True]
        assert reference.filename in results[0].reason
        table.compact(all_files=True)
        assert [result.reason for result in table.merge_partitions(rows_below=6)] == [None]
        assert ids(table) == list(range(10))

    def test_an_ingest_goes_on_meanwhile(self, world):
        """PRT-13: what it wrote for leaves that are gone is placed on the one in their place."""
        table = self.four_leaves(world)

        def batches():
            yield from rows([0, 3, 6, 9], n=1)
            assert len(table.merge_partitions(rows_below=100)) == 3

        result = table.ingest(batches())

        assert result.rows_written == 4
        assert table.split_points() == []
        assert ids(table) == sorted([*range(10), 0, 3, 6, 9])


class TestOrphans:
    """`table.sweep_orphans`."""

    @pytest.fixture
    def table(self, world):
        """A table of one file, four that wait for the collector, and a killed job's leavings."""
        table = compacted_table(world)
        for name in ("killed.parquet", "killed.sketches"):
            world.files(table).put(f"data/partition_root/{name}", b"half a file")
        world.files(table).put("data/partition_root/README", b"somebody's own")
        return table

    def test_old_ones_are_deleted_and_nothing_else(self, world, table):
        """What is referenced, waits, or has no name of ours stays."""
        before = {info.key for info in world.files(table).listing("data/")}
        world.waits(days=3)
        early = table.sweep_orphans()
        world.waits(seconds=1)
        planned = table.orphans()
        swept = table.sweep_orphans()

        killed = ["data/partition_root/killed.parquet", "data/partition_root/killed.sketches"]
        assert early.orphans == ()
        assert [orphan.key for orphan in planned.orphans] == killed
        assert (planned.deleted, swept.deleted) == (False, True)
        assert (swept.orphans, swept.size_bytes) == (planned.orphans, 22)
        assert before - {info.key for info in world.files(table).listing("data/")} == {*killed}
        assert len(table.garbage()) == 4

    def test_this_machines_clock_does_not_count(self, world, table):
        """Whoever has a clock that is a year ahead deletes nothing, and learns of it."""
        ahead = open_instance(
            world.objects, lambda: "unused", lambda: world.now + timedelta(days=365)
        )

        for verb in ("sweep_orphans", "collect_garbage", "compact"):
            with pytest.raises(ClockTooFarAhead):
                getattr(ahead.table("t"), verb)()
        assert table.orphans().orphans == ()

    def test_a_job_that_may_be_run_again_keeps_its_output(self, world, table):
        """Until its lease has ended and its files are free: then it can never be committed."""
        table.ingest(rows([1]))
        job = claim_a_job(table, "dead")
        world.files(table).put(job.output, b"its first attempt")
        world.waits(days=4)

        during = table.orphans()
        table.compact()
        after = table.sweep_orphans()

        assert job.output not in [orphan.key for orphan in during.orphans]
        assert job.output in [orphan.key for orphan in after.orphans]

    def test_attempts_of_a_job_keep_their_outputs(self, world, table):
        """Each has a name of its own, by which it is known as the job's; others' are orphans."""
        table.ingest(rows([1]))
        job = claim_a_job(table, "dead")
        attempts = [job.output_of(attempt) for attempt in ("0-1", "0-2")]
        other = job.output.replace("dead", "deader")
        for name in (*attempts, other):
            world.files(table).put(name, b"an attempt")
        world.waits(days=4)

        during = {orphan.key for orphan in table.orphans().orphans}
        table.compact()
        after = {orphan.key for orphan in table.sweep_orphans().orphans}

        assert during & {*attempts, other} == {other}
        assert after >= {*attempts, other}
