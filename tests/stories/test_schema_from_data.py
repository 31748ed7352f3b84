"""Tables whose columns are those of data: no schema is written by hand (rule TBL-1)."""

from __future__ import annotations

import io
import json
from datetime import date

import duckdb
import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import (
    BadRequest,
    InputNotFound,
    InputSchemaMismatch,
    InputUnreadable,
    SchemaInvalid,
)
from sleeper.interfaces.rest.app import make_app
from sleeper.model.schema import Field, Primitive, Schema
from tests.patience import PATIENCE_S
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

ROWS = [
    {"day": date(2026, 5, 1), "id": 7, "name": "a", "score": 0.5},
    {"day": None, "id": 3, "name": None, "score": None},
]
TABLE = pa.Table.from_pylist(ROWS)
SCHEMA = Schema(
    row_keys=(Field("id", Primitive.LONG),),
    values=(
        Field("day", Primitive.DATE, nullable=True),
        Field("name", Primitive.STRING, nullable=True),
        Field("score", Primitive.DOUBLE, nullable=True),
    ),
    columns=("day", "id", "name", "score"),
)
CSV = "day,id,name,score\n2026-05-01,7,a,0.5\n,3,,\n"
JSON = "".join(json.dumps(row, default=str) + "\n" for row in ROWS)


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        yield opened


@pytest.fixture
def files(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "a.txt").write_text(CSV.replace(",", ";"))
    return tmp_path


DATA = {
    "table": lambda folder: TABLE,
    "batch": lambda folder: TABLE.to_batches()[0],
    "reader": lambda folder: TABLE.to_reader(),
    "dataset": lambda folder: ds.dataset(TABLE),
    "polars": lambda folder: pl.DataFrame(TABLE),
    "lazy": lambda folder: pl.DataFrame(TABLE).lazy(),
    "pandas": lambda folder: TABLE.to_pandas().sort_values("id"),
    "pandas with its key as index": lambda folder: TABLE.to_pandas(),
    "arrow-backed pandas": lambda folder: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "duckdb": lambda folder: duckdb.from_arrow(TABLE),
    "dicts": lambda folder: ROWS,
    "columns": lambda folder: TABLE.to_pydict(),
    "parquet": lambda folder: folder / "a.parquet",
    "csv": lambda folder: [folder / "a.csv"],
    "pattern": lambda folder: str(folder / "*.parquet"),
}


@pytest.mark.parametrize("kind", DATA)
def test_a_table_gets_the_columns_of_data(instance, files, kind):
    """In their order, any value may be null, and the same data fits; no row is added before."""
    given = DATA[kind](files)

    table = instance.create_table("t", given, row_keys=["id"])

    assert table.schema == SCHEMA
    assert len(table) == 0
    table.ingest(given if kind != "reader" else TABLE)
    assert table.to_arrow().to_pylist() == sorted(ROWS, key=lambda row: row["id"])


def test_the_index_of_a_frame_is_a_column(instance):
    """If it has a name."""
    table = instance.create_table("t", TABLE.to_pandas().set_index("id"), row_keys=["id"])

    assert table.columns == ["id", "day", "name", "score"]


def test_a_key_of_data_may_be_null_there(instance):
    """A key never is in a table; the ingest refuses such rows."""
    table = instance.create_table("t", TABLE, row_keys=["id"], sort_keys=["name"])

    assert [field.nullable for field in table.schema.keys] == [False, False]


