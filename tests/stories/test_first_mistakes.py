"""The first mistakes of a new user: each message says what happened, and what to do next."""

from __future__ import annotations

import io
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import (
    BadRequest,
    InputSchemaMismatch,
    InstanceNotFound,
    QueryInvalid,
    SleeperError,
    StorageFailed,
)
from sleeper.interfaces.rest.app import make_app
from tests.unit.interfaces.command_line import sleeper as command
from tests.unit.interfaces.rest.running_server import running_server

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("clock", pa.time64("us")),
        ("price", pa.float64()),
        ("Unit price", pa.decimal128(6, 2)),
        ("status", pa.string()),
    ]
)


@pytest.fixture
def instance(tmp_path):
    with sleeper.connect(tmp_path / "instance", create=True) as opened:
        table = opened.create_table("orders", SCHEMA, row_keys=["id"])
        table.ingest([{"id": 7, "day": date(2026, 1, 31), "status": "F"}])
        yield opened


@pytest.fixture
def table(instance):
    return instance.table("orders")


MISTAKES = {
    "a part of a column's name": (
        lambda i, t: t.query(key=7, columns=["statu"]),
        "no column 'statu'; did you mean 'status'\\? It has",
    ),
    "a key as text": (lambda i, t: t.query(key="7"), "an integer of 64 bits; give 7"),
    "a key as float": (lambda i, t: t.query(key=7.0), "an integer of 64 bits; give 7"),
    "a key field as argument": (
        lambda i, t: t.query(id=7),
        "no argument 'id': a field of the row key is given by key={'id': 7}",
    ),
    "a value field as argument": (
        lambda i, t: t.query(status="F"),
        "no argument 'status': a condition on a field is where=\"status = ...\"",
    ),
    "another argument": (lambda i, t: t.query(top=5), "no argument 'top': rows are asked for by"),
    "a key on a value field": (
        lambda i, t: t.query(key={"status": "F"}),
        "filter the result instead, by where='status = ...'",
    ),
    "a range without its field": (
        lambda i, t: t.query(range=(1, 2)),
        r"give {'id': \(min, max\)}, where None is no limit",
    ),
    "a range the wrong way round": (
        lambda i, t: t.query(range={"id": (9, 1)}),
        "give the smaller one first",
    ),
    "one value for keys": (
        lambda i, t: t.query(keys=5),
        "Give a list of complete row keys, or for one key key=...",
    ),
    "no value among keys": (
        lambda i, t: t.query(keys=[1, None, 3]),
        "1 of 3 keys .* leave None out",
    ),
    "a time as text": (
        lambda i, t: t.query(as_of="2026-01-01"),
        r"for a time give as_of=datetime\(2026",
    ),
    "a version that is not there": (
        lambda i, t: t.query(as_of=99),
        "no transaction 99; the newest is 2",
    ),
    "a condition that is not whole": (
        lambda i, t: t.query(where="price >"),
        'found: EOF. Quote names with spaces or signs, as in "Unit price"',
    ),
    "a text in double quotes": (
        lambda i, t: t.query(where='status = "F"'),
        "a text is in single ones: write 'F' for the text",
    ),
    "a name with a space": (
        lambda i, t: i.sql("SELECT Unit price FROM orders"),
        "no column 'Unit'; .* Quote names with spaces or signs, as in \"Unit price\"",
    ),
    "a misspelt function": (
        lambda i, t: i.sql("SELECT lenght(status) FROM orders"),
        r"no function lenght\(\) here: did you mean length\(\)\?",
    ),
    "a column in another case": (
        lambda i, t: i.sql("SELECT STATUS FROM orders"),
        "no column 'STATUS'; did you mean 'status'\\? ",
    ),
    "a window function without a window": (
        lambda i, t: i.sql("SELECT rank() FROM orders"),
        r"rank\(\) needs a window",
    ),
    "a sum of texts": (
        lambda i, t: i.sql("SELECT sum(status) FROM orders"),
        r"sum\(\) takes values of other types, not String: convert them, as by CAST",
    ),
    "TOP": (lambda i, t: i.sql("SELECT TOP 5 id FROM orders"), "write LIMIT n at the end"),
    "two statements": (lambda i, t: i.sql("SELECT 1; SELECT 2"), "one statement at a time"),
    "a column of two tables": (
        lambda i, t: i.sql("SELECT status FROM orders a JOIN orders b ON a.id = b.id"),
        "field status. Several parts of FROM have it: .* as in a.column",
    ),
    "a name with a schema": (
        lambda i, t: i.sql("SELECT * FROM lab.orders"),
        "no table lab.orders: tables have no database or schema before their names",
    ),
    "a file in FROM": (
        lambda i, t: i.sql("SELECT * FROM read_csv('x.csv')"),
        "'read_csv' not found. A statement reads the tables of the instance, and no files",
    ),
    "a word of SQL as a column": (
        lambda i, t: i.sql("SELECT user.name FROM orders"),
        "quote a column whose name is a word of SQL",
    ),
    "a text and a number": (
        lambda i, t: i.sql("SELECT status + 1 FROM orders"),
        r"Utf8 \+ Int64 .*Convert one side, as by CAST\(column AS DOUBLE\)",
    ),
    "a column in another part of FROM": (
        lambda i, t: i.sql("SELECT * FROM orders, unnest([id])"),
        "'id' is not known at this place: a part of FROM cannot use columns of another part",
    ),
    "a Series of pandas": (
        lambda i, t: t.ingest(pd.Series([1])),
        r"give a frame, as by to_frame\(\)",
    ),
    "a Series of polars": (
        lambda i, t: t.ingest(pl.Series("price", [1.0])),
        r"a dict of columns, such as {'price': values}",
    ),
    "frames in a list": (
        lambda i, t: t.ingest([pl.DataFrame({"id": [1]}), pl.DataFrame({"id": [2]})]),
        r"join them, as by concat\(\)",
    ),
    "objects in polars": (
        lambda i, t: t.ingest(pl.DataFrame({"id": [1], "status": [object()]})),
        "'status' of the frame of polars has Python objects",
    ),
    "objects in a lazy frame": (
        lambda i, t: t.ingest(pl.LazyFrame({"id": [1], "status": [object()]})),
        "'status' of the frame of polars has Python objects",
    ),
    "a column of Arrow": (lambda i, t: t.ingest(pa.chunked_array([[1]])), "such as {'id': values}"),
    "a file that is not there": (lambda i, t: t.ingest("no.csv"), "relative paths begin at /"),
    "a table that is there": (
        lambda i, t: i.create_table("orders", SCHEMA, row_keys=["id"]),
        r"or open it by instance.table\('orders'\)",
    ),
    "a name for row keys": (
        lambda i, t: i.create_table("z", SCHEMA, row_keys="id"),
        r"not 'id': give row_keys=\['id'\]",
    ),
    "data without row keys": (
        lambda i, t: i.create_table("z", {"a": 1}),
        r"with the columns of data give row_keys=\[...\] too",
    ),
    "a file in memory": (
        lambda i, t: t.ingest(io.StringIO("id\n8\n")),
        "text in memory are not read as a file: give the path",
    ),
    "a page of the web": (
        lambda i, t: t.ingest("https://example.org/orders.csv"),
        "is a page of the web, .*: download it first",
    ),
    "a home folder": (
        lambda i, t: t.ingest("~/orders.csv"),
        r"no file or folder '~/orders.csv'; .* give Path\(...\).expanduser\(\)",
    ),
    "a number for keys": (lambda i, t: t.query(keys=5), "an int is not a sequence"),
    "None for rows": (lambda i, t: t.ingest(None), "rows cannot be read from None; give a path"),
    "split points that fall": (
        lambda i, t: i.create_table("z", SCHEMA, row_keys=["id"], split_points=[30, 20]),
        "30 should be less than 20: give them sorted",
    ),
    "a split point twice": (
        lambda i, t: i.create_table("z", SCHEMA, row_keys=["id"], split_points=[4, 4]),
        "4 - duplicate found: give each once",
    ),
    "split points of text": (
        lambda i, t: i.create_table("z", SCHEMA, row_keys=["id"], split_points=["40"]),
        "'40' should be of type LongType; give 40",
    ),
    "text in a dict of columns": (
        lambda i, t: t.ingest({"id": [8, "9"]}),
        "'id' of the dict of columns: number 1, '9': a str is not an integer of 64 bits; give 9",
    ),
    "a column by brackets": (lambda i, t: t["price"], r"no \['price'\]: .* query\(columns="),
    "a row by its number": (lambda i, t: t[3], r"no \[3\]: .* head\(\)"),
    "iteration over a table": (lambda i, t: [*t], r"use table.rows\(\)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_what_to_do(instance, table, mistake):
    """And nothing is changed."""
    do, words = MISTAKES[mistake]

    with pytest.raises(SleeperError, match=words):
        do(instance, table)

    assert len(instance.tables()) == 1
    assert table.count() == 1


def test_a_file_that_is_open_is_told_with_its_path(table, tmp_path):
    """Given a file of CSV as Python opens it, then the message has the path to give instead."""
    (tmp_path / "more.csv").write_text("id\n8\n")

    with (
        (tmp_path / "more.csv").open(encoding="utf-8") as file,
        pytest.raises(BadRequest, match=r"open is not read: give its path, '.*more.csv'$"),
    ):
        table.ingest(file)

    assert table.ingest(file.name).rows_written == 1


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": "8"}, "'8' does not fit field 'id' of int64: .*; give 8. Nothing was ingested"),
        ({"id": 8, "status": 5}, "an int is not a string that UTF-8 can hold; give '5'"),
        ({"id": 8, "day": "2026-02-01"}, r"give datetime.date\(2026, 2, 1\)"),
        ({"id": 8, "day": datetime(2026, 2, 1)}, r"give datetime.date\(2026, 2, 1\)"),
        ({"id": 8, "Unit price": 2.25}, r"give Decimal\('2.25'\)"),
        ({"id": 8, "price": "1e-3"}, "give 0.001"),
        ({"id": 8, "status": b"open"}, "give 'open'"),
    ],
)
def test_a_value_of_another_class_is_told_with_the_one_to_give(table, row, words):
    """And nothing is ingested."""
    with pytest.raises(InputSchemaMismatch, match=words):
        table.ingest([{"id": 9}, row])

    assert table.count() == 1


