"""Rows from CSV and JSON lines, from lazy frames, and from dicts of columns (rule ING-1)."""

from __future__ import annotations

import base64
import bz2
import csv
import gzip
import json
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.engine.inputs import text_files, text_values
from sleeper.errors import InputRefused, InputSchemaMismatch, InputUnreadable, NullKeys
from tests.contracts.s3_server import aws_endpoint, bucket, s3_credentials, s3_server
from tests.unit.interfaces.command_line import sleeper as command

__all__ = ["aws_endpoint", "bucket", "s3_credentials", "s3_server"]

EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("clock", pa.timestamp("us")),
        ("price", pa.decimal128(12, 3)),
    ]
)
ROWS = [
    {
        "id": "a",
        "int": -(2**31),
        "long": 2**63 - 1,
        "float": 0.5,
        "double": 1e-300,
        "text": 'quo"te, comma\nnew line ü',
        "raw": b"\x00\xff",
        "flag": True,
        "day": date(1, 1, 1),
        "at": datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
        "clock": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "price": Decimal("-123456789.125"),
    },
    dict.fromkeys(EVERY_TYPE.names) | {"id": "b", "text": ""},
    dict.fromkeys(EVERY_TYPE.names) | {"id": "null", "text": None, "double": float("inf")},
]


def zstd(body):
    return pa.compress(body, "zstd", asbytes=True)


@pytest.fixture
def instance(tmp_path):
    return sleeper.connect(tmp_path / "instance", create=True)


@pytest.fixture
def table(instance):
    return instance.create_table("t", EVERY_TYPE, row_keys=["id"])


@pytest.fixture
def small(instance):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    return instance.create_table("small", schema, row_keys=["id"])


def ask(table):
    return table.query().to_pylist()