def test_csv_of_others_has_options(instance, files):
    """As for an ingest; names are needed where there is no header."""
    table = instance.create_table("t", files / "a.txt", row_keys=["id"], csv={"separator": ";"})

    assert table.schema == SCHEMA
    with pytest.raises(BadRequest, match="column_names"):
        instance.create_table("u", files / "a.csv", row_keys=["id"], csv={"header": False})


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("a.csv", b"id;city\n1;x\n", "separated by ';', not by ','.*--separator"),
        ("b.csv", b"id,stra\xdfe\n1,x\n", "header is no UTF-8.*--encoding"),
        ("c.json", b'[{"id": 1}]', "each line must be one object; here is: array.*one a line"),
        ("d.csv", "id,n\n1,a\n".encode("utf-16"), "begins as text in UTF-16.*--encoding utf-16"),
        ("e.csv", "id,town\n1,Genf\n2,Z\u00fcrich\n".encode("latin-1"), "'town' .*--encoding"),
        ("f.csv", b"7,x\n8,y\n", "first row has values.*--no-header --column-names"),
        ("g.csv", b",id\n0,7\n", r"column 1 of .* has no name.*to_csv\(index=False\)"),
        ("h.csv", b"id,n,n\n1,2,3\n", r"more than one column named \['n'\]"),
        ("i.csv", b"ID,n\n1,2\n", r"\['id'\] are not among .*did you mean 'ID'\?\)$"),
        ("j.json", b'{"id": 1, "": 2}', "column 2 of .* has no name$"),
        ("k.json", b'{"id": 1}\n{"id": "x"}\n', "row 2: field 'id' must be .* No table was made.$"),
        ("n.csv", b"id;n;\n1;2;\n", "separated by ';'"),
        ("o.csv", b"id,n,\n1,2,\n", "column 3 of .* has no name.*if each line ends in a separator"),
        ("p.csv", b"\x28\xb5\x2f\xfd$\0\n,\n", "compressed by zstd.*No table was made"),
        ("q.json", b"PAR1\n", "it is a Parquet file: its name must end in .parquet. No table"),
        ("l.csv", b"", "Empty CSV file. No table was made.$"),
        ("r.csv", b"id;net\n1;2,5\n", "separated by ';', not by ','.*--separator ';'. No table"),
        ("s.csv", b"id|net\n1|2,5\n", r"separated by '\|', .*--separator '\|'"),
        ("t.csv", b"# export of May\nid,n\n1,2\n", "begins with '#': delete the lines before"),
        ("u.csv", b"id,n\n1,2,5\n", r"got 3 \(a value with ',' in it must be in quotes\): 1,2,5"),
        ("v.csv", b"id,n\n1,Stra\xdfe\n", r"such as cp1252 \(Windows, Excel\) or latin-1"),
        (
            "w.txt",
            b"id\tn\n1\t2\n",
            r"it is text: .*here --separator '\\t' .*. No table was made.$",
        ),
        ("x", "id;n\n1;é\n".encode(), "it is text: .*here --separator ';'"),
        ("y.geojson", b'{"id": 1}', "it is JSON: .* end in .jsonl, .ndjson or .json. No table was"),
        ("z.parquet", b"id,n\n1,2\n", "cannot be read as Parquet: it is text"),
        ("a.parquet", b"\0\1\2\3id" * 9, "magic bytes not found"),
        ("b.json", b'{"id": 1, "n": 2}\n{"id": 2, "n": "x"}', "without quotes, or give the field"),
        ("c.jsonl", b'{"id": 1, "n": "x"}\n{"id": 2, "n": 7}', "not a number: write it in quotes"),
        (
            "e.json",
            b'{"page": 1, "items": [{"id": 1}]}',
            r"\['id'\] are not among .*'e.json'|objects in 'items': .* as jq -c '.items\[\]' does",
        ),
        ("d.jsonl", b"{'id': 1}", "Names and texts of JSON are in double quotes"),
        ("m.parquet", b"PAR1", "cannot be read as Parquet: .* No table was made"),
    ],
)
def test_a_file_that_is_written_otherwise_is_refused_with_what_would_fit(
    instance, tmp_path, name, body, words
):
    """As an ingest says it, and not that a key is missing."""
    (tmp_path / name).write_bytes(body)

    refusals = (InputSchemaMismatch, InputUnreadable, SchemaInvalid)
    with pytest.raises(refusals, match=words):
        instance.create_table("t", tmp_path / name, row_keys=["id"])

    assert not instance.tables()


