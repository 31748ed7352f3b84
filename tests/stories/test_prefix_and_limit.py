"""Finding rows by how their keys begin, and reading only the first ones (rule QRY-22)."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sleeper
from sleeper.errors import QueryInvalid
from sleeper.model.keys import after_prefix

SCHEMA = pa.schema(
    [("host", pa.string()), ("path", pa.string()), ("day", pa.date32()), ("size", pa.int64())]
)
PATHS = [
    *("", "usr", "usr/", "usr/bin", "usr/bin/", "usr/bin/ls", "usr/bin/\0", "usr/bin/\U0010ffff"),
    *("usr/bin0", "usr/bi", "\ud7ff", "\ud7ffa", "\ue000", "\U0010ffff", "\U0010ffffz", "ü", "üb"),
]
ROWS = [
    {"host": host, "path": path, "day": date(2026, 1, 1 + n % 3), "size": n}
    for host in ("a", "b")
    for n, path in enumerate(sorted(PATHS))
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of four leaves with two files each."""
    made = sleeper.connect(tmp_path_factory.mktemp("prefix"), create=True).create_table(
        *("files", SCHEMA), row_keys=["host", "path", "day"], split_points=["a", "aa", "b"]
    )
    made.ingest(ROWS[::2])
    made.ingest(ROWS[1::2])
    return made


@pytest.fixture
def memory():
    return sleeper.connect("memory://")


class TestPrefix:
    """`prefix={field: start}`."""

    @pytest.mark.parametrize("start", [*PATHS, "usr/b", "none", "\U0010ffff\U0010ffff"])
    def test_finds_the_rows_whose_values_begin_so(self, table, start):
        """Also where the next value is not the next code point, and where there is none."""
        expected = [row for row in ROWS if row["path"].startswith(start)]

        assert table.query(prefix={"path": start}).to_pylist() == expected
        assert table.count(prefix={"path": start}) == len(expected)
        assert len(table.query(prefix={"path": start}, ordered=False).to_arrow()) == len(expected)

    def test_stands_with_conditions_on_other_fields(self, table):
        """A key's other fields, a range, several ranges, and another prefix."""
        under = [row for row in ROWS if row["path"].startswith("usr/")]
        days = {"day": (date(2026, 1, 2), date(2026, 1, 3))}
        second = [row for row in under if row["day"] == date(2026, 1, 2)]

        for asked, expected in (
            ({"key": {"host": "a"}}, [row for row in under if row["host"] == "a"]),
            ({"key": "a"}, [row for row in under if row["host"] == "a"]),
            ({"key": {"day": date(2026, 1, 2)}}, second),
            ({"range": days}, second),
            ({"regions": [days, {"host": ("b", None)}]},
             [row for row in under if row in second or row["host"] == "b"]),
            ({"regions": []}, []),
        ):  # fmt: skip
            assert table.query(**asked, prefix={"path": "usr/"}).to_pylist() == expected, asked
        both = {"host": "b", "path": "usr/"}
        assert table.query(prefix=both).to_pylist() == [r for r in under if r["host"] == "b"]

    def test_of_bytes_may_end_with_the_largest_byte(self, memory):
        """After 0xff 0xff there is no next prefix."""
        keys = [
            b"",
            b"\x00",
            b"a",
            b"a\xfe",
            b"a\xff",
            b"a\xff\xff\x01",
            b"b",
            b"\xff",
            b"\xff\xff",
        ]
        table = memory.create_table("t", pa.schema([("k", pa.binary())]), row_keys=["k"])
        table.ingest([{"k": key} for key in keys])

        for start in [*keys, b"\xff\xff\xff", b"zz"]:
            found = [row["k"] for row in table.query(prefix={"k": start}).to_pylist()]
            assert found == [key for key in sorted(keys) if key.startswith(start)], start

    @given(st.text(), st.text())
    def test_what_comes_after_a_prefix_is_above_all_that_begin_so(self, start, rest):
        """Whatever characters follow; and it does not begin so itself."""
        after = after_prefix(start)

        assert after is None or (start + rest < after and not after.startswith(start))
        assert after is None or after.encode()

    @given(st.binary(), st.binary())
    def test_what_comes_after_bytes_is_above_all_that_begin_so(self, start, rest):
        """The same for bytes."""
        after = after_prefix(start)

        assert after is None or (start + rest < after and not after.startswith(start))

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ({"prefix": "usr"}, r"did you mean prefix=\{'host': 'usr'\}"),
            ({"prefix": None}, "prefix=None asks for nothing"),
            ({"prefix": {}}, r"must be \{field: prefix\}"),
            ({"prefix": ["usr"]}, r"must be \{field: prefix\}"),
            ({"prefix": {"path": None}}, "must be a string"),
            ({"prefix": {"path": b"usr"}}, "must be a string"),
            ({"prefix": {"path": "\ud800"}}, "UTF-8"),
            ({"prefix": {"day": "2026"}}, r"'day' has no prefixes.*range="),
            ({"prefix": {"size": "1"}}, 'Key "size" was not a row key'),
            ({"prefix": {"path": "u"}, "keys": [("a", "u", date.min)]}, "keys= and prefix="),
            ({"prefix": {"path": "u"}, "key": ("a", "usr")}, "'path' has a prefix and another"),
            ({"prefix": {"path": "u"}, "key": {}}, "a key needs a value"),
            ({"prefix": {"path": "u"}, "range": {"path": ("u", "v")}}, "'path' has a prefix and"),
            ({"prefix": {"path": "u"}, "regions": [{"path": ("u", "v")}]}, "'path' has a prefix"),
            ({"prefix": {"path": "u"}, "range": None}, "range=None"),
        ],
    )
    def test_that_cannot_be_is_refused_by_name(self, table, asked, says):
        """The message says what would be right."""
        with pytest.raises(QueryInvalid, match=says):
            table.query(**asked)
        with pytest.raises(QueryInvalid, match=says):
            table.count(**asked)


