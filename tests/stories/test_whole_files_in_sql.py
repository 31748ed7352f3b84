"""Statements about all rows of a table: DataFusion reads its files by itself, after their pages were
checked. What it cannot read so, our reader reads, and all answers are the same.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.sql import session, statements
from sleeper.errors import DataDamaged

ROWS = 3_000
NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
ODD_FLOATS = [0.0, -0.0, math.nan, NEGATIVE_NAN, None, math.inf, -math.inf, 5e-324, 1.5]
ODD_TEXTS = ["", "\x00", "\uffff", "\U0001f600", None, "a" * 300, "é"]
ODD_BYTES = [b"", b"\x00", b"\xff\xff", None, b"ab"]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("took", pa.duration("ms")),
        ("tags", pa.list_(pa.string())),
        ("weights", pa.list_(pa.float64())),
        ("part", pa.struct([("n", pa.int32()), ("name", pa.string())])),
        pa.field("kind", pa.string(), nullable=False),
    ]
)


def row(n):
    return {
        "id": n,
        "x": ODD_FLOATS[n % len(ODD_FLOATS)],
        "y": ODD_FLOATS[n % 7],
        "text": ODD_TEXTS[n % len(ODD_TEXTS)],
        "raw": ODD_BYTES[n % len(ODD_BYTES)],
        "price": None if n % 11 == 0 else Decimal(n) / 100 - 7,
        "day": dt.date(1969, 12, 1) + dt.timedelta(days=n % 90),
        "at": dt.datetime(1969, 12, 31, tzinfo=dt.UTC) + dt.timedelta(seconds=n),
        "took": dt.timedelta(milliseconds=n),
        "tags": None if n % 5 == 0 else ["a", None] * (n % 3),
        "weights": [ODD_FLOATS[n % 4]],
        "part": None if n % 6 == 0 else {"n": n % 4, "name": f"p{n % 2}"},
        "kind": f"kind {n % 4}",
    }


TABLE = pa.Table.from_pylist([row(n) for n in range(ROWS)], SCHEMA)

GROUPED = [
    "SELECT kind, count(*), sum(price), min(day), max(at) FROM t GROUP BY kind ORDER BY kind",
    "SELECT x, count(*) FROM t GROUP BY x ORDER BY x",
    "SELECT y, count(*) FROM t GROUP BY y ORDER BY y",
    "SELECT count(DISTINCT text), count(DISTINCT raw), count(DISTINCT x) FROM t",
    "SELECT sum(x), avg(y), min(x), max(y) FROM t WHERE id < 2000 OR x > 1",
    "SELECT text, raw, tags, part, took FROM t WHERE price > 3 ORDER BY id LIMIT 50",
    "SELECT part['name'] AS name, count(*) FROM t GROUP BY 1 ORDER BY 1",
    "SELECT count(*) FROM t WHERE x IN (0.0) AND text IS NOT NULL",
    "SELECT one.kind, count(*) FROM t one JOIN t two ON one.id = two.id + 1 GROUP BY 1 ORDER BY 1",
    "SELECT count(*) FROM t WHERE price > (SELECT avg(price) FROM t)",
    "SELECT id, row_number() OVER (ORDER BY x, id) AS n FROM t ORDER BY n LIMIT 20",
    "SELECT kind, x, text FROM t WHERE price = 1.25",
]


@pytest.fixture
def by_itself(monkeypatch):
    """The files that DataFusion reads by itself, of each statement, however few rows there are."""
    seen = []
    open_files = session.frame_of

    def opening(context, files, *given):
        seen.append(files)
        return open_files(context, files, *given)

    monkeypatch.setattr(session, "frame_of", opening)
    monkeypatch.setattr(session, "ROWS_MIN", 0)
    return seen


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


def table_of(instance, rows=TABLE, **given):
    table = instance.create_table("t", rows.schema, row_keys=["id"], **given)
    table.ingest(rows)
    return table


@pytest.fixture
def data_file(instance, tmp_path):
    """The only file of the table `t`, which is made now."""
    (path,) = (tmp_path / "instance" / table_of(instance).table_id).glob("data/*/*.parquet")
    return path


def shown(rows):
    """Rows as texts, in which NaN equals NaN."""
    return [str(each) for each in rows.to_pylist()]


@pytest.mark.parametrize("split_points", [[], [700, 1_500, 2_900]], ids=["a file", "four files"])
@pytest.mark.parametrize("statement", GROUPED)
def test_answers_are_those_of_our_reader(instance, by_itself, monkeypatch, statement, split_points):
    """Given odd values of all types, in one file or in several, then both read the same rows."""
    table = table_of(instance, split_points=split_points)
    found = table.sql(statement).to_arrow()
    assert by_itself

    monkeypatch.setattr(session, "ROWS_MIN", 10 * ROWS)
    by_itself.clear()
    wanted = table.sql(statement).to_arrow()

    assert not by_itself
    assert found.schema == wanted.schema
    assert shown(found) == shown(wanted)


def with_deleted_keys(instance):
    table = table_of(instance)
    table.delete(keys=[5, 7])
    return table


def with_deleted_rows(instance):
    table = table_of(instance)
    table.delete(where="kind = 'kind 1'")
    return table


def with_a_column_more(instance):
    table = table_of(instance)
    table.alter(add=[pa.field("more", pa.int64())])
    return instance.table("t")


def with_a_file_of_several_leaves(instance):
    strategy = {"sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf"}
    return table_of(instance, split_points=[1_000], properties=strategy)


def with_sums(instance):
    rows = TABLE.select(["id", "kind"])
    return table_of(instance, rows, properties={"sleeper.table.aggregations": "max(kind)"})


OTHERWISE = [with_deleted_keys, with_a_column_more, with_a_file_of_several_leaves, with_sums]


@pytest.mark.parametrize("make", OTHERWISE, ids=lambda each: each.__name__)
def test_files_that_are_not_the_rows_of_the_table_are_read_by_our_reader(instance, by_itself, make):
    """Given deleted rows, changed columns, files of several leaves or sums, none is read whole."""
    table = make(instance)

    found = table.sql("SELECT count(*), min(id), max(kind), sum(id) FROM t").to_pylist()

    ids = {*table.query(columns=["id"]).to_arrow()["id"].to_pylist()}
    assert [*found[0].values()] == [len(ids), min(ids), "kind 3", sum(ids)]
    assert not by_itself


def test_rows_that_were_deleted_by_a_condition_stay_away(instance, by_itself):
    """Given files that were written anew without some rows, then DataFusion reads these files."""
    table = with_deleted_rows(instance)

    found = table.sql("SELECT kind, count(*) AS n FROM t GROUP BY kind ORDER BY kind").to_pylist()

    assert [each["kind"] for each in found] == ["kind 0", "kind 2", "kind 3"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT kind, count(*) FROM t WHERE id BETWEEN 10 AND 20 GROUP BY kind",
        "SELECT count(*) FROM t WHERE id = 5 AND kind <> ''",
        "SELECT count(weights), count(DISTINCT weights) FROM t",
        "SELECT * FROM t WHERE price > 2 LIMIT 3",
        "SELECT * FROM t LIMIT 3",
        "SELECT id, x FROM t",
        "EXPLAIN SELECT kind, count(*) FROM t GROUP BY kind",
    ],
)
def test_what_needs_few_rows_or_other_numbers_is_read_by_our_reader(instance, by_itself, statement):
    """Given a range of keys, numbers inside of lists, or a few rows, DataFusion would lose."""
    table = table_of(instance)

    assert table.sql(statement).to_arrow().num_rows

    assert not by_itself


def test_small_and_large_tables_are_read_by_our_reader(instance, by_itself, monkeypatch):
    """Given few rows, to plan again costs more; given very many, they would be read twice."""
    table = table_of(instance)
    statement = "SELECT kind, sum(price) FROM t GROUP BY kind"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements, "bytes_max", lambda *_, **__: 1_000)
        table.sql(statement).to_arrow()
    monkeypatch.setattr(session, "ROWS_MIN", ROWS + 1)
    table.sql(statement).to_arrow()
    assert not by_itself

    monkeypatch.setattr(session, "ROWS_MIN", ROWS)
    table.sql(statement).to_arrow()

    assert by_itself


def test_a_damaged_page_is_an_error_before_any_row(instance, by_itself, data_file):
    """Given a flipped bit in the last page of a column that is needed, then no row is returned."""
    table = instance.table("t")
    chunk = pq.ParquetFile(data_file).metadata.row_group(0).column(SCHEMA.names.index("price"))
    content = bytearray(data_file.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content[start + chunk.total_compressed_size - 20] ^= 1
    data_file.write_bytes(content)

    rows = table.sql("SELECT kind, price FROM t WHERE price <> 0 ORDER BY price")

    with pytest.raises(DataDamaged, match="price"):
        next(iter(rows))
    assert table.sql("SELECT kind, count(*) FROM t GROUP BY kind").to_arrow().num_rows == 4
    assert len(by_itself) == 2


def test_a_file_that_goes_while_it_is_read_is_an_error(instance, by_itself, data_file, monkeypatch):
    """Given a file that was checked and is deleted, then the error names it."""
    check = session.check_row_count

    def checked(*given):
        check(*given)
        data_file.unlink()

    monkeypatch.setattr(session, "check_row_count", checked)

    with pytest.raises(DataDamaged, match=f"{data_file.name} is missing"):
        instance.sql("SELECT kind, count(*) FROM t GROUP BY kind").to_arrow()


def test_links_to_files_last_as_long_as_the_rows(instance, by_itself, tmp_path, monkeypatch):
    """Given several files, the folder for temp files is empty once rows are read or closed."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    links, check = [], session.check_row_count

    def checked(*given):
        check(*given)
        links.extend((tmp_path / "temp").glob("*/*"))

    monkeypatch.setattr(session, "check_row_count", checked)
    table = table_of(instance, split_points=[1_000, 2_000])

    for end in (lambda rows: rows.to_arrow(), lambda rows: (next(iter(rows)), rows.close())):
        end(table.sql("SELECT id, kind FROM t WHERE kind <> 'kind 1' ORDER BY id"))

        assert len(links) == 3
        links.clear()
        assert not [*(tmp_path / "temp").iterdir()]


