"""The sort: bounded memory, groups of keys, runs on disk, ranges of what does not fit."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from operator import attrgetter, itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.sorting import sort
from sleeper.engine.sorting.sort import (
    Block,
    SortSettings,
    SpillFile,
    SubRange,
    plan_sub_ranges,
    sort_into_groups,
)
from sleeper.errors import StorageFailed, StorageFull
from sleeper.model.schema import DecimalType, Field, ListType, MapType, Primitive, Schema

SIZE = attrgetter("size_bytes")
OPEN_FILES = Path("/proc/self/fd")
TEXT_AND_NUMBER = pa.schema(
    [
        pa.field("k", pa.string(), False),
        pa.field("s", pa.int64(), False),
        pa.field("place", pa.int64(), False),
    ]
)


def table_of(keys, schema=TEXT_AND_NUMBER) -> pa.Table:
    """Rows of (k, s), each with its place in the input."""
    rows = [(k, s, place) for place, (k, s) in enumerate(keys)]
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def sorted_groups(
    table, bounds, *, memory_bytes=1 << 30, batch_rows=None, folder=None, keys=("k", "s")
):
    """Sort a table; return {group: its rows}, having checked that chunks have its schema."""
    batches = table.to_batches(max_chunksize=batch_rows) if batch_rows else table.to_batches()
    grouped = sort_into_groups(
        iter(batches),
        table.schema,
        key_names=keys,
        bounds=bounds,
        settings=SortSettings(memory_bytes=memory_bytes, temp_folder=folder),
    )
    found = {}
    for group, chunks in grouped:
        assert group not in found
        parts = list(chunks)
        assert all(part.schema.equals(table.schema) and part.num_rows for part in parts)
        found[group] = pa.concat_tables(parts)
    assert list(found) == sorted(found)
    return found


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Blocks, chunks and runs of a few rows, so that small inputs make many of each."""
    monkeypatch.setattr(sort, "_BLOCK_BYTES_MAX", 60)
    monkeypatch.setattr(sort, "_CHUNK_BYTES_MAX", 100)
    monkeypatch.setattr(sort, "_RUN_BYTES_MIN", 300)


