"""Jobs through queue, workers, tracker, batcher and committer, in any order and with any faults.

Whatever dies, is delivered twice, answers late or loses events: a job that was taken by its queue
has its rows in the table once, when all is quiet again, and is told as finished. Some jobs are
upserts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.errors import JobNotFound, StorageFailed
from sleeper.instance.instance import Instance
from sleeper.jobs.event_recorder import EventRecorder, events_kept
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.statuses import JobState
from sleeper.storage.memory import MemoryObjects
from sleeper.storage.places import Place
from sleeper.workers.kinds.batcher import run_batcher
from sleeper.workers.open_worker import open_worker
from sleeper.workers.worker import WorkerSettings
from tests.simulated_process import simulated_process
from tests.soak import FIRST_SEED, tries
from tests.unit.workers.clocks import SimulatedStop

START = datetime(2026, 5, 4, 12, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.string()), ("job", pa.string())])
STEPS = 25
EXAMPLES = tries(30, soak=2_000)
WAITS_S = (1, 30, 70, 901, 7_200)
KINDS = ("ingest", "bulk-import", "batcher", "commit", "compaction")


class Killed(BaseException):
    """The process ended at this call."""


@dataclass
class Faults:
    """What goes wrong at the next calls of a process."""

    random: Random
    likely: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)

    def call(self, name: str, do: Any) -> Any:
        """Do a call, or let it fail or be the last, before or after it was done."""
        if self.random.random() >= self.likely:
            return do()
        what = self.random.choice(("refused", "lost", "killed before", "killed after"))
        self.seen[f"{name} {what}"] += 1
        if what == "refused":
            raise StorageFailed(f"{name} was refused")
        if what == "killed before":
            raise Killed
        do()
        if what == "lost":
            raise StorageFailed(f"the answer to {name} was lost")
        raise Killed


class Faulty:
    """Any object whose methods may fail."""

    def __init__(self, inner: Any, name: str, faults: Faults) -> None:
        self._inner, self._name, self._faults = inner, name, faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return Faulty(found, name, self._faults)

        def call(*arguments: Any, **named: Any) -> Any:
            return self._faults.call(f"{self._name}.{name}", lambda: found(*arguments, **named))

        return call


class FaultyStores:
    """Queues, tracker and batcher store that fail."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self.tracker = Faulty(inner.tracker, "tracker", faults)
        self.batcher = Faulty(inner.batcher, "batcher", faults)

    def queue(self, name: QueueName) -> Any:
        """Return a queue that fails."""
        return Faulty(self._inner.queue(name), "queue", self._faults)


