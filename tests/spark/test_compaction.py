"""Compaction jobs on Spark: each for itself, committed as it ends."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper import Field, Primitive, Schema
from sleeper.engine.writing.compaction_output import compact_files
from sleeper.errors import BadRequest, DataDamaged, StorageFailed
from sleeper.model.formats.compaction_job import CompactionJob, job_output
from sleeper.spark import piece_jobs
from sleeper.spark.compaction import compaction_runner
from sleeper.spark.data_source.open_table import cached_table_reader
from sleeper.spark.piece_jobs import (
    JobPlan,
    cluster_cores,
    run_pieces_by_spark,
    task_attempts,
)
from sleeper.state.plans.claims import claimed_job
from sleeper.state.transactions.files import Claim, ClaimFiles
from sleeper.storage.local.folder import FolderObjects
from tests.spark.any_tables import check_files
from tests.spark.conftest import KIND

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


def claimed_jobs(table):
    """One job for the root's files, its inputs claimed."""
    opened = table.open_for_spark()
    references = opened.store.refresh().references()
    (partition,) = {each.partition_id for each in references}
    files = tuple(each.filename for each in references)
    job = CompactionJob(job_id="job-0", partition_id=partition, inputs=files)
    claim = Claim(job_id=job.job_id, partition_id=job.partition_id, filenames=job.inputs)
    return [claimed_job(opened.store.commit(ClaimFiles(assignments=(claim,))), job)]


def content(table):
    return Counter(tuple(row.values()) for row in table.query().to_pylist())


def outcomes_of(spark, pieces, run):
    """What became of each piece, by the piece."""
    ended = run_pieces_by_spark(spark, pieces, run, describe=str)
    return {each.piece: each for some in ended for each in some}


def path_of(table, filename):
    return Path(table.open_for_spark().table_files.files.url(filename))


@pytest.mark.every_spark
def test_each_job_makes_one_file_of_its_leaf(spark, tmp_path):
    """Rows stay as they were; each leaf has one file, whole and exact, named by job and attempt."""
    table = table_in(tmp_path)
    before = content(table)
    told = []

    done = table.compact(all_files=True, spark=spark, progress=lambda *counts: told.append(counts))

    assert done.failed == ()
    assert content(table) == before
    found = {reference.filename: reference for reference in table.references()}
    assert sorted(map(job_output, found)) == sorted(each.job.output for each in done.jobs)
    assert not found.keys() & {each.job.output for each in done.jobs}
    assert all(each.whole_file and each.job_id is None for each in found.values())
    assert sum(each.rows_read for each in done.jobs) == sum(before.values())
    assert told == [(1, 3), (2, 3), (3, 3)]
    check_files(table, tmp_path / "instance")


def test_shared_files_are_cut_to_each_leaf_and_equal_keys_united(spark, tmp_path):
    """Spark's workers cut, filter and aggregate as this machine does (rules PRC-1, CMP-14)."""
    table = table_in(tmp_path, {**ONE_FILE, **SUM})
    before = content(table)

    done = table.compact(all_files=True, spark=spark)

    assert content(table) == before
    stored = [pq.read_table(path_of(table, each.filename)) for each in table.references()]
    ids = pa.concat_tables(stored).column("id").to_pylist()
    assert sorted(ids) == sorted(set("abhxzachyzbkz"))
    assert sum(each.rows_read for each in done.jobs) == 13
    check_files(table, tmp_path / "instance")


