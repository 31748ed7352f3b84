"""Queries as messages: which rows of a table, and where they go, as upstream writes them.

    {"queryId": "q", "tableName": "trips", "type": "Query",
     "regions": [{"taxi": {"min": "YQ==", "minInclusive": true, "max": null}}]}

Rule QRY-8. A message is read in two steps, as only the table's schema says what its regions mean.
What is wrong with it is gathered, so that whoever asked hears of everything at once, wherever the
message wants that told.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sleeper.errors import QueryInvalid
from sleeper.model.column_types import key_traits
from sleeper.model.formats.message_json import (
    MessageFields,
    folder_name_failures,
    write_message,
)
from sleeper.model.formats.results import read_results_publishing, unused_options
from sleeper.model.keys import (
    key_type,
    shown_value,
    value_from_json,
    value_from_text,
    value_to_json,
)
from sleeper.model.queries import region_from_request
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Field, Schema

# ---------------------------------------------------------------- regions as JSON
#
# Reads and writes regions as JSON, in the form of upstream's queries (rule QRY-8).
#
#     such as [{"id": {"min": "a", "minInclusive": true, "max": "b", "maxInclusive": false}}]
#
# A region is an object of row key fields. A field that is missing may have any value; a `max` of
# null means no upper limit. Bytes are base64, and strings too if `stringsBase64Encoded` is true;
# dates and timestamps are ISO 8601.

_STRINGS_BASE64 = "stringsBase64Encoded"
_ENTRIES = {"min", "minInclusive", "max", "maxInclusive"}


def regions_to_json(schema: Schema, regions: Iterable[Region]) -> str:
    """Write canonical regions as JSON."""
    document = [
        {
            field.name: _range_to_json(field, key_range)
            for field, key_range in zip(schema.row_keys, region.ranges, strict=True)
        }
        for region in regions
    ]
    return json.dumps(document)


def regions_from_json(schema: Schema, text: str) -> tuple[Region, ...]:
    """Read regions from JSON.

    Raises:
        QueryInvalid: it is not JSON of this form, a field is not a row key, or a value has the
            wrong type.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise QueryInvalid(f"regions are not JSON: {error}") from None
    if not isinstance(document, list):
        raise QueryInvalid(f"regions are a JSON list of objects, not {text[:200]}")
    return tuple(region_from_document(schema, region, base64_strings=False) for region in document)


def region_to_document(schema: Schema, region: Region) -> dict[str, Any]:
    """Return a canonical region as upstream writes it: all strings are in base64.

    They are not where a field has the name of the flag that says so.
    """
    document: dict[str, Any] = {_STRINGS_BASE64: True}
    for row_key, key_range in zip(schema.row_keys, region.ranges, strict=True):
        ends = _range_to_json(row_key, key_range)
        if key_traits(key_type(row_key)).is_text and _STRINGS_BASE64 not in schema.row_key_names:
            ends |= {end: _in_base64(ends[end]) for end in ("min", "max")}
        document[row_key.name] = ends
    return document


def _in_base64(text: str | None) -> str | None:
    return None if text is None else b64encode(text.encode()).decode()


def _range_to_json(field: Field, key_range: Range) -> dict[str, Any]:
    kind = key_type(field)
    return {
        "min": value_to_json(kind, key_range.min),
        "minInclusive": True,
        "max": value_to_json(kind, key_range.max),
        "maxInclusive": False,
    }


def region_from_document(schema: Schema, document: object, *, base64_strings: bool) -> Region:
    """Read a region from a JSON value.

    Args:
        schema: The table's.
        document: The region.
        base64_strings: Whether its strings are in base64 where it does not say so itself; in
            upstream's messages they are.

    Raises:
        QueryInvalid: it has another form, names a field that is no row key, or holds a value of
            the wrong type.
    """
    if not isinstance(document, Mapping):
        raise QueryInvalid(
            f"a region is a JSON object of row key fields, not {shown_value(document)}"
        )
    in_base64 = document.get(_STRINGS_BASE64, base64_strings) is True
    fields = {field.name: field for field in schema.row_keys}
    given = {
        name: value for name, value in document.items() if name != _STRINGS_BASE64 or name in fields
    }
    region_from_request(schema, dict.fromkeys(given, (None, None)))  # are they row keys?
    request = {
        name: _range_from_json(fields[name], value, in_base64=in_base64)
        for name, value in given.items()
    }
    return region_from_request(schema, request)


