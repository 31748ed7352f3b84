"""Regions as JSON: what upstream's clients write, and what we write ourselves."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from sleeper.errors import QueryInvalid
from sleeper.model.formats.query_json import regions_from_json, regions_to_json
from sleeper.model.queries import region_from_request
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Field, Primitive, Schema

SCHEMA = Schema(row_keys=[Field("id", Primitive.STRING), Field("n", Primitive.LONG)])


def test_a_query_of_upstream_is_read():
    """Rule QRY-8: a field left out, or a maximum of null, sets no limit."""
    text = """[
        {"id": {"min": "YQ==", "minInclusive": false, "max": "Yg==", "maxInclusive": true},
         "stringsBase64Encoded": true},
        {"n": {"min": 5, "minInclusive": true, "max": null, "maxInclusive": false}}
    ]"""

    assert regions_from_json(SCHEMA, text) == (
        Region((Range("a\0", "b\0"), Range(-(2**63), None))),
        Region((Range("", None), Range(5, None))),
    )


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (Primitive.INT, -(2**31), 2**31 - 1),
        (Primitive.STRING, 'a\0"', "\U0001f600"),
        (Primitive.BYTES, b"", b"\xff\0"),
        (Primitive.DATE, date(1, 1, 1), date(2024, 2, 29)),
        (Primitive.TIMESTAMP, datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
        (Primitive.TIMESTAMP_NTZ, datetime(2024, 3, 31, 2, 30, 0, 1), None),
    ],
)
def test_regions_come_back_as_they_were_written(kind, low, high):
    """Writing and reading keeps every key type, and ranges that hold nothing."""
    schema = Schema(row_keys=[Field("k", kind)])
    regions = [region_from_request(schema, {"k": ends}) for ends in [(low, high), (low, low)]]

    assert regions_from_json(schema, regions_to_json(schema, regions)) == tuple(regions)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"id": {}}', "a JSON list"),
        ("[1]", "a region is a JSON object"),
        ('[{"value": {"min": 1}}]', 'Key "value" was not a row key field'),
        ('[{"id": 1}]', "the range of 'id' is an object of"),
        ('[{"id": {"from": "a"}}]', "the range of 'id' is an object of"),
        ('[{"n": {"min": "5"}}]', "not a value for key field 'n'"),
        ('[{"n": {"min": 5, "max": 1}}]', "minimum 5 above its maximum 1"),
    ],
)
def test_what_is_no_region_is_refused(text, message):
    """The message names what is wrong."""
    with pytest.raises(QueryInvalid, match=message):
        regions_from_json(SCHEMA, text)
