"""Workers of a compaction are killed: each leaf gets one file, and no row is lost or doubled."""

from __future__ import annotations

from collections import Counter

import pytest

from sleeper.model.formats.compaction_job import job_output
from tests.spark.cluster.fault_tables import ROWS, Scene
from tests.spark.cluster.faulty_files import Fault

DATA = ".parquet"


@pytest.fixture
def scene(tmp_path):
    """Four leaves, with two files in each."""
    scene = Scene(tmp_path)
    for first in (0, 1):
        scene.table.ingest(ROWS.take([*range(first, ROWS.num_rows, 2)]))
    return scene


KILLED = {
    "before its file has its name": (Fault("close", "kill process", DATA), 0),
    "after its file was written": (Fault("close", "kill process", DATA, after=True), 1),
}


@pytest.mark.parametrize(("fault", "left"), KILLED.values(), ids=KILLED.keys())
def test_a_worker_that_is_killed_costs_no_row(cluster, scene, fault, left):
    """Its job is done by another attempt, in a file of its own; what it wrote is an orphan."""
    before = {each.filename for each in scene.table.references()}
    table, faults = scene.with_faults(fault)

    done = table.compact(all_files=True, spark=cluster)

    assert faults.happened() == 1
    assert (done.failed, len(done.jobs)) == ((), 4)
    scene.check_all_there()
    referenced = {each.filename for each in scene.table.references()}
    assert len(referenced) == 4
    written = {name for name in scene.files() - before if name.endswith(DATA)}
    assert referenced <= written
    attempts = Counter(map(job_output, written))
    assert sorted(attempts.values()) == [1, 1, 1, 1 + left]
    assert attempts.keys() == {each.job.output for each in done.jobs}


def test_a_job_whose_every_attempt_fails_keeps_its_files(cluster, scene):
    """The other leaves are compacted; the next run finds this one as it was."""
    (first, *_) = scene.table.references()
    faulty = Fault("open", "kill process", f"partition_{first.partition_id}/", times=100)
    table, _ = scene.with_faults(faulty)

    done = table.compact(all_files=True, spark=cluster)

    assert [each.job.partition_id for each in done.failed] == [first.partition_id]
    assert len(done.jobs) == 4
    scene.check_all_there()

    again = scene.table.compact(all_files=True, spark=cluster)
    assert [each.job.partition_id for each in again.jobs] == [first.partition_id]
    scene.check_all_there()
