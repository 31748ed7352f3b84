"""The compaction worker: what it claims, what it tells the tracker, and when it looks again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from sleeper import Field, Primitive, Schema
from sleeper.errors import BadRequest, JobNotFound, PropertiesInvalid, StorageFailed
from sleeper.instance.instance import Instance
from sleeper.model.files import ClaimOwner
from sleeper.model.jobs.events import JobEvent, JobEventType
from sleeper.model.jobs.kinds import JobKind
from sleeper.model.jobs.statuses import JobState
from sleeper.state.transactions.files import Claim, ClaimFiles
from sleeper.storage.memory import MemoryObjects
from sleeper.tables.table import Table
from sleeper.workers.maintenance import OnlineTable
from sleeper.workers.open_worker import open_worker
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import WorkerSettings
from tests.any_order.whole_instance import open_instance
from tests.unit.workers.clocks import SimulatedStop

SCHEMA = Schema(row_keys=[Field("id", Primitive.LONG)], values=[Field("n", Primitive.LONG)])
FILES = 4


class World:
    """An instance in memory with a clock to turn, and a worker of it."""

    def __init__(self):
        self.now = datetime(2026, 6, 1, tzinfo=UTC)
        self.objects = MemoryObjects(lambda: self.now)
        numbers = count()
        self.instance = open_instance(
            self.objects, lambda: f"{next(numbers):08x}-id", lambda: self.now
        )
        self.pauses = []
        self.looks = 0
        self.stop_after = None
        self.look_takes_s = 0

    def table(self, name, split_points=()):
        """Make a table whose leaves have some files each."""
        table = self.instance.create_table(name, SCHEMA, split_points=split_points)
        for _ in range(FILES):
            table.ingest(
                [{"id": number, "n": 1} for number in (1, *(at + 1 for at in split_points))]
            )
        return table

    def stopped(self):
        self.looks += 1
        self.now += timedelta(seconds=self.look_takes_s)
        return self.stop_after is not None and self.looks > self.stop_after

    def rest(self, seconds):
        self.pauses.append(seconds)
        self.now += timedelta(seconds=seconds)

    def work(self, **settings):
        """Run a worker until it finds nothing, unless its settings say otherwise."""
        return open_worker(
            self.instance,
            "compaction",
            WorkerSettings(**(settings or {"until_empty": True})),
            SimulatedStop(self.stopped, self.rest),
        ).run()

    def statuses(self):
        return [*self.instance.jobs.list(kind="compaction")]


@pytest.fixture
def world():
    return World()


def files_of(table):
    return len({each.filename for each in table.references()})


def claimed(table):
    return [each for each in table.references() if each.job_id]


def claim_for_a_dead_worker(table):
    """Claim all files for the job `lost`, which nobody runs; return their names."""
    names = tuple(each.filename for each in table.references())
    claim = Claim(job_id="lost", partition_id="root", filenames=names)
    owner = ClaimOwner(host="elsewhere", pid=4711, worker_id="w-1")
    table._current().store.commit(ClaimFiles(assignments=(claim,), owner=owner))
    return names


def damage(world, table):
    """Make every file of a table unreadable."""
    for each in table.references():
        world.objects.under(table.table_id).put(each.filename, b"no Parquet")


def test_online_tables_are_compacted_and_the_tracker_knows(world):
    """TRK-4, TRK-6: each job has its rows and its worker, which has the sums. TBL-6: one waits."""
    one, two = world.table("one", [100]), world.table("two")
    two.set_online(online=False)

    done = world.work()

    assert (files_of(one), files_of(two)) == (2, FILES)
    jobs = world.statuses()
    assert [job.state for job in jobs] == [JobState.FINISHED] * 2
    assert {(job.input_files, job.table_id) for job in jobs} == {(FILES, one.table_id)}
    assert {job.partition_id for job in jobs} == {each.partition_id for each in one.references()}
    (run,) = jobs[0].runs
    assert (run.rows_read, run.rows_written, run.task_id) == (FILES, FILES, done.task_id)
    assert jobs[0].created is not None
    assert max(job.transaction for job in jobs) == one.refresh()
    (task,) = world.instance.jobs.tasks("compaction")
    assert (task.jobs, task.rows_read, task.rows_written, task.is_finished) == (2, 8, 8, True)


def test_a_worker_that_is_stopped_gives_back_what_it_claimed(world):
    """At once, in the middle of a job: its files are free, and nothing of it is left."""
    table = world.table("one", [100, 200])
    world.stop_after = 12

    world.work()

    assert claimed(table) == []
    ended = [job.state for job in world.statuses()]
    assert JobState.FAILED in ended
    assert set(ended) <= {JobState.FAILED, JobState.FINISHED}
    assert all(job.is_over for job in world.statuses())
    assert table.orphans(force=True).orphans == ()
    world.stop_after = None
    world.work()
    assert files_of(table) == 3


@pytest.mark.parametrize("stop_after", [1, 2, 3, 5, 8, 9, 11, 13, 15, 17])
def test_wherever_it_is_stopped_no_claim_is_left(world, stop_after):
    """Between tables, between jobs, and within one."""
    table = world.table("one", [100])
    world.stop_after = stop_after

    world.work()

    assert claimed(table) == []
    assert all(job.is_over for job in world.statuses())
    assert table.query().to_arrow().num_rows == 2 * FILES


def test_nothing_is_claimed_while_the_instance_is_paused(world):
    """And work goes on when it is resumed."""
    table = world.table("one")
    world.instance.pause_switch.pause()

    world.work(idle_max_s=30.0)
    assert files_of(table) == FILES
    assert set(world.pauses) == {5.0}

    world.instance.pause_switch.resume()
    world.now += timedelta(seconds=6)
    world.work()
    assert files_of(table) == 1


def test_a_worker_ends_after_as_many_jobs_as_it_was_asked_for(world):
    """It claims no more than those."""
    table = world.table("one", [100, 200])

    assert world.work(jobs_max=2).jobs == 2

    assert files_of(table) == 2 + FILES
    assert len(world.statuses()) == 2
    assert claimed(table) == []


def test_claims_of_a_worker_that_died_are_taken_over_after_their_lease(world):
    """The tracker shows the job of the dead worker as failed, and who ran it."""
    table = world.table("one")
    names = claim_for_a_dead_worker(table)

    world.work()
    assert (files_of(table), table.plan_compaction().jobs) == (FILES, ())

    world.now += timedelta(minutes=11)
    assert [job.inputs for job in table.plan_compaction().jobs] == [tuple(sorted(names))]
    world.work()

    assert files_of(table) == 1
    lost = world.instance.jobs.job("lost", kind=JobKind.COMPACTION)
    assert (lost.state, lost.is_over) == (JobState.FAILED, True)
    assert "released when their lease ended" in lost.reasons[0]


def test_maintenance_releases_claims_whose_lease_has_ended(world):
    """Though it leaves compactions to workers: these may be killed before they come to it."""
    table = world.table("one")
    names = claim_for_a_dead_worker(table)
    told = []
    maintained = OnlineTable(
        table, StopSignal(), note_planned=lambda table_id, jobs: told.append(len(jobs))
    )

    maintained.maintain("compact")
    early = claimed(table)
    world.now += timedelta(minutes=11)
    maintained.maintain("compact")

    assert (len(early), claimed(table), told) == (len(names), [], [0, 1])


def test_a_table_whose_jobs_fail_is_left_alone_for_longer_each_time(world, caplog):
    """Others are compacted meanwhile, and each attempt is in the tracker."""
    bad, good = world.table("bad"), world.table("good")
    damage(world, bad)

    world.work(idle_max_s=3600.0)

    assert (files_of(bad), files_of(good)) == (FILES, 1)
    failed = [job for job in world.statuses() if job.state is JobState.FAILED]
    assert 3 <= len(failed) <= 8
    assert all(job.is_over for job in failed)
    assert "bad is compacted again in 60 s: its jobs failed" in caplog.text
    assert "bad is compacted again in 240 s: its jobs failed" in caplog.text


def test_an_idle_worker_looks_more_and_more_rarely(world):
    """After a minute, then twice as long each time, up to a quarter of an hour."""
    table = world.table("one")

    world.work(idle_max_s=3000.0)

    assert files_of(table) == 1
    assert world.pauses[:5] == [60, 120, 240, 480, 900]
    assert max(world.pauses) == 900


def test_tables_take_turns(world, caplog):
    """Given a large table, then others do not wait until it is done."""
    caplog.set_level("INFO", "sleeper.workers.kinds.compaction")
    world.table("large", [*range(100, 1000, 100)])
    world.table("small")
    world.look_takes_s = 10

    world.work()

    order = [
        record.getMessage().partition(":")[0]
        for record in caplog.records
        if "became" in record.getMessage()
    ]
    assert order[:3] == ["large", "small", "large"]


def test_a_tracker_that_is_down_stops_no_compaction(world, monkeypatch, caplog):
    """What it misses is logged."""
    table = world.table("one")
    tracker = world.instance.jobs.stores.tracker

    def fail(events, *, expires):
        raise StorageFailed("no tracker")

    monkeypatch.setattr(tracker, "record", fail)

    world.work()

    assert files_of(table) == 1
    assert "the tracker misses job" in caplog.text
    with pytest.raises(JobNotFound):
        world.instance.jobs.job("any", kind="compaction")


def test_a_job_whose_end_the_tracker_missed_is_finished_by_its_file(world, monkeypatch):
    """Given a worker that is killed after a commit, then the job is not shown as at work."""
    world.table("one", [100])
    tracker = world.instance.jobs.stores.tracker
    record = tracker.record

    def lose_ends(events, *, expires):
        if any(getattr(event, "type", None) is JobEventType.FINISHED for event in events):
            raise StorageFailed("no tracker")
        record(events, expires=expires)

    monkeypatch.setattr(tracker, "record", lose_ends)
    world.work()

    assert [job.state for job in world.statuses()] == [JobState.FINISHED] * 2
    for job in world.statuses():
        assert world.instance.jobs.job(job.job_id, kind="compaction").is_over
    world.instance.delete_table("one")
    assert [job.state for job in world.statuses()] == [JobState.IN_PROGRESS] * 2


def test_a_job_without_claims_and_without_a_file_has_failed(world):
    """Given a worker that died, and claims that were released by hand, then its job is over."""
    table = world.table("one")
    claim_for_a_dead_worker(table)
    created = JobEvent(
        kind=JobKind.COMPACTION,
        table_id=table.table_id,
        job_id="lost",
        type=JobEventType.CREATED,
        at=world.now,
        partition_id="root",
    )
    world.instance.jobs.recorder.record(created)
    assert [job.state for job in world.statuses()] == [JobState.CREATED]

    table.release_claims()

    (job,) = world.statuses()
    assert (job.state, job.is_over) == (JobState.FAILED, True)
    assert "its worker was killed" in job.reasons[0]


def test_an_instance_without_a_place_for_jobs_is_compacted(world, monkeypatch, caplog):
    """A bucket needs no sleeper.jobs.url for that."""
    table = world.table("one")
    missing = PropertiesInvalid({"sleeper.jobs.url": "it is not set"})
    monkeypatch.setattr(Instance, "jobs", property(lambda self: (_ for _ in ()).throw(missing)))

    assert world.work().jobs == 1

    assert files_of(table) == 1
    assert "compactions are not tracked" in caplog.text


def test_tables_that_cannot_be_read_are_told_and_tried_again(world, monkeypatch, caplog):
    """Given an index that fails once, then the worker goes on."""
    table = world.table("one")
    tables = Instance.tables
    answers = iter([StorageFailed("no answer")])

    def fail_once(instance):
        for failure in answers:
            raise failure
        return tables(instance)

    monkeypatch.setattr(Instance, "tables", fail_once)

    world.work(idle_max_s=100.0)

    assert files_of(table) == 1
    assert "the tables cannot be read now: no answer" in caplog.text


def test_a_watch_follows_jobs_of_this_process_only(world):
    """A function that is to end a job cannot be called in another process."""
    table = world.table("one")

    with pytest.raises(BadRequest, match="leave out workers= and spark="):
        table.compact(workers=2, watch=object())


class PanicException(BaseException):
    """What Python gets where code in Rust failed that should not."""


@pytest.mark.parametrize("error", [PanicException("unwrap"), KeyError("k")], ids=repr)
def test_an_unexpected_error_at_one_table_keeps_no_other_waiting(world, monkeypatch, caplog, error):
    """It is logged with its trace; the table is left alone for a while, then compacted."""
    bad, good = world.table("bad"), world.table("good")
    compact, errors = Table.compact, [error]

    def fail_once(table, **arguments):
        if table.name == "bad" and errors:
            raise errors.pop()
        return compact(table, **arguments)

    monkeypatch.setattr(Table, "compact", fail_once)

    world.work(idle_max_s=1000.0)

    assert (files_of(bad), files_of(good)) == (1, 1)
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_ends_the_worker(world, monkeypatch, end):
    """Ctrl-C is no failure of a table."""
    world.table("one")

    def fail(table, **arguments):
        raise end

    monkeypatch.setattr(Table, "compact", fail)

    with pytest.raises(end):
        world.work()
