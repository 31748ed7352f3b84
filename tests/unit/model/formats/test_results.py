"""Rows of a query as messages."""

from __future__ import annotations

import json

from sleeper.model.formats.results import MESSAGE_BYTES_MAX, results_batch
from sleeper.model.schema import Field, Primitive, Schema

SCHEMA = Schema(
    row_keys=[Field("id", Primitive.STRING)],
    sort_keys=[Field("at", Primitive.LONG)],
    values=[Field("v", Primitive.BYTES, nullable=True), Field("w", Primitive.INT)],
)


def test_a_message_has_upstreams_fields():
    """Query, schema with what upstream says of each field, and rows (QRY-11)."""
    batch = results_batch("june", SCHEMA, ["id", "at", "v", "w"])

    assert json.loads(batch.message('{"id":"a"},{"id":"b"}')) == {
        "queryId": "june",
        "schema": {
            "rowKeyFields": [{"name": "id", "type": "StringType", "nullable": False}],
            "sortKeyFields": [{"name": "at", "type": "LongType", "nullable": False}],
            "valueFields": [
                {"name": "v", "type": "ByteArrayType", "nullable": True},
                {"name": "w", "type": "IntType", "nullable": False},
            ],
        },
        "rows": [{"id": "a"}, {"id": "b"}],
    }


def test_the_schema_has_the_fields_of_the_rows():
    """A query that asks for fewer fields gets a schema that its rows fit."""
    said = json.loads(results_batch("june", SCHEMA, ["id", "at", "w"]).message(""))

    assert [field["name"] for field in said["schema"]["valueFields"]] == ["w"]
    assert said["rows"] == []


def test_what_stands_around_the_rows_counts():
    """Bytes, not characters."""
    batch = results_batch("é", SCHEMA, ["id", "at"])

    message = batch.message("x" * batch.rows_bytes_max)

    assert len(message.encode()) == MESSAGE_BYTES_MAX
