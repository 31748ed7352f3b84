"""Reads over several leaves: what is read at once, and in which order rows come."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest

import sleeper
from sleeper.engine.reading import few_rows, merged_scan
from sleeper.engine.reading.file_rows import FileRows

SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("n", pa.int64())])
LEAVES = 30
ONE_FILE = {"sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf"}
FILE_A_LEAF = {"sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"}
FUNCTION = f"{__name__}:keep"

streams: list[int] = []


def keep(batches):
    """A table's function that notes how many rows a stream has."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    streams.append(rows)


def table_with(properties, *, leaves=LEAVES):
    """Ten keys in each leaf, in two commits."""
    instance = sleeper.connect("memory://", allow_functions=[__name__])
    points = [10 * leaf for leaf in range(1, leaves)]
    table = instance.create_table(
        "t", SCHEMA, row_keys=["key"], split_points=points, properties=properties
    )
    for odd in (0, 1):
        keys = range(odd, 10 * leaves, 2)
        table.ingest(pa.table({"key": keys, "n": keys}, schema=SCHEMA))
    return table


@pytest.fixture
def scans(monkeypatch):
    """Names of files, for each time that more than few rows were read."""
    seen = []
    merge, read_files = merged_scan.Scanner.merge, FileRows.read_files

    def merging(scanner, slices, columns=None):
        seen.append([part.url for part in slices])
        return merge(scanner, slices, columns)

    def reading(rows, regions_by_file, *rest):
        seen.append([*regions_by_file])
        return read_files(rows, regions_by_file, *rest)

    monkeypatch.setattr(merged_scan.Scanner, "merge", merging)
    monkeypatch.setattr(FileRows, "read_files", reading)
    return seen


def filenames(table):
    return {reference.filename for reference in table.state().references()}


def keys_of(table, low, high):
    rows = table.query(range={"key": (low, high)}).to_arrow()
    assert rows.column("n").equals(rows.column("key"))
    return rows.column("key").to_pylist()


@pytest.mark.parametrize(("properties", "leaves"), [(ONE_FILE, 30), (FILE_A_LEAF, 5)])
def test_few_rows_of_several_leaves_are_read_at_once(properties, leaves, scans):
    """A range over leaves with few files in all costs about what one over a single leaf does."""
    table = table_with(properties, leaves=leaves)

    found = keys_of(table, 5, 10 * leaves - 5)

    assert found == [*range(5, 10 * leaves - 5)]
    assert scans == []


@pytest.mark.parametrize("files", [1, 5, 12])
def test_a_short_range_of_a_dozen_files_needs_no_engine(files, scans):
    """Pages have a thousand rows, so those of the range have twelve thousand in twelve files."""
    table = sleeper.connect("memory://").create_table("t", SCHEMA, row_keys=["key"])
    for number in range(files):
        keys = range(number, 6_000 * files, files)
        table.ingest(pa.table({"key": keys, "n": keys}, schema=SCHEMA))

    found = keys_of(table, 9_000, 9_010) if files > 1 else keys_of(table, 900, 910)

    assert len(found) == 10
    assert scans == []


def test_leaves_with_the_same_files_are_read_as_one(scans, monkeypatch):
    """However many rows there are."""
    monkeypatch.setattr(few_rows, "FEW_ROWS", 0)
    table = table_with(ONE_FILE)

    found = keys_of(table, 5, 295)

    assert found == [*range(5, 295)]
    ((first, second),) = scans
    assert first != second


def test_leaves_with_files_of_their_own_are_read_one_after_the_other(scans, monkeypatch):
    """So that memory does not grow with the leaves of a range."""
    monkeypatch.setattr(few_rows, "FEW_ROWS", 0)
    table = table_with(FILE_A_LEAF)

    found = keys_of(table, 5, 295)

    assert found == [*range(5, 295)]
    assert [len(files) for files in scans] == [2] * LEAVES


def test_a_file_gives_rows_of_those_leaves_alone_that_have_it():
    """Given a leaf that was compacted alone, its rows in the files of before are left out."""
    table = table_with(ONE_FILE, leaves=3)
    before = filenames(table)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        table.compact(all_files=True, progress=interrupt)

    assert len(before) == 2
    assert before < filenames(table)
    assert keys_of(table, 0, 30) == [*range(30)]


def test_a_function_gets_each_leaf_in_a_stream_of_its_own():
    """What it computes over a leaf does not depend on how few rows others have."""
    table = table_with({**ONE_FILE, "sleeper.table.function": FUNCTION}, leaves=3)
    streams.clear()

    assert keys_of(table, 5, 25) == [*range(5, 25)]
    assert streams == [5, 10, 5]


def test_bounds_that_lost_their_zeros_prove_nothing():
    """Given overlapping regions that begin above a key by zeros alone, the key is in neither."""
    fields = [pa.field("a", pa.binary(), nullable=False), pa.field("b", pa.int64(), nullable=False)]
    rows = pa.table({"a": [b"a"] * 5 + [b"b"] * 5, "b": range(10)}, schema=pa.schema(fields))
    instance = sleeper.connect("memory://")
    table = instance.create_table("t", rows.schema, row_keys=["a", "b"])
    table.ingest(rows)
    regions = [{"a": (b"a\0", b"c")}, {"a": (b"a\0\0", b"d")}]

    found = table.query(regions=regions, ordered=False).to_arrow()

    assert found.column("a").to_pylist() == [b"b"] * 5
    assert table.count(regions=regions) == 5
