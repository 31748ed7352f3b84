"""Every page of a data file is looked at: damage is found before rows are read to be kept."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading.merged_scan import FileSlice, Scanner
from sleeper.engine.reading.page_checksums import verify_pages
from sleeper.engine.writing import data_file
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged, ObjectNotFound, StorageFailed
from sleeper.lookup.reader import LookupReader
from sleeper.model.schema import Field, ListType, MapType, Primitive, Schema

SCHEMA = Schema(
    row_keys=(Field("id", Primitive.STRING),),
    sort_keys=(Field("at", Primitive.LONG),),
    values=(
        Field("n", Primitive.LONG, nullable=True),
        Field("ok", Primitive.BOOLEAN),
        Field("tags", ListType(Primitive.LONG)),
        Field("map", MapType(Primitive.STRING, Primitive.INT)),
    ),
)
ARROW = to_arrow(SCHEMA)
ROW_COUNT = 400
ROWS = pa.table(
    {
        "id": [f"k{i // 2:05}" for i in range(ROW_COUNT)],
        "at": range(ROW_COUNT),
        "n": [None if i % 3 == 0 else i for i in range(ROW_COUNT)],
        "ok": [i % 5 < 2 for i in range(ROW_COUNT)],
        "tags": [list(range(i % 4)) for i in range(ROW_COUNT)],
        "map": [[("a", i)] * (i % 2) for i in range(ROW_COUNT)],
    },
    schema=ARROW,
)
LAYOUTS = {
    "as by default": {},
    "version 1 pages with dictionaries": {"page_version": "1.0", "dictionary_values": True},
    "not compressed": {"codec": "none", "level": None},
}


@pytest.fixture(params=["with page sums", "without page sums, as before"])
def _both_ways(request, monkeypatch):
    """Files of this version, and of those that had no page sums."""
    if request.param.startswith("without"):
        monkeypatch.setattr(data_file, "page_sums_bytes", lambda *_: b"")


both_ways = pytest.mark.usefixtures("_both_ways")


def written(**settings):
    output = io.BytesIO()
    small = {"page_rows": 100, "row_group_rows": 300} | settings
    write_data_file(output, [ROWS], SCHEMA, ARROW, WriteSettings(**small))
    return output.getvalue()


class OneFile:
    """A file in memory; `largest` is the size of the largest read."""

    is_remote = False

    def __init__(self, body):
        self.body = body
        self.largest = 0

    def size(self, key):
        return len(self.body)

    def read_ranges(self, key, ranges):
        self.largest = max(self.largest, *(length for _, length in ranges))
        return [self.body[offset : offset + length] for offset, length in ranges]


def flipped(body, at, bits=1):
    changed = bytearray(body)
    changed[at] ^= bits
    return bytes(changed)


@both_ways
@pytest.mark.parametrize("settings", LAYOUTS.values(), ids=LAYOUTS)
def test_a_file_as_it_was_written_passes(settings):
    """Row groups, nulls, lists and maps, in both versions of pages."""
    body = written(**settings)

    found = verify_pages(LookupReader(OneFile(body)), "f")

    assert (found.row_count, found.has_checksums) == (ROW_COUNT, True)


@both_ways
@pytest.mark.parametrize("settings", LAYOUTS.values(), ids=LAYOUTS)
def test_any_flipped_bit_is_found_or_does_no_harm(settings, tmp_path):
    """What passes either reads as the right rows, or the reader itself refuses it."""
    body = written(**settings)
    chance = random.Random(7)
    found = 0
    for at in chance.sample(range(len(body)), 400):
        damaged = flipped(body, at, 1 << chance.randrange(8))
        try:
            verify_pages(LookupReader(OneFile(damaged)), "f")
        except DataDamaged:
            found += 1
            continue
        path = tmp_path / f"{at}.parquet"
        path.write_bytes(damaged)
        try:
            rows = pa.Table.from_batches(Scanner(SCHEMA).merge([FileSlice(str(path))]), ARROW)
        except DataDamaged:
            continue
        assert rows.equals(ROWS), f"byte {at} was changed"

    assert found > 350


@both_ways
@pytest.mark.parametrize("place", [(0, 0), (1, 2), (1, 3), (0, 5)])
def test_damage_is_told_with_file_row_group_and_column(place):
    """A body's bit is flipped in one column chunk: the message names it."""
    group, leaf = place
    body = written()
    column = pq.ParquetFile(io.BytesIO(body)).metadata.row_group(group).column(leaf)
    last_byte = column.data_page_offset + column.total_compressed_size - 1

    with pytest.raises(
        DataDamaged, match=r"'f' is damaged or of the wrong kind: row group"
    ) as told:
        verify_pages(LookupReader(OneFile(flipped(body, last_byte))), "f")

    assert f"row group {group} " in str(told.value)
    assert repr(column.path_in_schema) in str(told.value)
    assert "checksum" in str(told.value)


@both_ways
def test_a_large_column_is_read_piece_by_piece():
    """Memory is bounded by pieces of 8 MiB, whatever a column chunk holds."""
    schema = Schema(row_keys=(Field("id", Primitive.LONG),))
    rows = pa.table({"id": range(3_000_000)}, schema=to_arrow(schema))
    output = io.BytesIO()
    settings = WriteSettings(
        codec="none", level=None, row_group_rows=3_000_000, row_group_bytes=1 << 30
    )
    write_data_file(output, [rows], schema, to_arrow(schema), settings)
    file = OneFile(output.getvalue())

    assert verify_pages(LookupReader(file), "f").row_count == 3_000_000
    assert len(file.body) > 3 * file.largest / 1.1
    assert file.largest <= 8 << 20


def test_a_file_that_is_cut_off_or_gone_is_told():
    """No part of a file may be missing."""
    body = written()

    class Gone(OneFile):
        def size(self, key):
            raise ObjectNotFound("no such file")

    class Broken(OneFile):
        def read_ranges(self, key, ranges):
            raise OSError(5, "input/output error")

    with pytest.raises(
        DataDamaged, match="'f' is damaged or of the wrong kind: it does not end as"
    ):
        verify_pages(LookupReader(OneFile(body[:-100])), "f")
    with pytest.raises(DataDamaged, match="'f' is missing"):
        verify_pages(LookupReader(Gone(body)), "f")
    with pytest.raises(StorageFailed, match="'f' cannot be read"):
        verify_pages(LookupReader(Broken(body)), "f")


def test_files_of_others_may_have_no_checksums():
    """Then headers alone are checked, and it is said."""
    output = io.BytesIO()
    pq.write_table(ROWS, output, write_page_checksum=False, write_page_index=False)

    found = verify_pages(LookupReader(OneFile(output.getvalue())), "f")

    assert (found.row_count, found.has_checksums) == (ROW_COUNT, False)


@both_ways
def test_a_file_without_rows_passes():
    """It has no pages."""
    output = io.BytesIO()
    write_data_file(output, [], SCHEMA, ARROW, WriteSettings())

    assert verify_pages(LookupReader(OneFile(output.getvalue())), "f").row_count == 0
