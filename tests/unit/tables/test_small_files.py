"""A table gets many small files, and a compaction of them is few jobs."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper

BATCH = "sleeper.table.compaction.files.batch.size"
ROWS = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def table_of_small_files(folder, properties=None, shared=None):
    """30 ingests of 8 rows into four leaves, which share their files."""
    instance = sleeper.connect(folder, create=True)
    instance.set_properties(shared or {})
    table = instance.create_table(
        "t", ROWS, row_keys=["id"], split_points=[2, 4, 6], properties=properties or {}
    )
    for number in range(30):
        ids = range(8)
        table.ingest(pa.table({"id": ids, "n": [number] * len(ids)}, schema=ROWS))
    return table


def test_each_leaf_has_one_job_and_one_file_afterwards(tmp_path):
    """Each row is there as often as before, and in its leaf."""
    table = table_of_small_files(tmp_path)

    run = table.compact()

    assert [len(job.job.inputs) for job in run.jobs] == [30] * 4
    assert [job.rows_written for job in run.jobs] == [60] * 4
    assert sorted(table.query().to_arrow()["n"].to_pylist()) == sorted([*range(30)] * 8)
    assert all(each.whole_file for each in table.state().references())


@pytest.mark.parametrize("of", ["the table", "all tables"])
def test_the_size_of_a_batch_that_was_set_is_kept(tmp_path, of):
    """Who sets it gets jobs of at most so many files, whether for one table or for all."""
    own = {BATCH: 12} if of == "the table" else {}
    shared = {BATCH.replace(".table.", ".default.table."): 12} if of == "all tables" else {}
    table = table_of_small_files(tmp_path, own, shared)

    run = table.compact()

    assert max(len(job.job.inputs) for job in run.jobs) == 12
