"""Ranges of data files: which rows come, how little is read for them, and what can go wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading.merged_scan import FileSlice, Scanner
from sleeper.engine.reading.regions import (
    PREDICATE_REGIONS_MAX,
    disjoint_regions,
    joined_over_gaps,
    region_chunks,
    regions_predicate,
)
from sleeper.engine.reading.session import Session, merge_plan
from sleeper.errors import BadRequest, DataDamaged, StorageFailed
from sleeper.model.ranges import (
    Range,
    Region,
    canonical_range,
    exact_range,
    region_of,
    whole_region,
)
from sleeper.model.row_deletes import regions_without
from sleeper.model.schema import Field, Primitive, Schema

BY_ID = Schema(row_keys=(Field("id", Primitive.LONG),), values=(Field("text", Primitive.STRING),))
PAIRS = Schema(row_keys=(Field("a", Primitive.INT), Field("b", Primitive.STRING)))

EPOCH = datetime(1970, 1, 1)
KEYS = {  # the n-th key of each type, ascending
    Primitive.INT: lambda n: n - 500,
    Primitive.LONG: lambda n: (n - 500) * 10**13,
    Primitive.STRING: lambda n: f"'\"\\é😀{n:04}",
    Primitive.BYTES: lambda n: b"\x80\xff\0" + n.to_bytes(2, "big"),
    Primitive.DATE: lambda n: date(1969, 1, 1) + timedelta(days=n),
    Primitive.TIMESTAMP: lambda n: EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=n - 500),
    Primitive.TIMESTAMP_NTZ: lambda n: EPOCH + timedelta(microseconds=n - 500),
}


KILLED = """
import os, signal
from pathlib import Path
from sleeper.engine.reading.merged_scan import FileSlice, Scanner
from sleeper.model.schema import Field, Primitive, Schema
schema = Schema(
    row_keys=(Field("id", Primitive.LONG),), values=(Field("text", Primitive.STRING),)
)
scanner = Scanner(schema, fan_in_max=2, temp_folder=Path({between!r}), batch_rows=100)
next(scanner.merge([FileSlice(path) for path in {paths!r}]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def temp_files(folder):
    """Return the files in a folder that have names there, or are open in this process."""
    found = [str(path) for path in folder.rglob("*") if path.is_file()]
    for descriptor in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(folder))]


