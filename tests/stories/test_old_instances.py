"""Instances that earlier versions made still open, are written to, and stay right.

Each archive in `old_instances` was made by the commit that it is named after. The table `words` has
split leaves and job ids (and merged leaves, from 19b7c50 on), `pairs` a composite key and a sort key
(and a compaction, from 2277b70 on), `grown` was split (from 2277b70 on). `expected.json` holds the
rows that the same commit read.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

import sleeper
from sleeper.state.snapshot import snapshot_parts, state_from_parts

ARCHIVES = sorted((Path(__file__).parent / "old_instances").glob("*.tar.gz"))
JOBS = {"words": "job-3", "pairs": "pairs-2", "grown": "grown-1"}
NEW_ROWS = {
    "words": {"id": "new", "n": 9},
    "pairs": {"a": 5, "b": "new", "s": 1, "v": "new"},
    "grown": {"k": 77, "w": 7},
}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def folder(request, tmp_path):
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def expected(folder):
    return json.loads((folder / "expected.json").read_text())


def rows_of(table, **asked):
    rows = table.query(**asked).to_pylist()
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def test_there_are_old_instances():
    """Of three commits; one more for each format that is released."""
    assert len(ARCHIVES) == 3


def test_every_row_is_read(folder, expected):
    """All of a table, by range and by key."""
    instance = sleeper.connect(folder)
    for name, rows in expected.items():
        table = instance.table(name)
        row = json.loads(rows[0])
        key = tuple(row[field.name] for field in table.schema.row_keys)

        assert rows_of(table) == rows
        assert rows[0] in rows_of(table, key=key)


def test_nothing_is_wrong_with_them(folder):
    """Their snapshots lack what later versions keep, and that is no finding."""
    summary = sleeper.connect(folder).verify()

    assert [fault for table in summary.tables for fault in table.findings] == []


def test_jobs_are_remembered(folder, expected):
    """A job that was committed then adds nothing now."""
    instance = sleeper.connect(folder)
    for name, job_id in JOBS.items():
        done = instance.table(name).ingest([NEW_ROWS[name]], job_id=job_id)

        assert done.already_committed
        assert rows_of(instance.table(name)) == expected[name]


def test_tables_are_written_compacted_and_read_again(folder, expected):
    """The first commit adds the schema; old files know no size, new ones do."""
    for name, row in NEW_ROWS.items():
        table = sleeper.connect(folder).table(name)
        before = table.state()
        table.ingest([row])
        after = table.state()
        sizes = {each.filename: each.size_bytes for each in after.references()}

        assert dict(before.schemas) == {}
        assert dict(after.schemas) == {1: table.schema}
        assert {sizes[each.filename] for each in before.references()} == {None}
        assert len([size for size in sizes.values() if size is not None]) == 1

        assert table.compact(all_files=True).failed == ()
        table.collect_garbage(force=True)
        wanted = sorted([*expected[name], json.dumps(row, default=str, sort_keys=True)])
        again = sleeper.connect(folder).table(name)
        assert rows_of(again) == wanted
        assert rows_of(table) == wanted


def test_a_new_snapshot_holds_what_an_old_log_says(folder, expected):
    """Whether the state comes from old entries, or from a snapshot made of them."""
    instance = sleeper.connect(folder)
    for name in expected:
        table = instance.table(name)
        state = table.state()
        parts = snapshot_parts(state, table.schema)
        read = state_from_parts(state.number, parts.__getitem__, table.schema)

        assert read.references() == state.references()
        assert dict(read.jobs.records()) == dict(state.jobs.records())
        assert (read.at, read.partitions) == (state.at, state.partitions)
