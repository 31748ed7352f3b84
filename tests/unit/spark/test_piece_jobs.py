"""Pieces of work are cut into Spark jobs by the size of the cluster; a session stands in for Spark."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import DataDamaged, MissingExtra
from sleeper.spark.piece_jobs import (
    PIECES_MAX,
    cluster_cores,
    plan_jobs,
    results_by_spark,
    run_pieces_by_spark,
    task_attempts,
)


class Session:
    """A session of two cores that runs each job where it is asked to, one task after the other."""

    def __init__(self, cores=2, fails=lambda pieces: None, **conf):
        self.jobs = []
        self.closures = []
        self.descriptions = []
        self._conf = {name.replace("_", "."): value for name, value in conf.items()}
        self._fails = fails
        self._lock = threading.Lock()
        self.defaultParallelism = cores

    @property
    def sparkContext(self):  # noqa: N802 - Spark's name
        return self

    @property
    def conf(self):
        return self._conf

    def addJobTag(self, tag):  # noqa: N802
        pass

    def removeJobTag(self, tag):  # noqa: N802
        pass

    def cancelJobsWithTag(self, tag):  # noqa: N802
        pass

    def getLocalProperty(self, name):  # noqa: N802
        return None

    def setLocalProperty(self, name, text):  # noqa: N802
        if text is not None:
            self.descriptions.append(text)

    def range(self, start, end, step, partitions):
        assert (start, step, end) == (0, 1, partitions)
        return Frame(self, partitions)

    def ran(self, function, count):
        batches = (pa.record_batch({"id": [number]}) for number in range(count))
        rows = [row for batch in batches for row in self._task(function, batch)]
        with self._lock:
            self.jobs.append(count)
        failure = self._fails(count)
        if failure is not None:
            raise failure
        return rows

    @staticmethod
    def _task(function, batch):
        return [row for out in function(iter([batch])) for row in out.to_pylist()]


class Frame:
    def __init__(self, session, count):
        self._session, self._count = session, count

    def mapInArrow(self, function, columns):  # noqa: N802
        self._function = function
        return self

    def collect(self):
        return self._session.ran(self._function, self._count)


def outcomes_of(session, pieces, run):
    ended = [*run_pieces_by_spark(session, pieces, run, describe=lambda some: f"{len(some)} of it")]
    return {each.piece: each for some in ended for each in some}


@given(st.integers(1, 200_000))
def test_jobs_under_way_keep_all_cores_busy(cores):
    """They have twice as many pieces as there are cores, and no job has more than it may lose."""
    plan = plan_jobs(cores)

    assert plan.pieces * plan.at_once >= 2 * cores
    assert 1 <= plan.pieces <= min(PIECES_MAX, cores)
    assert (plan.pieces - 1) * (plan.at_once - 1) <= 2 * cores


@pytest.mark.parametrize(
    ("cores", "pieces", "at_once"),
    [
        (0, 1, 8),
        (1, 1, 8),
        (2, 1, 8),
        (8, 2, 8),
        (64, 16, 8),
        (4_000, 1_000, 8),
        (40_000, 1_000, 80),
    ],
)
def test_a_small_cluster_gets_jobs_of_one_piece(cores, pieces, at_once):
    """There each result is committed as soon as it is there; a large cluster gets large jobs."""
    assert (plan_jobs(cores).pieces, plan_jobs(cores).at_once) == (pieces, at_once)


def test_many_pieces_are_few_jobs():
    """On 64 cores, 100 pieces are seven jobs of at most 16 tasks, and each piece has its result."""
    session = Session(cores=64)

    ended = outcomes_of(session, range(100), lambda number: 3 * number)

    assert {piece: each.result for piece, each in ended.items()} == {n: 3 * n for n in range(100)}
    assert sorted(session.jobs) == [4, 16, 16, 16, 16, 16, 16]
    assert max(session.descriptions) == "4 of it"


def test_large_pieces_are_fewer_in_a_job():
    """What each task of a job gets stays below a megabyte, but for a piece that is larger alone."""
    session = Session(cores=64)
    pieces = [*("x" * 300_000 + str(n) for n in range(5)), "y" * 2_000_000]

    ended = outcomes_of(session, pieces, len)

    assert sorted(ended) == sorted(pieces)
    assert sorted(session.jobs) == [1, 2, 3]


def test_pieces_are_taken_when_there_is_room():
    """Whoever makes them, such as one that claims files, is asked for no more than can run."""
    session, taken = Session(cores=8), []

    def coming():
        for number in range(100):
            taken.append(number)
            yield number

    ended = run_pieces_by_spark(session, coming(), abs, describe=str)
    next(ended)

    assert len(taken) <= 8 * 2 + 2
    ended.close()


def test_a_job_that_fails_is_taken_apart():
    """Each of its pieces runs alone, and has an outcome of its own."""

    def lost(count):
        return RuntimeError("Task 1 in stage 3.0 failed 4 times") if count > 1 else None

    session = Session(cores=16, fails=lost)

    ended = outcomes_of(session, range(4), lambda number: number + 1)

    assert {piece: each.result for piece, each in ended.items()} == {0: 1, 1: 2, 2: 3, 3: 4}
    assert sorted(session.jobs) == [1, 1, 1, 1, 4]


def test_a_lone_piece_that_fails_is_an_outcome():
    """Spark has tried it as often as it is set to; nothing is run once more."""
    session = Session(fails=lambda count: RuntimeError("Task 0 in stage 0.0 failed 4 times"))

    ended = outcomes_of(session, ["a"], str.upper)

    assert "failed 4 times" in str(ended["a"].failure)
    assert session.jobs == [1]


def test_a_failure_of_all_workers_is_each_pieces_own():
    """Where no worker has Sleeper it is not tried for each piece once more."""
    session = Session(cores=16, fails=lambda count: MissingExtra("no Sleeper there"))

    ended = outcomes_of(session, range(4), str)

    assert [str(ended[n].failure) for n in range(4)] == ["no Sleeper there"] * 4
    assert session.jobs == [4]


def test_an_error_of_ours_is_the_outcome_of_its_piece():
    """The other pieces of its job have their results."""

    def run(number):
        if number == 2:
            raise DataDamaged("2 is damaged")
        return -number

    ended = outcomes_of(Session(cores=16), range(4), run)

    assert str(ended[2].failure) == "2 is damaged"
    assert [ended[n].result for n in (0, 1, 3)] == [0, -1, -3]


def test_a_cancelled_job_ends_the_run():
    """Somebody who cancels a job on Spark's page does not want its pieces run alone."""
    cancelled = RuntimeError("[SPARK_JOB_CANCELLED] Job 3 cancelled")

    with pytest.raises(RuntimeError, match="Job 3 cancelled"):
        outcomes_of(Session(cores=16, fails=lambda count: cancelled), range(99), str)


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({}, 6),
        ({"spark.dynamicAllocation.enabled": "true"}, 64),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "10",
                "spark.executor.cores": "4",
            },
            40,
        ),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": str((1 << 31) - 1),
                "spark.executor.cores": "4",
            },
            256,
        ),
    ],
)
def test_a_cluster_that_grows_is_taken_for_what_it_may_become(conf, cores):
    """It grows only while tasks wait, so it gets as many as it may run."""
    session = Session(cores=6)
    session.conf.update(conf)

    assert cluster_cores(session) == cores


@pytest.mark.parametrize(
    ("conf", "attempts"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[3]"}, 1),
        ({"spark.master": "local[*,4]"}, 4),
        ({"spark.master": "local-cluster[2,1,1024]"}, 4),
        ({"spark.master": "yarn", "spark.task.maxFailures": "9"}, 9),
    ],
)
def test_attempts_are_those_of_the_session(conf, attempts):
    """Local mode says them in its master, and takes one where it does not."""
    session = Session()
    session.conf.update(conf)

    assert task_attempts(session) == attempts


def test_the_first_failure_ends_a_run_of_results():
    """Results that were there before are yielded; the pieces that wait are never run."""
    session, taken = Session(cores=1), []

    def coming():
        for number in range(100):
            taken.append(number)
            yield number

    def run(number):
        if number == 2:
            raise DataDamaged("2 is damaged")
        return -number

    results = results_by_spark(session, coming(), run, describe=str)

    found = []
    with pytest.raises(DataDamaged, match="2 is damaged"):
        found += results
    assert len(taken) < 50
    assert set(found) <= {(number, -number) for number in taken}
