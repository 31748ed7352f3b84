"""The row keys of a purge, in the forms in which they are looked for."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.processing.known_keys import keys_inside
from sleeper.engine.sketches.sketch import number_of
from sleeper.errors import BadRequest
from sleeper.lookup.keys import key_batch, key_rows
from sleeper.model.files import key_to_text
from sleeper.model.keys import key_type, next_value, smallest_value, value_to_json
from sleeper.model.ranges import Region
from sleeper.model.row_deletes import RowDelete
from sleeper.model.schema import Schema
from sleeper.state.log_entry import KeyValue
from sleeper.state.table_state import TableState

BYTES_MIN: Final = 6
"""Shorter keys are not looked for among the bytes of objects: others have the same by chance."""

_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_UNICODE: Final = re.compile(r"\\u([0-9a-f]{4})")


class PurgedKeys:
    """The row keys of a purge. All of them are in memory.

    Args:
        given: The keys, as `Table.query(keys=...)` takes them.
        schema: The table's schema.
        arrow_schema: The same for Arrow.

    Attributes:
        batch: The keys, ascending and distinct.
        schema: As given.
        values: The values of each row key field, and of strings and bytes the next value after
            each, which is the limit of a region of one key.

    Raises:
        QueryInvalid: a key does not fit the schema.
        BadRequest: there is none.
    """

    def __init__(self, given: object, schema: Schema, arrow_schema: pa.Schema) -> None:
        self.batch = key_batch(given, schema, arrow_schema)
        self.schema = schema
        if not self.batch.num_rows:
            raise BadRequest("purge needs the keys of the rows that have to go, and got none")
        self._table = pa.Table.from_batches([self.batch])
        self._shared: list[set[Any]] | None = None
        self._kinds = [key_type(field) for field in schema.row_keys]
        plain = [set(column.to_pylist()) for column in self.batch.columns]
        self._exact: list[set[Any]] = [
            values - {smallest_value(kind)}  # which is a limit of every table
            for kind, values in zip(self._kinds, plain, strict=True)
        ]
        self.values: list[set[Any]] = [
            values | self._next(place) for place, values in enumerate(self._exact)
        ]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def is_single(self) -> bool:
        """Whether a row key is one value."""
        return len(self._kinds) == 1

    @property
    def table(self) -> pa.Table:
        """The keys, with the names of the row key columns."""
        return self._table

    def inside(self, region: Region) -> pa.Table:
        """Return the keys inside a region."""
        return keys_inside(self._table, region)

    def digest(self, salt: str) -> str:
        """Return a digest of all keys together."""
        rows = [
            [value_to_json(kind, value) for kind, value in zip(self._kinds, row, strict=True)]
            for row in key_rows(self.batch)
        ]
        return sha256(salt.encode() + json.dumps(rows).encode()).hexdigest()

    def json_values(self) -> set[KeyValue]:
        """Return the values of all fields as entries of the log have them."""
        return {
            value_to_json(kind, value)
            for kind, values in zip(self._kinds, self.values, strict=True)
            for value in values
        }

    def note_shared(self, shared: list[set[Any]]) -> None:
        """Note which values of each field other rows of files have too: nobody looks for these."""
        self._shared = shared

    def texts(self) -> list[bytes]:
        """Return the bytes by which values can be found among others, in each form.

        Of row keys of several fields these are the values that no row has any more.
        """
        found = set[bytes]()
        for kind, raws in zip(self._kinds, self._long_enough(), strict=True):
            for value, raw in raws.items():
                text = value_to_json(kind, value)
                found |= {raw, json.dumps(text)[1:-1].encode()}
                found.add(json.dumps(text, ensure_ascii=False)[1:-1].encode())
                found |= _escaped(raw, json.dumps(text)[1:-1])
        return sorted(found)

    def only_as_values(self) -> int:
        """Return how many keys have no value that is looked for by its bytes."""
        known = self._long_enough()
        return sum(
            all(value not in raws for value, raws in zip(row, known, strict=True))
            for row in key_rows(self.batch)
        )

    def sketched(self) -> set[Any]:
        """Return the values of the first field as sketches have them."""
        return {number_of(self._kinds[0], value) for value in self._exact[0]}

    def _long_enough(self) -> list[dict[Any, bytes]]:
        """Return the values of each field that are looked for by their bytes."""
        if not self.is_single and self._shared is None:
            return [{} for _ in self._kinds]
        shared = self._shared or [set() for _ in self._kinds]
        return [
            {value: raw for value in values - others if (raw := _bytes_of(value)) is not None}
            for values, others in zip(self._exact, shared, strict=True)
        ]

    def is_named_by(self, delete: RowDelete) -> bool:
        """Return whether a limit of a deletion is a value of a key."""
        return any(self._names(region) for region in delete.regions)

    def has_limit(self, dimension: int, value: Any) -> bool:
        """Return whether a limit of a partition is a value of a key."""
        return value in self.values[dimension]

    def named_in(self, state: TableState) -> list[str]:
        """Return what of a state has a key: references, limits of partitions, deletions."""
        found = [
            f"the first or last key of {name}" for name in self._files_named(state.files.to_arrow())
        ]
        found += [
            f"a limit of partition {each.partition_id}"
            for each in (state.partitions.partitions.values() if state.partitions else ())
            if self.is_single and self._names(each.region)
        ]
        found += [
            f"the deletion of rows by transaction {each.number}"
            for each in state.deletes
            if self._is_told(each)
        ]
        return [*dict.fromkeys(found)]

    def _is_told(self, delete: RowDelete) -> bool:
        """Return whether a deletion has a whole key, or a value that no row that stays has."""
        if self.is_single:
            return self.is_named_by(delete)
        shared = self._shared or [set() for _ in self._kinds]
        whole = {*map(tuple, key_rows(self.batch))}
        own = [values - others for values, others in zip(self._exact, shared, strict=True)]
        return any(
            tuple(side.min for side in region.ranges) in whole
            or any(
                side.min in values or side.max in values
                for side, values in zip(region.ranges, own, strict=True)
            )
            for region in delete.regions
        )

    def _files_named(self, references: pa.Table) -> list[str]:
        """Return the files whose first or last key is one of these: lines of a text."""
        texts = pa.array([key_to_text(row, self.schema) for row in key_rows(self.batch)])
        both = pc.split_pattern(references.column("keys"), "\n")
        of_file, stored = pc.list_parent_indices(both), pc.list_flatten(both)
        wanted = texts.drop_null().cast(stored.type)
        found = pc.is_in(stored, value_set=wanted)
        names = references.column("filename").take(of_file.filter(found))
        return sorted(pc.unique(names).to_pylist())

    def _names(self, region: Region) -> bool:
        return any(
            side.min in values or side.max in values
            for side, values in zip(region.ranges, self.values, strict=True)
        )

    def _next(self, place: int) -> set[Any]:
        kind = self._kinds[place]
        found = (
            next_value(kind, value)
            for value in self._exact[place]
            if isinstance(value, str | bytes)
        )
        return {value for value in found if value is not None}


def _escaped(raw: bytes, in_json: str) -> set[bytes]:
    """Return a text as in addresses of the web, and in JSON, with either case of hexadecimal."""
    in_addresses = {quote(raw, safe=""), quote(raw, safe="@"), quote(raw, safe="@:+,;=!$&'()*/")}
    lower = {_PERCENT.sub(lambda found: found[0].lower(), each) for each in in_addresses}
    upper = _UNICODE.sub(lambda found: rf"\u{found[1].upper()}", in_json)
    return {each.encode() for each in (*in_addresses, *lower, upper)}


def _bytes_of(value: Any) -> bytes | None:
    """Return the bytes of a text that is long enough to be looked for."""
    if not isinstance(value, str | bytes):
        return None
    raw = value.encode() if isinstance(value, str) else value
    return raw if len(raw) >= BYTES_MIN else None