@pytest.mark.parametrize(
    "row",
    [
        {"id": "eight"},
        {"id": 8.5},
        {"id": 8, "day": datetime(2026, 2, 1, 12, tzinfo=UTC)},
        {"id": 8, "day": "01.02.2026"},
        {"id": 8, "Unit price": 2.255},
        {"id": 8, "Unit price": Decimal("2.255")},
    ],
)
def test_no_value_is_advised_that_says_less(table, row):
    """Nothing is rounded or guessed in an advice."""
    with pytest.raises(InputSchemaMismatch) as refused:
        table.ingest([row])

    assert "give" not in str(refused.value)


@pytest.mark.parametrize("key", ["north", ("north",), ["north"], (1, 2, 3)])
def test_a_key_of_several_fields_is_told_in_its_form(instance, key):
    """Given a value in place of a whole key, then the message has the fields in their order."""
    columns = pa.schema([("hall", pa.int64()), ("shelf", pa.int64())])
    table = instance.create_table("shelves", columns, row_keys=["hall", "shelf"])

    with pytest.raises(QueryInvalid, match=r"give key=\(hall, shelf\)"):
        table.query(key=key)
    with pytest.raises(QueryInvalid, match=r"'4' is not a value .*; give 4$"):
        table.query(key=("4", 2))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("get_table", "use table('NAME')"),
        ("drop_table", "use delete_table('NAME')"),
        ("read_table", "use table('NAME')"),
        ("list_tables", "use tables()"),
        ("create_tabel", "did you mean create_table"),
        ("orders", "opened by table('orders')"),
    ],
)
def test_names_of_others_are_answered_with_ours(instance, name, instead):
    """Here and by a client of a server."""
    with running_server(make_app(instance)) as url, sleeper.connect(url, token="unused") as remote:
        for opened in (instance, remote):
            with pytest.raises(AttributeError) as missing:
                getattr(opened, name)
            assert instead in str(missing.value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("insert", "use ingest(ROWS)"),
        ("find", "use query("),
        ("to_panda", "did you mean to_pandas"),
        ("price", "query(columns=['price'])"),
    ],
)
def test_names_of_other_tables_are_answered_with_ours(instance, table, name, instead):
    """Here and by a client of a server."""
    with running_server(make_app(instance)) as url, sleeper.connect(url, token="unused") as remote:
        for opened in (table, remote.table("orders")):
            with pytest.raises(AttributeError) as missing:
                getattr(opened, name)
            assert instead in str(missing.value)