class World:
    """One instance in memory, its jobs, and what is to come of them."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.folder = folder
        self.time = START
        self.faults = Faults(self.random)
        ids = count()
        self.instance = Instance(
            Place("memory://", MemoryObjects(now=lambda: self.time)),
            {"sleeper.id": "any", "sleeper.jobs.receives.max": "1000"},
            process=simulated_process(
                now=lambda: self.time,
                new_id=lambda: f"{next(ids):08x}-0000-4000-8000-000000000000",
            ),
        )
        self.table = self.instance.create_table("t", SCHEMA, row_keys=["id"])
        self.table.set_properties(
            {
                "sleeper.table.ingest.batcher.ingest.queue": "standard_ingest",
                "sleeper.table.ingest.batcher.job.min.size": "0",
                "sleeper.table.ingest.batcher.job.max.files": "2",
            }
        )
        self.jobs = self.instance.jobs
        self.submitted: Counter[str] = Counter()

    def step(self) -> None:
        """Do one thing."""
        doing = self.random.choice(
            [
                *(self.submit, self.submit, self.submit_files, self.run, self.run, self.run),
                *(self.wait, self.batch, self.switch, self.redrive),
            ]
        )
        doing()

    def submit(self) -> None:
        """Submit one of a few jobs, by hand or by message; some come again and again."""
        job_id = f"job-{self.random.randrange(6)}"
        path = self.written(job_id)
        self.submitted[job_id] = 1
        if self.random.random() < 0.3:
            self.jobs.submit_bulk_import("t", path, job_id, upsert=self.random.random() < 0.3)
        else:
            self.jobs.submit_ingest("t", path, job_id, upsert=self.random.random() < 0.3)

    def submit_files(self) -> None:
        """Submit a file to the batcher. Each is submitted once: it may be ingested once only."""
        name = f"file-{len(self.submitted)}-{self.random.randrange(10**6)}"
        upsert = self.random.random() < 0.3
        self.jobs.submit_files("t", self.written(name), upsert=upsert)
        self.submitted[name] = 1

    def run(self) -> None:
        """Run a worker of some kind while its store fails now and then, or it is killed."""
        self.work(self.random.choice(KINDS), likely=self.random.choice((0.0, 0.05, 0.2)))

    def work(self, kind: str, *, likely: float) -> int:
        """Run a worker until its queue is empty, or it is killed; return what it did."""
        jobs = self.with_faults(likely)
        worker = open_worker(
            _Holder(self.instance, jobs),
            kind,
            WorkerSettings(wait_s=0, until_empty=True, jobs_max=self.random.choice((1, 3, None))),
            SimulatedStop(wait=lambda seconds: self.faults.__setattr__("likely", 0.0)),
        )
        try:
            done = worker.run()
        except Killed:
            return 1
        finally:
            self.faults.likely = 0.0
        return done.jobs

    def with_faults(self, likely: float) -> InstanceJobs:
        """Return the jobs as a process sees them whose stores fail."""
        self.faults.likely = likely
        stores: Any = FaultyStores(self.jobs.stores, self.faults)
        kept = events_kept(self.instance.properties)
        recorder = EventRecorder(stores.tracker, kept=kept, now=lambda: self.time)
        return InstanceJobs(
            stores,
            self.jobs.tables,
            recorder,
            self.jobs.results,
            new_id=self.jobs.new_id,
            url="memory://",
        )

    def batch(self, likely: float = 0.2) -> None:
        """Let the batcher make jobs, while it is killed or its stores fail."""
        try:
            run_batcher(self.with_faults(likely), self.time)
        except (Killed, StorageFailed):
            pass
        finally:
            self.faults.likely = 0.0

    def wait(self) -> None:
        """Let time pass: messages are visible again."""
        self.time += timedelta(seconds=self.random.choice(WAITS_S))

    def switch(self) -> None:
        """Commit through the committer from now on, or not any longer."""
        value = self.random.choice(("true", "false"))
        self.table.set_properties({"sleeper.table.statestore.commit.async.enabled": value})

    def redrive(self) -> None:
        """Put all dead letters back."""
        for name in QueueName:
            self.jobs.redrive(name)

    def written(self, name: str) -> Path:
        """Write the file of a job, with one row that has its name."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            pq.write_table(pa.table({"id": [name], "job": [name]}, schema=SCHEMA), path)
        return path

    def settle(self) -> None:
        """Let everything end: nothing fails any more, and time passes."""
        for _ in range(12):
            self.time += timedelta(hours=3)
            self.redrive()
            self.batch(0.0)
            for kind in KINDS:
                while self.work(kind, likely=0.0):
                    pass
            depths = self.jobs.queue_depths().values()
            waiting = any(depth.ready + depth.hidden + depth.dead for depth in depths)
            if not waiting and not self.jobs.stores.batcher.pending():
                return


class _Holder:
    """An instance whose jobs are those of one process."""

    def __init__(self, instance: Instance, jobs: InstanceJobs) -> None:
        self._instance, self.jobs = instance, jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(6))
def test_each_job_that_was_taken_is_done_once(tmp_path, chunk):
    """Given any order of submitting, working, dying and waiting, then each row is there once."""
    seen: Counter[str] = Counter()
    for example in range(EXAMPLES // 6 + 1):
        seed = FIRST_SEED + chunk * EXAMPLES + example
        world = World(seed, tmp_path)
        for _ in range(STEPS):
            world.step()
        world.settle()

        found = Counter(row["job"] for row in world.table.query().to_pylist())
        assert found == world.submitted, f"seed {seed}"
        for job_id in world.submitted:
            if job_id.startswith("job-"):
                assert world.jobs.job(job_id).state is JobState.FINISHED, f"seed {seed}, {job_id}"
        seen += world.faults.seen

    assert any("killed" in name for name in seen)
    assert any("lost" in name for name in seen)
    print(f"{example + 1} worlds up to seed {seed}, {seen.total()} faults of {len(seen)} kinds")  # noqa: T201 - pytest -rP shows how much was tried


def test_a_job_that_nobody_sent_is_not_told_as_finished(tmp_path):
    """Given the same world and no job, then asking for one says so: the check above can fail."""
    with pytest.raises(JobNotFound):
        World(0, tmp_path).jobs.job("job-0")