def write(folder, schema, rows, name="rows", **layout):
    """Write one data file of rows that are in key order already."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema.fields]
    path = Path(folder) / f"{name}.parquet"
    arrow_schema = to_arrow(schema)
    arrays = [
        pa.array(column, kind) for column, kind in zip(columns, arrow_schema.types, strict=True)
    ]
    layout = {"row_group_size": 1000, "max_rows_per_page": 100} | layout
    pq.write_table(
        pa.table(arrays, schema=arrow_schema),
        path,
        compression="zstd",
        use_dictionary=False,
        write_page_index=True,
        **layout,
    )
    return str(path)


def box(schema, **ranges):
    """A region from {field: (min, max)}."""
    fields = {field.name: field for field in schema.row_keys}
    return region_of(
        schema, {name: canonical_range(fields[name], *ends) for name, ends in ranges.items()}
    )


def read(schema, path, *regions, columns=None):
    """The rows of one file inside regions, as tuples."""
    batches = Scanner(schema).merge([FileSlice(str(path), regions)], columns)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


class TestRegions:
    """Rows inside any of the regions, each once (rules QRY-2 to QRY-4)."""

    @pytest.mark.parametrize("kind", KEYS, ids=lambda kind: kind.value)
    def test_select_rows_by_every_key_type(self, tmp_path, kind):
        """The minimum belongs to a range, the maximum does not, no limit is no limit."""
        schema = Schema(row_keys=(Field("k", kind),))
        keys = [KEYS[kind](n) for n in range(1000)]
        path = write(tmp_path, schema, [(key,) for key in keys])
        field = schema.row_keys[0]

        def found(low, high):
            return [key for (key,) in read(schema, path, box(schema, k=(low, high)))]

        assert found(keys[200], keys[300]) == keys[200:300]
        assert found(None, keys[3]) == keys[:3]
        assert found(keys[997], None) == keys[997:]
        assert found(None, None) == keys
        assert read(schema, path, Region((exact_range(field, keys[7]),))) == [(keys[7],)]

    def test_that_overlap_give_a_row_once(self, tmp_path):
        """Regions are alternatives, not lists of rows (rule QRY-3)."""
        path = write(tmp_path, BY_ID, [(n, str(n)) for n in range(100)])
        regions = [box(BY_ID, id=(10, 20)), box(BY_ID, id=(15, 30)), box(BY_ID, id=(17, 18))]

        assert [key for key, _ in read(BY_ID, path, *regions)] == list(range(10, 30))

    def test_hold_all_row_keys_to_their_ranges(self, tmp_path):
        """A region is a box: each row key must lie in its own range."""
        rows = [(a, b) for a in range(5) for b in "xyz"]
        path = write(tmp_path, PAIRS, rows)

        found = read(PAIRS, path, box(PAIRS, a=(1, 3), b=("y", None)), box(PAIRS, b=("x", "x\0")))

        assert found == [(a, b) for a, b in rows if (1 <= a < 3 and b >= "y") or b == "x"]

    def test_may_be_different_for_each_file(self, tmp_path):
        """A file that leaves share gives each leaf its own rows."""
        one = write(tmp_path, BY_ID, [(n, "one") for n in range(10)], "one")
        two = write(tmp_path, BY_ID, [(n, "two") for n in range(10)], "two")
        slices = [
            FileSlice(one, (box(BY_ID, id=(0, 2)),)),
            FileSlice(two, (box(BY_ID, id=(1, 3)),)),
        ]

        rows = pa.Table.from_batches(Scanner(BY_ID).merge(slices)).to_pydict()

        assert rows["id"] == [0, 1, 1, 2]
        assert sorted(rows["text"]) == ["one", "one", "two", "two"]

    def test_of_one_key_each_are_still_merged_in_key_order(self, tmp_path):
        """A key that is constant in each file, but not the same in all, is an order all the same."""
        paths = [write(tmp_path, PAIRS, [(a, b) for a in range(9) for b in "xy"], n) for n in "pq"]
        slices = [
            FileSlice(path, (box(PAIRS, a=(a, a + 1)),))
            for path, a in zip(paths, (5, 3), strict=True)
        ]

        rows = pa.Table.from_batches(Scanner(PAIRS).merge(slices)).to_pydict()

        assert rows == {"a": [3, 3, 5, 5], "b": ["x", "y", "x", "y"]}

    def test_without_keys_between_their_ends_hold_nothing(self, tmp_path):
        """An empty range is no error, and not the same as no range."""
        path = write(tmp_path, BY_ID, [(1, "a")])

        assert read(BY_ID, path, Region((Range(1, 1),))) == []
        assert read(BY_ID, path, Region((Range(1, 1),)), box(BY_ID, id=(1, 2))) == [(1, "a")]

    def test_may_be_many(self, tmp_path):
        """Hundreds of ranges are read as a chain of small questions, in key order all the same."""
        paths = [
            write(tmp_path, BY_ID, [(n, "") for n in range(at, 9000, 3)], str(at))
            for at in range(3)
        ]
        regions = tuple(box(BY_ID, id=(n, n + 2)) for n in range(8990, 0, -30))

        batches = Scanner(BY_ID).merge([FileSlice(path, regions) for path in paths], ["id"])

        found = [key for batch in batches for key in batch.column("id").to_pylist()]
        assert found == sorted(key for n in range(8990, 0, -30) for key in (n, n + 1))

    @settings(max_examples=40)
    @given(
        boxes=st.lists(
            st.tuples(
                st.integers(-2, 6),
                st.integers(0, 5) | st.none(),
                st.text("xyz", max_size=2),
                st.text("xyz", max_size=2) | st.none(),
            ),
            max_size=30,
        ),
        chunk=st.integers(1, 5),
    )
    def test_keep_to_the_model(self, boxes, chunk):
        """The rows read are the rows that lie in a region; chunks of regions do not interleave."""
        regions = [
            Region((Range(a, None if wide is None else a + wide), Range(low, high)))
            for a, wide, low, high in boxes
        ]
        rows = sorted((a, b) for a in range(-1, 5) for b in ("", "x", "xy", "y", "z"))
        expected = [row for row in rows if any(row in region for region in regions)]
        with tempfile.TemporaryDirectory() as folder:
            path = write(folder, PAIRS, rows, max_rows_per_page=2)

            filled = disjoint_regions(regions)
            chunks = [read(PAIRS, path, *part) for part in region_chunks(filled, PAIRS, chunk)]

            assert [row for part in chunks for row in part] == expected
            assert (read(PAIRS, path, *regions) if regions else []) == expected

    @given(
        sides=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9) | st.none()), max_size=40),
        value=st.integers(-1, 60),
    )
    def test_of_one_row_key_become_ranges_that_do_not_touch(self, sides, value):
        """Ranges that overlap or meet are one range, so a predicate stays as short as it can."""
        regions = [
            Region((Range(low, None if more is None else low + more),)) for low, more in sides
        ]

        disjoint = disjoint_regions(regions)

        assert any((value,) in region for region in disjoint) == any(
            (value,) in region for region in regions
        )
        for one, other in pairwise(region.ranges[0] for region in disjoint):
            assert one.max is not None
            assert one.max < other.min

    @pytest.mark.parametrize("kind", KEYS, ids=lambda kind: kind.value)
    def test_that_lack_keys_of_every_type_are_one_region_and_a_list(self, tmp_path, kind):
        """Given deleted keys, the first and the last among them, all other rows are read at once."""
        schema = Schema(row_keys=(Field("k", kind),))
        field = schema.row_keys[0]
        keys = [KEYS[kind](n) for n in range(1000)]
        gone = [keys[0], *keys[5:900:7], keys[-1]]
        left = regions_without(
            [whole_region(schema)], [Region((exact_range(field, key),)) for key in gone]
        )
        path = write(tmp_path, schema, [(key,) for key in keys])

        joined, missing = joined_over_gaps(disjoint_regions(left), schema)

        assert (len(joined), len(missing)) == (1, len(gone))
        assert [key for (key,) in read(schema, path, *left)] == [
            key for key in keys if key not in {*gone}
        ]

    def test_may_be_many_that_lack_keys(self, tmp_path):
        """Given 300 ranges of twenty keys, each without three, then only these three are missing."""
        path = write(tmp_path, BY_ID, [(n, "") for n in range(9000)])
        field = BY_ID.row_keys[0]
        gone = {n + more for n in range(0, 9000, 30) for more in (3, 7, 18)}
        holes = [Region((exact_range(field, key),)) for key in gone]
        left = regions_without([box(BY_ID, id=(n, n + 20)) for n in range(0, 9000, 30)], holes)

        found = [key for key, _ in read(BY_ID, path, *left)]

        assert found == [n for n in range(9000) if n % 30 < 20 and n not in gone]

    @settings(max_examples=60)
    @given(
        asked=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40) | st.none()), max_size=60),
        gone=st.lists(st.sets(st.integers(-1, 320), max_size=120), min_size=2, max_size=2),
    )
    def test_that_lack_keys_keep_to_the_model(self, asked, gone):
        """Given ranges and keys that each of two files lacks, rows are those of neither, in order."""
        sides = [Range(low, None if wide is None else low + wide) for low, wide in asked]
        field = BY_ID.row_keys[0]
        with tempfile.TemporaryDirectory() as folder:
            slices, expected = [], []
            for number, without in enumerate(gone):
                keys = [*range(number, 310, 2)]
                path = write(folder, BY_ID, [(key, "") for key in keys], str(number))
                holes = [Region((exact_range(field, key),)) for key in without]
                if left := regions_without([Region((side,)) for side in sides], holes):
                    slices.append(FileSlice(path, left))
                expected += [
                    key
                    for key in keys
                    if key not in without and any((key,) in Region((side,)) for side in sides)
                ]

            batches = Scanner(BY_ID).merge(slices, ["id"])

            found = [key for batch in batches for key in batch.column("id").to_pylist()]
        assert found == sorted(expected)

    def test_of_equal_first_key_are_cut_by_the_second(self):
        """A thousand ranges inside one device's readings are not one predicate."""
        regions = [box(PAIRS, a=(7, 8), b=(f"{n:04}", f"{n:04}x")) for n in range(1000)]

        chunks = list(region_chunks(regions[::-1], PAIRS, PREDICATE_REGIONS_MAX))

        assert [region for chunk in chunks for region in chunk] == regions
        assert max(len(chunk) for chunk in chunks) == PREDICATE_REGIONS_MAX

    def test_that_hold_every_key_need_no_condition(self):
        """An end that excludes nothing is left out; nothing is left of the whole region."""
        assert regions_predicate([whole_region(PAIRS)], PAIRS, to_arrow(PAIRS)) is None
        assert regions_predicate([box(PAIRS, b=("x", None))], PAIRS, to_arrow(PAIRS)) is not None


