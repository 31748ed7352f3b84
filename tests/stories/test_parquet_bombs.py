"""Small Parquet files that would take all memory are refused, and named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.writing.data_file import SealedOutput
from sleeper.errors import BadRequest, DataDamaged, InputUnreadable
from sleeper.lookup.parquet import pages
from sleeper.lookup.parquet.compact_protocol import BINARY, I32, I64, LIST, STRUCT, struct_bytes
from sleeper.lookup.parquet.footer import ColumnChunk, Leaf
from sleeper.tables import read_rows

SCHEMA = pa.schema([("key", pa.string()), ("text", pa.string())])
BOMB = pa.table({"key": ["a", "b"], "text": ["", "\0" * (4 << 20)]}, schema=SCHEMA)
ROWS = [{"key": "a", "text": "1"}, {"key": "b", "text": "2"}]


@pytest.fixture(autouse=True)
def _low_limit(monkeypatch):
    """1 MiB instead of 256, so that tests need little memory themselves."""
    monkeypatch.setattr(pages, "INFLATED_BYTES_FREE", 1 << 20)


@pytest.fixture(autouse=True)
def _unknown_sizes(monkeypatch):
    """As for older references: else a file of another length is refused at once."""
    monkeypatch.setattr(read_rows, "_note_sizes", lambda *_: None)


@pytest.fixture
def table(tmp_path):
    """A table with one file."""
    instance = sleeper.connect(tmp_path / "instance", create=True)
    made = instance.create_table("t", SCHEMA, row_keys=["key"])
    made.ingest(ROWS)
    return made


def data_file(tmp_path):
    (found,) = Path(tmp_path).glob("instance/*/data/*/*.parquet")
    return found


QUESTIONS = {
    "a key": lambda table: table.query(key="b").to_pylist(),
    "a range": lambda table: table.query().to_pylist(),
    "a compaction": lambda table: table.compact(all_files=True),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("sealed", [False, True], ids=["of another writer", "with seal and sums"])
@pytest.mark.parametrize("dictionary", [False, True], ids=["a data page", "a dictionary page"])
def test_a_data_file_is_refused_by_its_page_headers(table, tmp_path, ask, sealed, dictionary):
    """Whoever forges a file may give it a right seal; what a page announces is looked at all the
    same.
    """
    file = data_file(tmp_path)
    stream = file.open("wb")
    output = SealedOutput(stream) if sealed else stream
    with output, pq.ParquetWriter(
        output,
        SCHEMA,
        compression="zstd",
        use_dictionary=["text"] if dictionary else False,
        dictionary_pagesize_limit=8 << 20,
        write_page_index=True,
        write_page_checksum=True,
    ) as writer:  # fmt: skip
        writer.write_table(BOMB)
        if sealed:
            output.hold()
    table.ingest([{"key": "c", "text": "3"}])  # else there is nothing to compact
    fresh = sleeper.connect(tmp_path / "instance").table("t")

    if ask is QUESTIONS["a compaction"]:
        result = fresh.compact(all_files=True)
        told = " ".join(str(job.failure) for job in result.failed)
    else:
        with pytest.raises(DataDamaged) as error:
            ask(fresh)
        told = str(error.value)
    assert file.name in told
    assert "'text'" in told or ask is QUESTIONS["a key"]
    assert "more than is accepted" in told


def test_a_value_that_no_reader_would_accept_is_not_taken_in(table):
    """It would be lost in the table."""
    with pytest.raises(BadRequest, match=r"column 'text' has values of .* less than a thousandth"):
        table.ingest(BOMB)

    assert table.query().to_pylist() == ROWS


def test_an_input_file_is_refused_by_its_footer(table, tmp_path):
    """Nothing of it is read."""
    pq.write_table(BOMB, tmp_path / "in.parquet", compression="zstd", use_dictionary=False)

    with pytest.raises(InputUnreadable, match=r"in\.parquet.*column 'text' of row group 0"):
        table.ingest(tmp_path / "in.parquet")


def test_large_values_that_do_not_compress_well_are_welcome(table):
    """Size alone is no fault."""
    text = "".join(f"{n:07}" for n in range(300_000))

    table.ingest([{"key": "c", "text": text}])

    assert table.query(key="c").to_pylist() == [{"key": "c", "text": text}]


def test_a_schema_of_columns_within_columns_is_refused(table, tmp_path):
    """A parser that follows it down would have no stack left."""
    groups = [[(3, I32, 0), (4, BINARY, b"a"), (5, I32, 1)]] * 3_000
    root, leaf = [(4, BINARY, b"schema"), (5, I32, 1)], [(1, I32, 1), (4, BINARY, b"x")]
    elements = (STRUCT, [root, *groups, leaf])
    footer = struct_bytes([(1, I32, 1), (2, LIST, elements), (3, I64, 0), (4, LIST, (STRUCT, []))])
    body = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    (tmp_path / "in.parquet").write_bytes(body)
    file = data_file(tmp_path)
    file.write_bytes(body)
    fresh = sleeper.connect(tmp_path / "instance").table("t")

    with pytest.raises(DataDamaged, match=rf"{file.name}.*nested more than 100 deep"):
        fresh.query(key="a").to_pylist()
    with pytest.raises(InputUnreadable, match=r"in\.parquet"):
        table.ingest(tmp_path / "in.parquet")


def test_a_page_of_more_values_than_any_page_has_is_refused():
    """A run of two billion nulls takes a few bytes."""
    about = [(1, I32, 1 << 30), (2, I32, 1 << 30), (3, I32, 1 << 30), (4, I32, 0)]
    about += [(5, I32, 6), (6, I32, 0)]
    header = struct_bytes([(1, I32, 3), (2, I32, 6), (3, I32, 6), (8, STRUCT, about)])
    chunk = ColumnChunk(
        codec=0,
        encodings=frozenset((0,)),
        value_count=1 << 30,
        offset=4,
        size=len(header) + 6,
        uncompressed_size=100,
        first_data_page=4,
        minimum=None,
        maximum=None,
        offset_index=None,
        column_index=None,
        bloom_filter=None,
    )

    with pytest.raises(ValueError, match="a page has 1,073,741,824 values"):
        pages.read_pages(header + bytes(6), chunk, Leaf(("n",), 2, 0, 1, {}))