def test_what_libraries_ask_for_is_absent_without_advice(instance, table):
    """A table can be pickled and copied, and is nothing that it is not."""
    for opened in (instance, table):
        with pytest.raises(AttributeError, match=r"no attribute '__array_interface__'$"):
            opened.__array_interface__  # noqa: B018 - asked for, not used
        assert not hasattr(opened, "_ipython_canary_method_should_not_exist_")
    assert pickle.loads(pickle.dumps(table)).count() == 1


NUMBERS_FOR_TIMES = [
    ("day > 5", "'day' has times, .* DATE '2026-01-31'.* arrow_cast.day, 'Int32'"),
    ("5.5 <= at", "'at' has times, .* TIMESTAMP '2026-01-31 12:00:00'.* arrow_cast.at, 'Int64'"),
    ("NOT day = -20230101", "'day' has times"),
    ("day IN (1, 2)", "'day' has times"),
    ("day NOT BETWEEN 1 AND 20260101", "'day' has times"),
    ("day BETWEEN DATE '2026-01-01' AND 20260101", "'day' has times"),
    ("clock = 12", "'clock' has times, .* '12:00:00'.* arrow_cast.clock, 'Int64'"),
    ("at > price", "'at' has times"),
    ('"Unit price" < day', "'day' has times"),
    ("id > 5 OR at IS DISTINCT FROM 5", "'at' has times"),
]