def test_the_folder_for_links_may_be_a_relative_path(instance, by_itself, tmp_path, monkeypatch):
    """Given TMPDIR below the working folder, whatever its name, then links are found."""
    (tmp_path / "t%20 #?[*]ü").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", "t%20 #?[*]ü")
    table = table_of(instance, split_points=[1_000, 2_000])

    found = table.sql("SELECT count(*) AS n FROM t WHERE kind <> ''").to_pylist()

    assert found == [{"n": ROWS}]
    assert by_itself


def test_without_a_folder_for_links_our_reader_reads(instance, by_itself, tmp_path, monkeypatch):
    """Given no folder for temp files, statements that spill nothing still return their rows."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    table = table_of(instance, split_points=[1_000, 2_000])

    found = table.sql("SELECT kind, count(*) FROM t GROUP BY kind").to_arrow()

    assert found.num_rows == 4
    assert by_itself


def test_the_next_statement_reads_the_newest_rows(instance, by_itself):
    """Given a statement that read whole files, then nothing of it is left for the next one."""
    table = table_of(instance)
    statement = "SELECT kind, count(*) AS n FROM t GROUP BY kind ORDER BY kind"
    before = table.sql(statement)
    assert before.rows_read() == 0
    assert sum(before.to_arrow()["n"].to_pylist()) == before.rows_read() == ROWS

    table.ingest([row(ROWS)])
    table.delete(keys=[1])

    assert sum(table.sql(statement).to_arrow()["n"].to_pylist()) == ROWS
    assert len(by_itself) == 1
