"""CSV as others write it, and files named by patterns and folders (rules ING-11 and ING-17)."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import (
    BadRequest,
    InputNotFound,
    InputSchemaMismatch,
    InputUnreadable,
)
from sleeper.interfaces.rest.app import make_app
from sleeper.model.csv_options import CsvOptions
from sleeper.model.jobs.statuses import JobState
from sleeper.model.jobs.submitted_files import FileState
from sleeper.workers.kinds.batcher import run_batcher
from tests.patience import PATIENCE_S
from tests.stories.test_ingest_jobs import work
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema(
    [
        ("city", pa.string()),
        ("id", pa.int64()),
        ("price", pa.decimal128(8, 2)),
        ("rate", pa.float64()),
        ("day", pa.date32()),
    ]
)
ROWS = [
    {"city": "Münster", "id": 1, "price": Decimal("1.50"), "rate": 0.25, "day": date(2026, 2, 1)},
    {"city": "a;b", "id": 2, "price": None, "rate": None, "day": None},
    {"city": "NA", "id": 3, "price": Decimal("-7.00"), "rate": 1e3, "day": date(2026, 2, 3)},
]
GERMAN = """city;id;price;rate;day
Münster;1;1,5;0,25;2026-02-01
'a;b';2;NA;NA;NA
'NA';3;-7;1e3;2026-02-03
"""
OPTIONS = {
    "separator": ";",
    "quote": "'",
    "encoding": "latin-1",
    "null_texts": ["NA"],
    "decimal_point": ",",
}
BATCHED = {
    "sleeper.table.ingest.batcher.ingest.queue": "standard_ingest",
    "sleeper.table.ingest.batcher.job.min.size": "0",
}
ARGUMENTS = [
    *("--separator", ";", "--quote", "'", "--encoding", "latin-1", "--null-text", "NA"),
    *("--decimal-point", ","),
]


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


@pytest.fixture
def table(instance):
    return instance.create_table("t", SCHEMA, row_keys=["id"])


@pytest.fixture
def german(tmp_path):
    """A file with every option, whose name does not say that it is CSV."""
    path = tmp_path / "german.txt"
    path.write_bytes(GERMAN.encode("latin-1"))
    return path


class TestOptions:
    """What `csv=` says of a file."""

    @pytest.mark.parametrize("make", [dict, sleeper.CsvOptions])
    def test_read_the_file_as_it_is_written(self, table, german, make):
        """Separator, quote, encoding, null and decimal comma; in quotes nothing is null."""
        table.ingest(german, csv=make(**OPTIONS))

        assert table.query().to_pylist() == ROWS

    def test_are_those_of_the_command_line(self, instance, table, german):
        """The same by options of `sleeper ingest`."""
        result = command("ingest", "t", german, *ARGUMENTS, "--instance", instance.url)

        assert result.exit_code == 0, result.output

        assert table.query().to_pylist() == ROWS

    @pytest.mark.parametrize(
        ("text", "options"),
        [
            ("x,1,1.5,2.5,\n", {"header": False}),
            (
                "1\t1.5\tx\n",
                {"header": False, "separator": "\t", "column_names": ["id", "price", "city"]},
            ),
            ("a,b,c\n1,x,1.5\n", {"column_names": ["id", "city", "price"]}),
        ],
        ids=["order of the table", "named", "named anew"],
    )
    def test_name_the_columns(self, table, tmp_path, text, options):
        """Without a header they are the table's; names come before those of a header."""
        (tmp_path / "rows.csv").write_text(text)

        table.ingest(tmp_path / "rows.csv", csv=options)

        row = table.query(key=1).to_pylist()[0]
        assert (row["city"], row["price"]) == ("x", Decimal("1.50"))

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252", "utf-8-sig"])
    def test_decode_long_files(self, table, tmp_path, encoding):
        """Also where a character lies in two blocks, and where the file is compressed."""
        lines = "".join(f"{n},Zürich «{n}»\n" for n in range(200_000))
        with gzip.open(tmp_path / "long.csv.gz", "wb", compresslevel=1) as file:
            file.write(f"id,city\n{lines}".encode(encoding))

        table.ingest(tmp_path / "long.csv.gz", csv={"encoding": encoding})

        assert table.count() == 200_000
        assert table.query(key=187_654).to_pylist()[0]["city"] == "Zürich «187654»"

    @pytest.mark.parametrize(
        ("body", "options", "words"),
        [
            (b"id,city\n1,M\xfcnster\n", {}, r"row 2 .*encoding"),
            (b"id,Gr\xf6\xdfe\n1,2\n", {}, "header is no UTF-8.*--encoding"),
            (
                b"id|price\n1|2,5,0\n",
                {"separator": ","},
                r"its columns are separated by '\|', not by ','.*--separator '\|'",
            ),
            (
                b"price\n1\t2\n",
                {"separator": "\t"},
                r"Expected 1 columns, got 2 \(if its columns are not separated by '.t'",
            ),
            (b"id,city\n1,\xff\xff\n", {"encoding": "ascii"}, "byte 10 .*'ascii'"),
            (b"id,city\n1,+2AA-\n", {"encoding": "utf-7"}, "byte 16 is no text .*surrogates"),
            (b"id,city\n1,xn--\xff\n", {"encoding": "idna"}, "no text .*encoding"),
            (b"id;city\n1;x\n", {}, "separated by ';', not by ','.*--separator"),
            (b"id,city\n1,x\n", {"separator": ";"}, "separated by ',', not by ';'"),
            (
                b"id;price\n1;1.5\n",
                {"separator": ";", "decimal_point": ","},
                "row 2, column 'price': '1.5' is not .*: it has a point, and csv says that a comma",
            ),
            (
                b"id;price\n1;1.234\n",
                {"separator": ";", "decimal_point": ","},
                "it has a point, .*; if it separates thousands, write",
            ),
            (b"id,price\n1,3.999\n", {}, "'3.999' is not a value of decimal.*data loss"),
            (b"id;price\n1;3,999\n", {"separator": ";", "decimal_point": ","}, "data loss"),
            (
                b"id;price\n1;1.234,50\n",
                {"separator": ";", "decimal_point": ","},
                "'1.234,50' is not a value of .*: it has '.' between thousands",
            ),
            (b"id,city\n1,'x\n", {"quote": "'"}, "odd number of quotes"),
            (b"1,x\n2,y\n", {"header": False, "column_names": ["id", "city", "day"]}, "Expected 3"),
            (
                b"1,x\nz,y\n",
                {"header": False, "column_names": ["id", "city"]},
                "row 2, column 'id'",
            ),
        ],
        ids=lambda value: "" if isinstance(value, bytes) else None,
    )
    def test_that_do_not_fit_are_refused(self, table, tmp_path, body, options, words):
        """With the file, the row and the column, or with the option that would fit."""
        (tmp_path / "rows.csv").write_bytes(body)

        with pytest.raises((InputUnreadable, InputSchemaMismatch), match=f"rows.csv.*{words}"):
            table.ingest(tmp_path / "rows.csv", csv=options or None)

        assert table.count() == 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"separator": ";;"}, "separator of CSV must be one ASCII"),
            ({"seperator": ";"}, r"unknown options of CSV: \['seperator'\]"),
            ({"separator": '"'}, "must differ"),
            ({"encoding": "latin-0"}, "encoding of CSV must be"),
            ({"encoding": "base64"}, "encoding of CSV must be"),
            ({"header": "no"}, "header of CSV must be True or False"),
            ({"null_texts": "NA"}, "null_texts of CSV must be a list"),
            ({"column_names": []}, "column_names of CSV must have"),
            ({"decimal_point": ";"}, "decimal_point of CSV must be"),
            ([1], "csv must be CsvOptions"),
        ],
    )
    def test_are_checked(self, table, german, options, words):
        """Before a file is opened."""
        with pytest.raises(BadRequest, match=words):
            table.ingest(german, csv=options)

    def test_are_for_files_of_csv(self, table, tmp_path):
        """Not for rows in memory, and not for files of another kind."""
        pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), tmp_path / "a.parquet")

        for data in (ROWS, tmp_path / "a.parquet"):
            with pytest.raises(BadRequest, match="csv is for files of CSV"):
                table.ingest(data, csv={"separator": ";"})


