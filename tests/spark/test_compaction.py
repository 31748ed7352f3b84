"""Compaction jobs on Spark: each for itself, committed as it ends."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.errors import (
    DataDamaged,
    FileAlreadyExists,
    FileReferenceNotAssignedToJob,
    FileReferenceNotFound,
    StorageFailed,
)
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.planning.claimed_jobs import claimed_job
from sleeper.spark.compaction import commit_compaction, run_compactions
from sleeper.spark.separate_jobs import run_separately
from sleeper.state.transactions.claims import Claim, ClaimFiles
from sleeper.storage.local.folder import FolderObjects
from tests.spark.any_tables import check_files

SCHEMA = Schema(
    row_keys=[Field("id", Primitive.STRING)],
    sort_keys=[Field("at", Primitive.LONG)],
    values=[Field("n", Primitive.LONG)],
)
ONE_FILE = {"sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf"}
SUM = {"sleeper.table.aggregations": "sum(n)"}


def rows(keys, n=1):
    return [{"id": key, "at": 0, "n": n} for key in keys]


def table_in(folder, properties=None, points=("g", "p")):
    """A table of three leaves, which meet at g and p, with three files' rows in each."""
    instance = sleeper.connect(folder / "instance", create=True)
    table = instance.create_table("t", SCHEMA, split_points=points, properties=properties)
    for n, keys in enumerate(["abhxz", "achyz", "bkz"]):
        table.ingest(rows(keys, n))
    return table


def claimed_jobs(table, name="job"):
    """A job for each partition with files, its inputs claimed, as the state has it then."""
    opened = table.open_for_spark()
    inputs = opened.store.refresh().filenames_by_partition()
    jobs = [
        CompactionJob(job_id=f"{name}-{place}", partition_id=partition, inputs=tuple(files))
        for place, (partition, files) in enumerate(sorted(inputs.items()))
    ]
    claims = tuple(
        Claim(job_id=job.job_id, partition_id=job.partition_id, filenames=job.inputs)
        for job in jobs
    )
    state = opened.store.commit(ClaimFiles(assignments=claims))
    return [claimed_job(state, job) for job in jobs]


def run(spark, table, jobs, **options):
    opened = table.open_for_spark()
    return run_compactions(spark, jobs, opened.table_files, opened.write, **options)


def commit(table, outcome):
    opened = table.open_for_spark()
    return commit_compaction(outcome, opened.store, opened.table_files.files)


def content(table):
    return Counter(tuple(row.values()) for row in table.query().to_pylist())


def path_of(table, filename):
    return Path(table.open_for_spark().table_files.files.url(filename))


@pytest.mark.every_spark
def test_each_job_makes_one_file_of_its_leaf(spark, tmp_path):
    """Rows stay as they were; each leaf has one file, whole and exact, named by its job."""
    table = table_in(tmp_path)
    before = content(table)
    jobs = claimed_jobs(table)
    told = []

    done = [
        commit(table, outcome)
        for outcome in run(spark, table, jobs, progress=lambda *counts: told.append(counts))
    ]

    assert [outcome.failure for outcome in done] == [None] * 3
    assert content(table) == before
    found = {reference.filename: reference for reference in table.references()}
    assert sorted(found) == sorted(claimed.job.output for claimed in jobs)
    assert all(each.whole_file and each.job_id is None for each in found.values())
    assert sum(outcome.written.rows_read for outcome in done) == sum(before.values())
    assert told == [(1, 3), (2, 3), (3, 3)]
    check_files(table, tmp_path / "instance")


def test_references_to_parts_of_files_give_their_leafs_rows_alone(spark, tmp_path):
    """Files that all leaves share are read by each leaf's job, and cut to its region."""
    table = table_in(tmp_path, ONE_FILE)
    before = content(table)
    jobs = claimed_jobs(table)
    assert not any(claimed.whole_files for claimed in jobs)

    for outcome in run(spark, table, jobs):
        assert commit(table, outcome).transaction is not None

    assert content(table) == before
    assert len(table.references()) == 3
    check_files(table, tmp_path / "instance")


@pytest.mark.every_spark
def test_rows_with_equal_keys_are_united(spark, tmp_path):
    """A table's aggregations are applied where its rows meet (rules PRC-1, CMP-14)."""
    table = table_in(tmp_path, SUM)
    before = content(table)

    outcomes = [commit(table, outcome) for outcome in run(spark, table, claimed_jobs(table))]

    assert content(table) == before
    stored = [pq.read_table(path_of(table, each.filename)) for each in table.references()]
    ids = pa.concat_tables(stored).column("id").to_pylist()
    assert sorted(ids) == sorted(set("abhxzachyzbkz"))
    assert sum(outcome.written.rows_read for outcome in outcomes) == 13