def _range_from_json(
    field: Field, document: object, *, in_base64: bool
) -> tuple[Any, bool, Any, bool]:
    if not isinstance(document, Mapping) or set(document) - _ENTRIES:
        raise QueryInvalid(
            f"the range of {field.name!r} is an object of {', '.join(sorted(_ENTRIES))}, "
            f"not {shown_value(document)}"
        )
    low, high = (
        _value_from_json(field, document.get(end), in_base64=in_base64) for end in ("min", "max")
    )
    return (
        low,
        document.get("minInclusive", True) is True,
        high,
        document.get("maxInclusive", False) is True,
    )


def _value_from_json(field: Field, value: Any, *, in_base64: bool) -> Any:
    if in_base64 and isinstance(value, str) and key_traits(key_type(field)).is_text:
        return value_from_text(field, value, base64_encoded=True)
    return value_from_json(field, value)


QUERY: Final = "Query"
LEAF_QUERY: Final = "LeafPartitionQuery"
_BASE64: Final = "stringsBase64Encoded"
_TRACKER: Final = "DYNAMODB"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessage:
    """What a query's message says; read it with `read_query`.

    Attributes:
        query_id: Names the query and its results.
        table_name: The table, unless `table_id` names it.
        table_id: The table; wins over the name.
        type: `QUERY`; upstream's processes send each other `LEAF_QUERY`.
        regions: The regions as JSON has them; `query_regions` reads them. None: none were said.
        requested_value_fields: The value fields of the answer; None for all.
        iterator_class_name: Upstream's processing in Java, which is refused here.
        iterator_config: Upstream's, for that.
        publisher: Where results go (`results_publishing`).
        report_to: Where else than to the tracker the state is reported, each by its `destination`.
        others: Unknown keys of the message.
        problems: What was wrong with its values, which are left out.
    """

    query_id: str | None = None
    table_name: str | None = None
    table_id: str | None = None
    type: str | None = QUERY
    regions: tuple[Mapping[str, Any], ...] | None = None
    requested_value_fields: tuple[str, ...] | None = None
    iterator_class_name: str | None = None
    iterator_config: str | None = None
    publisher: Mapping[str, str] = field(default_factory=dict)
    report_to: tuple[Mapping[str, str], ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read_query(text: str) -> QueryMessage:
    """Return the query in a message, with all that could be read of it.

    Raises:
        JobInvalid: the text is no JSON object. What else is wrong is in `problems`.
    """
    message = MessageFields(text)
    fields = message.texts("requestedValueFields")
    return QueryMessage(
        query_id=message.text("queryId"),
        table_name=message.text("tableName"),
        table_id=message.text("tableId"),
        type=message.text("type"),
        regions=message.objects("regions"),
        requested_value_fields=None if fields is None else tuple(each or "" for each in fields),
        iterator_class_name=message.text("queryTimeIteratorClassName"),
        iterator_config=message.text("queryTimeIteratorConfig"),
        publisher=message.settings("resultsPublisherConfig"),
        report_to=message.list_of_settings("statusReportDestinations"),
        others=message.not_read(),
        problems=message.failures,
    )


def write_query(query: QueryMessage) -> str:
    """Return a query as JSON, in upstream's form: one line, nothing for what is not set."""
    said = {
        "tableName": query.table_name,
        "tableId": query.table_id,
        "queryId": query.query_id,
        "type": query.type,
        "regions": query.regions,
        "requestedValueFields": query.requested_value_fields,
        "queryTimeIteratorClassName": query.iterator_class_name,
        "queryTimeIteratorConfig": query.iterator_config,
        "resultsPublisherConfig": dict(query.publisher),
        "statusReportDestinations": [dict(each) for each in query.report_to],
    }
    return write_message(said, query.others)


def region_documents(schema: Schema, regions: Iterable[Region]) -> tuple[dict[str, Any], ...]:
    """Return canonical regions as a query's message has them."""
    return tuple(region_to_document(schema, region) for region in regions)


def query_regions(query: QueryMessage, schema: Schema) -> tuple[Region, ...]:
    """Return the canonical regions that a query asks for. Strings are in base64 unless it says no.

    Raises:
        QueryInvalid: a region names a field that is no row key, or has a value of a wrong type.
    """
    return tuple(
        region_from_document(schema, document, base64_strings=True)
        for document in query.regions or ()
    )


def query_columns(query: QueryMessage, schema: Schema) -> list[str] | None:
    """Return the columns of the answer, None for all: keys always, then the fields asked for.

    They are in the table's order. Fields that the table does not have are `query_failures`.
    """
    if query.requested_value_fields is None:
        return None
    keys = {field.name for field in (*schema.row_keys, *schema.sort_keys)}
    wanted = keys | {*query.requested_value_fields}
    return [name for name in schema.columns if name in wanted]


def query_failures(query: QueryMessage, schema: Schema | None) -> list[str]:
    """Return every reason why a query cannot be run; none when it can (rule QRY-8).

    Args:
        query: The query.
        schema: Its table's; None when there is no such table.
    """
    failures = [*query.problems]
    if not (query.query_id or "").strip():
        failures.append("queryId field must be provided")
    else:
        failures += folder_name_failures("queryId", str(query.query_id))
    if not (query.table_id or query.table_name):
        failures.append("tableName field must be provided")
    elif schema is None and query.table_id:
        failures.append(f'Table could not be found with ID: "{query.table_id}"')
    elif schema is None:
        failures.append(f'Table could not be found with name: "{query.table_name}"')
    failures += _type_failures(query.type)
    if query.regions is None and not any(": regions: " in each for each in query.problems):
        failures.append("regions field must be provided")
    if query.iterator_class_name:
        failures.append(
            f"queryTimeIteratorClassName is {query.iterator_class_name!r}: iterators in Java do "
            "not run here. Leave it out; a table may name a Python function instead, in "
            "sleeper.table.function"
        )
    failures += read_results_publishing(query.publisher)[1]
    return failures + ([] if schema is None else _schema_failures(query, schema))


def query_warnings(query: QueryMessage) -> list[str]:
    """Return a sentence for everything that a query says without effect."""
    publishing, _ = read_results_publishing(query.publisher)
    warnings = [f"{name} is unknown, and changes nothing" for name in sorted(query.others)]
    warnings += [
        f"resultsPublisherConfig: {name} changes nothing for results in {publishing.destination}"
        for name in unused_options(query.publisher, publishing)
    ]
    for each in query.report_to:
        destination = each.get("destination", "")
        if destination.upper() != _TRACKER:
            warnings.append(
                f"statusReportDestinations: nobody is told at {destination!r}; the tracker is"
            )
    return warnings


def _type_failures(kind: str | None) -> list[str]:
    if kind is None:
        return ["type field must be provided"]
    if kind == LEAF_QUERY:
        return [f"type {LEAF_QUERY} is what upstream's processes send each other: use {QUERY}"]
    return [] if kind == QUERY else [f'Unknown query type "{kind}"']


def _schema_failures(query: QueryMessage, schema: Schema) -> list[str]:
    """Return what a query says that its table does not fit."""
    names = {field.name for field in schema.row_keys}
    keys = dict.fromkeys(name for region in query.regions or () for name in region)
    unknown = [name for name in keys if name not in names and name != _BASE64]
    failures = [f'Key "{name}" was not a row key field in the table schema' for name in unknown]
    if not unknown:
        for document in query.regions or ():
            try:
                region_from_document(schema, document, base64_strings=True)
            except QueryInvalid as error:
                failures.append(str(error))
    missing = [each for each in query.requested_value_fields or () if each not in schema.names]
    return failures + [
        f'requestedValueFields: the table has no field "{each}"' for each in dict.fromkeys(missing)
    ]
