"""POST /sleeper/tables/{table}/alter: columns of a table change, with the errors of `Table.alter`."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import sleeper
from sleeper.interfaces.rest.app import make_app

SCHEMA = pa.schema(
    [("id", pa.string()), pa.field("n", pa.int32(), nullable=False), ("note", pa.string())]
)


@pytest.fixture
def instance():
    with sleeper.connect("memory://") as opened:
        yield opened


@pytest.fixture
def table(instance):
    """One row."""
    table = instance.create_table("t", SCHEMA, row_keys=["id"])
    table.ingest([{"id": "a", "n": 1, "note": "z"}])
    return table


@pytest.fixture
def client(instance, table):
    with TestClient(
        make_app(instance), base_url="http://localhost:8750", raise_server_exceptions=False
    ) as opened:
        yield opened


ALTER = "/sleeper/tables/t/alter"


def test_columns_change_and_the_answer_has_the_schema(client, table):
    """Numbers, texts and truth values are defaults; others are text as the format has it."""
    body = {
        "add": [
            {"name": "i", "type": "LongType", "default": 7},
            {"name": "f", "type": "DoubleType", "default": 0.5},
            {"name": "b", "type": "BooleanType", "default": True},
            {"name": "d", "type": "DateType", "default": "2026-01-31"},
            {"name": "raw", "type": "ByteArrayType", "default": "AP8="},
            {"name": "l", "type": {"ListType": {"elementType": "LongType"}}, "nullable": True},
        ],
        "rename": {"note": "remark"},
        "widen": {"n": "LongType"},
        "nullable": ["n"],
        "properties": {"sleeper.table.gc.delay.minutes": 7},
    }

    answer = client.post(ALTER, json=body, headers={"Sleeper-Reason": "ticket%2012"})

    assert answer.status_code == 200, answer.text
    table.refresh()
    assert answer.json() == {"transaction": 3, "schema": json.loads(table.schema.to_json())}
    assert table.properties.gc.delay_minutes == 7
    assert table.history(1)[0].reasons == ("ticket 12",)
    (row,) = client.post("/sleeper/tables/t/query", json={}).json()["rows"]
    old = {"id": "a", "n": 1, "remark": "z"}
    assert row == old | {
        "i": 7,
        "f": 0.5,
        "b": True,
        "d": "2026-01-31",
        "raw": "AP8=",
        "l": None,
    }


def test_later_requests_use_the_columns_of_now(client, table):
    """Rows that are sent, conditions and statements, whatever process answers them."""
    client.post("/sleeper/tables/t/query", json={"where": "n = 1"})
    client.post(ALTER, json={"rename": {"n": "m"}, "drop": ["note"]})

    asked = client.post("/sleeper/tables/t/query", json={"where": "m = 1", "columns": ["m"]})
    counted = client.post("/sleeper/tables/t/sql", json={"statement": "SELECT max(m) AS m FROM t"})
    gone = client.post("/sleeper/tables/t/query", json={"columns": ["n"]})

    assert asked.json()["rows"] == counted.json()["rows"] == [{"m": 1}]
    assert gone.status_code == 400
    assert "'n'" in gone.json()["detail"]


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("{", None, ""),
        ([], None, ""),
        ({}, "BadRequest", "something to add"),
        ({"ad": []}, None, "ad"),
        ({"add": [{"name": "x"}]}, None, "type"),
        ({"add": [{"name": "x", "type": "int64"}]}, "SchemaInvalid", "Unknown type"),
        ({"add": [{"name": "x", "type": None}]}, "SchemaInvalid", "Unknown type"),
        ({"add": [{"name": "x", "type": "LongType"}]}, "SchemaInvalid", "give it a default"),
        ({"add": [{"name": "x", "type": "LongType", "id": 1}]}, None, "id"),
        ({"add": [{"name": "x", "type": "LongType", "nullable": "yes"}]}, None, "nullable"),
        ({"add": [{"name": "x", "type": "LongType", "default": [1]}]}, None, "default"),
        (
            {"add": [{"name": "x", "type": "LongType", "default": "one"}]},
            "SchemaInvalid",
            "field 'x'",
        ),
        (
            {"add": [{"name": "x", "type": "StringType", "default": "y" * 5_000}]},
            "SchemaInvalid",
            "may have 1,000",
        ),
        ({"add": [{"name": "", "type": "LongType"}]}, "SchemaInvalid", "needs a name"),
        ({"add": [{"name": "\ud800", "type": "LongType"}]}, "SchemaInvalid", "Unicode"),
        ({"drop": "note"}, None, "drop"),
        ({"drop": ["notes"]}, "SchemaInvalid", "is 'note' meant?"),
        ({"drop": ["id"]}, "SchemaInvalid", "is a key"),
        ({"rename": {"n": None}}, None, "rename"),
        ({"rename": {"n": "note"}}, "SchemaInvalid", "more than one field"),
        ({"widen": {"n": "StringType"}}, "SchemaInvalid", "cannot become"),
        (
            {"nullable": ["n"], "properties": {"sleeper.table.splits.file": "/etc/passwd"}},
            "PropertiesInvalid",
            "a file of the server",
        ),
        (
            {"nullable": ["n"], "properties": {"sleeper.table.schema": "{}"}},
            "PropertiesInvalid",
            "sleeper.table.schema",
        ),
    ],
)
def test_a_wrong_body_is_refused(client, table, body, kind, words):
    """With the error of Python, or the place in the body; nothing is changed."""
    send = {"content": body} if isinstance(body, str) else {"content": json.dumps(body)}

    answer = client.post(ALTER, **send, headers={"Content-Type": "application/json"})

    assert answer.status_code == 400
    found = answer.json()
    assert words in found["detail"]
    assert kind is None or found["class"] == kind
    assert table.refresh() == 2


def test_a_table_that_is_not_there_is_not_found(client):
    """As by every route."""
    answer = client.post("/sleeper/tables/u/alter", json={"nullable": ["n"]})

    assert (answer.status_code, answer.json()["class"]) == (404, "TableNotFound")
