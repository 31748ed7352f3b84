"""What a compaction does to rows: several files in, one out, nothing lost."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.reading.merged_scan import FileSlice
from sleeper.engine.reading.read_leaves import open_table_reader
from sleeper.engine.reading.session import Session, merge_plan, node_names
from sleeper.engine.reading.small_files import SmallFiles
from sleeper.engine.sketches.stored_sketch import read_stored_sketch
from sleeper.engine.writing.compaction_output import compact_files
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.errors import DataDamaged
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.partitions import Partition
from sleeper.model.processing import parse_processing
from sleeper.model.queries import region_from_request
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.plans.claims import ClaimedJob
from sleeper.storage.local.folder import FolderObjects
from tests.soak import tries

SCHEMA = Schema(
    row_keys=(Field("id", Primitive.LONG),),
    sort_keys=(Field("at", Primitive.LONG),),
    values=(Field("n", Primitive.LONG),),
)
ARROW = to_arrow(SCHEMA)
SETTINGS = WriteSettings(page_rows=10, row_group_rows=40)


class Folder:
    """A table's folder, with files written by hand."""

    def __init__(self, path, filters=None, aggregations=None):
        self.files = FolderObjects(path)
        processing = parse_processing(filters, aggregations, SCHEMA)
        self.reading = open_table_reader(
            self.files, SCHEMA, processing, temp_folder=None, stores=None
        )
        self.inputs = []

    def write(self, rows):
        """Write (id, at, n) as one sorted data file."""
        columns = [*zip(*sorted(rows), strict=True)] or [[], [], []]
        table = pa.table(dict(zip(ARROW.names, columns, strict=True)), schema=ARROW)
        name = f"data/partition_root/{len(self.inputs)}.parquet"
        with self.files.open_output(name) as output:
            write_data_file(output, [table], SCHEMA, ARROW, SETTINGS)
        self.inputs.append(name)

    def compact(self, job_id="job", region=None, whole=True, now_ms=0, hidden=None, small=None):
        """Compact all files; `region` bounds the ids, `small` says that they are read by it."""
        region = region_from_request(SCHEMA, {"id": region} if region else {})
        job = CompactionJob(job_id=job_id, partition_id="leaf", inputs=tuple(self.inputs))
        claimed = ClaimedJob(
            job=job,
            partition=Partition(partition_id="leaf", region=region),
            whole_files=frozenset(self.inputs if whole else ()),
            claimed_ms=now_ms,
            sequence=0,
            size_bytes=sum(map(self.files.size, self.inputs)) if small else 0,
            hidden=hidden or {},
        )
        return compact_files(self.reading, self.files, claimed, SETTINGS, small=small)

    def small_files(self, **settings):
        return SmallFiles(self.reading.lookup, ARROW, **settings)

    def rows(self, filename):
        table = pq.read_table(io.BytesIO(self.files.read(filename)))
        return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.soak
@settings(max_examples=tries(40, soak=1_000))
@given(
    st.lists(st.lists(st.tuples(*[st.integers(-9, 9)] * 3), max_size=30), min_size=1, max_size=4)
)
def test_all_rows_come_out_in_key_order(tmp_path_factory, files):
    """Rows of all inputs, as often as they were there; counts and sketch agree (rule CMP-14)."""
    folder = Folder(tmp_path_factory.mktemp("compact"))
    for rows in files:
        folder.write(rows)

    done = folder.compact()

    found = folder.rows(done.reference.filename)
    everything = [row for rows in files for row in rows]
    assert sorted(found) == sorted(everything)
    assert [row[:2] for row in found] == sorted(row[:2] for row in everything)
    assert done.rows_read == done.reference.row_count == len(everything)
    assert read_stored_sketch(folder.files, done.reference, SCHEMA).row_count == len(everything)
    assert done.size_bytes == len(folder.files.read(done.reference.filename))


@pytest.mark.soak
@settings(max_examples=tries(40, soak=1_000))
@given(
    files=st.lists(
        st.lists(st.tuples(*[st.integers(-9, 9)] * 3), max_size=30), min_size=1, max_size=4
    ),
    region=st.none() | st.tuples(st.integers(-9, 0), st.integers(1, 9)),
    hidden=st.none() | st.integers(-9, 9),
)
def test_small_files_give_the_same_file_as_a_merge(tmp_path_factory, files, region, hidden):
    """Sorted in memory or merged by DataFusion, cut to a leaf or not, the bytes are the same."""
    folder = Folder(tmp_path_factory.mktemp("compact"))
    for rows in files:
        folder.write(rows)
    gone = {}
    if hidden is not None:
        gone[folder.inputs[0]] = (region_from_request(SCHEMA, {"id": (hidden, hidden + 1)}),)

    merged = folder.compact("merged", region, whole=region is None, hidden=gone)
    sorted_here = folder.compact(
        "sorted", region, whole=region is None, hidden=gone, small=folder.small_files()
    )

    bodies = [folder.files.read(each.reference.filename) for each in (merged, sorted_here)]
    assert bodies[0] == bodies[1]
    assert merged.rows_read == sorted_here.rows_read