class TestHowLittleIsRead:
    """Statistics of row groups and pages decide what is fetched at all."""

    def bytes_read(self, path, schema, *regions):
        arrow_schema = to_arrow(schema)
        session = Session(arrow_schema, schema.key_names)
        asked = session.frame(path).filter(regions_predicate(regions, schema, arrow_schema))
        plan = merge_plan([asked], session.order, schema.names)
        list(session.run(plan))
        return sum(
            metric.value
            for _, metrics in plan.collect_metrics()
            for metric in metrics.metrics()
            if metric.name == "bytes_scanned"
        )

    @pytest.mark.parametrize("kind", KEYS, ids=lambda kind: kind.value)
    def test_a_narrow_range_reads_few_pages(self, tmp_path, kind):
        """Of 65,000 rows, a range of 50 costs two pages a column, whatever the key's type."""
        schema = Schema(row_keys=(Field("k", kind),), values=(Field("v", Primitive.BYTES),))
        noise = os.urandom(65_000 * 8)
        rows = [(KEYS[kind](n), noise[n * 8 : n * 8 + 8]) for n in range(65_000)]
        path = write(tmp_path, schema, rows, row_group_size=20_000)

        read_bytes = self.bytes_read(
            path, schema, box(schema, k=(rows[30_000][0], rows[30_050][0]))
        )

        assert 0 < read_bytes < Path(path).stat().st_size / 100

    def test_a_full_chunk_of_exact_keys_still_reads_few_pages(self, tmp_path):
        """DataFusion prunes by a list of 20 equalities, and not by one of 21."""
        path = write(tmp_path, BY_ID, [(n, f"{n * 7919 % 65_000}") for n in range(65_000)])
        field = BY_ID.row_keys[0]
        keys = [Region((exact_range(field, n * 3000),)) for n in range(PREDICATE_REGIONS_MAX)]

        assert self.bytes_read(path, BY_ID, *keys) < Path(path).stat().st_size / 10

    def test_the_page_index_of_a_file_is_read_once(self, tmp_path):
        """Later ranges read their pages alone, not what says where pages are."""
        rows = [(n, str(n)) for n in range(100_000)]
        path = write(tmp_path, BY_ID, rows, max_rows_per_page=10, row_group_size=100_000)
        scanner, narrow = Scanner(BY_ID), (box(BY_ID, id=(7, 9)),)

        def bytes_read():
            before = _bytes_read_by_this_process()
            assert sum(rows.num_rows for rows in scanner.merge([FileSlice(path, narrow)])) == 2
            return _bytes_read_by_this_process() - before

        assert bytes_read() > 200_000
        assert bytes_read() < 50_000