_SAID_WHERE_DATAFUSION_REFUSES = (
    "Cannot infer .*(write a (date|timestamp), such as|Compare a time of day with its text)"
)


@pytest.mark.parametrize(("condition", "words"), NUMBERS_FOR_TIMES)
def test_a_time_is_not_compared_with_a_number(instance, table, condition, words):
    """DataFusion counts days or microseconds, so that 20260131 is a day 55,000 years from now."""
    for ask in (
        lambda: table.count(where=condition),
        lambda: instance.sql(f"SELECT count(*) FROM orders WHERE {condition}"),
        lambda: instance.sql(f"SELECT {condition} AS yes FROM orders"),
        lambda: instance.sql(f"SELECT o.id FROM (SELECT * FROM orders) AS o WHERE {condition}"),
    ):
        with pytest.raises(QueryInvalid, match=f"{words}|{_SAID_WHERE_DATAFUSION_REFUSES}"):
            ask()


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("day > '2026-01-01' AND id > 5", 1),
        ("day = DATE '2026-01-31'", 1),
        ("day IN ('2026-01-31', '2026-02-01') AND price IS NULL", 1),
        ("arrow_cast(day, 'Int32') > 5", 1),
        ("date_part('year', day) > 5", 1),
        ("day - DATE '2026-01-01' = 30 OR id = 7", 1),
        ("day - 5 < day OR id = 7", 1),
        ("day > day - INTERVAL '5 days' AND 5 < id", 1),
        ("price IS NULL AND (day BETWEEN day AND day AND 5 < id)", 1),
        ("status = 'day > 5' OR at IS NULL", 1),
        ("(CASE WHEN day IS NULL THEN 0 ELSE 6 END) > 5", 1),
    ],
)
def test_times_are_compared_with_times(instance, table, condition, rows):
    """And what is made of a time with numbers."""
    assert table.count(where=condition) == rows
    assert instance.sql(f"SELECT * FROM orders WHERE {condition}").count() == rows


