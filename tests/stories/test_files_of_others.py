"""Data files that another program wrote: read if their rows are in key order, and refused if not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import DataDamaged
from sleeper.model.files import FileReference
from sleeper.state.transactions.files import AddFiles

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64()), ("n", pa.int64())])
ROWS = [{"key": f"k{number // 2:04}", "at": number % 2, "n": number} for number in range(3000)]


@pytest.fixture
def table(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True).create_table(
        "t", SCHEMA, row_keys=["key"], sort_keys=["at"]
    )


def written_by_another(folder, rows, **layout):
    """A fresh handle on the table, whose only file has these rows and no seal."""
    table = sleeper.connect(Path(folder) / "instance").table("t")
    opened = table._current()
    root = opened.store.refresh().tree.root_id
    name = f"data/partition_{root}/other.parquet"
    with opened.files.open_output(name) as output:
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), output, **layout)
    reference = FileReference(filename=name, partition_id=root, row_count=len(rows))
    opened.store.commit(AddFiles(references=(reference,)))
    return sleeper.connect(Path(folder) / "instance").table("t")


def ways_to_read(table, folder):
    return {
        "key": lambda: table.query(key="k0700").to_pylist(),
        "keys": lambda: table.query(keys=["k0007", "k0700"]).to_pylist(),
        "range": lambda: table.query(range={"key": ("k0500", "k0900")}).to_pylist(),
        "scan": lambda: table.query().to_pylist(),
        "export": lambda: table.export(folder / "out"),
        "compaction": lambda: compact(table),
    }


def compact(table):
    """Merge the file with another, and raise what the job failed of."""
    table.ingest(ROWS[:1])
    (job,) = table.compact(all_files=True).jobs
    if job.failure is not None:
        raise job.failure


@pytest.mark.parametrize("way", ways_to_read(None, Path()))
@pytest.mark.parametrize("wrong", ["rows shuffled", "sort keys swapped"])
def test_rows_out_of_key_order_are_refused_by_every_way_to_read(table, tmp_path, way, wrong):
    """A look-up would miss rows that a range finds, and a merge would mix them up."""
    rows = [ROWS[number * 7 % len(ROWS)] for number in range(len(ROWS))]
    if wrong == "sort keys swapped":
        rows = [ROWS[number ^ 1] for number in range(len(ROWS))]
    read = written_by_another(tmp_path, rows, write_statistics=False)

    with pytest.raises(DataDamaged, match=r"not in key order: row .* less than the one before"):
        ways_to_read(read, tmp_path)[way]()


@pytest.mark.parametrize("layout", [{}, {"write_page_index": True, "row_group_size": 500}])
def test_rows_in_key_order_are_read(table, tmp_path, layout):
    """Files as upstream writes them, without a seal, are read like ours."""
    read = written_by_another(tmp_path, ROWS, **layout)

    for way, rows in ways_to_read(read, tmp_path).items():
        found = rows()
        if way in ("key", "keys", "range", "scan"):
            first, last = {"key": (1400, 1402), "range": (1000, 1800)}.get(way, (0, len(ROWS)))
            expected = ROWS[first:last]
            if way == "keys":
                expected = ROWS[14:16] + ROWS[1400:1402]
            assert found == expected, way
    assert read.query().to_pylist() == [ROWS[0], *ROWS]
