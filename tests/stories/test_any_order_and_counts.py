"""Reading rows in any order, and counting them (rule QRY-21)."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.reading import file_rows
from sleeper.errors import BadRequest, DataDamaged, QueryInvalid
from sleeper.lookup.parquet_index import ParquetIndex

SCHEMA = pa.schema(
    [("key", pa.string()), ("n", pa.int64()), ("text", pa.string()), ("x", pa.float64())]
)
PROPERTIES = {
    "sleeper.table.parquet.page.rows": "100",
    "sleeper.table.parquet.rowgroup.rows.max": "500",
}
ROWS = [
    {"key": f"k{n:05}", "n": n, "text": f"{n * 7919 % 65537}", "x": n / 3} for n in range(4_000)
]
NUMBERS = list(range(4_000))


@pytest.fixture
def table(tmp_path):
    """A table of three leaves with two files each."""
    made = sleeper.connect(tmp_path, create=True).create_table(
        "t", SCHEMA, row_keys=["key"], properties=PROPERTIES, split_points=["k01000", "k02500"]
    )
    made.ingest(ROWS[::2])
    made.ingest(ROWS[1::2])
    return made


def files(tmp_path):
    return sorted(Path(tmp_path).glob("*/data/*/*.parquet"))


def flip(file, chunk):
    body = bytearray(file.read_bytes())
    body[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 4
    file.write_bytes(body)


def numbers(rows):
    return sorted(rows.to_arrow()["n"].to_pylist())


class TestAnyOrder:
    """`ordered=False`."""

    def test_rows_are_those_of_key_order(self, table):
        """All of them, a range, several ranges, keys, and an old version."""
        first = table.query().transaction
        table.ingest([{"key": "z", "n": -1, "text": "", "x": None}])

        for asked, expected in (
            ({"as_of": first}, NUMBERS),
            ({}, [-1, *NUMBERS]),
            ({"range": {"key": ("k00999", "k02600")}}, NUMBERS[999:2_600]),
            (
                {"regions": [{"key": ("k00010", "k00020")}, {"key": ("k00015", "k01030")}]},
                NUMBERS[10:1_030],
            ),
            ({"keys": ["k00007", "k03999", "none"]}, [7, 3_999]),
        ):
            assert numbers(table.query(**asked, ordered=False)) == expected, asked
            assert numbers(table.query(**asked, columns=["n"], ordered=False)) == expected, asked

    def test_keys_are_not_decoded_unless_asked_for(self, table, tmp_path):
        """Pages of keys may be damaged: nobody looks at them."""
        for file in files(tmp_path):
            flip(file, pq.ParquetFile(file).metadata.row_group(0).column(0))

        assert numbers(table.query(columns=["n"], ordered=False)) == NUMBERS
        with pytest.raises(DataDamaged, match=r"row group 0 .*'key'.*checksums"):
            table.query(columns=["key"], ordered=False).to_arrow()

    def test_files_without_page_sums_are_read_by_datafusion(self, table, monkeypatch):
        """Files of other programs, and of older versions."""
        monkeypatch.setattr(ParquetIndex, "has_page_sums", property(lambda _: False))
        asked = {"range": {"key": ("k00999", "k02600")}}

        assert numbers(table.query(ordered=False)) == NUMBERS
        assert numbers(table.query(**asked, ordered=False)) == NUMBERS[999:2_600]
        assert table.count(**asked) == 1_601

    def test_filters_need_only_their_field(self, tmp_path):
        """Rows of an age are left out though their field is not asked for."""
        instance = sleeper.connect(tmp_path, create=True)
        ageing = {"sleeper.table.filters": "ageOff(n,3600000)"}
        old = instance.create_table("old", SCHEMA, row_keys=["key"], properties=ageing)
        old.ingest(ROWS)

        assert old.query(columns=["x"], ordered=False).to_arrow().num_rows == 0
        assert old.count() == 0

    def test_equal_keys_are_aggregated(self, tmp_path):
        """Rows of one key in two files become one, in any order."""
        schema = pa.schema([("key", pa.string()), pa.field("n", pa.int64(), nullable=False)])
        sums = {"sleeper.table.aggregations": "sum(n)"}
        summed = sleeper.connect(tmp_path, create=True).create_table(
            "t", schema, row_keys=["key"], properties=sums
        )
        for _ in range(2):
            summed.ingest([{"key": "a", "n": 1}, {"key": "b", "n": 2}])

        assert numbers(summed.query(ordered=False)) == [2, 4]
        assert summed.count() == 2

    def test_texts_that_files_have_in_dictionaries_are_what_they_were(self, tmp_path):
        """Few texts in many rows: empty ones, nulls and bytes too, and lists of them."""
        count = 40_000
        words = ("", "ü" * 30, None, "\0", "A")
        column = [words[n % 5] for n in range(count)]
        given = pa.table(
            {
                "key": pa.array([f"k{n:06}" for n in range(count)]),
                "word": pa.array(column),
                "blank": pa.nulls(count, pa.string()),
                "data": pa.array([None if word is None else word.encode() for word in column]),
                "list": pa.array([[word] * (n % 3) for n, word in enumerate(column)]),
                "late": pa.array(["same"] * 30_000 + [f"{n}" * 40 for n in range(10_000)]),
            }
        )
        made = sleeper.connect(tmp_path, create=True)
        texts = made.create_table("t", given.schema, row_keys=["key"])
        texts.ingest(given)

        for found in (texts.query(), texts.query(ordered=False)):
            assert found.to_arrow().to_pydict() == given.to_pydict()
        words_alone = texts.query(columns=["word"], ordered=False).to_arrow()
        assert words_alone.to_pydict() == {"word": column}

    def test_a_part_has_no_more_rows_than_its_memory_allows(self, tmp_path, monkeypatch):
        """However small they are in the file: a flag takes a bit there, and a text in memory."""
        monkeypatch.setattr(file_rows, "PART_ROWS", 1_000)
        flags = sleeper.connect(tmp_path, create=True).create_table(
            "t",
            pa.schema([("n", pa.int64()), ("flag", pa.string())]),
            row_keys=["n"],
            properties={"sleeper.table.parquet.rowgroup.rows.max": "500"},
        )
        flags.ingest([{"n": n, "flag": "ab"[n % 2]} for n in range(5_000)])

        batches = [*flags.query(columns=["flag"], ordered=False)]

        assert max(batch.num_rows for batch in batches) == 1_000
        assert sum(batch.num_rows for batch in batches) == 5_000

    def test_a_slow_reader_stops_the_reading(self, table, monkeypatch):
        """A few parts are read ahead, and no more while nobody takes them."""
        begun = []
        read_part = file_rows.FileRows._read_part
        monkeypatch.setattr(
            file_rows.FileRows,
            "_read_part",
            lambda self, *given: begun.append(given[-1]) or read_part(self, *given),
        )
        monkeypatch.setattr(file_rows, "FIRST_BYTES", 1)
        monkeypatch.setattr(file_rows, "LAST_BYTES", 1)

        rows = table.query(ordered=False)
        next(iter(rows))

        assert len(begun) <= 2 + 4

    def test_who_stops_early_leaves_no_thread(self, table):
        """Closing ends what is read ahead."""
        with table.query(ordered=False) as rows:
            batches = iter(rows)
            next(batches)
            batches.close()

        assert not [each for each in threading.enumerate() if "sleeper-scan" in each.name]

    def test_ordered_is_true_or_false(self, table):
        """A text such as "no" would be true."""
        with pytest.raises(QueryInvalid, match="ordered must be True or False, not 'no'"):
            table.query(ordered="no")


class TestCounts:
    """`table.count()` and `query(...).count()`."""

    def test_all_rows_are_counted_without_their_files(self, table, tmp_path):
        """The state knows, and the report says the same."""
        for file in files(tmp_path):
            file.unlink()

        assert table.count() == table.query().count() == table.report_files().rows == 4_000

    def test_a_range_is_counted_by_keys_at_its_borders(self, table, tmp_path):
        """Pages of other columns may be damaged, and of keys between the borders."""
        for file in files(tmp_path):
            flip(file, pq.ParquetFile(file).metadata.row_group(0).column(2))

        for low, high in (
            (0, 4_000),
            (5, 6),
            (0, 198),
            (0, 998),
            (999, 2_500),
            (1_000, 2_501),
            (3_000, 3_000),
        ):
            asked = {"key": (f"k{low:05}", f"k{high:05}")}
            assert table.count(range=asked) == high - low
        assert table.count(keys=["k00001", "k00002", "x"]) == 2
        assert table.count(key="k00001") == 1

    def test_halves_of_files_are_counted_really(self, tmp_path):
        """After a split and a push-down the state has estimates; the count has none."""
        one_leaf = sleeper.connect(tmp_path, create=True).create_table(
            "t", SCHEMA, row_keys=["key"], properties=PROPERTIES
        )
        one_leaf.set_properties({"sleeper.table.partition.splitting.threshold": "1000"})
        more = [ROWS[0] | {"key": f"m{n:05}"} for n in range(2_000)]  # few are counted exactly
        one_leaf.ingest([*ROWS, *more])
        one_leaf.split_partitions()
        one_leaf.compact()
        assert any(each.row_count_estimated for each in one_leaf.references())

        assert one_leaf.count() == 6_000
        assert one_leaf.count(range={"key": ("k00100", "k03900")}) == 3_800

    def test_counting_leaves_rows_unread(self, table):
        """They can be counted first and read then, not the other way round."""
        rows = table.query(columns=["n"], ordered=False)

        assert rows.count() == rows.count() == rows.to_arrow().num_rows == 4_000
        with pytest.raises(BadRequest, match="read or closed before"):
            rows.count()
