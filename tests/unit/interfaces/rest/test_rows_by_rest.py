"""Rows by REST: queries in each format, counts, uploads, and what is refused."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.request_limits import RequestLimits

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
ROWS = [{"id": f"k{i:02}", "n": i} for i in range(20)]


@pytest.fixture
def table():
    with sleeper.connect("memory://") as instance:
        made = instance.create_table("t", SCHEMA, row_keys=["id"])
        made.ingest(ROWS)
        yield made, instance


@pytest.fixture
def client(table):
    app = make_app(table[1], limits=RequestLimits(answer_rows=15, upload_bytes=1 << 20))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as opened:
        yield opened


def ask(client: TestClient, **body):
    return client.post("/sleeper/tables/t/query", json=body)


def send(client: TestClient, content: bytes, kind: str = ARROW, **headers):
    headers["Content-Type"] = kind
    return client.post("/sleeper/tables/t/rows", content=content, headers=headers)


def arrow(rows: pa.Table, *, whole: bool = True) -> bytes:
    file = io.BytesIO()
    writer = pa.ipc.new_stream(file, rows.schema)
    writer.write_table(rows)
    if not whole:
        return file.getvalue()
    writer.close()
    return file.getvalue()


def parquet(rows: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(rows, file)
    return file.getvalue()


NEW = pa.table({"id": ["x", "y"], "n": [1, 2]}, schema=SCHEMA)


class TestQueries:
    """POST /sleeper/tables/TABLE/query."""

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({"key": "k03"}, [3]),
            ({"key": ["k03"]}, [3]),
            ({"key": {"id": "k03"}}, [3]),
            ({"keys": ["k05", "k01"]}, [1, 5]),
            ({"keys": []}, []),
            ({"range": {"id": ["k03", "k06"]}}, [3, 4, 5]),
            ({"range": {"id": ["k03", False, "k05", True]}}, [4, 5]),
            ({"range": {"id": {"min": "k03", "max": "k05", "maxInclusive": True}}}, [3, 4, 5]),
            ({"range": {"id": [None, "k01"]}}, [0]),
            ({"regions": [{"id": ["k01", "k02"]}, {"id": ["k19", None]}]}, [1, 19]),
            ({"prefix": {"id": "k1"}}, [*range(10, 20)]),
            ({"limit": 2}, [0, 1]),
        ],
    )
    def test_answer_one_json_document(self, client, body, expected):
        """Rows in key order, with the transaction that was read."""
        answer = ask(client, **body)

        assert answer.status_code == 200, answer.text
        assert answer.json() == {"transaction": 2, "rows": [ROWS[n] for n in expected]}
        assert answer.headers["sleeper-transaction"] == "2"

    @pytest.mark.parametrize(
        ("accept", "read"),
        [
            (ARROW, lambda body: pa.ipc.open_stream(body).read_all()),
            (PARQUET, lambda body: pq.read_table(io.BytesIO(body))),
            ("text/csv;q=0.9", lambda body: pyarrow.csv.read_csv(io.BytesIO(body))),
            (
                "text/html, application/jsonl",
                lambda body: pa.Table.from_pylist([json.loads(line) for line in body.splitlines()]),
            ),
        ],
    )
    def test_answer_streams(self, client, accept, read):
        """As many rows as there are, as the header `Accept` asks for them."""
        answer = client.post("/sleeper/tables/t/query", json={}, headers={"Accept": accept})

        assert answer.status_code == 200
        assert read(answer.content).to_pylist() == ROWS

    def test_take_columns_and_versions(self, client, table):
        """`columns` and `as_of`, as `Table.query` has them."""
        table[0].ingest([{"id": "z", "n": 1}])

        answer = ask(client, columns=["n"], as_of=2, range={"id": ["k19", None]})

        assert answer.json() == {"transaction": 2, "rows": [{"n": 19}]}

    def test_refuse_what_is_too_large_for_one_document(self, client):
        """A document that lacks rows would look complete."""
        answer = ask(client)

        assert (answer.status_code, answer.json()["class"]) == (400, "QueryInvalid")
        assert "application/jsonl" in answer.json()["detail"]

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            ({"key": None}, "QueryInvalid"),
            ({"keys": None}, "QueryInvalid"),
            ({"range": None}, "QueryInvalid"),
            ({"key": 5}, "QueryInvalid"),
            ({"key": {"other": "a"}}, "QueryInvalid"),
            ({"key": ["a", "b"]}, "QueryInvalid"),
            ({"key": {"id": None}}, "QueryInvalid"),
            ({"key": "a", "keys": ["a"]}, "QueryInvalid"),
            ({"range": {"id": ["a"]}}, "QueryInvalid"),
            ({"range": {"id": {"min": "a", "top": "b"}}}, "QueryInvalid"),
            ({"range": {"id": ["b", "a"]}}, "QueryInvalid"),
            ({"range": "a"}, "QueryInvalid"),
            ({"regions": {"id": ["a", "b"]}}, "QueryInvalid"),
            ({"columns": ["none"]}, "QueryInvalid"),
            ({"limit": -1}, "QueryInvalid"),
            ({"limit": "1"}, "BadRequest"),
            ({"as_of": "yesterday"}, "QueryInvalid"),
            ({"ordered": 1}, "BadRequest"),
            ({"wherever": ""}, "BadRequest"),
            ({"format": "xml"}, "BadRequest"),
            ({"key": "\ud800"}, "QueryInvalid"),
        ],
    )
    def test_refuse_what_is_wrong(self, client, body, kind):
        """With the class that `Table.query` raises."""
        answer = client.post(
            "/sleeper/tables/t/query",
            content=json.dumps(body),
            headers={"Content-Type": "application/json"},
        )

        assert (answer.status_code, answer.json()["class"]) == (400, kind), answer.text

    def test_refuse_versions_that_are_not_there(self, client):
        """404, as for all that is not there."""
        answer = ask(client, as_of=99)

        assert (answer.status_code, answer.json()["class"]) == (404, "VersionNotFound")

    def test_refuse_other_media_types(self, client):
        """The message lists those that there are."""
        headers = {"Accept": "text/html"}
        answer = client.post("/sleeper/tables/t/query", json={}, headers=headers)

        assert answer.status_code == 400
        assert ARROW in answer.json()["detail"]

    def test_are_counted(self, client):
        """POST /sleeper/tables/TABLE/count."""
        answer = client.post("/sleeper/tables/t/count", json={"prefix": {"id": "k1"}})

        assert answer.json() == {"rows": 10}


def test_values_are_those_of_the_command_line():
    """Bytes in base64, dates and timestamps in ISO 8601, decimals as text; keys are sent so too."""
    day, time = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    row = {"b": b"\x00\xff", "d": day, "t": time, "x": Decimal("1.50"), "m": {"k": b"\x01"}}
    types = [
        ("b", pa.binary()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("x", pa.decimal128(10, 2)),
        ("m", pa.map_(pa.string(), pa.binary())),
    ]
    with sleeper.connect("memory://") as instance:
        instance.create_table("t", pa.schema(types), row_keys=["b", "d", "t"]).ingest([row])
        client = TestClient(make_app(instance), base_url="http://localhost")
        key = ["AP8=", "2026-01-02", "2026-01-02T03:04:05.000006+00:00"]

        found = ask(client, key=key).json()["rows"]
        wrong = [ask(client, key=[bad]).status_code for bad in (5, "ä", [], {})]

    assert base64.b64decode(found[0]["b"]) == row["b"]
    assert (found[0]["d"], found[0]["x"], found[0]["m"]) == ("2026-01-02", "1.50", {"k": "AQ=="})
    assert datetime.fromisoformat(found[0]["t"]).replace(tzinfo=UTC) == time
    assert wrong == [400, 400, 400, 400]


class TestDeletions:
    """POST /sleeper/tables/TABLE/delete."""

    @pytest.mark.parametrize("name", ["key", "keys", "range", "regions", "prefix"])
    @pytest.mark.parametrize(
        "value",
        [
            *(None, True, 7, 1.5, "\ud800", [None], [[]], [{}], [["a", 1]], [{"n": 1}]),
            *({}, {"id": None}, {"id": 7}, {"id": ["b", "a"]}, {"id": [None, None]}),
            *({"id": {"min": None}}, {"id": {"bogus": 1}}, {"id": ["a", 1, "b", 0]}, {"n": [1, 2]}),
        ],
        ids=str,
    )
    def test_of_another_form_are_refused(self, client, table, name, value):
        """Given what says no rows of the table, or all of them, nothing is deleted."""
        before = table[0].refresh()

        answer = client.post(
            "/sleeper/tables/t/delete",
            content=json.dumps({name: value}),
            headers={"Content-Type": "application/json"},
        )

        assert answer.status_code == 400, answer.text
        assert answer.json()["class"] in ("QueryInvalid", "BadRequest")
        assert table[0].refresh() == before

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"null", b"[]", b"7", b"{", b"\0", b'{"key": "k01", "where": "n = 1"}'),
            *(b'{"key": "\xe9"}', b'{"key": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
            *(b'{"key": "k01", "keys": ["k01"]}', b'{"key": ' + b"9" * 10_000 + b"}", b'{"k": 1}'),
        ],
        ids=lambda content: content[:30].decode("latin-1"),
    )
    def test_that_are_no_such_document_are_refused(self, client, table, content):
        """Given other JSON, other bytes, or several ways to say which rows, nothing is deleted."""
        before = table[0].refresh()
        headers = {"Content-Type": "application/json"}

        answer = client.post("/sleeper/tables/t/delete", content=content, headers=headers)

        assert answer.status_code == 400
        assert table[0].refresh() == before

    @pytest.mark.parametrize("name", ["keys", "regions"])
    def test_of_very_many_keys_are_refused_before_one_is_read(self, client, name):
        """Given a hundred thousand of what is none, they are counted, and not looked at."""
        answer = client.post("/sleeper/tables/t/delete", json={name: [None] * 100_000})

        assert answer.status_code == 400
        assert "these are 100,000 keys and ranges" in answer.json()["detail"]


class TestUploads:
    """POST /sleeper/tables/TABLE/rows."""

    @pytest.mark.parametrize(
        ("kind", "content"),
        [
            (ARROW, arrow(NEW)),
            (PARQUET, parquet(NEW)),
            ("text/csv", b"id,n\nx,1\ny,2\n"),
            ("application/jsonl", b'{"id": "x", "n": 1}\n{"n": 2, "id": "y"}\n'),
            ("application/x-ndjson", b'{"id": "x", "n": 1}\n{"n": 2, "id": "y"}'),
        ],
    )
    def test_add_rows(self, client, table, kind, content):
        """In one commit."""
        answer = send(client, content, kind)

        assert (answer.status_code, answer.json()["rows_written"]) == (200, 2), answer.text
        assert table[0].query(keys=["x", "y"]).to_pylist() == NEW.to_pylist()

    def test_may_be_repeated_with_a_job_id(self, client, table):
        """The second time nothing is added; the id may have any character."""
        first = send(client, arrow(NEW), **{"Sleeper-Job-Id": "juli%20%C3%BC"})
        second = send(client, arrow(NEW), **{"Sleeper-Job-Id": "juli%20%C3%BC"})

        assert first.json()["job_id"] == "juli ü"
        assert [each.json()["already_committed"] for each in (first, second)] == [False, True]
        assert table[0].count() == 22

    @pytest.mark.parametrize("blank", ["", "%20%09"])
    def test_are_refused_with_a_blank_job_id(self, client, table, blank):
        """A header that is there and says nothing is a mistake; without it an id is made."""
        answer = send(client, arrow(NEW), **{"Sleeper-Job-Id": blank})

        assert answer.status_code == 400
        assert "job_id is blank" in answer.json()["detail"]
        assert table[0].count() == 20

    @pytest.mark.parametrize(
        ("kind", "content", "error"),
        [
            (ARROW, arrow(NEW, whole=False), "InputUnreadable"),
            (ARROW, arrow(NEW)[:-100], "InputUnreadable"),
            (ARROW, b"", "InputUnreadable"),
            (ARROW, b"x" * 1000, "InputUnreadable"),
            (ARROW, arrow(NEW) + b"more", "InputUnreadable"),
            (ARROW, arrow(NEW.rename_columns(["id", "m"])), "InputSchemaMismatch"),
            (
                ARROW,
                arrow(pa.table({"id": [None], "n": [1]}, schema=SCHEMA)),
                "NullKeys",
            ),
            (PARQUET, parquet(NEW)[:-20], "InputUnreadable"),
            (PARQUET, b"", "InputUnreadable"),
            (PARQUET, arrow(NEW), "InputUnreadable"),
            ("text/csv", b"id,n\nx,one\n", "InputSchemaMismatch"),
            ("text/csv", b"id,m\nx,1\n", "InputSchemaMismatch"),
            ("text/csv", b"", "InputUnreadable"),
            ("text/csv", b"id,n\nx,1,2\n", "InputUnreadable"),
            ("application/jsonl", b'{"id": "x", "n": 1}\n{"id": "y", ', "InputUnreadable"),
            ("application/jsonl", b"\xff\xfe", "InputUnreadable"),
        ],
    )
    def test_change_nothing_if_they_are_cut_off_or_do_not_fit(
        self, client, table, kind, content, error
    ):
        """The message does not name files of the server."""
        answer = send(client, content, kind)

        assert (answer.status_code, answer.json()["class"]) == (422, error), answer.text
        assert "sleeper-upload" not in answer.text
        assert table[0].count() == 20

    def test_with_values_that_are_damaged_are_refused(self, client, table):
        """Arrow believes offsets and lengths; a text that is not UTF-8 would be stored."""
        content = arrow(pa.table({"id": ["abcdefgh"], "n": [1]}, schema=SCHEMA))

        answer = send(client, content.replace(b"abcdefgh", b"\xff" * 8))

        assert (answer.status_code, answer.json()["class"]) == (422, "InputUnreadable")
        assert table[0].count() == 20

    def test_that_are_too_large_are_refused(self, client, table):
        """Whether the length is said before, or found out."""
        content = arrow(pa.table({"id": ["a"], "n": [1]})) + b"\0" * (1 << 20)

        said = send(client, content)
        found_out = send(client, (content[i : i + 9999] for i in range(0, len(content), 9999)))

        assert [said.status_code, found_out.status_code] == [413, 413]
        assert said.json()["class"] == found_out.json()["class"] == "BadRequest"
        assert table[0].count() == 20

    @pytest.mark.parametrize("kind", ["", "text/plain", "application/json", "multipart/form-data"])
    def test_of_another_kind_are_refused(self, client, kind):
        """415 lists those that there are."""
        answer = send(client, arrow(NEW), kind)

        assert answer.status_code == 415
        assert ARROW in answer.json()["detail"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT " + "1+" * 600 + "1",
        "SELECT * FROM t WHERE " + "n = 1 OR " * 600 + "n = 2",
        "SELECT 1 " + "UNION ALL SELECT 1 " * 600,
        "SELECT '" + "x" * 20_000 + "'",
        "SELECT 1" + "::int" * 600,
    ],
)
def test_sql_that_would_end_the_process_is_refused(client, statement):
    """DataFusion's stack is not deep enough for chains of thousands of operators."""
    answer = client.post("/sleeper/tables/t/sql", json={"statement": statement})
    everywhere = client.post("/sleeper/sql", json={"statement": statement})
    condition = ask(client, where="n = 1 OR " * 600 + "n = 2", limit=1)

    assert {each.status_code for each in (answer, everywhere, condition)} == {400}
    assert {"operators,", "characters;"} & {*answer.json()["detail"].split()}


def test_sql_of_many_values_is_answered(client):
    """A list is no chain; operators in texts are none."""
    many = ", ".join(f"'k{i:02}'" for i in range(1000))
    texts = f"SELECT n FROM t WHERE id IN ({many}) AND id <> '{'+' * 1000}' AND id = 'k03'"

    assert client.post("/sleeper/sql", json={"statement": texts}).json()["rows"] == [{"n": 3}]