class TestEveryValue:
    """What `sleeper query` writes is read back as it was."""

    @pytest.mark.parametrize("form", ["csv", "json"])
    @pytest.mark.parametrize("size", [1 << 10, 8 << 20])
    def test_comes_back(self, instance, table, tmp_path, form, size, monkeypatch):
        """Given every type, nulls, empty texts and odd signs, in small blocks and in one."""
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", size)
        rows = [row if form == "csv" else {**row, "double": row["double"] and 1.5} for row in ROWS]
        table.ingest(rows)
        path = tmp_path / f"out.{form}"
        done = command("query", "t", "--output", path, "--instance", instance.url)
        assert done.exit_code == 0, done.output
        other = instance.create_table("other", EVERY_TYPE, row_keys=["id"])

        other.ingest(path)

        assert ask(other) == ask(table) == rows

    @pytest.mark.parametrize(
        ("ending", "compress"),
        [
            ("gz", gzip.compress),
            ("bz2", bz2.compress),
            ("zst", zstd),
            ("GZ", gzip.compress),
        ],
    )
    def test_may_be_compressed(self, small, tmp_path, ending, compress):
        """By the end of the file's name; several files make one ingest."""
        first, second = tmp_path / f"one.csv.{ending}", tmp_path / f"two.JSONL.{ending}"
        first.write_bytes(compress(b"n,id\n1,10\n2,20\n"))
        second.write_bytes(compress(b'{"id": 30, "n": 3}\n{"id": 40}\n'))

        assert small.ingest([first, second]).rows_written == 4
        assert ask(small) == [{"id": i * 10, "n": i if i < 4 else None} for i in (1, 2, 3, 4)]

    def test_of_python_and_other_programs(self, small, table, tmp_path):
        """Other orders of columns, CR LF, a byte order mark, spaces, blank lines, quoted numbers."""
        (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfn,id\r\n"1",10\r\n,20\r\n\r\n 3 ,30')
        assert small.ingest(tmp_path / "a.csv").rows_written == 3
        with (tmp_path / "b.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "id", "raw", "flag", "at"])
            writer.writeheader()
            writer.writerow({"id": "x", "text": "a,b", "raw": base64.b64encode(b"hi").decode(), "flag": "TRUE",
                             "at": "2026-01-01T12:00:00+05:30"})  # fmt: skip
        table.ingest(str(tmp_path / "b.csv"))

        assert ask(small) == [{"id": 10, "n": 1}, {"id": 20, "n": None}, {"id": 30, "n": 3}]
        (found,) = ask(table)
        assert (found["text"], found["raw"], found["flag"]) == ("a,b", b"hi", True)
        assert found["at"] == datetime(2026, 1, 1, 6, 30, tzinfo=UTC)

    def test_of_lists_in_json(self, instance, tmp_path):
        """Also lists of texts that are converted, across blocks, with nulls between."""
        schema = pa.schema(
            [
                ("id", pa.int64()),
                ("days", pa.list_(pa.field("element", pa.date32(), nullable=False))),
            ]
        )
        lists = instance.create_table("lists", schema, row_keys=["id"])
        rows = [
            {"id": n, "days": None if n % 3 else [date(2026, 1, 1) + timedelta(days=d) for d in range(n % 7)]}
            for n in range(100)
        ]  # fmt: skip
        (tmp_path / "x.ndjson").write_text("\n".join(json.dumps(row, default=str) for row in rows))

        lists.ingest(tmp_path / "x.ndjson")

        assert ask(lists) == rows

    def test_is_streamed(self, small, tmp_path, monkeypatch):
        """Given a file of many blocks, then batches are small, and all rows arrive."""
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", 1 << 12)
        body = "id,n\n" + "".join(f"{n},{n}\n" for n in range(50_000))
        (tmp_path / "x.csv").write_text(body)
        sizes = []

        small.ingest(tmp_path / "x.csv", progress=lambda done, total: sizes.append((done, total)))

        assert small.count() == 50_000
        assert len(sizes) > 100
        assert {total for _, total in sizes} == {None}


@pytest.mark.parametrize("form", ["csv", "csv.gz", "jsonl"])
def test_a_file_in_a_bucket_is_read_like_one_here(aws_endpoint, bucket, form):
    """Also compressed; what does not fit is refused by its URL."""
    instance = sleeper.create_instance(f"s3://{bucket}/text-{uuid.uuid4().hex}")
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    table = instance.create_table("t", schema, row_keys=["id"])
    good, bad = {
        "csv": (b"id,n\n1,2\n", b"id,n\n1,x\n"),
        "csv.gz": (gzip.compress(b"id,n\n1,2\n"), gzip.compress(b"id,n\n1,x\n")),
        "jsonl": (b'{"id":1,"n":2}\n', b'{"id":1,"n":"x"}\n'),
    }[form]
    instance._context.objects.put(f"good.{form}", good)
    instance._context.objects.put(f"bad.{form}", bad)

    table.ingest(f"{instance.url}/good.{form}")

    assert ask(table) == [{"id": 1, "n": 2}]
    with pytest.raises(InputSchemaMismatch, match=f"s3://.*bad.{form}.*'n'"):
        table.ingest(f"{instance.url}/bad.{form}")
    with pytest.raises(InputRefused, match="there is no object"):
        table.ingest(f"{instance.url}/none.{form}")


def test_patterns_and_folders_in_a_bucket_are_read_like_those_here(aws_endpoint, bucket):
    """Names that begin with a sign of hidden ones are left out."""
    instance = sleeper.create_instance(f"s3://{bucket}/patterns-{uuid.uuid4().hex}")
    names = ["in/a.csv", "in/b.csv", "in/2026/c.csv", "in/_d.csv", "in/2026/_x/e.csv", "in/f.txt"]
    for number, name in enumerate(names):
        instance._context.objects.put(name, f"id,n\n{number},{number}\n".encode())
    wanted = {
        "in/*.csv": [0, 1],
        "in/[b-z].csv": [1],
        "in/20??/*": [2],
        "in/**/*.csv": [0, 1, 2],
        "in": [0, 1, 2],
        "in/": [0, 1, 2],
    }

    for pattern, ids in wanted.items():
        schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
        table = instance.create_table(uuid.uuid4().hex, schema, row_keys=["id"])
        table.ingest(f"{instance.url}/{pattern}")
        assert [row["id"] for row in table.rows()] == ids, pattern

    with pytest.raises(InputRefused, match="there is no object"):
        table.ingest(f"{instance.url}/in/*.parquet")


class TestColumns:
    """Columns are checked as those of Parquet files are."""

    @pytest.mark.parametrize("ending", ["csv", "jsonl"])
    def test_that_the_table_lacks_are_refused_or_dropped(self, small, tmp_path, ending):
        """With `ignore_extra_columns`, whatever values they have."""
        path = tmp_path / f"x.{ending}"
        path.write_text({"csv": "id,n,more\n1,1,1\n2,2,x\n", "jsonl": '{"id":1,"n":1,"more":1}\n{"id":2,"n":2,"more":"x"}\n'}[ending])  # fmt: skip

        with pytest.raises(InputSchemaMismatch, match="more"):
            small.ingest(path)
        assert small.ingest(path, ignore_extra_columns=True).rows_written == 2
        assert ask(small) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]

    def test_of_later_lines_are_refused_too(self, small, tmp_path, monkeypatch):
        """Given a field that first occurs in a later block of JSON lines."""
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", 256)
        lines = [f'{{"id": {n}}}' for n in range(200)] + ['{"id": 200, "more": 1}']
        (tmp_path / "x.jsonl").write_text("\n".join(lines))

        with pytest.raises(InputRefused, match="line 201: unexpected field"):
            small.ingest(tmp_path / "x.jsonl")
        assert small.ingest(tmp_path / "x.jsonl", ignore_extra_columns=True).rows_written == 201

    @pytest.mark.parametrize(
        ("name", "body", "says"),
        [
            ("x.csv", "n\n1\n", "id"),
            ("x.csv", "id,n,n\n1,2,3\n", "more than one column named"),
            ("x.csv", "id,N,nn\n1,2,3\n", "N"),
            ("x.csv", "1,2\n3,4\n", "id.*first row has values.*--no-header"),
            ("x.csv", '"n"\n1\n', r"lacks required columns \['id'\]; it has \['n'\]$"),
            ("x.csv", "ID, N\n1,2\n", "misspelt, rename 'ID' to 'id': case and spaces count$"),
            (
                "x.csv",
                "id, n\n1,2\n",
                "The table has .* rename ' n' to 'n': case and spaces count$",
            ),
            ("x.csv", "id;n\n1;2\n", "separated by ';', not by ','"),
            ("x.csv", '"n"\t"id"\n1\t2\n', r"separated by '.t', not by ','"),
            ("x.jsonl", '{"n": 1}\n', "id"),
        ],
    )
    def test_that_are_missing_or_double_are_refused(self, small, tmp_path, name, body, says):
        """By name, before a row is read."""
        (tmp_path / name).write_text(body)

        with pytest.raises(InputSchemaMismatch, match=says):
            small.ingest(tmp_path / name)
        assert ask(small) == []


class TestMisfits:
    """What does not fit is refused by file, row or line, column and value; nothing is written."""

    @pytest.mark.parametrize(
        ("column", "value", "says"),
        [
            ("int", "1.5", "invalid value '1.5'"),
            ("int", "2147483648", "invalid value '2147483648'"),
            ("int", '""', "invalid value ''"),
            ("long", "9223372036854775808", "invalid value"),
            ("float", "1e39", "'1e39' is not a value of float"),
            ("float", "1e-50", "'1e-50' is not a value of float"),
            ("double", "1e400", "'1e400' is not a value of double"),
            ("double", "1,5", "Expected 2 columns, got 3"),
            (
                "double",
                '"1,5"',
                "'1,5' is not a value of double: it has a comma.*--decimal-point ,",
            ),
            ("price", '"-1,5"', "it has a comma: if that is a decimal point"),
            ("double", '"1,234.50"', "'1,234.50' is not .* it has ',' between thousands"),
            ("price", '"1 234 567,50"', "it has ' ' between thousands: .*pandas"),
            ("price", '"1,234"', "a decimal point, give .*; if it separates thousands"),
            ("long", '"1,234,567"', "invalid value '1,234,567': it has ',' between thousands"),
            ("int", "n/a", "'n/a': it is no number: if it stands for null, .*--null-text 'n/a'"),
            ("double", "-", "'-' is not a value of double: it is no number: if it stands for null"),
            ("price", '"1,5,5"', "not a value of decimal128[^:]*: (?!it has a comma)"),
            ("flag", "yes", "invalid value 'yes'"),
            ("day", "31.01.2026", "not a value of date32.*ISO 8601"),
            ("day", "2026-02-30", "not a value of date32"),
            ("at", "2026-01-01 12:00:00", "it has no time zone"),
            ("at", "2026-01-01T00:00:00.0000001Z", "not a value of timestamp"),
            ("clock", "2026-01-01 12:00:00Z", "it has a time zone"),
            ("raw", "not base64!", "it is not base64"),
            ("price", "1.2345", "data loss"),
            ("price", "12345678901", "precision"),
        ],
    )
    def test_in_csv(self, table, tmp_path, column, value, says):
        """Given two good rows before it."""
        (tmp_path / "x.csv").write_text(f"id,{column}\na,\nb,\nc,{value}\n")

        with pytest.raises(
            InputRefused, match=rf"(?s)x.csv.*[rR]ow #?4.*{says}.*Nothing was ingested"
        ):
            table.ingest(tmp_path / "x.csv")
        assert ask(table) == []

    @pytest.mark.parametrize(
        ("column", "value", "says"),
        [
            ("int", "1.5", "1.5 is no value of int32: write whole numbers without a fraction"),
            ("int", '"1"', "'int' must be a number, not a string"),
            ("long", "9223372036854775808", "9223372036854775808 is no value of int64: it is too"),
            ("float", "1e39", "1e.?39"),
            ("double", "1e400", "too big"),
            ("text", "1", "'text' must be a string, not a number"),
            ("flag", "1", "'flag' must be a boolean, not a number"),
            ("day", '"31.01.2026"', "ISO 8601"),
            ("at", '"2026-01-01 12:00:00"', "no time zone"),
            ("at", "1700000000", "must be a string"),
            ("clock", '"2026-01-01T12:00:00Z"', "it has a time zone"),
            ("raw", '"x"', "not base64"),
            ("price", "1.2345", "scale"),
            ("price", "12345678901", "precision"),
            ("price", '"12345678901"', "precision"),
            ("text", '"\\ud800"', "surrogate"),
            ("text", '"a', "closing quotation mark"),
        ],
    )
    def test_in_json_lines(self, table, tmp_path, column, value, says):
        """Given two good lines before it."""
        lines = ['{"id": "a"}', '{"id": "b"}', f'{{"id": "c", "{column}": {value}}}']
        (tmp_path / "x.jsonl").write_text("\n".join(lines))

        with pytest.raises(InputRefused, match=rf"(?s)x.jsonl.*(line|row) 3.*{says}") as refused:
            table.ingest(tmp_path / "x.jsonl")
        assert "Nothing was ingested" in str(refused.value)
        assert ask(table) == []

    @pytest.mark.parametrize("ending", ["csv", "jsonl"])
    def test_far_down_are_found(self, small, tmp_path, ending, monkeypatch):
        """Given 5,000 rows in many blocks, then the row that is told is the one."""
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", 1 << 10)
        make = {"csv": "{0},{1}".format, "jsonl": '{{"id":{0},"n":{1}}}'.format}[ending]
        rows = [make(n, "true" if n == 4321 else n) for n in range(5_000)]
        head = ["id,n"] if ending == "csv" else []
        (tmp_path / f"x.{ending}").write_text("\n".join([*head, *rows]) + "\n")

        with pytest.raises(
            InputRefused, match={"csv": "row 4,323 .the header", "jsonl": "line 4,322"}[ending]
        ):
            small.ingest(tmp_path / f"x.{ending}")
        assert ask(small) == []

    @pytest.mark.parametrize(
        ("name", "body", "says"),
        [
            ("x.csv", b"", "Empty CSV"),
            ("x.csv", b"id,n\n1\n", r"row 2 .*Expected 2 columns, got 1"),
            ("x.csv", b"id,n\n1,\xff\n", "row 2"),
            ("x.csv.gz", b"id,n\n1,2\n", "cannot be read as CSV"),
            (
                "x.csv.gz",
                gzip.compress(b"id,n\n" + b"1,2\n" * 9_999, mtime=0)[:-20],
                "cannot be read as CSV",
            ),
            ("x.jsonl", b"[1]\n", "line 1: each line must be one object; here is: array"),
            ("x.txt", b"id,n\n1,2\n", "cannot be read as Parquet.*names that end in .csv"),
            ("x.tsv", b"id\tn\n1\t2\n", r"with an option of CSV, here --separator '.t'"),
            (
                "x.csv",
                gzip.compress(b"id,n\n1,2\n", mtime=0),
                "it is compressed by gzip: .* end in .gz",
            ),
            (
                "x.jsonl",
                gzip.compress(b'{"id": 1}', mtime=0),
                "it is compressed by gzip: .* end in .gz",
            ),
            ("x.csv", b"PK\x03\x04\0\0\n\0\0\n", "ZIP archive, as workbooks of Excel are"),
            ("x.xlsx", b"PK\x03\x04\0\0\n\0\0\n", "ZIP archive, as workbooks of Excel are"),
            ("x.csv", b"sep=;\nid;n\n1;2\n", "its first line, sep=, is how Excel.*delete the line"),
            ("x.jsonl", b'{"id": 1, "id": 2}\n', "line 1.*specified twice"),
            ("x.jsonl", b'{"id": 1}\n{"id": \n', "line 2"),
        ],
    )
    def test_files_that_are_broken(self, small, tmp_path, name, body, says):
        """Empty, cut off, ragged, of another kind."""
        (tmp_path / name).write_bytes(body)

        with pytest.raises(InputRefused, match=rf"(?s){name}.*{says}"):
            small.ingest(tmp_path / name)
        assert ask(small) == []

    @pytest.mark.parametrize(
        "body", ['id,text\na,"b\n', 'id,text\na,"b\nc,d\n', 'id,text\na,5" pipe\n']
    )
    def test_a_quote_that_does_not_end_is_seen(self, table, tmp_path, body):
        """Given a file that was cut off in a quoted value, then its last row is not taken."""
        (tmp_path / "x.csv").write_text(body)

        with pytest.raises(InputUnreadable, match=r"odd number of quotes.*A quote inside a value"):
            table.ingest(tmp_path / "x.csv")
        assert ask(table) == []

    def test_rows_without_a_key_are_refused_or_set_aside(self, small, tmp_path):
        """An empty value of CSV is null."""
        (tmp_path / "x.csv").write_text("id,n\n1,1\n,2\n")

        with pytest.raises(NullKeys, match="without 'id'"):
            small.ingest(tmp_path / "x.csv")
        aside = tmp_path / "aside.parquet"
        assert small.ingest(tmp_path / "x.csv", set_aside=aside).rows_set_aside == 1
        assert pq.read_table(aside)["n"].to_pylist() == [2]

    def test_text_and_parquet_are_two_ingests(self, small, tmp_path):
        """They are read by different readers."""
        (tmp_path / "x.csv").write_text("id,n\n1,1\n")
        pq.write_table(pa.table({"id": [2]}), tmp_path / "y.parquet")

        with pytest.raises(sleeper.BadRequest, match="two ingests"):
            small.ingest([tmp_path / "x.csv", tmp_path / "y.parquet"])

    def test_no_rows_are_no_error(self, small, tmp_path):
        """A header alone, and an empty file of JSON lines, which a query without rows writes."""
        (tmp_path / "x.csv").write_text("id,n\n")
        (tmp_path / "y.jsonl").write_text("\n")

        assert small.ingest([tmp_path / "x.csv", tmp_path / "y.jsonl"]).rows_written == 0


class TestFrames:
    """Lazy frames, datasets, and dicts of columns."""

    def test_a_lazy_frame_is_computed_as_a_stream(self, small, tmp_path, monkeypatch):
        """Given a scan with a filter, then it is not collected whole."""
        pl.DataFrame({"n": range(300_000), "id": range(300_000)}).write_parquet(
            tmp_path / "x.parquet"
        )
        lazy = pl.scan_parquet(tmp_path / "x.parquet").filter(pl.col("id") % 2 == 0)
        monkeypatch.setattr(pl.LazyFrame, "collect", None)
        seen = []

        done = small.ingest(lazy, progress=lambda rows, total: seen.append(rows))

        assert done.rows_written == 150_000
        assert len(seen) > 1
        assert small.query(key=4).to_pylist() == [{"id": 4, "n": 4}]

    def test_a_lazy_frame_that_cannot_be_computed_is_refused(self, small, tmp_path):
        """Given a file that is missing, or an expression that fails."""
        for lazy in (
            pl.scan_parquet(tmp_path / "none.parquet"),
            pl.LazyFrame({"id": ["x"]}).select(pl.col("id").cast(pl.Int64)),
        ):
            with pytest.raises(InputUnreadable, match="cannot compute the LazyFrame"):
                small.ingest(lazy)
        with pytest.raises(InputSchemaMismatch, match="id"):
            small.ingest(pl.LazyFrame({"n": [1]}))
        assert ask(small) == []

    def test_a_dataset_is_read(self, small, tmp_path):
        """Of files of any kind that pyarrow knows."""
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "x.csv").write_text("id,n\n1,2\n")

        small.ingest(ds.dataset(tmp_path / "in", format="csv"))

        assert ask(small) == [{"id": 1, "n": 2}]

    @pytest.mark.parametrize(
        "columns",
        [
            {"id": [1, 2], "n": [None, 3]},
            {"n": pa.array([None, 3]), "id": (1, 2)},
            {"id": np.array([1, 2]), "n": pl.Series([None, 3])},
            {"id": range(1, 3), "n": pd.Series([None, 3], dtype="Int64")},
        ],
    )
    def test_a_dict_of_columns_is_a_table(self, small, columns):
        """Lists, tuples, and arrays of any library."""
        assert small.ingest(columns).rows_written == 2
        assert ask(small) == [{"id": 1, "n": None}, {"id": 2, "n": 3}]

    def test_a_dict_of_columns_may_lack_columns_that_can_be_null(self, small):
        """Columns that the table does not have are refused, or dropped."""
        with pytest.raises(InputSchemaMismatch, match="more"):
            small.ingest({"id": [1], "more": ["x"]})
        assert small.ingest({"id": [1], "more": ["x"]}, ignore_extra_columns=True).rows_written == 1
        assert small.ingest({"id": []}).rows_written == 0

    @pytest.mark.parametrize(
        ("columns", "error", "says"),
        [
            ({"id": 1, "n": 2}, sleeper.BadRequest, r"one row is given as \[row\]"),
            ({"id": "abc"}, sleeper.BadRequest, r"'id' .*is no column"),
            ({"id": [1, 2], "n": [1]}, sleeper.BadRequest, "differ in length: .*'id': 2, 'n': 1"),
            ({"id": [1, "2"]}, InputSchemaMismatch, "column 'id' .*number 1, '2'"),
            ({"id": [1.5]}, InputSchemaMismatch, "column 'id'"),
            ({"n": [1]}, InputSchemaMismatch, "id"),
            ({}, sleeper.BadRequest, "at least one"),
            ({1: [1]}, sleeper.BadRequest, "names of columns"),
        ],
    )
    def test_a_dict_that_is_no_table_is_refused(self, small, columns, error, says):
        """The message says what would be right."""
        with pytest.raises(error, match=says):
            small.ingest(columns)
        assert ask(small) == []


