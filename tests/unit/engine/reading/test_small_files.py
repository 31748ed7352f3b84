"""Small files are read whole, many at once, into bounded memory."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO

import pyarrow as pa
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading import small_files
from sleeper.engine.reading.small_files import SmallFiles, are_small
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged
from sleeper.lookup.reader import LookupReader
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.storage.memory import MemoryObjects

SCHEMA = Schema(
    row_keys=(Field("id", Primitive.LONG),),
    values=(Field("text", Primitive.STRING), Field("maybe", Primitive.LONG, nullable=True)),
)
ARROW = to_arrow(SCHEMA)
SETTINGS = WriteSettings(page_rows=10, row_group_rows=40)


def rows_of(number, count):
    return pa.table(
        {
            "id": range(number, number + count),
            "text": [f"row {each} of {number}" for each in range(count)],
            "maybe": [each if each % 3 else None for each in range(count)],
        },
        schema=ARROW,
    )


@pytest.fixture
def files():
    """Files of 0, 1, 7, 49 and 100 rows: of no row group, of one and of several."""
    objects = MemoryObjects(lambda: datetime(2024, 6, 1, tzinfo=UTC))
    for number, count in enumerate((0, 1, 7, 49, 100)):
        output = BytesIO()
        write_data_file(output, [rows_of(number, count)], SCHEMA, ARROW, SETTINGS)
        objects.put(f"{number}.parquet", output.getvalue())
    return objects


NAMES = [f"{number}.parquet" for number in range(5)]


def reader(files, **settings):
    return SmallFiles(LookupReader(files), ARROW, **settings)


@pytest.mark.parametrize("together", [0, 8 << 20], ids=["one by one", "together"])
def test_each_file_has_its_own_rows(files, monkeypatch, together):
    """Files of one call are decoded as row groups of one file, and cut apart again."""
    monkeypatch.setattr(small_files, "_TOGETHER_BYTES", together)

    found = reader(files).read(NAMES)

    assert found == [rows_of(number, count) for number, count in enumerate((0, 1, 7, 49, 100))]


def test_files_that_were_read_before_are_not_read_again(files):
    """They stay in memory while there is room: later calls do not ask the storage."""
    small = reader(files)
    before = small.read(NAMES)

    files.delete(NAMES[:3])

    assert small.read(NAMES) == before


def test_what_was_used_longest_ago_makes_room(files):
    """Of files that do not fit together, the last ones are kept."""
    small = reader(files, kept_bytes=4_000)
    small.read(NAMES[2:4])
    small.read(NAMES[4:])

    files.delete(NAMES)

    assert small.read(NAMES[4:]) is not None
    with pytest.raises(DataDamaged, match=r"2\.parquet"):
        small.read(NAMES[2:3])


def test_more_rows_than_may_be_in_memory_are_left_to_others(files):
    """So it is known only when they are decoded: dictionaries make files small."""
    assert reader(files, kept_bytes=1_000).read(NAMES) is None


def test_more_bytes_than_a_job_may_have_are_left_to_others(files, monkeypatch):
    """The sizes that a state has may be wrong, so those of the files count."""
    monkeypatch.setattr(small_files, "SMALL_JOB_BYTES", files.size(NAMES[4]) + 1)

    assert reader(files).read(NAMES[4:]) is not None
    assert reader(files).read(NAMES[3:]) is None


def test_a_damaged_file_is_named(files):
    """The message names it, though it is decoded together with others."""
    body = bytearray(files.read(NAMES[3]))
    body[60] ^= 1
    files.put(NAMES[3], bytes(body))

    with pytest.raises(DataDamaged, match=r"3\.parquet.*damaged"):
        reader(files).read(NAMES)


@pytest.mark.parametrize(
    ("size_bytes", "count", "small"),
    [(1 << 20, 1, True), ((1 << 20) + 1, 1, False), (32 << 20, 500, True), (33 << 20, 500, False)],
)
def test_files_are_small_by_their_mean_and_together(size_bytes, count, small):
    """1 MiB each on average, 32 MiB together."""
    assert are_small(size_bytes, count) is small