def _bytes_read_by_this_process():
    """What read and pread returned so far, cached pages of the system included."""
    counts = Path("/proc/self/io").read_text().split()
    return int(counts[counts.index("rchar:") + 1])


class TestFailures:
    """What is wrong with a file is told with its name."""

    def file(self, folder):
        return write(folder, BY_ID, [(n, f"{n * 7919 % 1009:05}") for n in range(5000)])

    @pytest.mark.parametrize("company", [0, 2])
    def test_a_missing_file_is_damage(self, tmp_path, company):
        """Rows are never silently left out; the message says what to do (rule QRY-5)."""
        others = [write(tmp_path, BY_ID, [(n, "")], str(n)) for n in range(company)]
        gone = str(tmp_path / "gone.parquet")

        with pytest.raises(DataDamaged, match=r"gone\.parquet is missing .* refresh the table"):
            list(Scanner(BY_ID).merge([FileSlice(path) for path in (*others, gone)]))

    def test_a_file_deleted_after_it_was_opened_is_damage(self, tmp_path):
        """A scanner that knows a file notices that it is gone."""
        path, scanner = self.file(tmp_path), Scanner(BY_ID)
        assert sum(batch.num_rows for batch in scanner.merge([FileSlice(path)])) == 5000
        Path(path).unlink()

        with pytest.raises(DataDamaged, match="is missing"):
            list(scanner.merge([FileSlice(path)]))

    @pytest.mark.parametrize(
        "damage",
        {
            "empty": lambda body: b"",
            "another format": lambda body: b"id,text\n1,a\n",
            "cut off": lambda body: body[: len(body) // 2],
            "no footer": lambda body: body[:-400] + bytes(392) + body[-8:],
            "zeros in a page": lambda body: body[:3000] + bytes(3000) + body[6000:],
        }.items(),
        ids=lambda damage: damage[0],
    )
    def test_a_damaged_file_is_named(self, tmp_path, damage):
        """Among files that are well, the one that is not is found, also in the middle of it."""
        well = [write(tmp_path, BY_ID, [(n, "")], str(n)) for n in range(3)]
        bad = Path(self.file(tmp_path))
        bad.write_bytes(damage[1](bad.read_bytes()))

        with pytest.raises(DataDamaged, match=r"rows\.parquet is (missing|damaged)"):
            list(Scanner(BY_ID).merge([FileSlice(path) for path in (*well, str(bad))]))

    def test_damage_shows_after_the_rows_before_it(self, tmp_path):
        """What was read before the damage has been handed out already, and then it is told."""
        path = Path(write(tmp_path, BY_ID, [(n, "x") for n in range(20_000)]))
        body = bytearray(path.read_bytes())
        chunk = pq.read_metadata(path).row_group(15).column(0)
        start = chunk.data_page_offset + 40
        body[start : start + 2000] = bytes(2000)
        path.write_bytes(body)
        batches = Scanner(BY_ID, batch_rows=1000).merge([FileSlice(str(path))])

        assert next(batches).column("id")[0].as_py() == 0
        with pytest.raises(DataDamaged, match=r"rows\.parquet is damaged"):
            list(batches)

    def test_a_file_of_other_columns_is_damage(self, tmp_path):
        """A column that is not there is not read as nulls where the schema has no nulls."""
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), path)

        with pytest.raises(DataDamaged, match=r"rows\.parquet is damaged"):
            list(Scanner(BY_ID).merge([FileSlice(str(path))]))

    def test_too_little_memory_is_not_damage(self, tmp_path):
        """The files are well; the message says what helps."""
        paths = [
            write(tmp_path, BY_ID, [(n, "x" * 100) for n in range(5000)], str(at))
            for at in range(9)
        ]

        with pytest.raises(StorageFailed, match="more memory"):
            list(Scanner(BY_ID, memory_bytes=10_000).merge([FileSlice(path) for path in paths]))

    def test_a_store_that_is_not_known_is_not_damage(self):
        """Nothing can be said about a file that cannot be reached."""
        with pytest.raises(StorageFailed, match="s3://bucket"):
            list(Scanner(BY_ID).merge([FileSlice("s3://bucket/rows.parquet")]))

    @settings(max_examples=60)
    @given(at=st.floats(0, 1), length=st.integers(1, 300), fill=st.binary(min_size=1, max_size=4))
    def test_no_damage_gets_out_as_another_error(self, at, length, fill):
        """Bytes overwritten in any page: rows, or our error. Never a bare one, never a panic."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(write(folder, BY_ID, [(n, f"{n:05}") for n in range(500)]))
            body = bytearray(path.read_bytes())
            last = pq.read_metadata(path).row_group(0).column(1)
            end = last.data_page_offset + last.total_compressed_size
            start = int(at * (end - 1))
            body[start : min(start + length, end)] = (fill * length)[: min(length, end - start)]
            path.write_bytes(body)

            try:
                outcome = len(read(BY_ID, path, box(BY_ID, id=(100, 400))))
            except (DataDamaged, StorageFailed) as error:
                outcome = error

        assert isinstance(outcome, int | DataDamaged | StorageFailed)


class TestUse:
    """One scanner for many questions."""

    def test_nothing_is_read_before_it_is_asked_for(self, tmp_path):
        """Making a scanner and a stream touches no file and starts no engine."""
        rows = Scanner(BY_ID).merge([FileSlice(str(tmp_path / "gone.parquet"))])

        with pytest.raises(DataDamaged):
            next(rows)

    def test_closing_early_stops_the_reading(self, tmp_path):
        """The files between the rounds of a merge are gone as soon as the stream is closed."""
        paths = [write(tmp_path, BY_ID, [(n, "") for n in range(5000)], str(at)) for at in range(5)]
        between = tmp_path / "between"
        between.mkdir()
        scanner = Scanner(BY_ID, fan_in_max=2, temp_folder=between, batch_rows=100)
        rows = scanner.merge([FileSlice(path) for path in paths])
        next(rows)
        assert temp_files(between)

        rows.close()

        assert not temp_files(between)
        assert list(rows) == []

    @pytest.mark.parametrize("has_descriptors", [True, False])
    def test_files_between_the_rounds_have_names_only_where_they_must(
        self, tmp_path, monkeypatch, has_descriptors
    ):
        """So a process that is killed in the middle of a merge leaves none of them."""
        if not has_descriptors:
            monkeypatch.setattr(
                "sleeper.engine.reading.merged_scan._DESCRIPTORS", tmp_path / "gone"
            )
        paths = [write(tmp_path, BY_ID, [(n, "") for n in range(5000)], str(at)) for at in range(5)]
        between = tmp_path / "between"
        between.mkdir()
        scanner = Scanner(BY_ID, fan_in_max=2, temp_folder=between, batch_rows=100)
        rows = scanner.merge([FileSlice(path) for path in paths])

        first = next(rows)

        named = [path for path in between.rglob("*") if path.is_file()]
        assert bool(named) != (has_descriptors and sys.platform == "linux")
        assert first.num_rows + sum(batch.num_rows for batch in rows) == 25_000
        assert [path for path in between.rglob("*") if path.is_file()] == []

    @pytest.mark.skipif(sys.platform != "linux", reason="files have names elsewhere")
    def test_a_killed_process_leaves_no_file_between_the_rounds(self, tmp_path):
        """Nobody would sweep the folder for temporary files."""
        paths = [write(tmp_path, BY_ID, [(n, "") for n in range(5000)], str(at)) for at in range(3)]
        between = tmp_path / "between"
        between.mkdir()
        script = KILLED.format(paths=paths, between=str(between))

        done = subprocess.run([sys.executable, "-c", script], check=False, cwd=Path.cwd())

        assert done.returncode == -signal.SIGKILL
        assert [path for path in between.rglob("*") if path.is_file()] == []

    def test_threads_share_it(self, tmp_path):
        """Many questions at once, and fewer files kept open than there are."""
        paths = [
            write(tmp_path, BY_ID, [(n, str(at)) for n in range(50)], str(at)) for at in range(6)
        ]
        scanner = Scanner(BY_ID, max_tables=2)

        def ask(n):
            region = (box(BY_ID, id=(n, n + 1)),)
            table = pa.Table.from_batches(scanner.merge([FileSlice(p, region) for p in paths]))
            return sorted(table["text"].to_pylist())

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(ask, range(50)))

        assert answers == [list("012345")] * 50

    def test_a_file_written_anew_is_read_anew(self, tmp_path):
        """A compaction that runs again replaces its own output under the same name."""
        scanner = Scanner(BY_ID)
        for text in ("first", "the second"):
            path = write(tmp_path, BY_ID, [(1, text)])

            assert [b.to_pylist() for b in scanner.merge([FileSlice(path)])] == [
                [{"id": 1, "text": text}]
            ]

    def test_no_files_are_no_rows(self):
        """An empty question has an empty answer."""
        assert list(Scanner(BY_ID).merge([])) == []

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_is_told_what_to_do(self, tmp_path):
        """DataFusion's threads do not cross a fork; waiting for them would never end."""
        path = write(tmp_path, BY_ID, [(1, "a")])
        assert read(BY_ID, path) == [(1, "a")]
        inbox, outbox = os.pipe()

        child = os.fork()
        if child == 0:
            try:
                read(BY_ID, path)
            except BadRequest as error:
                os.write(outbox, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(outbox)

        assert "spawn" in os.read(inbox, 1000).decode()
        os.close(inbox)