def test_a_damaged_input_fails_its_own_job_only(spark, tmp_path):
    """A flipped bit in a page of values is found and told; the other jobs are committed."""
    table = table_in(tmp_path)
    before = content(table)
    jobs = claimed_jobs(table)
    broken = jobs[1].job.inputs[0]
    column = pq.ParquetFile(path_of(table, broken)).metadata.row_group(0).column(2)
    body = bytearray(path_of(table, broken).read_bytes())
    body[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path_of(table, broken).write_bytes(bytes(body))

    done = {outcome.job: commit(table, outcome) for outcome in run(spark, table, jobs)}

    failed = done.pop(jobs[1].job)
    assert isinstance(failed.failure, DataDamaged)
    assert broken in str(failed.failure)
    assert "column 'n'" in str(failed.failure)
    assert failed.orphan is None
    assert not path_of(table, failed.job.output).exists()
    assert all(outcome.transaction is not None for outcome in done.values())
    leaf = table.state().partition(jobs[1].partition.partition_id)
    body[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path_of(table, broken).write_bytes(bytes(body))
    assert content(table) == before
    assert len(table.state().files.filenames_on(leaf.partition_id)) == len(jobs[1].job.inputs)


def test_a_job_that_runs_twice_is_committed_once(spark, tmp_path):
    """The second attempt writes the same bytes, and its commit says that the work is done."""
    table = table_in(tmp_path, SUM, points=())
    before = content(table)
    (claimed,) = claimed_jobs(table)
    (first,) = run(spark, table, [claimed])
    written = path_of(table, claimed.job.output).read_bytes()
    (second,) = run(spark, table, [claimed])

    done = [commit(table, first), commit(table, second)]

    assert path_of(table, claimed.job.output).read_bytes() == written
    assert [(each.repeated, each.failure, each.orphan) for each in done] == [
        (False, None, None),
        (True, None, None),
    ]
    assert content(table) == before
    with pytest.raises(FileAlreadyExists, match="was committed before"):
        claimed_job(table.state(), claimed.job)


def test_a_late_finisher_leaves_an_orphan(spark, tmp_path):
    """
    Where its inputs have gone to another job, a job's commit is refused, before the other has
    finished and after; what it wrote is told, and the table stays as it was (rule STS-8).
    """
    table = table_in(tmp_path, points=())
    before = content(table)
    (claimed,) = claimed_jobs(table, "other")
    lost = [replace(claimed, job=replace(claimed.job, job_id=name)) for name in ("late", "later")]
    by_id = {each.job.job_id: each for each in run(spark, table, [claimed, *lost])}

    late = commit(table, by_id["late"])
    other = commit(table, by_id["other-0"])
    later = commit(table, by_id["later"])

    assert isinstance(late.failure, FileReferenceNotAssignedToJob)
    assert isinstance(later.failure, FileReferenceNotFound)
    assert other.failure is None
    assert [late.orphan, later.orphan] == [each.job.output for each in lost]
    assert all(path_of(table, each.job.output).exists() for each in lost)
    assert [each.filename for each in table.references()] == [claimed.job.output]
    assert content(table) == before


def test_what_only_workers_see_is_not_committed(spark, tmp_path):
    """Where the driver does not find a file, or another one, its inputs stay."""
    table = table_in(tmp_path, points=())
    (outcome,) = run(spark, table, claimed_jobs(table))
    opened = table.open_for_spark()
    elsewhere = FolderObjects(tmp_path / "elsewhere")

    with pytest.raises(StorageFailed, match="does not find"):
        commit_compaction(outcome, opened.store, elsewhere)
    path_of(table, outcome.job.output).write_bytes(b"short")
    with pytest.raises(StorageFailed, match="has 5 bytes here"):
        commit(table, outcome)

    assert len(table.references()) == 3


def test_only_claimed_inputs_are_compacted(tmp_path):
    """A job that has not claimed what the partition references is refused before it is run."""
    table = table_in(tmp_path, points=())
    (claimed,) = claimed_jobs(table)
    state = table.state()

    with pytest.raises(FileReferenceNotAssignedToJob, match="'job-0', not by"):
        claimed_job(state, replace(claimed.job, job_id="another"))
    with pytest.raises(FileReferenceNotFound, match="gone"):
        claimed_job(state, replace(claimed.job, inputs=("gone",)))


@pytest.mark.every_spark
def test_pieces_of_work_end_each_for_itself(spark):
    """An error of ours is an outcome at once; the other pieces have theirs."""

    def half(number):
        if number % 2:
            raise DataDamaged(f"{number} is odd")
        return number // 2

    ended = {
        each.piece: each for each in run_separately(spark, [2, 3, 4], half, describe=str, at_once=2)
    }

    assert ended[2].result == 1
    assert ended[4].result == 2
    assert isinstance(ended[3].failure, DataDamaged)


def test_a_worker_that_dies_is_left_to_spark(spark, tmp_path):
    """Spark tries again; a piece that kills every worker fails alone, with Spark's own error."""
    marker = str(tmp_path / "seen")

    def run_once_in_vain(name):
        if name == "deadly" or (name == "unlucky" and not os.path.exists(marker)):  # noqa: PTH110
            with open(marker, "w"):  # noqa: PTH123 - goes into a worker by value
                os._exit(1)
        return name

    pieces = ["deadly", "unlucky", "well"]
    ended = {
        each.piece: each for each in run_separately(spark, pieces, run_once_in_vain, describe=str)
    }

    assert ended["well"].result == "well"
    assert ended["unlucky"].result == "unlucky"
    assert "crashed" in str(ended["deadly"].failure)


def test_what_has_not_ended_is_cancelled_with_the_iterator(spark, tmp_path):
    """Pieces that wait are never begun, and one that runs does not go on."""

    def slow(number):
        import time  # noqa: PLC0415 - goes into a worker by value

        if number:
            time.sleep(60)
        return number

    ended = run_separately(spark, [0, *range(1, 20)], slow, describe=str, at_once=2)

    assert next(ended).result == 0
    ended.close()

    assert not [each for each in threading.enumerate() if each.name.startswith("sleeper-spark-job")]
    assert spark.range(3).count() == 3


def test_ctrl_c_ends_the_run(spark):
    """What runs is cancelled, what waits is not begun, and the interrupt goes on."""

    def slow(number):
        import time  # noqa: PLC0415 - goes into a worker by value

        time.sleep(60)
        return number

    interrupt = threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()

    with pytest.raises(KeyboardInterrupt):
        list(run_separately(spark, range(20), slow, describe=str, at_once=2))

    assert spark.range(3).count() == 3
