"""The least and the greatest key of data files, as far as readers of other formats may use them.

The references of a table have them as texts, so no file is read. Only the first field of the row
key has bounds: the next ones are in order only where it is equal. A bound is left out where readers
do not agree on its order, or write it otherwise; a reader without one reads the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.columns.joined import one_array
from sleeper.columns.type_traits import arrow_type
from sleeper.model.column_types import traits_of
from sleeper.model.schema import Field, Schema

TEXT_BYTES_MAX: Final = 256
"""A longer text is no bound: each reader would read it for each file."""

_FIRST_ITEM: Final = r'^\[(?P<item>"(?:[^"\\]|\\.)*"|[^,\]]*)'
"""The first item of a key's JSON."""

_ORDERED_OTHERWISE: Final = r"\\u(?:00[01]|[ef]|d[89a-f])"
"""Escapes of characters that readers with UTF-16 order otherwise, and of control characters.

Code points from U+E000 on come before others there, which are written as two units."""

_FIRST_DAY: Final = pa.array([-141_427], pa.int32()).cast(pa.date32())[0]
"""1582-10-15. Some readers count days before it by another calendar."""
_LAST_DAY: Final = pa.array([2_932_531], pa.int32()).cast(pa.date32())[0]
"""9998-12-31. Later times may be rounded to a year of five digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBounds:
    """The bounds of one key field in some files, in the order of the files.

    Attributes:
        field: The field.
        kind: How they are written: as `PublishedType.bound`.
        least: The JSON text of the least value of each file; null where it is left out.
        greatest: The same for the greatest value.
    """

    field: Field
    kind: str
    least: pa.Array
    greatest: pa.Array

    def values(self) -> tuple[pa.Array, pa.Array]:
        """Return both as values of the field's Arrow type; null where they are left out."""
        return self._values(self.least), self._values(self.greatest)

    def _values(self, texts: pa.Array) -> pa.Array:
        if self.kind == "text":
            return _unquoted(texts)
        return _plain(texts).cast(arrow_type(self.field.type))


def key_bounds(keys: pa.ChunkedArray, schema: Schema) -> KeyBounds | None:
    """Return the bounds of the first row key field; None if readers take none of its type.

    Args:
        keys: First and last row key of each file, as `FileReferences.data_files` has them.
        schema: The table's.
    """
    field = schema.row_keys[0]
    traits = traits_of(field.type)
    kind = None if traits is None else traits.published.bound
    if kind is None:
        return None
    pairs = pc.split_pattern(one_array(keys), "\n", max_splits=1)
    parts = (pc.list_element(pairs, place) for place in (0, 1))
    least, greatest = (
        _usable(_first_items(part, len(schema.row_keys)), field, kind) for part in parts
    )
    both = pc.and_(least.is_valid(), greatest.is_valid())
    none = pa.nulls(1, pa.large_string())[0]
    return KeyBounds(
        field=field,
        kind=kind,
        least=pc.if_else(both, least, none),
        greatest=pc.if_else(both, greatest, none),
    )


def _first_items(texts: pa.Array, key_fields: int) -> pa.Array:
    """Return the JSON of the first field of keys that are JSON lists; "" for no key."""
    if key_fields == 1:
        return pc.utf8_slice_codeunits(texts, 1, -1)
    return pc.struct_field(pc.extract_regex(texts, _FIRST_ITEM), "item").cast(pa.large_string())


def _usable(texts: pa.Array, field: Field, kind: str) -> pa.Array:
    """Return texts with null for each that is no bound for all readers."""
    good = pc.fill_null(pc.greater(pc.binary_length(texts), 0), fill_value=False)
    if kind == "text":
        short = pc.less_equal(pc.binary_length(texts), TEXT_BYTES_MAX)
        strange = pc.match_substring_regex(texts, _ORDERED_OTHERWISE)
        good = pc.and_(good, pc.fill_null(pc.and_not(short, strange), fill_value=False))
    elif kind in ("day", "time"):
        known = pc.if_else(good, _plain(texts), pa.nulls(1, pa.large_string())[0])
        days = known.cast(arrow_type(field.type)).cast(pa.date32(), safe=False)
        inside = pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less_equal(days, _LAST_DAY))
        good = pc.and_(good, pc.fill_null(inside, fill_value=False))
    return pc.if_else(good, texts, pa.nulls(1, pa.large_string())[0])


def _plain(texts: pa.Array) -> pa.Array:
    """Return texts without the quotes of JSON; none of them has an escape."""
    return pc.utf8_trim(texts, '"')


def _unquoted(texts: pa.Array) -> pa.Array:
    """Return the texts that JSON strings mean."""
    escaped = pc.fill_null(pc.match_substring(texts, "\\"), fill_value=False)
    plain = pc.utf8_slice_codeunits(texts, 1, -1)
    if not pc.any(escaped).as_py():
        return plain
    read = [json.loads(text) for text in texts.filter(escaped).to_pylist()]
    return pc.replace_with_mask(plain, escaped, pa.array(read, pa.large_string()))