class TestMapsOfJsonLines:
    """A map is an object, whose names are the keys as text."""

    SCHEMA = pa.schema(
        [
            ("id", pa.int64()),
            ("text", pa.map_(pa.string(), pa.int64())),
            ("days", pa.map_(pa.date32(), pa.string())),
            ("raws", pa.map_(pa.binary(), pa.timestamp("us", "UTC"))),
            ("numbers", pa.map_(pa.int32(), pa.float64())),
            ("ü", pa.map_(pa.string(), pa.decimal128(9, 2))),
        ]
    )
    ROWS: ClassVar = [
        {
            "id": n,
            "text": {'a"\\b{,:}': n, "": 2, "ü😀": -(2**53) - 1} if n % 3 else None,
            "days": {date(2026, 1, 1 + n % 28): 'quo"te, ]}'} if n % 2 else {},
            "raws": {b"\x00\xff": datetime(2026, 1, 1, tzinfo=UTC)},
            "numbers": {-1: 0.1, n: float("inf") if n == 5 else 1.0},
            "ü": {"x": Decimal(n) / 4, "y": Decimal(-1)},
        }
        for n in range(100)
    ]

    @pytest.fixture
    def table(self, instance):
        return instance.create_table("maps", self.SCHEMA, row_keys=["id"])

    @pytest.mark.parametrize("piece", [1, 100, 1 << 20])
    def test_are_read_as_they_are_written(self, table, tmp_path, monkeypatch, piece):
        """Given what a query writes as JSON lines, then another table has the same rows."""
        monkeypatch.setattr(text_values, "_PIECE_BYTES", piece)
        table.ingest([row for row in self.ROWS if row["id"] != 5])
        copy = sleeper.connect(table._context.url).create_table("b", self.SCHEMA, row_keys=["id"])
        shown = command("query", "maps", "--json", "--instance", table._context.url)
        (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(shown.stdout.encode()))

        assert copy.ingest(tmp_path / "x.jsonl.gz").rows_written == 99
        assert copy.query().to_arrow().equals(table.query().to_arrow())

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ('{"id": 1, "text": {"a": "x"}}', r"line 3: the map 'text' must be an object whose"),
            ('{"id": 1, "text": 5}', r"line 3: the map 'text' must be an object, not a number"),
            ('{"id": 1, "text": {"a": null}}', r"row 3, column 'text': a map has a null"),
            ('{"id": 1, "numbers": {"1.5": 1}}', r"row 3, column 'numbers'.*1\.5"),
            ('{"id": 1, "days": {"1": "x"}}', r"row 3, column 'days'.*ISO 8601"),
            ('{"id": 1, "text": {"a"}}', "line 3"),
            ('{"id": 1, "text": {"a": 1,}}', "line 3"),
            ('{"id": 1, "text": {"a": 1', "line 3"),
            ('{"id": 1, "text": {"a: 1}}', "line 3"),
            ('{"id": 1, "text": {"a": 1]}', "line 3"),
            ('{"id": 1, "other": {"a": 1}}', "'other'"),
        ],
    )
    def test_that_do_not_fit_are_refused_by_line(self, table, tmp_path, line, says):
        """Given lines before and after that are right, then the error names the wrong one."""
        right = '{"id": 7, "text": {"a": 1, "b": 2}, "numbers": {"1": 2.5}}'
        (tmp_path / "x.jsonl").write_text(f"{right}\n{right}\n{line}\n{right}\n")

        with pytest.raises(InputRefused, match=says):
            table.ingest(tmp_path / "x.jsonl")

        assert table.query().count() == 0


def test_files_of_a_folder_that_are_not_read_are_named_once(tmp_path, caplog):
    """
    Given a folder with Parquet, CSV and notes, when it is ingested, then a warning names what was
    not read. Given a check of whether it is there, or a folder whose files are all read, then none.
    """
    (tmp_path / "in" / "below").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in" / "a.parquet")
    for name in ("b.csv", "below/notes.txt", ".hidden"):
        (tmp_path / "in" / name).write_text("id\n2\n")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "c.csv").write_text("id\n3\n")
    instance = sleeper.connect(tmp_path / "instance", create=True)
    table = instance.create_table("t", pa.schema([("id", pa.int64())]), row_keys=["id"])

    instance.jobs.submit_ingest("t", [str(tmp_path / "in")])
    table.ingest(tmp_path / "all")
    assert "not read" not in caplog.text

    table.ingest(tmp_path / "in")

    named = [each.getMessage() for each in caplog.records if "not read" in each.getMessage()]
    assert len(named) == 1
    assert named[0].endswith("that are not read: b.csv, below/notes.txt")
    assert table.query().to_pylist() == [{"id": 1}, {"id": 3}]
