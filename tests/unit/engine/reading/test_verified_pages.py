"""Pages are checked once before they are read, few for few rows, and what is remembered is bounded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper import Field, Primitive, Schema
from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading import few_rows, verified_pages
from sleeper.engine.reading.read_leaves import open_table_reader, read_leaves
from sleeper.engine.reading.verified_pages import VerifiedPages
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged
from sleeper.lookup.reader import LookupReader
from sleeper.model.processing import Processing
from sleeper.model.queries import LeafQuery
from sleeper.model.ranges import canonical_range, region_of, whole_region
from sleeper.storage.local.folder import FolderObjects
from sleeper.storage.objectstore.objects import at_once

EPOCH = datetime(1970, 1, 1)
KEYS = {  # the n-th key of each type, ascending
    Primitive.INT: lambda n: n - 2000,
    Primitive.LONG: lambda n: (n - 2000) * 10**14,
    Primitive.STRING: lambda n: "😀é" * 42 + f"{n:05}",  # of 257 bytes, where 256 are compared
    Primitive.BYTES: lambda n: b"\xff\0\x80" + n.to_bytes(2, "big") + b"\0" * (n % 3),
    Primitive.DATE: lambda n: date(1965, 1, 1) + timedelta(days=n),
    Primitive.TIMESTAMP: lambda n: EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=n - 2000),
    Primitive.TIMESTAMP_NTZ: lambda n: EPOCH + timedelta(days=n - 2000),
}
LAYOUT = WriteSettings(page_rows=100, row_group_rows=1000)
FILES = ("a.parquet", "b.parquet", "c.parquet")


@pytest.fixture(autouse=True)
def _read_by_datafusion(monkeypatch):
    """Ranges of few rows too."""
    monkeypatch.setattr(few_rows, "FEW_ROWS", -1)


class Counted:
    """A folder that counts the bytes read by ranges."""

    def __init__(self, folder):
        self.folder = FolderObjects(folder)
        self.bytes_read = 0

    def __getattr__(self, name):
        return getattr(self.folder, name)

    def read_ranges(self, key, ranges):
        self.bytes_read += sum(length for _, length in ranges)
        return self.folder.read_ranges(key, ranges)


class RemoteFolder(FolderObjects):
    """A folder whose requests are made at once."""

    @property
    def is_remote(self):
        return True

    def beside(self, work):
        return at_once(work)


def schema_of(kind):
    values = (Field("text", Primitive.STRING), Field("n", Primitive.LONG))
    return Schema(row_keys=(Field("key", kind),), values=values)


def reader_of(folder, kind, rows=4000, layout=LAYOUT, texts=10**9):
    """A reader of three files with every third row each, and the rows."""
    schema = schema_of(kind)
    files = Counted(folder)
    pick = np.random.default_rng(1)
    table = pa.table(
        [
            pa.array([KEYS[kind](n) for n in range(rows)], to_arrow(schema).types[0]),
            pa.array([f"{n}" for n in pick.integers(0, texts, rows)]),
            pa.array(range(rows), pa.int64()),
        ],
        schema=to_arrow(schema),
    )
    for place, name in enumerate(FILES):
        with files.open_output(name) as output:
            chunk = table.take(list(range(place, rows, len(FILES))))
            write_data_file(output, [chunk], schema, to_arrow(schema), layout)
    return open_table_reader(files, schema, Processing(), temp_folder=None, stores=None), table


def read(reader, low=None, high=None, columns=("n",)):
    schema = reader.schema
    region = whole_region(schema)
    if low is not None:
        region = region_of(schema, {"key": canonical_range(schema.row_keys[0], low, high)})
    leaf = LeafQuery("root", (region,), FILES)
    batches = read_leaves(reader, [[leaf]], columns, now_ms=0)
    return [n for batch in batches for n in batch.column("n").to_pylist()]


@pytest.mark.parametrize("kind", KEYS, ids=lambda kind: kind.value)
def test_a_read_in_windows_gives_each_row_once_and_in_order(tmp_path, monkeypatch, kind):
    """Windows are cut at keys of every type, between row groups."""
    monkeypatch.setattr(verified_pages, "FIRST_BYTES", 1_000)
    monkeypatch.setattr(verified_pages, "LAST_BYTES", 2_000)
    reader, table = reader_of(tmp_path, kind)
    keys = table.column("key").to_pylist()
    unchecked = [reader.pages.unchecked(name, (), ("key", "n")) for name in FILES]

    assert len(verified_pages.read_windows(unchecked, reader.schema)) > 2
    assert read(reader) == [*range(4000)]
    reader, _ = reader_of(tmp_path / "again", kind)
    assert read(reader, keys[700], keys[3300]) == [*range(700, 3300)]


def test_few_rows_cost_few_pages(tmp_path):
    """A narrow range checks the pages around it, of the columns that are read."""
    reader, _ = reader_of(tmp_path, Primitive.LONG)
    size = sum(reader.files.size(name) for name in FILES)
    reader.lookup.check(FILES)
    reader.files.bytes_read = 0
    key = KEYS[Primitive.LONG]

    assert read(reader, key(2000), key(2010)) == [*range(2000, 2010)]
    assert 0 < reader.files.bytes_read < size / 10


def test_pages_are_checked_once(tmp_path):
    """What was read before is not read for its checksums again; a further column is."""
    reader, _ = reader_of(tmp_path, Primitive.LONG)
    read(reader)
    reader.files.bytes_read = 0

    assert read(reader) == [*range(4000)]
    assert reader.files.bytes_read == 0
    read(reader, columns=("text", "n"))
    assert reader.files.bytes_read > 0


def test_a_dictionary_is_checked_with_any_page_that_needs_it(tmp_path):
    """A range in the middle of a row group reads it too."""
    layout = replace(LAYOUT, dictionary_values=True)
    reader, _ = reader_of(tmp_path, Primitive.LONG, layout=layout, texts=50)
    column = pq.ParquetFile(tmp_path / FILES[0]).metadata.row_group(0).column(1)
    assert column.has_dictionary_page
    body = bytearray((tmp_path / FILES[0]).read_bytes())
    body[column.data_page_offset - 1] ^= 1
    (tmp_path / FILES[0]).write_bytes(body)
    key = KEYS[Primitive.LONG]

    assert read(reader, key(2000), key(2010)) == [*range(2000, 2010)]
    with pytest.raises(DataDamaged, match=r"row group 0 .*'text'.*checksum"):
        read(reader, key(2000), key(2010), columns=("text", "n"))


def test_a_page_whose_limit_ends_in_a_zero_byte_is_checked(tmp_path):
    """Limits are compared without zeros at their end, and so are keys."""
    reader, table = reader_of(tmp_path, Primitive.BYTES)
    reader.lookup.check(FILES)
    schema = reader.schema
    for n in range(299, 4000, 300):  # the last rows of pages of the file whose keys end in two
        key = table.column("key")[n].as_py()
        region = region_of(schema, {"key": canonical_range(schema.row_keys[0], key, key + b"\0")})
        wanted = reader.pages.unchecked(FILES[n % 3], (region,), ("key",))
        assert n // 3 // 100 % 10 in [run.first for run in wanted.runs], n


def test_what_is_remembered_is_bounded(tmp_path):
    """Files used longest ago are forgotten, and checked again."""
    reader, _ = reader_of(tmp_path, Primitive.LONG)
    lookup = LookupReader(reader.files)
    pages = VerifiedPages(lookup, reader.arrow_schema, bytes_max=2_000)
    left = partial(pages.unchecked, regions=(), columns=("key", "n"))

    for name in FILES:
        pages.check([left(name)])

    assert [left(name) is None for name in FILES] == [False, False, True]


def test_threads_share_what_they_checked(tmp_path):
    """Files of a bucket are looked at side by side."""
    reader, _ = reader_of(tmp_path, Primitive.LONG)
    remote = LookupReader(RemoteFolder(tmp_path))
    pages = VerifiedPages(remote, reader.arrow_schema)
    left = partial(pages.unchecked, regions=(), columns=("key", "n"))

    pages.check([left(name) for name in FILES])

    assert [left(name) for name in FILES] == [None, None, None]