def test_types_of_csv_are_those_of_its_beginning(instance, tmp_path):
    """A column without values is text; a value after the first 8 MiB that does not fit is named."""
    lines = "".join(f"{n},,2026-01-01T00:00:00,{n}\n" for n in range(400_000))
    (tmp_path / "long.csv").write_text(f"id,none,at,n\n{lines}400001,x,2026-01-02T00:00:00,1.5\n")

    table = instance.create_table("t", tmp_path / "long.csv", row_keys=["id"])

    kinds = {field.name: field.type for field in table.schema.fields}
    assert kinds["none"] is Primitive.STRING
    assert kinds["at"] is Primitive.TIMESTAMP_NTZ
    with pytest.raises(InputSchemaMismatch, match=r"row 400,002 .*column 'n'.*'1.5'"):
        table.ingest(tmp_path / "long.csv")


@pytest.mark.parametrize(
    ("given", "options", "error", "words"),
    [
        (TABLE, {}, BadRequest, r"give row_keys=\[...\]; its columns are \['day', 'id'"),
        (TABLE, {"row_keys": ["nr"]}, SchemaInvalid, r"key fields \['nr'\] are not among"),
        (TABLE, {"row_keys": ["score"]}, SchemaInvalid, "'score' .* DoubleType.*astype.'int64'"),
        (TABLE, {"row_keys": ["Day"]}, SchemaInvalid, r"did you mean 'day'\?"),
        (
            pl.DataFrame({"id": [1], "x": [object()]}),
            {"row_keys": ["id"]},
            InputSchemaMismatch,
            r"'x' of the frame of polars has Python objects",
        ),
        (
            pa.table({"id": [1], "x": pa.nulls(1)}),
            {"row_keys": ["id"]},
            SchemaInvalid,
            "only nulls",
        ),
        ([{"id": 1}, {"id": "a"}], {"row_keys": ["id"]}, SchemaInvalid, "'id' have no common type"),
        ({"id": [1], "n": "long"}, {"row_keys": ["id"]}, SchemaInvalid, "'n' .* give a pyarrow.S"),
        (
            pd.DataFrame({"id": [1, "a"]}),
            {"row_keys": ["id"]},
            InputSchemaMismatch,
            "'id' .* one type",
        ),
        ("none.csv", {"row_keys": ["id"]}, InputNotFound, "none.csv"),
        ("none.csv", {}, SchemaInvalid, "not JSON"),
        (TABLE, {"row_keys": ["id"], "csv": {"separator": ";"}}, BadRequest, "csv is for files"),
        (SCHEMA, {"row_keys": ["id"]}, BadRequest, "this schema has its own keys"),
        (iter(ROWS), {"row_keys": ["id"]}, SchemaInvalid, "must be a Schema"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_a_schema_is_refused(instance, given, options, error, words):
    """And no table is made."""
    with pytest.raises(error, match=words):
        instance.create_table("t", given, **options)

    assert not instance.tables()


class TestCommandLine:
    """`sleeper table add NAME --like FILE`."""

    def test_makes_the_table_and_shows_its_schema(self, instance, files):
        """`create` is another name of `add`."""
        where = ("--instance", instance.url)

        result = command(
            "table", "create", "t", "--like", files / "a.csv", "--row-key", "id", *where
        )

        assert result.exit_code == 0, result.output
        assert [line.split() for line in result.output.splitlines()][4:] == [
            ["day", "DateType", "or", "null", "value"],
            ["id", "LongType", "row", "key"],
            ["name", "StringType", "or", "null", "value"],
            ["score", "DoubleType", "or", "null", "value"],
        ]
        assert instance.table("t").schema == SCHEMA

    def test_takes_options_of_csv_and_prints_json(self, instance, files):
        """The document has the schema as `--schema` takes it."""
        result = command(
            *("table", "add", "t", "--like", files / "a.txt", "--separator", ";"),
            *("--row-key", "id", "--json", "--instance", instance.url),
        )

        assert Schema.from_json(json.loads(result.output)["schema"]) == SCHEMA

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "give --schema FILE, or --like FILE"),
            (("--like", "a.csv"), "--like needs --row-key"),
            (("--like", "none.csv", "--row-key", "id"), "no file or folder"),
        ],
    )
    def test_says_what_is_missing(self, instance, arguments, words):
        """A wrong use makes no table."""
        result = command("table", "add", "t", *arguments, "--instance", instance.url)

        assert result.exit_code in (1, 2)
        assert words in result.output
        assert not instance.tables()


