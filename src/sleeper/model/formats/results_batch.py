"""Rows of a query as a message, as upstream's clients read it (rule QRY-11).

    {"queryId": "june", "schema": {"rowKeyFields": [...], ...}, "rows": [{"key": "a"}, ...]}

The schema has the fields of the rows.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from sleeper.language.value_classes import dataclass
from sleeper.model.formats.message_json import write_message
from sleeper.model.schema import Schema

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
    >>> results_batch("june", schema, ["id"]).before[:63]
    '{"queryId":"june","schema":{"rowKeyFields":[{"name":"id","type":'
    """
    values = tuple(field for field in schema.values if field.name in columns)
    groups = json.loads(replace(schema, values=values, columns=()).to_json())
    for field in itertools.chain(*groups.values()):
        field.setdefault("nullable", False)
    said = write_message({"queryId": query_id, "schema": groups})
    return ResultsBatch(said.removesuffix("}") + ',"rows":[', "]}")