def test_a_damaged_input_fails_its_own_job_only(spark, tmp_path):
    """A flipped bit is found and told; the other jobs are committed, and claims given back."""
    table = table_in(tmp_path)
    broken = next(each.filename for each in table.references())
    column = pq.ParquetFile(path_of(table, broken)).metadata.row_group(0).column(2)
    body = bytearray(path_of(table, broken).read_bytes())
    body[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path_of(table, broken).write_bytes(bytes(body))

    done = table.compact(all_files=True, spark=spark)

    (failed,) = done.failed
    assert isinstance(failed.failure, DataDamaged)
    assert broken in str(failed.failure)
    assert not path_of(table, failed.job.output).exists()
    assert len(done.jobs) == 3
    assert all(each.job_id is None for each in table.references())


def test_what_only_workers_see_is_not_committed(spark, tmp_path):
    """Where the driver does not find a file, its job fails and its inputs stay."""
    table = table_in(tmp_path, points=())
    elsewhere = FolderObjects(tmp_path / "elsewhere")
    opened = table.open_for_spark()
    files, settings = opened.table_files, opened.write

    def write(claimed):
        return compact_files(cached_table_reader(files), files.files, claimed, settings)

    run = compaction_runner(spark, elsewhere, title="t")
    (claimed,) = claimed_jobs(table)

    (((_, outcome),),) = run([claimed], write)

    assert isinstance(outcome, StorageFailed)
    assert "does not find" in str(outcome)


def test_a_job_that_kills_its_workers_fails_alone(spark, tmp_path):
    """Spark gives up after its attempts; the error says so in one line, and names the job."""
    table = table_in(tmp_path, points=())
    (claimed,) = claimed_jobs(table)

    def deadly(_):
        os._exit(1)

    run = compaction_runner(spark, table.open_for_spark().table_files.files, title="t")
    (((_, outcome),),) = run([claimed], deadly)

    assert isinstance(outcome, StorageFailed)
    assert "Spark could not run the compaction job job-0" in str(outcome)


def test_two_places_at_once_are_refused(spark, tmp_path):
    """Workers of this machine and Spark's; nothing is claimed."""
    table = table_in(tmp_path)

    with pytest.raises(BadRequest, match="workers=2 starts processes on this machine"):
        table.compact(spark=spark, workers=2)
    with pytest.raises(BadRequest, match="memory://"):
        sleeper.connect("memory://").create_table("t", SCHEMA).compact(spark=spark)


@pytest.mark.every_spark
def test_pieces_of_work_end_each_for_itself(spark):
    """An error of ours is an outcome at once; the other pieces have theirs."""

    def half(number):
        if number % 2:
            raise DataDamaged(f"{number} is odd")
        return number // 2

    ended = outcomes_of(spark, [2, 3, 4], half)

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

    ended = outcomes_of(spark, ["deadly", "unlucky", "well"], run_once_in_vain)

    assert ended["well"].result == "well"
    assert ended["unlucky"].result == "unlucky"
    assert "crashed" in str(ended["deadly"].failure)


def test_what_has_not_ended_is_cancelled_with_the_iterator(spark, tmp_path):
    """Pieces that wait are never begun, and one that runs does not go on."""

    def slow(number):
        import time  # noqa: PLC0415 - goes into a worker by value

        if number >= 8:  # of the first eight, which are under way together
            time.sleep(60)
        return number

    ended = run_pieces_by_spark(spark, range(30), slow, describe=str)

    (first,) = next(ended)
    assert first.result in range(8)
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
        list(run_pieces_by_spark(spark, range(20), slow, describe=str))

    assert spark.range(3).count() == 3


@pytest.mark.every_spark
def test_pieces_of_one_job_fail_each_for_itself(spark, tmp_path, monkeypatch):
    """A deadly piece is left out of its job at the last attempt, and takes no other piece along.

    The others of the job ran once: their outcomes came with the job. Where a task has one attempt
    (Connect's own local mode) the job fails, and each piece runs once more, alone.
    """
    monkeypatch.setattr(piece_jobs, "plan_jobs", lambda cores: JobPlan(pieces=5, at_once=8))
    runs = str(tmp_path)

    def run(name):
        import tempfile  # noqa: PLC0415 - goes into a worker by value

        tempfile.mkstemp(prefix=f"{name}-", dir=runs)
        if name == "deadly":
            os._exit(1)
        if name == "refused":
            raise DataDamaged("it is")
        return name.upper()

    ended = outcomes_of(spark, ["a", "deadly", "refused", "b", "c"], run)

    assert [ended[name].result for name in "abc"] == ["A", "B", "C"]
    assert isinstance(ended["refused"].failure, DataDamaged)
    assert "crashed" in str(ended["deadly"].failure)
    seen = Counter(path.name.split("-")[0] for path in tmp_path.iterdir())
    if (attempts := task_attempts(spark)) > 1:
        assert seen == {"a": 1, "b": 1, "c": 1, "refused": 1, "deadly": 2 * attempts - 1}
    else:
        assert seen["deadly"] == 2
        assert max(seen.values()) == 2


@pytest.mark.every_spark
def test_the_cluster_tells_its_size(spark):
    """Two cores, and the attempts that its master gives a task; each kind of session says so."""
    assert cluster_cores(spark) == 2
    assert task_attempts(spark) == {"classic": 2, "connect": 1}[KIND]


def test_jobs_that_end_together_have_one_commit(spark, tmp_path, monkeypatch):
    """Three leaves in one Spark job: one entry of the log replaces the files of all."""
    monkeypatch.setattr(piece_jobs, "plan_jobs", lambda cores: JobPlan(pieces=3, at_once=8))
    table = table_in(tmp_path)
    before = content(table)

    done = table.compact(all_files=True, spark=spark)

    assert len({each.transaction for each in done.jobs}) == 1
    assert [each.rows_read for each in done.jobs] == [5, 5, 3]  # the largest come first
    assert content(table) == before
    check_files(table, tmp_path / "instance")


@pytest.mark.skipif(KIND != "classic", reason="Connect has no job descriptions")
def test_spark_shows_what_its_jobs_read(spark, tmp_path):
    """Its columns of input and output count what the JVM reads, so the description tells it."""
    table = table_in(tmp_path, points=("m",))
    table.compact(all_files=True, spark=spark)

    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    newest = range(min(20, jobs.size()))  # a look at each asks the JVM
    told = [jobs.apply(number).description() for number in newest]

    about = {text.get().rpartition(", MB ")[0] for text in told if text.isDefined()}
    wanted = [f"sleeper: compact t: leaves 1, files 3, rows {rows}" for rows in (5, 8)]
    assert about >= {*wanted}