class TestSort:
    """`sort_into_groups`, in memory and through runs on disk."""

    KEYS = st.lists(
        st.tuples(
            st.one_of(
                st.sampled_from(["", "a", "b", "bb", "\U00010000"]),
                st.text(max_size=4).map("the same eight and ".__add__),
                st.text(max_size=12),
            ),
            st.integers(0, 3),
        ),
        max_size=120,
    )
    BOUNDS = st.lists(st.text(min_size=1, max_size=3), max_size=4, unique=True).map(sorted)

    @pytest.mark.parametrize("memory_bytes", [1, 600, 3_000, 1 << 30])
    def test_is_what_python_sorts(self, memory_bytes, tiny_blocks):
        """
        Whatever the memory, every row comes out once, in the group of its key, ordered by
        all keys, and rows of equal keys keep the order they came in.
        """

        @settings(max_examples=40)
        @given(self.KEYS, self.BOUNDS, st.integers(1, 40))
        def check(keys, bounds, batch_rows):
            found = sorted_groups(
                table_of(keys), bounds, memory_bytes=memory_bytes, batch_rows=batch_rows
            )

            expected: dict[int, list] = {}
            for k, s, place in sorted(
                ((k, s, place) for place, (k, s) in enumerate(keys)), key=itemgetter(0, 1)
            ):
                group = bisect_right(bounds, k)
                expected.setdefault(group, []).append({"k": k, "s": s, "place": place})
            assert {group: rows.to_pylist() for group, rows in found.items()} == expected

        check()

    @pytest.mark.parametrize("memory_bytes", [1, 1 << 30])
    @pytest.mark.parametrize(
        ("kind", "values", "bounds"),
        [
            (pa.int32(), [5, -(2**31), 2**31 - 1, 0, 5], [0, 5]),
            (pa.int64(), [5, -(2**63), 2**63 - 1, 0, 5], [0, 5]),
            (pa.binary(), [b"\x80", b"", b"\x7f", b"\xff\xff", b"\x80"], [b"\x80"]),
            (pa.string(), ["é", "", "z", "\U00010000", "é"], ["é"]),
            (pa.date32(), [date.max, date.min, date(1969, 1, 1)], [date(1970, 1, 1)]),
            (
                pa.timestamp("us", "UTC"),
                [datetime(9999, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)],
                [datetime(1970, 1, 1, tzinfo=UTC)],
            ),
            (
                pa.timestamp("us"),
                [datetime(9999, 1, 1), datetime(1, 1, 1)],
                [datetime(1970, 1, 1)],
            ),
        ],
        ids=str,
    )
    def test_takes_keys_of_every_type(self, kind, values, bounds, memory_bytes, tiny_blocks):
        """Order and bounds are Python's; a bound belongs to the group above it."""
        table = pa.table({"k": pa.array(values * 7, kind)})

        found = sorted_groups(table, bounds, memory_bytes=memory_bytes, batch_rows=3, keys=("k",))

        expected: dict[int, list] = {}
        for value in sorted(values * 7):
            expected.setdefault(bisect_right(bounds, value), []).append(value)
        assert {group: rows["k"].to_pylist() for group, rows in found.items()} == expected

    @pytest.mark.parametrize("memory_bytes", [1, 1 << 30])
    def test_gives_back_exactly_the_columns_it_was_given(self, memory_bytes, tiny_blocks):
        """Every type, nulls, empty lists and maps come through unchanged, memory or disk."""
        schema = Schema(
            row_keys=(Field("k", Primitive.LONG),),
            values=(
                Field("int", Primitive.INT, nullable=True),
                Field("text", Primitive.STRING, nullable=True),
                Field("bytes", Primitive.BYTES, nullable=True),
                Field("double", Primitive.DOUBLE, nullable=True),
                Field("float", Primitive.FLOAT),
                Field("flag", Primitive.BOOLEAN, nullable=True),
                Field("day", Primitive.DATE, nullable=True),
                Field("at", Primitive.TIMESTAMP, nullable=True),
                Field("clock", Primitive.TIMESTAMP_NTZ),
                Field("price", DecimalType(38, 3), nullable=True),
                Field("list", ListType(Primitive.LONG), nullable=True),
                Field("map", MapType(Primitive.STRING, Primitive.BYTES), nullable=True),
            ),
        )
        row = {
            "int": 1,
            "text": "",
            "bytes": b"\0",
            "double": -0.0,
            "float": 0.5,
            "flag": True,
            "day": date(2020, 1, 1),
            "at": datetime(2020, 1, 1, tzinfo=UTC),
            "clock": datetime(2020, 1, 1),
            "price": Decimal("12345678901234567890.125"),
            "list": [1, 2],
            "map": [("a", b"b")],
        }
        empty = {**dict.fromkeys(row), "float": 1.5, "clock": datetime(1, 1, 1)}
        hollow = {**row, "list": [], "map": []}
        keys = [3, 1, 2] * 10
        given_rows = [
            {"k": k, **values} for k, values in zip(keys, [row, empty, hollow] * 10, strict=True)
        ]
        table = pa.Table.from_pylist(given_rows, schema=to_arrow(schema))

        found = sorted_groups(table, [], memory_bytes=memory_bytes, batch_rows=4, keys=("k",))

        assert found[0].to_pylist() == sorted(given_rows, key=itemgetter("k"))

    def test_of_nothing_has_no_groups(self):
        """No rows, no groups; nor do batches without rows make any."""
        assert sorted_groups(table_of([]), ["m"]) == {}
        assert sorted_groups(table_of([("a", 1)]).slice(0, 0), ["m"]) == {}

    def test_leaves_out_groups_without_rows(self):
        """Only groups with rows are yielded, by their numbers."""
        found = sorted_groups(table_of([("x", 1), ("c", 1)]), ["b", "d", "f", "w"])

        assert list(found) == [1, 4]

    def test_leaves_a_bound_of_one_group_to_the_next(self):
        """A consumer that stops in the middle of a group gets the next one whole."""
        grouped = sort_into_groups(
            [table_of([("a", n) for n in range(50)] + [("z", 1)])],
            TEXT_AND_NUMBER,
            key_names=["k", "s"],
            bounds=["m"],
            settings=SortSettings(),
        )

        counts = [
            (group, sum(c.num_rows for c in chunks) if group else 0) for group, chunks in grouped
        ]

        assert counts == [(0, 0), (1, 1)]

    def test_hands_on_what_its_input_raises(self, tiny_blocks, tmp_path):
        """An error of the input is the error of the sort."""

        def batches():
            yield table_of([("a", 1)] * 50)
            raise LookupError("the input broke")

        grouped = sort_into_groups(
            batches(),
            TEXT_AND_NUMBER,
            key_names=["k", "s"],
            bounds=[],
            settings=SortSettings(memory_bytes=1, temp_folder=tmp_path),
        )

        with pytest.raises(LookupError, match="the input broke"):
            next(grouped)


class TestChunks:
    """The tables that a group comes in."""

    @pytest.mark.parametrize("memory_bytes", [40 << 20, 1 << 30])
    def test_stay_small_where_long_rows_come_together(self, memory_bytes):
        """Rows that are far longer than the others, and neighbours by key, come a few at once."""
        schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("text", pa.string(), False)])
        short = pa.table({"k": range(10_000), "text": ["x"] * 10_000}, schema=schema)
        long = pa.table({"k": [5_000] * 80, "text": ["y" * (1 << 20)] * 80}, schema=schema)

        grouped = sort_into_groups(
            [short, *(long.slice(start, 8) for start in range(0, 80, 8))],
            schema,
            key_names=["k"],
            bounds=[],
            settings=SortSettings(memory_bytes=memory_bytes),
        )
        sizes = [chunk.nbytes for _, chunks in grouped for chunk in chunks]

        assert sum(sizes) > 80 << 20
        assert max(sizes) <= 17 << 20


