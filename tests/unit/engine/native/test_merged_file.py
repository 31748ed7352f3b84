"""Merges inside DataFusion write what merges by batches write, in the same layout."""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.native.merged_file import merges_natively
from sleeper.engine.read import FileSlice
from sleeper.engine.read_leaves import open_table_reader
from sleeper.engine.scan.page_checksums import verify_pages
from sleeper.engine.writing import compaction_output
from sleeper.engine.writing.data_file import WriteSettings, write_data_file
from sleeper.engine.writing.stored_sketch import read_stored_sketch
from sleeper.errors import StorageFull
from sleeper.lookup.parquet.footer import read_footer
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.model.partitions import Partition
from sleeper.model.processing import parse_processing
from sleeper.model.queries import region_from_request
from sleeper.model.schema import DecimalType, Field, ListType, MapType, Primitive, Schema
from sleeper.planning.claimed_jobs import ClaimedJob
from sleeper.storage.local.folder import FolderObjects
from tests.soak import tries

P = Primitive
KEYS = {
    "row_keys": (Field("K.e y'", P.STRING), Field("day", P.DATE)),
    "sort_keys": (Field("at", P.TIMESTAMP),),
}
NUMBERS = Schema(
    **KEYS,
    values=(
        Field("long", P.LONG),
        Field("int", P.INT),
        Field("text", P.STRING),
        Field("data", P.BYTES),
        Field("price", DecimalType(12, 2)),
        Field("local", P.TIMESTAMP_NTZ),
        Field("seen", P.INT, nullable=True),
    ),
)
ANY = Schema(
    **KEYS,
    values=(
        Field("double", P.DOUBLE, nullable=True),
        Field("float", P.FLOAT),
        Field("flag", P.BOOLEAN, nullable=True),
        Field("list", ListType(P.STRING), nullable=True),
        Field("map", MapType(P.STRING, P.DOUBLE)),
        Field("big", DecimalType(38, 3), nullable=True),
    ),
)
AGGREGATIONS = "sum(long),sum(int),min(text),max(data),max(price),min(local),count(seen)"
NO_SHRINK = [Phase.explicit, Phase.reuse, Phase.generate]
NOW = 1_700_000_000_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
times = st.integers(0, 3).map(lambda n: datetime(2023, 11, 14, n, tzinfo=UTC))
keys = (st.sampled_from(["", "a", "b\0", "\U0001f600"]), st.just(date(2020, 1, 1)), times)
longs = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
ints = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)])
numbers = (
    longs,
    ints,
    texts,
    st.binary(max_size=3),
    st.integers(-99, 99).map(lambda n: Decimal(n) / 100),
    times.map(lambda time: time.replace(tzinfo=None)),
    st.none() | ints,
)
doubles = st.floats(width=32)
anything = (
    st.none() | st.floats(),
    doubles,
    st.none() | st.booleans(),
    st.none() | st.lists(texts, max_size=3),
    st.dictionaries(texts, st.floats(), max_size=2).map(lambda found: [*found.items()]),
    st.none() | st.just(Decimal("123456789012345678901234567890.125")),
)


class Folder:
    """A table's folder with files written by hand."""

    def __init__(self, path, schema, filters=None, aggregations=None, **layout):
        self.files = FolderObjects(path)
        self.schema, self.arrow = schema, to_arrow(schema)
        self.settings = WriteSettings(page_rows=5, row_group_rows=17, **layout)
        self.reading = open_table_reader(
            self.files,
            schema,
            parse_processing(filters, aggregations, schema),
            temp_folder=None,
            stores=None,
        )
        self.inputs = []

    def write(self, rows):
        """Write rows as one data file; the file is sorted by their keys."""
        rows = sorted(rows, key=lambda row: (row[0].encode(), *row[1:3]))
        columns = [pa.array([row[n] for row in rows], f.type) for n, f in enumerate(self.arrow)]
        table = pa.Table.from_arrays(columns, schema=self.arrow)
        name = f"data/partition_root/{len(self.inputs)}.parquet"
        with self.files.open_output(name) as output:
            write_data_file(output, [table], self.schema, self.arrow, self.settings)
        self.inputs.append(name)

    def compact(self, job_id, check=lambda: None):
        claimed = ClaimedJob(
            job=CompactionJob(job_id=job_id, partition_id="leaf", inputs=tuple(self.inputs)),
            partition=Partition(partition_id="leaf", region=region_from_request(self.schema, {})),
            whole_files=frozenset(self.inputs),
            claimed_ms=NOW,
            sequence=0,
            schema_id=0,
        )
        return compaction_output.compact_files(
            self.reading, self.files, claimed, self.settings, check
        )

    def rows(self, done):
        """Return the rows as Parquet gives them; page checksums are compared."""
        body = io.BytesIO(self.files.read(done.reference.filename))
        return pq.ParquetFile(body, page_checksum_verification=True).read()


def by_batches(monkeypatch, folder, **given):
    with monkeypatch.context() as changed:
        changed.setattr(compaction_output, "merges_natively", lambda *_: False)
        return folder.compact("batches", **given)