class TestServer:
    """By REST, with rows as the body."""

    @pytest.fixture
    def url(self, instance):
        with running_server(make_app(instance)) as url:
            yield url

    @pytest.mark.parametrize("form", ["text/csv", "parquet", "arrow", "json"])
    def test_makes_a_table_like_its_body(self, instance, url, form):
        """The answer has the schema; the rows are not added."""
        body, name = io.BytesIO(), form
        if form == "parquet":
            pq.write_table(TABLE, body)
            name = "application/vnd.apache.parquet"
        elif form == "arrow":
            with pa.ipc.new_stream(body, TABLE.schema) as writer:
                writer.write_table(TABLE)
            name = "application/vnd.apache.arrow.stream"
        elif form == "json":
            body.write(b'{"day": "x", "id": 7, "name": "a", "score": 0.5}\n')
            name = "application/x-ndjson"
        else:
            body.write(CSV.encode())

        answer = httpx.post(
            f"{url}/sleeper/tables/t?row_key=id",
            content=body.getvalue(),
            headers={"Content-Type": name},
            timeout=PATIENCE_S,
        )

        assert answer.status_code == 201, answer.text
        made = Schema.from_json(answer.json()["schema"])
        assert made == instance.table("t").schema
        assert made == SCHEMA or form == "json"
        assert len(instance.table("t")) == 0

    @pytest.mark.parametrize(
        ("query", "body", "words"),
        [
            ("row_key=nr", b"id\n1\n", "['nr']"),
            ("", b"id\n1\n", "row_key"),
            ("row_key=id", b"", "upload.csv"),
            ("row_key=id&csv_separator=ab", b"id\n1\n", "separator of CSV"),
        ],
    )
    def test_refuses_what_cannot_be_a_table(self, instance, url, query, body, words):
        """With what is wrong."""
        headers = {"Content-Type": "text/csv"}

        answer = httpx.post(
            f"{url}/sleeper/tables/t?{query}", content=body, headers=headers, timeout=PATIENCE_S
        )

        assert 400 <= answer.status_code < 500
        assert words in answer.text
        assert not instance.tables()

    def test_is_asked_by_a_client(self, instance, url, files):
        """`create_table` of a client takes the same data, which is read there."""
        with sleeper.connect(url, token="unused") as remote:
            table = remote.create_table("t", files / "a.csv", row_keys=["id"])

            assert table.schema == SCHEMA


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00"], Primitive.TIMESTAMP),
        (["2026-01-01T00:00:00", "2026-01-01 02:00"], Primitive.TIMESTAMP_NTZ),
        (["2026-01-01", "2026-01-31"], Primitive.DATE),
        (["2026-01-01T00:00:00Z", "2026-01-31"], Primitive.STRING),
        (["2026-01-01", "2026-01-01T00:00:00"], Primitive.TIMESTAMP_NTZ),
        (["2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00Z"], Primitive.TIMESTAMP),
        (["2026-01-01 00:00:00.123456", "2026-01-01T00:00:00"], Primitive.TIMESTAMP_NTZ),
        (["2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00.5"], Primitive.STRING),
        (["2026-01-01T00:00:00.123456789Z"], Primitive.STRING),
        (["2026-02-30T00:00:00.5Z"], Primitive.STRING),
        (["2026-01-01T00:00:00.5Z", "none"], Primitive.STRING),
    ],
)
def test_times_of_json_lines_have_a_zone_as_they_are_written(instance, tmp_path, texts, kind):
    """Given times in a field, a struct and a list, then the file fits the table that is like it."""
    path = tmp_path / "a.jsonl"
    rows = [{"id": n, "at": t, "s": {"at": t}, "l": [t, None]} for n, t in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"id": 9}]))

    table = instance.create_table("t", path, row_keys=["id"])

    kinds = {field.name: field.type for field in table.schema.fields}
    at, struct, listed = (kinds[name] for name in ("at", "s", "l"))
    assert [at, struct.parts[0][1], listed.element] == [kind] * 3
    assert table.ingest(path).rows_written == len(texts) + 1