@pytest.mark.parametrize(
    ("condition", "is_refused"),
    [
        ('"a.b" != 9', False),
        ('"a.b" = c AND "a.b" BETWEEN 1 AND 9 AND 3 < "a.b"', False),
        ('"a.c" = b', False),
        ('"a.c" > 5', True),
        ('"a.b" < "a.c"', True),
        ("c = b", True),
    ],
)
def test_columns_whose_names_have_dots_are_told_from_those_of_tables(
    instance, condition, is_refused
):
    """Given columns of times and of numbers, of which some end as others do, then each is known."""
    kinds = {"k": pa.int64(), "b": pa.timestamp("us"), "a.b": pa.int64(), "c": pa.int64()}
    schema = pa.schema([*kinds.items(), ("a.c", pa.timestamp("us"))])
    dotted = instance.create_table("dotted", schema, row_keys=["k"])
    noon = datetime(2024, 1, 1, 12)
    dotted.ingest([{"k": 1, "b": noon, "a.b": 5, "c": 5, "a.c": noon}])

    if is_refused:
        with pytest.raises(QueryInvalid, match="has times, and is compared with a number"):
            dotted.count(where=condition)
    else:
        assert dotted.count(where=condition) == 1


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("list",), "Did you mean 'sleeper table list'?"),
        (("describe", "orders"), "Did you mean 'sleeper table show'?"),
        (("load", "orders", "a.csv"), "Did you mean 'sleeper ingest'?"),
        (("count", "orders"), "Did you mean 'sleeper query TABLE --count'?"),
        (("help",), "Did you mean 'sleeper --help'?"),
        (("status",), "Did you mean 'sleeper report tables'?"),
        (("alter", "orders"), "Did you mean 'sleeper table alter'?"),
        (("table", "split", "orders"), "Did you mean 'sleeper split'?"),
        (("query", "orders", "--output", "x.xlsx"), "or a name that ends in .parquet, .csv"),
        (("query", "orders", "7"), "7 is not an option: a row key is --key FIELD=7"),
        (("query", "orders", "7", "x"), "--key FIELD=7 x"),
        (("query", "orders", "-n", "5"), "No such option '-n'. Did you mean '--limit'?"),
        (("query", "orders", "--filter", "id > 5"), "Did you mean '--where'?"),
        (("ingest", "orders", "a.csv", "--delimiter", ";"), "Did you mean '--separator'?"),
        (("table", "add", "t", "--from", "a.csv"), "Did you mean '--like'?"),
        (("server", "start", "--port", "80"), "Did you mean '--listen'?"),
    ],
)
def test_the_command_line_says_what_was_meant(instance, typed, words):
    """Commands of others, and a key without its option."""
    result = command(*typed, "--instance", instance.url)

    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_rows_go_to_a_file_of_json_lines_by_any_of_its_names(instance, tmp_path):
    """An ingest knows them too."""
    for ending in ("json", "jsonl", "ndjson"):
        path = tmp_path / f"rows.{ending}"
        result = command(
            *("query", "orders", "--columns", "id,status", "--output", str(path)),
            *("--instance", instance.url),
        )

        assert result.exit_code == 0, result.output
        assert path.read_text() == '{"id":7,"status":"F"}\n'


def test_a_key_of_text_is_told_in_words_of_the_table(instance):
    """And not in those of Python's int()."""
    for text in ("abc", "7.0"):
        result = command("query", "orders", "--key", f"id={text}", "--instance", instance.url)

        assert result.exit_code == 1
        assert f"'{text}' is not a value for key field 'id'" in result.output
        assert "of LongType: it must be an integer of 64 bits" in result.output


def test_properties_alone_are_not_a_change_of_columns(instance, table):
    """The message says how they are set."""
    with pytest.raises(BadRequest, match=r"properties alone are set by set_properties\(\)"):
        table.alter(properties={"sleeper.table.gc.delay.minutes": "5"})


def test_a_server_is_asked_as_a_table_is(instance):
    """Given mistakes of a client, then each is told as here, with what to do."""
    with running_server(make_app(instance)) as url, sleeper.connect(url, token="unused") as remote:
        with pytest.raises(QueryInvalid, match=r"no argument 'id': .* key=\{'id': 7\}"):
            remote["orders"].query(id=7)
        with pytest.raises(BadRequest, match="token must be a text, not a int"):
            sleeper.connect(url, token=5)
        with pytest.raises(BadRequest, match=rf"connect\('{url}', token=...\)"):
            sleeper.connect(f"{url}/page", token="unused")
        host = url.removeprefix("http://")
        with pytest.raises(InstanceNotFound, match=f"for a server, give http://{host} or https"):
            sleeper.connect(host)
        with pytest.raises(StorageFailed, match=f"without TLS there: give {url}$"):
            sleeper.connect(f"https://{host}", token="unused").tables()


@pytest.mark.parametrize("where", ["s3://b/\ud800", "s3://\ud800/x", "/tmp/\ud800"])
def test_half_of_a_surrogate_pair_is_no_place(where):
    """It is bad input, and no failure of storage."""
    with pytest.raises(BadRequest):
        sleeper.connect(where)
