"""Real processes work on an instance in a folder, and are killed by SIGKILL, wherever they are."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sleeper
from sleeper.storage.local.folder import FolderObjects
from tests.any_order.forked_workers import Workers
from tests.any_order.run_until_killed import SCHEMA, rows_of
from tests.any_order.whole_instance import as_tuples, check_instance, multiset, orphans
from tests.soak import FIRST_SEED, tries

RUNS = 2  # side by side where there are two cores
KILLS = tries(60, soak=2_500)  # in each run
KILLS_PER_INSTANCE = 12
FIRST_VERBS = ("sweep", "merge", "split", "compact-all", "gc")  # of one keeper after the other
VERBS = {"compact-all!", "split!", "merge!", "gc!", "sweep!"}
PROPERTIES = {
    "sleeper.table.partition.splitting.threshold": "60",
    "sleeper.table.partition.merging.threshold": "25",
    "sleeper.table.compaction.files.batch.size": "4",
    "sleeper.table.gc.orphan.age.minutes": "60",
}
LONG_AGO_S = 2 * 24 * 60 * 60


@pytest.fixture
def workers():
    started = Workers()
    yield started
    started.close()


@dataclass
class Story:
    """What happened to one instance: who was told what, and what is there."""

    folder: Path
    acknowledged: Counter[str] = field(default_factory=Counter)
    present: set[str] = field(default_factory=set)
    keepers: int = 0

    @classmethod
    def begin(cls, folder: Path) -> Story:
        with sleeper.connect(folder, create=True) as instance:
            instance.create_table(
                "jobs",
                SCHEMA,
                row_keys=["job", "n"],
                split_points=["b", "n"],
                properties=PROPERTIES,
            )
        return cls(folder)

    def next_job(self, series: str) -> int:
        """The first job of a series that nobody was told of; it may have been committed."""
        return sum(job_id.startswith(f"{series}-") for job_id in self.acknowledged)

    def give_work(self) -> None:
        """Two more small files, so that whoever takes care of the table has something to do."""
        with sleeper.connect(self.folder) as instance:
            for number in range(self.next_job("mine"), self.next_job("mine") + 2):
                job_id = f"mine-{number:04}"
                instance.table("jobs").ingest(rows_of(job_id), job_id=job_id)
                self.acknowledged[job_id] += 1

    def check(self) -> None:
        """I1 to I4, I7: reopen the instance as another process, and look at everything."""
        objects = FolderObjects(self.folder)
        keys = [info.key for info in objects.listing()]
        assert not [key for key in keys if ".tmp-" in key], "an unfinished file can be seen"
        with sleeper.connect(self.folder) as instance:
            check_instance(objects, instance)
            table = instance.table("jobs")
            everything = as_tuples(table.query().to_arrow())
            self.present = {job_id for job_id, _, _ in everything}
            assert set(self.acknowledged) <= self.present, "an acknowledged job was lost"
            whole = [row for job_id in self.present for row in as_tuples(rows_of(job_id))]
            assert multiset(everything) == multiset(whole), "a job is not there exactly once"
            assert {job_id for job_id, _ in table.state().jobs.records()} == self.present
            self.check_by_key_and_range(table)

    def check_by_key_and_range(self, table: sleeper.Table) -> None:
        jobs = sorted(self.present)
        for job_id in jobs[-2:]:
            wanted = sorted(as_tuples(rows_of(job_id)))
            assert as_tuples(table.query(key=(job_id, 3)).to_arrow()) == [wanted[3]]
            found = table.query(range={"job": (job_id, True, job_id, True), "n": (2, 7)})
            assert as_tuples(found.to_arrow()) == wanted[2:7]

    def unfinished(self) -> list[Path]:
        """The hidden files that dead writers have left; those that order turns belong to all."""
        hidden = (self.folder / ".tmp-writes").iterdir()
        return sorted(path for path in hidden if not path.name.startswith("turn-"))

    def orphans(self) -> set[str]:
        with sleeper.connect(self.folder) as instance:
            table = instance.table("jobs")
            return orphans(FolderObjects(self.folder).under(table.table_id), table)

    def let_time_pass(self) -> int:
        """Make whatever nobody finished a day old, and return how many files that are.

        Only while no process is at work: a file of theirs would be old before it is committed.
        """
        left = [*self.unfinished(), *(self.folder / name for name in self.orphan_paths())]
        for path in left:
            os.utime(path, (long_ago := time.time() - LONG_AGO_S, long_ago))
        return len(left)

    def orphan_paths(self) -> list[str]:
        with sleeper.connect(self.folder) as instance:
            table_id = instance.table("jobs").table_id
        return [f"{table_id}/{name}" for name in self.orphans()]

    def check_sweeps(self) -> int:
        """What was left is spared while it is young, and swept when it is old; return how much."""
        with sleeper.connect(self.folder) as instance:
            swept = instance.table("jobs").sweep_orphans().orphans
        an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
        assert all(orphan.modified < an_hour_ago for orphan in swept)
        young = self.unfinished()
        sleeper.connect(self.folder).close()
        assert self.unfinished() == young
        left = self.let_time_pass()
        with sleeper.connect(self.folder) as instance:
            instance.table("jobs").sweep_orphans()
            claims = {each.job_id for each in instance.table("jobs").references()}
        assert self.unfinished() == []
        assert {Path(name).stem for name in self.orphans()} <= claims  # they may be run again
        return left


def kill_some(workers: Workers, story: Story, draw: random.Random, did: Counter[str]) -> int:
    """Start one process or two, let them work for a while, kill them; return how many kills."""
    series = draw.choice(
        [["a"], ["keeper"], ["a", "b"], ["keeper", "a"], ["keeper", "keeper"], ["shared", "shared"]]
    )
    started = []
    for slot, name in enumerate(series):
        if name == "keeper":
            story.give_work()
            story.keepers += 1
            first = FIRST_VERBS[story.keepers % len(FIRST_VERBS)]
            arguments = ("care", slot, story.folder, draw.getrandbits(32), first)
        else:
            arguments = ("ingest", slot, story.folder, name, story.next_job(name))
        started.append(workers.start(*arguments))
    told = [[] for _ in series]
    for _ in range(draw.choice([0, 0, 1, 1, 2, 4])):
        told[0] += workers.wait_for_more(0)
    for process_id in draw.sample(started, len(started)):
        time.sleep(draw.uniform(0, 0.05))
        workers.kill(process_id)
    for slot, (name, said) in enumerate(zip(series, told, strict=True)):
        (did if name == "keeper" else story.acknowledged).update(said + workers.told(slot))
    return len(started)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(RUNS))
def test_kills_lose_nothing_and_double_nothing(workers, tmp_path, number):
    """
    F1, I1 to I4, I7: ingests, compactions, splits, merges, collections and sweeps are killed
    anywhere. After every kill all acknowledged jobs are wholly there, exactly once; others are
    there wholly or not at all; a job that is run again counts once.
    """
    draw = random.Random(FIRST_SEED + number)
    kills = acknowledged = unacknowledged = left = 0
    did: Counter[str] = Counter()

    while kills < KILLS or (VERBS - set(did) and kills < 8 * KILLS):
        story = Story.begin(tmp_path / f"instance-{kills}")
        before = kills
        while kills < before + KILLS_PER_INSTANCE:
            kills += kill_some(workers, story, draw, did)
            story.check()
            left += story.let_time_pass() if draw.random() < 0.5 else 0
        acknowledged += len(story.acknowledged)
        unacknowledged += len(story.present - set(story.acknowledged))
        left += story.check_sweeps()
        story.check()

    print(  # noqa: T201 - pytest -s shows how much was tried
        f"{kills} kills, {acknowledged} jobs acknowledged, {unacknowledged} there without, "
        f"{left} files left over, {dict(did)}"
    )
    assert kills >= KILLS
    assert acknowledged >= KILLS / 5
    assert left >= 1  # some kill met a process in the middle of its work
    assert set(did) >= VERBS