class TestLimit:
    """`limit=` and `head`."""

    @pytest.mark.parametrize("limit", [0, 1, 2, 7, 33, 34, 35, 10**18, 10**30])
    def test_gives_the_first_rows_in_key_order(self, table, limit):
        """Of all rows, a range, a prefix and keys; one row key has its rows in memory."""
        keys = [(row["host"], row["path"], row["day"]) for row in ROWS[:20]]
        usr = [row for row in ROWS if row["path"].startswith("usr")]

        assert table.query(limit=limit).to_pylist() == ROWS[:limit]
        assert (
            table.query(range={"host": ("b", None)}, limit=limit).to_pylist() == ROWS[17:][:limit]
        )
        assert table.query(prefix={"path": "usr"}, limit=limit).to_pylist() == usr[:limit]
        assert table.query(keys=keys, limit=limit).to_pylist() == ROWS[:20][:limit]
        assert table.query(key=keys[3], limit=limit).to_pylist() == ROWS[3:4][:limit]
        assert table.query(limit=limit, ordered=False).to_arrow().num_rows == min(limit, 34)
        assert table.query(limit=limit).count() == min(limit, 34)
        assert table.query(limit=limit, columns=["size"], as_of=3).count() == min(limit, 34)

    def test_head_is_the_first_five(self, table):
        """Or as many as are asked for."""
        assert table.head().to_pylist() == ROWS[:5]
        assert table.head(2).to_pylist() == ROWS[:2]
        with pytest.raises(QueryInvalid, match=r"None; query\(\) returns all"):
            table.head(None)

    @pytest.mark.parametrize("limit", [-1, 1.0, "5", True])
    def test_must_be_a_number_of_rows(self, table, limit):
        """Negative numbers, texts and truth values are refused."""
        with pytest.raises(QueryInvalid, match=r"limit must (be a number of rows|not be negative)"):
            table.query(limit=limit)

    def test_counts_after_filters_and_aggregations(self, memory):
        """Given rows of which a filter leaves every other, then the limit is of those left."""
        schema = pa.schema([("k", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
        summed = memory.create_table(
            "t", schema, row_keys=["k"], properties={"sleeper.table.aggregations": "sum(n)"}
        )
        for _ in range(3):
            summed.ingest([{"k": n, "n": 1} for n in range(10)])

        assert summed.query(limit=4).to_pylist() == [{"k": n, "n": 3} for n in range(4)]
        assert summed.query(limit=4).count() == 4

    def test_reads_no_leaf_after_the_last_row(self, tmp_path):
        """Given that the files of all leaves but the first are gone, then its rows are found."""
        table = sleeper.connect(tmp_path, create=True).create_table(
            *("t", pa.schema([("k", pa.int64())])), row_keys=["k"], split_points=[10, 20, 30],
            properties={"sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"},
        )  # fmt: skip
        table.ingest([{"k": n} for n in range(40)])
        first = table.state().tree.leaf_of((0,)).partition_id
        others = [each.filename for each in table.references() if each.partition_id != first]
        table._current().files.delete(others)

        assert len(others) == 3
        assert table.query(limit=10).to_pylist() == [{"k": n} for n in range(10)]
        with pytest.raises(sleeper.DataDamaged, match="is missing"):
            table.query(limit=11).to_arrow()

    @pytest.mark.parametrize("keys", [["id"], ["id", "part"]])
    @pytest.mark.parametrize("limit", [1, 65, 200, 299, 1_000])
    def test_of_many_leaves_is_the_first_rows_of_all(self, memory, keys, limit):
        """Given 300 leaves, of which each third has no rows, then rows come in key order."""
        schema = pa.schema([("id", pa.int64()), ("part", pa.int64())])
        table = memory.create_table(
            "t", schema, row_keys=keys, split_points=[*range(10, 3_000, 10)]
        )
        rows = [{"id": 10 * leaf + n, "part": n} for leaf in range(300) if leaf % 3 for n in (1, 2)]
        table.ingest(rows[::2])
        table.ingest(rows[1::2])

        assert table.query(limit=limit).to_pylist() == rows[:limit]

    @pytest.mark.parametrize("limit", [1, 99, 100, 101, 2_000, 6_000])
    def test_reads_few_pages(self, tmp_path, limit):
        """Given files whose later pages are damaged, then the first rows are read without them."""
        table = sleeper.connect(tmp_path, create=True).create_table(
            *("t", pa.schema([("k", pa.int64()), ("n", pa.int64())])), row_keys=["k"],
            properties={"sleeper.table.parquet.page.rows": "100"},
        )  # fmt: skip
        for start in range(3):
            table.ingest([{"k": n, "n": n * 7919 % 65537} for n in range(start, 30_000, 3)])
        for file in tmp_path.glob("*/data/*/*.parquet"):
            chunk = pq.ParquetFile(file).metadata.row_group(0).column(1)
            body = bytearray(file.read_bytes())
            body[chunk.data_page_offset + chunk.total_compressed_size * 3 // 4] ^= 4
            file.write_bytes(body)

        found = table.query(limit=limit).to_arrow()

        assert found["k"].to_pylist() == list(range(limit))
        with pytest.raises(sleeper.DataDamaged, match="checksums"):
            table.query(limit=29_000).to_arrow()
        with pytest.raises(sleeper.DataDamaged, match="checksums"):
            table.query(limit=24_000, range={"k": (5_000, None)}).to_arrow()

    def test_of_rows_with_one_key_is_exact(self, memory):
        """Given pages that all begin with the same key, then no border lies between them."""
        table = memory.create_table(
            *("t", pa.schema([("k", pa.string()), ("n", pa.int64())])),
            row_keys=["k"], sort_keys=["n"], properties={"sleeper.table.parquet.page.rows": "100"},
        )  # fmt: skip
        long = "x" * 300
        for start in range(2):
            rows = [{"k": long, "n": n} for n in range(start, 1_000, 2)]
            table.ingest([*rows, {"k": long + "y", "n": start}, {"k": "", "n": start}])

        for limit in (1, 3, 500, 1_002, 1_003, 5_000):
            found = table.query(limit=limit).to_arrow()["n"].to_pylist()
            assert found == [0, 1, *range(1_000), 0, 1][:limit]