def test_numbers_with_a_decimal_comma_are_told(instance, tmp_path, caplog):
    """Given texts that all are such numbers, then a warning says which option reads them."""
    path = tmp_path / "a.csv"
    path.write_text("id;price;note\n1;3,20;a\n2;;b\n3;-1,5;2,5\n")
    for name, point in (("point", "."), ("comma", ",")):
        csv = {"separator": ";", "decimal_point": point}
        made = instance.create_table(name, path, row_keys=["id"], csv=csv)

    kinds = {field.name: field.type for field in made.schema.fields}
    assert (kinds["price"], kinds["note"]) == (Primitive.DOUBLE, Primitive.STRING)
    (told,) = [each.getMessage() for each in caplog.records if "is text" in each.getMessage()]
    assert "column 'price'" in told
    assert "such as '3,20'" in told
    assert "--decimal-point ," in told


@pytest.mark.parametrize(
    ("texts", "point", "told"),
    [
        (["7", "1,234.50", ""], ".", "such as '1,234.50': write the numbers without"),
        (["12,5", "-1.234.567,50"], ",", "such as '-1.234.567,50'"),
        (["1 234", "1 234 567"], ".", "such as '1 234'"),
        (["1,234", "2,000"], ".", "give the frame. If it is a decimal comma, give decimal_point"),
        (["1,234", "3,20"], ".", "its values have commas, such as '1,234'"),
        (["1,234.50", "soon", "7"], ".", None),
        (["10.0.0.1", "1,23,456.0"], ".", None),
    ],
)
def test_numbers_with_separated_thousands_are_told(instance, tmp_path, caplog, texts, point, told):
    """Given a column of numbers, some with a sign between thousands, then a warning says it once."""
    path = tmp_path / "a.csv"
    path.write_text("id;n\n" + "".join(f"{at};{text}\n" for at, text in enumerate(texts)))

    csv = {"separator": ";", "decimal_point": point}
    instance.create_table("t", path, row_keys=["id"], csv=csv)

    assert [told in each.getMessage() for each in caplog.records] == [True] * (told is not None)


def test_columns_without_a_value_are_told(instance, tmp_path, caplog):
    """Given a header alone, or a column of nulls, then a warning says that they are text."""
    (tmp_path / "a.csv").write_text("id,n\n")
    (tmp_path / "b.csv").write_text("id,n,m\n1,2,\n2,3,\n")

    for name in ("a", "b"):
        instance.create_table(name, tmp_path / f"{name}.csv", row_keys=["id"])

    told = [each.getMessage() for each in caplog.records]
    assert ["columns ['id', 'n'] of" in told[0], "columns ['m'] of" in told[1]] == [True, True]
    assert "write the schema yourself" in told[1]


def test_zeros_that_numbers_begin_with_are_told(tmp_path, caplog):
    """Given codes such as 007, then a warning says that they lose zeros, and what keeps them."""
    path = tmp_path / "a.csv"
    path.write_text('id,zip,n,ratio\n1,01067,0,0.5\n2,80331,,-0.25\n3,"00010",100,00.5\n')
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        made = instance.create_table("numbers", str(path), row_keys=["id"])
        told = [record.getMessage() for record in caplog.records]
        caplog.clear()
        own = pa.schema([("id", pa.int64()), ("zip", pa.string()), ("n", pa.int64())])
        kept = instance.create_table("kept", own, row_keys=["id"])
        kept.ingest(path, ignore_extra_columns=True)

    assert {field.name: field.type.value for field in made.schema.fields}["zip"] == "LongType"
    assert len(told) == 2
    assert told[0].startswith(
        f"column 'zip' of {str(path)!r} is of numbers, so 2 of its first 3 values lose the zeros "
        "that they begin with, such as '01067': if they are codes, give the column the type "
        "StringType, in a schema of your own (--schema, in Python pa.schema)"
    )
    assert "column 'ratio'" in told[1]
    assert "such as '00.5'" in told[1]
    assert kept.query(columns=["zip"]).to_arrow()["zip"].to_pylist() == ["01067", "80331", "00010"]
    assert caplog.records == []