class TestJobs:
    """Options and patterns of jobs, which a worker runs."""

    @pytest.mark.parametrize("kind", ["ingest", "bulk-import"])
    def test_have_options(self, instance, table, german, kind):
        """They go with the message; a pattern is expanded when the job is run."""
        jobs = instance.jobs
        submit = jobs.submit_ingest if kind == "ingest" else jobs.submit_bulk_import
        submit("t", german.parent / "ger*.txt", csv=OPTIONS)

        assert work(instance, kind) == 1

        assert table.query().to_pylist() == ROWS

    def test_have_options_by_the_command_line(self, instance, table, german):
        """`sleeper jobs submit` takes those of `sleeper ingest`."""
        command("jobs", "submit", "t", german, "--id", "g", *ARGUMENTS, "--instance", instance.url)

        work(instance)

        assert instance.jobs.job("g").state is JobState.FINISHED
        assert table.query().to_pylist() == ROWS

    @pytest.mark.parametrize("way", ["python", "command line", "server", "message"])
    def test_of_the_batcher_have_options(self, instance, table, german, way):
        """Given files that are written in two ways, then each way has a job of its own (BAT-4)."""
        plain = german.parent / "plain.csv"
        plain.write_text("id,city\n9,plain\n")
        instance.table("t").set_properties(BATCHED)
        instance.jobs.submit_files("t", plain)
        if way == "python":
            instance.jobs.submit_files("t", german.parent / "ger*.txt", csv=OPTIONS)
        elif way == "command line":
            where = ("--instance", instance.url)
            done = command("batcher", "submit", "t", german, *ARGUMENTS, *where)
            assert done.exit_code == 0, done.output
        elif way == "server":
            app = make_app(instance, input_folder=german.parent)
            with running_server(app) as url, sleeper.connect(url, token="unused") as remote:
                remote.jobs.submit_files("t", str(german), csv=OPTIONS)
                work(instance, "batcher")
                files = {each.path: each.csv for each in remote.jobs.submitted_files()}
            assert files == {str(german): CsvOptions(**OPTIONS), str(plain): None}
        else:
            options = {"separator": ";", "quote": "'", "encoding": "latin-1"}
            options |= {"nullTexts": ["NA"], "decimalPoint": ","}
            message = {"tableName": "t", "files": [str(german)], "csv": options}
            instance.jobs.send("batcher", json.dumps(message))
        work(instance, "batcher")

        done = run_batcher(instance.jobs, datetime.now(UTC))

        assert (done.jobs, done.files) == (2, 2)
        assert work(instance) == 2
        states = {each.state for each in instance.jobs.submitted_files()}
        assert states == {FileState.FINISHED}
        assert table.query(range={"id": (0, 9)}).to_pylist() == ROWS
        assert table.count() == 4

    def test_of_the_batcher_that_were_rejected_keep_their_options(self, instance, table, german):
        """Sent again, they are read as they were submitted (BAT-7)."""
        instance.table("t").set_properties(BATCHED)
        instance.jobs.submit_files("t", german, csv=OPTIONS)
        work(instance, "batcher")
        run_batcher(instance.jobs, datetime.now(UTC))
        german.unlink()
        work(instance)
        assert {each.state for each in instance.jobs.submitted_files()} == {FileState.REJECTED}
        german.write_bytes(GERMAN.encode("latin-1"))

        instance.jobs.retry_files()
        run_batcher(instance.jobs, datetime.now(UTC))
        work(instance)

        assert table.query().to_pylist() == ROWS

    def test_for_the_batcher_are_refused_if_they_are_wrong(self, instance, table, german):
        """When they are submitted, and in a message of others, which becomes a dead letter."""
        with pytest.raises(BadRequest, match="separator of CSV"):
            instance.jobs.submit_files("t", german, csv={"separator": "--"})
        message = {"tableName": "t", "files": [str(german)], "csv": {"sep": ";"}}
        instance.jobs.send("batcher", json.dumps(message))

        work(instance, "batcher")

        (letter,) = instance.jobs.dead_letters("batcher")
        assert "unknown options of CSV: ['sep']" in letter.reason

    def test_are_rejected_with_what_is_wrong(self, instance, table, german):
        """A message of others may have any options."""
        message = {"id": "m", "tableName": "t", "files": [str(german)], "csv": {"sep": ";"}}
        instance.jobs.send_message("ingest", json.dumps(message))

        work(instance)

        failures = str(instance.jobs.job("m"))
        assert "unknown options of CSV: ['sep']" in failures
        with pytest.raises(BadRequest, match="separator of CSV"):
            instance.jobs.submit_ingest("t", german, csv={"separator": ""})


