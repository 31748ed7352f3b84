"""Where the results of a query go, as the query's message says (rules QRY-10, QRY-11, QRY-13)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from sleeper.model.formats.message_json import write_message
from sleeper.model.known_properties.table import CODEC
from sleeper.model.known_properties.value_kinds import BYTE_SIZE, POSITIVE, Kind
from sleeper.model.schema import Schema


class ResultsDestination(StrEnum):
    """What takes the rows of an answer, by upstream's names."""

    S3 = "S3"
    SQS = "SQS"
    WEBSOCKET = "WEBSOCKET"
    NOTHING = "NoResultsOutput"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPublishing:
    """How the rows of an answer are published. What is None is up to the instance.

    Attributes:
        destination: What takes them.
        bucket: The bucket for files. Files lie in the instance's own place here, whatever it says.
        compression: How files are compressed.
        row_group_bytes: Bytes in a row group of a file.
        page_bytes: Bytes in a page of a file.
        queue_url: The queue that takes them.
        batch_rows: Rows in a message to that queue.
    """

    destination: ResultsDestination = ResultsDestination.S3
    bucket: str | None = None
    compression: str | None = None
    row_group_bytes: int | None = None
    page_bytes: int | None = None
    queue_url: str | None = None
    batch_rows: int | None = None


_DESTINATION: Final = "destination"
_TEXT: Final = Kind("text", str)
_OPTIONS: Final[Mapping[ResultsDestination, Mapping[str, tuple[str, Kind[Any]]]]] = {
    ResultsDestination.S3: {
        "bucket": ("bucket", _TEXT),
        "compressionCodec": ("compression", CODEC),
        "rowGroupSize": ("row_group_bytes", BYTE_SIZE),
        "pageSize": ("page_bytes", BYTE_SIZE),
    },
    ResultsDestination.SQS: {
        "sqsResultsUrl": ("queue_url", _TEXT),
        "batchSize": ("batch_rows", POSITIVE),
    },
    ResultsDestination.WEBSOCKET: {},
    ResultsDestination.NOTHING: {},
}


def read_results_publishing(config: Mapping[str, str]) -> tuple[ResultsPublishing, list[str]]:
    """Return how results are published, and every reason why they cannot be, as said.

    Args:
        config: The message's `resultsPublisherConfig`; files for an empty one (rule QRY-10).
    """
    named = config.get(_DESTINATION, "").strip() or ResultsDestination.S3
    by_name = {each.lower(): each for each in ResultsDestination}
    destination = by_name.get(named.lower())
    if destination is None:
        known = ", ".join(each for each in ResultsDestination if each in built_destinations())
        return ResultsPublishing(), [
            f"Unknown results publisher from config: destination is {named!r}; known: {known}"
        ]
    values: dict[str, Any] = {}
    failures = []
    for name, (attribute, kind) in _OPTIONS[destination].items():
        text = config.get(name, "").strip()
        try:
            values[attribute] = kind.parse(text) if text else None
        except ValueError:
            failures.append(
                f"resultsPublisherConfig: {name} is {text!r}, but it must be {kind.wanted}"
            )
    publishing = ResultsPublishing(destination=destination, **values)
    if destination is ResultsDestination.SQS and publishing.queue_url is None:
        failures.append("resultsPublisherConfig: sqsResultsUrl must be provided for SQS")
    if destination not in built_destinations():
        failures.append(
            f"resultsPublisherConfig: destination {destination} is not built yet. Without a "
            "destination the rows are written to a file in the instance's own place"
        )
    return publishing, failures


def built_destinations() -> tuple[ResultsDestination, ...]:
    """Return the destinations that results can go to."""
    return (ResultsDestination.S3, ResultsDestination.SQS, ResultsDestination.NOTHING)


def unused_options(config: Mapping[str, str], publishing: ResultsPublishing) -> list[str]:
    """Return the options that change nothing, sorted: unknown ones, and the bucket."""
    used = {_DESTINATION, *_OPTIONS[publishing.destination]} - {"bucket"}
    return sorted(config.keys() - used)


# ---------------------------------------------------------------- rows of a query as a message
#
# Rows of a query as a message, as upstream's clients read it (rule QRY-11).
#
#     {"queryId": "june", "schema": {"rowKeyFields": [...], ...}, "rows": [{"key": "a"}, ...]}
#
# The schema has the fields of the rows.

MESSAGE_BYTES_MAX: Final = 262_144
"""What a queue takes: Amazon's limit for a message until 2025, and that of its emulators."""


@dataclass(frozen=True, slots=True)
class ResultsBatch:
    """What stands around the rows of a message.

    Attributes:
        before: The text before the rows.
        after: The text behind them.
    """

    before: str
    after: str

    @property
    def rows_bytes_max(self) -> int:
        """How many bytes the rows may have."""
        return MESSAGE_BYTES_MAX - len((self.before + self.after).encode())

    def message(self, rows: str) -> str:
        """Return the message with these rows, which are objects in JSON with commas between."""
        return f"{self.before}{rows}{self.after}"


def results_batch(query_id: str, schema: Schema, columns: Collection[str]) -> ResultsBatch:
    """Return what stands around the rows of a query.

    Args:
        query_id: The query.
        schema: The table's.
        columns: The fields of the rows, with all keys.

    >>> from sleeper.model.schema import Field, Primitive, Schema
    >>> schema = Schema(row_keys=[Field("id", Primitive.LONG)])
    >>> results_batch("june", schema, ["id"]).before[:64]
    '{"queryId":"june","schema":{"rowKeyFields":[{"name":"id","type":'
    """
    values = tuple(field for field in schema.values if field.name in columns)
    groups = json.loads(replace(schema, values=values, columns=()).to_json())
    for field in itertools.chain(*groups.values()):
        field.setdefault("nullable", False)
    said = write_message({"queryId": query_id, "schema": groups})
    return ResultsBatch(said.removesuffix("}") + ',"rows":[', "]}")