@pytest.mark.parametrize(
    ("texts", "is_told"),
    [
        (["31.12.2025", "1.2.2026", ""], True),
        (["12/31/2025 23:59", "1/2/2026 0:00:01"], True),
        (["31-12-2025"], True),
        (["2025/12/31", "2026/1/1 9:30"], True),
        (["2025.12.31"], True),
        (["31.12.2025", "soon"], False),
        (["1.2.3", "10.0.0.1"], False),
        (["2025-12-31"], False),
    ],
)
def test_dates_that_are_written_otherwise_are_told(instance, tmp_path, caplog, texts, is_told):
    """Given a column of such dates alone, then a warning says why it is text, and what to do."""
    path = tmp_path / "a.csv"
    path.write_text("id,day\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)))

    instance.create_table("t", path, row_keys=["id"])

    told = [record.getMessage() for record in caplog.records]
    assert [each.startswith("column 'day' of") for each in told] == [True] * is_told
    assert all(f"dates such as {texts[0]!r} are not written as 2025-12-31" in each for each in told)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["9223372036854775808", "5"], "1 of its first 2 values lose digits, such as '922337203"),
        (["0.1234567890123456789", "12345678901234567.25"], "2 of its first 2 values lose digits"),
        (["0.12345678901234567", "1e300", "-2.5"], None),
        (["100000000000000000000", "0.5"], None),
        (["9007199254740993", "9223372036854775807"], None),
    ],
)
def test_digits_that_floats_lose_are_told(instance, tmp_path, caplog, texts, told):
    """Given numbers of more digits than a float holds, then a warning names column and value."""
    path = tmp_path / "a.csv"
    path.write_text("id,n\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)))

    instance.create_table("t", path, row_keys=["id"])

    said = [record.getMessage() for record in caplog.records]
    assert [each.startswith("column 'n' of") for each in said] == [True] * (told is not None)
    assert all(told in each and "StringType or DecimalType" in each for each in said)


def test_names_with_spaces_at_their_ends_are_told(instance, tmp_path, caplog):
    """They stay as they are written: nobody but the user knows whether they are meant."""
    path = tmp_path / "a.csv"
    path.write_text("id, net,in all\n1,2,3\n")

    table = instance.create_table("t", path, row_keys=["id"])

    assert table.columns == ["id", " net", "in all"]
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("the name of column ' net' of")
    assert "--column-names" in told


def test_the_command_line_tells_of_zeros_and_dates(tmp_path, monkeypatch):
    """Given `table add --like`, then each is a line beside the schema that was found."""
    path = tmp_path / "a.csv"
    path.write_text("id,day\n007,31.12.2025\n")
    sleeper.connect(tmp_path / "instance", create=True).close()
    monkeypatch.setenv("SLEEPER_INSTANCE", str(tmp_path / "instance"))

    done = command("table", "add", "t", "--like", path, "--row-key", "id")

    assert done.exit_code == 0
    assert "column 'id' of" in done.stderr
    assert "column 'day' of" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_column_that_few_values_make_text_is_told(tmp_path, caplog):
    """Given n/a among numbers, then the warning names value, line and row, and --null-text ends it."""
    path = tmp_path / "a.csv"
    path.write_text('id,n,note\n1,2,"x\ny"\n2,n/a,z\n3,4,\n')
    with sleeper.connect(tmp_path / "instance", create=True) as instance:
        made = instance.create_table("t", str(path), row_keys=["id"])
        other = instance.create_table("o", str(path), row_keys=["id"], csv={"null_texts": ["n/a"]})

    assert [field.type.value for field in made.schema.fields] == [
        *("LongType", "StringType", "StringType")
    ]
    assert [field.type.value for field in other.schema.fields] == [
        *("LongType", "LongType", "StringType")
    ]
    (told,) = [record.getMessage() for record in caplog.records if "is text" in record.getMessage()]
    assert "column 'n' of" in told
    assert (
        "1 of its first 3 values, which are no whole numbers: the first is 'n/a', line 4, row 3"
        in told
    )