def both(folder, **given):
    """Compact in both ways; return both results, which must say the same of their files."""
    with pytest.MonkeyPatch.context() as patch:
        expected = by_batches(patch, folder, **given)
    slices = [FileSlice(folder.files.url(name)) for name in folder.inputs]
    assert merges_natively(folder.reading, slices, folder.settings, NOW)
    found = folder.compact("native", **given)
    plain = {"filename": "", "size_bytes": 0}
    assert dataclasses.replace(found.reference, **plain) == dataclasses.replace(
        expected.reference, **plain
    )
    assert found.rows_read == expected.rows_read
    return found, expected


def files_of(*columns):
    return st.lists(st.lists(st.tuples(*keys, *columns), max_size=25), min_size=1, max_size=3)


@pytest.mark.soak
@settings(max_examples=tries(12, soak=2_000), deadline=None, phases=NO_SHRINK)
@given(
    files_of(*numbers),
    st.sampled_from([None, AGGREGATIONS]),
    st.sampled_from([None, f"ageOff(at,{NOW - 1_699_930_000_000})", "ageOff(local,86400000)"]),
    st.booleans(),
)
def test_numbers_texts_and_times_are_processed_alike(
    tmp_path_factory, files, aggregations, filters, dictionaries
):
    """Sums wrap around, counts of null are 0, and rows age by the same instant."""
    folder = Folder(
        tmp_path_factory.mktemp("alike"),
        NUMBERS,
        filters,
        aggregations,
        dictionary_values=dictionaries,
        dictionary_row_keys=dictionaries,
    )
    for rows in files:
        folder.write(rows)
    found, expected = both(folder)

    rows = folder.rows(found)
    assert rows.schema.equals(folder.arrow)
    in_order = [(name, "ascending") for name in NUMBERS.names]
    assert rows.sort_by(in_order).equals(folder.rows(expected).sort_by(in_order))
    assert rows.select(NUMBERS.key_names).equals(folder.rows(expected).select(NUMBERS.key_names))
    check_file(folder, found)


@pytest.mark.soak
@settings(max_examples=tries(8, soak=2_000), deadline=None, phases=NO_SHRINK)
@given(
    files_of(*anything), st.sampled_from(["1.0", "2.0"]), st.sampled_from([None, "snappy", "none"])
)
def test_values_of_any_type_pass_unchanged(tmp_path_factory, files, page_version, codec):
    """NaN and the sign of zero stay, and null, empty and absent lists and maps."""
    folder = Folder(tmp_path_factory.mktemp("any"), ANY, page_version=page_version, codec=codec)
    for rows in files:
        folder.write([(*row[:2], row[2].replace(minute=n), *row[3:]) for n, row in enumerate(rows)])

    found, expected = both(folder)

    assert sorted(map(repr, folder.rows(found).to_pylist())) == sorted(
        map(repr, folder.rows(expected).to_pylist())
    )
    check_file(folder, found)


def check_file(folder, done):
    """The file has sums, statistics, filters and names as files that pyarrow writes."""
    verified = verify_pages(folder.reading.lookup, done.reference.filename)
    assert verified.has_checksums
    assert verified.row_count == done.reference.row_count
    sketch = read_stored_sketch(folder.files, done.reference, folder.schema)
    assert sketch.row_count == done.reference.row_count
    if not done.reference.row_count:
        return
    body = folder.files.read(done.reference.filename)
    length = int.from_bytes(body[-8:-4], "little")
    footer = read_footer(body[-8 - length : -8], len(body) - 8 - length)
    for group in footer.chunks:
        for leaf, chunk in zip(footer.leaves, group, strict=True):
            name = leaf.path[0]
            assert (chunk.bloom_filter is not None) == (name in folder.schema.row_key_names)
            assert leaf.path[1:] in (
                (),
                ("list", "element"),
                ("key_value", "key"),
                ("key_value", "value"),
            )
            assert chunk.minimum is None or name not in ("double", "float")
    about = pq.ParquetFile(io.BytesIO(body)).metadata
    sorting = about.row_group(0).sorting_columns
    assert [column.column_index for column in sorting] == [0, 1, 2]
    assert about.row_group(0).num_rows <= folder.settings.row_group_rows
    assert about.metadata[b"sleeper.format"] == b"1"


def test_a_merge_that_is_stopped_leaves_no_file(tmp_path, monkeypatch):
    """What `check` raises while DataFusion writes ends the job at once."""
    temporary = tmp_path / "temp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    folder = Folder(tmp_path / "table", ANY)
    folder.write(
        [("a", date(2020, 1, 1), datetime(2023, 1, 1, tzinfo=UTC), 1.0, 1.0, None, None, [], None)]
    )
    calls = []

    def check():
        calls.append(1)
        if len(calls) > 1:  # the first is before the input is verified
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.compact("stopped", check)

    assert folder.files.read("data/partition_leaf/stopped.parquet") is None
    assert [*temporary.iterdir()] == []


def test_a_full_temp_folder_is_told(tmp_path, monkeypatch):
    """The error names the folder, and nothing is written."""
    folder = Folder(tmp_path, ANY)
    folder.write(
        [("a", date(2020, 1, 1), datetime(2023, 1, 1, tzinfo=UTC), 1.0, 1.0, None, None, [], None)]
    )

    def full(*_):
        raise RuntimeError("ObjectStore error: No space left on device (os error 28)")

    monkeypatch.setattr("sleeper.engine.native.merged_file.run_plan", full)

    with pytest.raises(StorageFull, match=r"folder for temporary files.* is full"):
        folder.compact("full")
    assert folder.files.read("data/partition_leaf/full.parquet") is None