class TestUploads:
    """CSV that is sent to a server."""

    @pytest.fixture
    def url(self, instance, table):
        with running_server(make_app(instance)) as url:
            yield f"{url}/sleeper/tables/t"

    @pytest.mark.parametrize("charset", ["", "; charset=latin-1"])
    def test_have_options_as_parameters(self, url, table, german, charset):
        """The encoding may also be that of the type."""
        parameters = {"csv_separator": ";", "csv_quote": "'", "csv_null": "NA"}
        parameters["csv_decimal_point"] = ","
        if not charset:
            parameters["csv_encoding"] = "latin-1"
        headers = {"Content-Type": f"text/csv{charset}"}

        answer = httpx.post(
            f"{url}/rows",
            params=parameters,
            content=german.read_bytes(),
            headers=headers,
            timeout=PATIENCE_S,
        )

        assert answer.status_code == 200, answer.text
        assert table.query().to_pylist() == ROWS

    def test_with_wrong_options_are_refused(self, url, table):
        """Nothing is read."""
        headers = {"Content-Type": "text/csv"}

        answer = httpx.post(
            f"{url}/rows?csv_separator=ab", content=b"id\n1\n", headers=headers, timeout=PATIENCE_S
        )

        assert answer.status_code == 400
        assert "separator of CSV must be one ASCII character" in answer.json()["detail"]

    def test_of_a_client_are_read_there(self, instance, table, german, url):
        """`ingest` of a table of a server takes the same options, and so do its jobs."""
        with sleeper.connect(url.partition("/sleeper")[0], token="unused") as remote:
            remote.table("t").ingest(german, csv=OPTIONS)

        assert table.query().to_pylist() == ROWS


