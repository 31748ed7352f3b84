"""Tasks, workers and executors of a bulk import fail: every row arrives once, or none does."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from sleeper.errors import StorageFailed, StorageFull
from tests.patience import becomes_true
from tests.spark.cluster.conftest import ATTEMPTS
from tests.spark.cluster.fault_tables import ROWS, Scene
from tests.spark.cluster.faulty_files import Fault, readers

DATA, HIDDEN = ".parquet", ".hidden"


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


ONCE = {
    "before its file is written": Fault("open", "raise", DATA),
    "in the middle of its file": Fault("write", "raise", DATA, after=True),
    "after its file was written": Fault("close", "raise", DATA, after=True),
    "while its input is read": Fault("read", "raise", DATA),
}


@pytest.mark.parametrize("fault", ONCE.values(), ids=ONCE.keys())
def test_a_task_that_raises_once_is_run_again(cluster, scene, fault):
    """Each row arrives once; a task that fails deletes what it wrote (rule BLK-5)."""
    table, faults = scene.with_faults(fault)

    result = table.bulk_import(f"faulty://{scene.inputs}", engine="spark", spark=cluster)

    assert faults.happened() == 1
    assert (result.rows_read, result.rows_written) == (ROWS.num_rows, ROWS.num_rows)
    scene.check_all_there()
    assert not scene.orphans()


KILLED = {
    "in the middle of its file": (Fault("write", "kill process", DATA, after=True), [HIDDEN]),
    "before its file has its name": (Fault("close", "kill process", DATA), [HIDDEN]),
    "after its file was written": (
        Fault("close", "kill process", DATA, after=True),
        [DATA],
    ),
}


@pytest.mark.parametrize(("fault", "left"), KILLED.values(), ids=KILLED.keys())
def test_a_worker_that_is_killed_leaves_only_orphans(cluster, scene, fault, left):
    """Its task runs again, in another process; files of the dead one are referenced by nobody."""
    table, faults = scene.with_faults(fault)

    table.bulk_import(scene.inputs, engine="spark", spark=cluster)

    assert faults.happened() == 1
    scene.check_all_there()
    assert sorted(scene.orphans().elements()) == left


def test_an_executor_that_is_killed_takes_its_blocks_along_and_no_row(cluster, scene):
    """Blocks on its disk are gone, so their tasks read again; each row arrives once."""
    killed = Fault("close", "kill executor", DATA, after=True)
    table, faults = scene.with_faults(killed)

    table.bulk_import(scene.frame(cluster, faults.marks))

    assert faults.happened() == 1
    assert len(readers(faults.marks)) > 4  # each of the four partitions, and some again
    scene.check_all_there()
    assert sorted(scene.orphans().elements()) == [DATA]


AGAIN = {
    "a worker is killed while it reads": (Fault("read", "kill process", "/1.parquet"), "files"),
    "a task that writes fails": (Fault("open", "raise", DATA), "files"),
    "an executor is killed with its blocks": (
        Fault("close", "kill executor", DATA, after=True),
        "a DataFrame",
    ),
}


@pytest.mark.parametrize(("fault", "source"), AGAIN.values(), ids=AGAIN.keys())
def test_rows_set_aside_are_there_once(cluster, scene, tmp_path, fault, source):
    """Tasks that are run again set the same rows aside again; the folder has each of them once."""
    scene.add_rows_without_a_key([11, 12])
    table, faults = scene.with_faults(fault)
    files = source == "files"
    data = f"faulty://{scene.inputs}" if files else scene.frame_of_inputs(cluster, faults.marks)

    result = table.bulk_import(
        data, engine="spark", spark=cluster, set_aside=tmp_path / "aside" / "rows"
    )

    assert faults.happened() == 1
    assert result.rows_set_aside == 2
    aside = tmp_path / "aside"
    names = [str(path.relative_to(aside)) for path in aside.rglob("*")]
    assert sorted(names) == ["rows", "rows/part-00000.parquet"]
    assert sorted(pq.read_table(aside / "rows")["n"].to_pylist()) == [11, 12]
    scene.check_all_there()


def test_a_disk_that_stays_full_is_told_as_such(cluster, scene):
    """After the last attempt of a task its error arrives as itself, and names the file."""
    full = Fault("close", "fill the disk", DATA, times=100)
    table, faults = scene.with_faults(full)

    with pytest.raises(StorageFull, match=r"cannot write data/partition_.*\.parquet") as raised:
        table.bulk_import(scene.inputs, "job", engine="spark", spark=cluster)

    assert faults.happened() >= ATTEMPTS
    assert "Traceback" not in str(raised.value)
    scene.check_nothing_there()
    assert not scene.orphans()

    scene.table.bulk_import(scene.inputs, "job", engine="spark", spark=cluster)
    scene.check_all_there()


def test_input_that_stays_out_of_reach_is_told_as_such(cluster, scene):
    """A task that reads fails in the same way as one that writes."""
    table, faults = scene.with_faults(Fault("read", "raise", "1.parquet", times=100))

    with pytest.raises(StorageFailed, match=r"1\.parquet: no answer"):
        table.bulk_import(f"faulty://{scene.inputs}", engine="spark", spark=cluster)

    assert faults.happened() >= ATTEMPTS
    scene.check_nothing_there()
    assert not scene.orphans()


def test_ctrl_c_cancels_the_tasks_and_adds_nothing(cluster, scene):
    """An import that is interrupted while tasks write leaves no task running, and no row."""
    table, faults = scene.with_faults(Fault("write", "interrupt driver", DATA, after=True))

    with pytest.raises(KeyboardInterrupt):
        table.bulk_import(scene.inputs, "job", engine="spark", spark=cluster)

    assert faults.happened() == 1
    tracker = cluster.sparkContext.statusTracker()
    assert becomes_true(lambda: not tracker.getActiveStageIds())
    scene.check_nothing_there()

    result = scene.table.bulk_import(scene.inputs, "job", engine="spark", spark=cluster)
    assert not result.already_committed
    scene.check_all_there()


def test_files_of_a_commit_that_certainly_failed_are_deleted(cluster, scene):
    """Where the log took nothing, the driver deletes what its workers wrote."""
    full = Fault("turn", "fill the disk", "transactions", tasks_only=False)
    table, faults = scene.with_faults(full)

    with pytest.raises(StorageFull):
        table.bulk_import(scene.inputs, "job", engine="spark", spark=cluster)

    assert faults.happened() == 1
    scene.check_nothing_there()
    assert not scene.orphans()