def test_jobs_of_one_run_read_a_shared_file_once(tmp_path):
    """The second leaf's rows come from memory: the file could be gone by then."""
    folder = Folder(tmp_path)
    folder.write([(i, 0, 1) for i in range(100)])
    small = folder.small_files()
    first = folder.compact("first", region=(0, 50), whole=False, small=small)

    folder.files.put(folder.inputs[0], bytes(folder.files.size(folder.inputs[0])))
    second = folder.compact("second", region=(50, 100), whole=False, small=small)

    assert [row[0] for row in folder.rows(first.reference.filename)] == [*range(50)]
    assert [row[0] for row in folder.rows(second.reference.filename)] == [*range(50, 100)]


def test_the_file_is_named_by_partition_and_job(tmp_path):
    """A retry overwrites its own attempt only, and with the same bytes (rule CMP-9)."""
    folder = Folder(tmp_path)
    for n in range(5):
        folder.write([(i % 7, 0, n) for i in range(100)])

    first = folder.compact("a1")
    body = folder.files.read(first.reference.filename)
    second = folder.compact("a1")

    assert first == second
    assert first.reference.filename == "data/partition_leaf/a1.parquet"
    assert first.reference.partition_id == "leaf"
    assert first.reference.whole_file
    assert folder.files.read(first.reference.filename) == body


@pytest.mark.parametrize("is_small", [False, True])
def test_parts_of_files_are_cut_to_the_partition(tmp_path, is_small):
    """Rows of a shared file that belong elsewhere are left out, and not counted as read."""
    folder = Folder(tmp_path)
    folder.write([(i, 0, 1) for i in range(100)])
    folder.write([(i, 0, 2) for i in range(50, 60)])

    small = folder.small_files() if is_small else None
    done = folder.compact(region=(40, 55), whole=False, small=small)

    assert [row[0] for row in folder.rows(done.reference.filename)] == sorted(
        [*range(40, 55), *range(50, 55)]
    )
    assert done.rows_read == done.reference.row_count == 20


def test_filters_come_before_aggregations(tmp_path):
    """What is too old is dropped; what is left of equal keys is united (rule PRC-1)."""
    folder = Folder(tmp_path, "ageOff(n,100)", "max(n)")
    folder.write([(1, 0, 950), (2, 0, 10), (3, 0, 990)])
    folder.write([(1, 0, 980), (3, 0, 20)])

    done = folder.compact(now_ms=1000)

    assert folder.rows(done.reference.filename) == [(1, 0, 980), (3, 0, 990)]
    assert (done.rows_read, done.reference.row_count) == (5, 2)


def test_no_rows_left_make_an_empty_file(tmp_path):
    """The job is committed like any other, with a file of no rows, which can be read (CMP-14)."""
    folder = Folder(tmp_path, "ageOff(n,100)")
    folder.write([(1, 0, 1), (2, 0, 2)])

    done = folder.compact(now_ms=1_000_000)

    assert (done.rows_read, done.reference.row_count) == (2, 0)
    url = folder.files.url(done.reference.filename)
    assert [*folder.reading.scanner.merge([FileSlice(url)])] == []
    folder.inputs = [done.reference.filename]
    assert folder.compact("next").reference.row_count == 0


@pytest.mark.parametrize("is_small", [False, True])
def test_a_damaged_input_leaves_no_output(tmp_path, is_small):
    """Every input is looked at before the first row is written."""
    folder = Folder(tmp_path)
    for n in range(3):
        folder.write([(i, 0, n) for i in range(100)])
    name = folder.inputs[2]
    body = bytearray(folder.files.read(name))
    place = pq.ParquetFile(io.BytesIO(bytes(body))).metadata.row_group(1).column(1)
    body[place.data_page_offset + place.total_compressed_size - 1] ^= 16
    folder.files.put(name, bytes(body))

    with pytest.raises(
        DataDamaged, match=f"{name}' is damaged or of the wrong kind: row group 1 .*'at'"
    ):
        folder.compact(small=folder.small_files() if is_small else None)

    assert {info.key for info in folder.files.listing("data/")} == set(folder.inputs)


@pytest.mark.parametrize("is_small", [False, True])
def test_of_a_shared_file_only_the_pages_of_the_leaf_are_checked_and_read(tmp_path, is_small):
    """Many leaves share it: damage in another leaf's pages is that leaf's, and its own is told."""
    folder = Folder(tmp_path)
    folder.write([(n, n, 7_000_000_000_000 + n) for n in range(100)])
    (name,) = folder.inputs
    body = bytearray(folder.files.read(name))
    last = pq.ParquetFile(io.BytesIO(bytes(body))).metadata.row_group(2).column(2)
    body[last.data_page_offset + last.total_compressed_size - 2] ^= 1
    folder.files.put(name, bytes(body))

    small = folder.small_files() if is_small else None

    done = folder.compact("low", region=(0, 50), whole=False, small=small)
    with pytest.raises(DataDamaged, match=name):
        folder.compact("high", region=(50, 200), whole=False, small=small)

    assert [row[0] for row in folder.rows(done.reference.filename)] == [*range(50)]


@pytest.mark.parametrize("file_count", [2, 11, 100])
def test_nothing_is_sorted(tmp_path, file_count):
    """The plan of a compaction merges streams, however many; a sort would hold all rows."""
    folder = Folder(tmp_path)
    for n in range(file_count):
        folder.write([(i, 0, n) for i in range(20)])
    session = Session(ARROW, SCHEMA.key_names)

    plan = merge_plan(
        [session.frame(folder.files.url(name)) for name in folder.inputs],
        session.order,
        SCHEMA.names,
    )

    scans = ["DataSourceExec"] * file_count
    assert [*node_names(plan)] == ["SortPreservingMergeExec", "UnionExec", *scans]