class TestPatterns:
    """Which files a path means."""

    @pytest.fixture
    def folder(self, tmp_path):
        for number, name in enumerate(
            ["b.csv", "a.csv", "2026/c.csv", "_d.csv", ".e.csv", "f.txt"]
        ):
            path = tmp_path / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"id,city\n{number},{name}\n")
        return tmp_path / "in"

    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("in/*.csv", ["a.csv", "b.csv"]),
            ("in/[b-z].csv", ["b.csv"]),
            ("in/**/*.csv", ["2026/c.csv", "a.csv", "b.csv"]),
            ("in/20??", ["2026/c.csv"]),
            ("in", ["2026/c.csv", "a.csv", "b.csv"]),
        ],
    )
    def test_mean_files(self, table, folder, pattern, names):
        """A pattern is expanded by the program, a folder means its text if it has no Parquet."""
        table.ingest(folder.parent / pattern)

        assert sorted(row["city"] for row in table.rows()) == names

    @pytest.mark.parametrize("hidden", ["_temporary/0", ".git", "2026/_spark"])
    def test_leave_out_folders_that_are_hidden(self, table, folder, hidden):
        """What another program has not finished is read by nobody who does not name its folder."""
        (folder / hidden).mkdir(parents=True)
        (folder / hidden / "d.csv").write_text("id,city\n7,unfinished\n")

        table.ingest(folder / "**" / "*.csv")
        with pytest.raises(InputNotFound, match="no file matches"):
            table.ingest(folder / "*" / hidden.rpartition("/")[2] / "*.csv")
        table.ingest(folder / hidden / "*.csv")

        cities = sorted(row["city"] for row in table.rows())
        assert cities == ["2026/c.csv", "a.csv", "b.csv", "unfinished"]

    def test_are_no_patterns_where_there_is_such_a_file(self, table, folder):
        """A name may have any sign."""
        (folder / "[b].csv").write_text("id,city\n9,brackets\n")

        table.ingest(folder / "[b].csv")

        assert [row["city"] for row in table.rows()] == ["brackets"]

    def test_that_match_nothing_are_refused(self, table, folder):
        """No file is not an empty input."""
        with pytest.raises(InputNotFound, match=r"no file matches '.*\*\.tsv'"):
            table.ingest(folder / "*.tsv")

    def test_of_a_folder_with_parquet_mean_that(self, table, folder):
        """Text beside Parquet is not read with it."""
        pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), folder / "z.parquet")

        table.ingest(folder)

        assert table.query().to_pylist() == ROWS
