"""A process that reads a table for long keeps nothing of files that the table no longer has."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.reading import read_leaves
from sleeper.engine.reading.merged_scan import _COMPARED_ROWS

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int64())])
ROUNDS, FILES = 12, 3


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.setattr(read_leaves, "_GONE_MAX", 2)
    made = sleeper.connect(tmp_path / "instance", create=True)
    made.create_table("t", SCHEMA, row_keys=["id"])
    return made


def change(table, number):
    """Add some files, then make them one with those before."""
    for file in range(FILES):
        table.ingest([{"id": f"{number:02}-{file}", "n": number}])
    table.compact(all_files=True)


def known(table):
    """Return the files of which the readers keep an index, open frames, and checked pages."""
    reader = table._current().reader
    frames = {
        url.rpartition("/")[2]
        for session in reader.scanner._sessions.values()
        for url in session._frames
    }
    return reader.lookup.cached_count, len(frames | {*reader.pages._files})


def test_a_reader_forgets_them(instance):
    """Given that another process compacts again and again, then look-ups keep what there is."""
    writer, reader = instance.table("t"), sleeper.connect(instance.url).table("t")

    for number in range(ROUNDS):
        change(writer, number)
        assert reader.query(key=f"{number:02}-0").to_pylist() == [
            {"id": f"{number:02}-0", "n": number}
        ]
        assert reader.query().count() == FILES * (number + 1)
        assert max(known(reader)) <= 2 * len(reader.references()) + 2 + FILES

    assert reader.query().count() == FILES * ROUNDS


def test_a_writer_forgets_them(instance):
    """Given that it compacts what it has added, then it keeps no index of the inputs."""
    writer = instance.table("t")

    for number in range(ROUNDS):
        change(writer, number)
        writer.refresh()
        assert max(known(writer)) <= 2 * len(writer.references()) + 2


def test_older_versions_open_them_again(instance):
    """Given that files of an older version were forgotten, then its rows are read as before."""
    table = instance.table("t")
    change(table, 0)
    version = table.refresh()
    for number in range(1, ROUNDS):
        change(table, number)

    for _ in range(2):
        assert table.query(as_of=version).count() == FILES
        assert len(table.query(as_of=version).to_pylist()) == FILES
        assert table.query(key="00-1", as_of=version).to_pylist() == [{"id": "00-1", "n": 0}]
        table.refresh()


def test_files_that_the_table_has_stay_known(instance):
    """Given more files than the least number, then none of them is opened twice."""
    table = instance.table("t")
    for number in range(20):
        table.ingest([{"id": f"{number:02}", "n": number}])
    table.query(keys=[f"{number:02}" for number in range(20)]).to_arrow()
    before = table._current().reader.lookup.cached_count

    table.refresh()

    assert before == 20
    assert table._current().reader.lookup.cached_count == before


def test_readers_of_replaced_rows_forget_them(instance):
    """Given rows that are replaced by many others, which readers compare in larger pieces, then
    these keep no more files either."""
    writer, reader = instance.table("t"), sleeper.connect(instance.url).table("t")

    for number in range(ROUNDS):
        keys = [f"{number:02}-{place:04}" for place in range(1_100)]
        writer.ingest([{"id": key, "n": number} for key in keys])
        writer.upsert([{"id": key, "n": -number} for key in keys[50:]])
        assert sum(map(len, reader.query())) == 1_100 * (number + 1)
        assert max(known(reader)) <= 2 * len(reader.references()) + 2 + 2 * FILES
        writer.compact(all_files=True)
        assert sum(map(len, reader.query())) == 1_100 * (number + 1)
        assert max(known(reader)) <= 2 * len(reader.references()) + 2 + 2 * FILES

    assert _COMPARED_ROWS in reader._current().reader.scanner._sessions