class TestDisk:
    """What the sort does to the folder for temporary files."""

    def test_is_not_touched_by_what_fits_in_memory(self, tmp_path):
        """A folder that is not there does not matter then."""
        found = sorted_groups(table_of([("b", 1), ("a", 1)]), [], folder=tmp_path / "absent")

        assert found[0]["k"].to_pylist() == ["a", "b"]

    def test_never_shows_a_file(self, tmp_path, tiny_blocks):
        """Runs are in a file without a name: none is left, even by a process that is killed."""
        seen = []

        def batches():
            for _ in range(20):
                yield table_of([("a", 1)] * 10)
                seen.append(list(tmp_path.iterdir()))

        grouped = sort_into_groups(
            batches(),
            TEXT_AND_NUMBER,
            key_names=["k", "s"],
            bounds=[],
            settings=SortSettings(memory_bytes=1, temp_folder=tmp_path),
        )
        count = sum(chunk.num_rows for _, chunks in grouped for chunk in chunks)

        assert count == 200
        assert seen == [[]] * 20

    def test_is_let_go_when_the_consumer_stops(self, tmp_path, tiny_blocks):
        """Closing the sort in the middle closes its file."""
        before = len(list(OPEN_FILES.iterdir())) if OPEN_FILES.exists() else 0
        grouped = sort_into_groups(
            table_of([("a", n) for n in range(100)]).to_batches(max_chunksize=10),
            TEXT_AND_NUMBER,
            key_names=["k", "s"],
            bounds=[],
            settings=SortSettings(memory_bytes=1, temp_folder=tmp_path),
        )

        _, chunks = next(grouped)
        next(chunks)
        grouped.close()

        after = len(list(OPEN_FILES.iterdir())) if OPEN_FILES.exists() else 0
        assert after == before

    def test_full_is_an_error_that_names_the_folder(self, monkeypatch, tmp_path):
        """/dev/full takes no byte, as a full disk does."""
        spill = SpillFile(tmp_path, TEXT_AND_NUMBER)
        monkeypatch.setattr(spill, "_descriptor", os.open("/dev/full", os.O_WRONLY))

        with pytest.raises(StorageFull, match=str(tmp_path)):
            spill.append(table_of([("a", 1)]), ("a", 1))
        spill.close()

    def test_missing_is_an_error_that_names_the_folder(self, tmp_path):
        """So is a folder that does not exist, once it is needed."""
        spill = SpillFile(tmp_path / "absent", TEXT_AND_NUMBER)

        with pytest.raises(StorageFailed, match="absent"):
            spill.append(table_of([("a", 1)]), ("a", 1))

    def test_that_takes_no_file_is_an_error_that_names_it(self):
        """Nobody, not even root, makes files under /proc."""
        spill = SpillFile(Path("/proc/self"), TEXT_AND_NUMBER)

        with pytest.raises(StorageFailed, match="/proc/self"):
            spill.append(table_of([("a", 1)]), ("a", 1))


class TestSubRanges:
    """`plan_sub_ranges`: how a group too large for memory is cut."""

    RUNS = st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), min_size=1, max_size=12),
        min_size=1,
        max_size=5,
    )

    @staticmethod
    def blocks(runs) -> list[list[Block]]:
        return [
            [Block(0, 10 * count, count, (key,)) for key, count in sorted(run, key=itemgetter(0))]
            for run in runs
        ]

    @given(RUNS, st.integers(1, 60))
    def test_meet_each_other_and_cover_all_keys(self, runs, rows_max):
        """The first has no lower limit, the last no upper one; between them there is no gap."""
        ranges = list(plan_sub_ranges(self.blocks(runs), SIZE, 10 * rows_max))

        assert ranges[0].low is None
        assert ranges[-1].high is None
        assert all(one.high == other.low for one, other in pairwise(ranges))

    @given(RUNS, st.integers(1, 60))
    def test_hold_little_more_than_allowed_unless_they_hold_one_key(self, runs, rows_max):
        """Blocks that begin in a range have no more rows than allowed, or all the same key."""
        blocks = self.blocks(runs)
        begun: Counter[SubRange] = Counter()

        ranges = list(plan_sub_ranges(blocks, SIZE, 10 * rows_max))
        for block in (block for run in blocks for block in run):
            place = (block.first_key, False)
            inside = [
                r
                for r in ranges
                if (r.low is None or r.low <= place) and (r.high is None or place < r.high)
            ]
            begun[inside[0]] += block.row_count

        assert all(count <= rows_max or wanted.is_one_key for wanted, count in begun.items())
