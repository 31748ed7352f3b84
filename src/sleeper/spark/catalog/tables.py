"""How a table is described to Spark, and which table CREATE TABLE asks for.

Spark has columns, and properties that are texts. Row keys and sort keys are the properties
`row_keys` and `sort_keys`, in CREATE TABLE and SHOW TBLPROPERTIES alike; DESCRIBE shows them as
comments of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sleeper.errors import BadRequest
from sleeper.model.schema import Schema
from sleeper.spark.column_names import columns_from_text, columns_to_text
from sleeper.spark.data_source.schema import to_spark_schema

if TYPE_CHECKING:  # an extra, and slow to import
    from pyspark.sql.types import StructType

ROW_KEYS: Final = "row_keys"
SORT_KEYS: Final = "sort_keys"

_OURS: Final = "sleeper.table."
# Set by Spark itself, whatever the user says; they have no meaning for a table of ours.
_OF_SPARK: Final = frozenset({"owner", "is_managed_location", "table_type"})


def describe_table(
    name: str, schema: Schema, properties: Mapping[str, str], version: int
) -> dict[str, Any]:
    """Return what Spark needs to know of a table, as values of JSON.

    Args:
        name: Its name.
        schema: Its schema.
        properties: What was set for it, by full property name.
        version: The transaction number that is described.
    """
    shown = {key: value for key, value in properties.items() if key != "sleeper.table.schema"}
    keys = {ROW_KEYS: columns_to_text(field.name for field in schema.row_keys)}
    if schema.sort_keys:
        keys[SORT_KEYS] = columns_to_text(field.name for field in schema.sort_keys)
    return {
        "table": name,
        "version": version,
        "schema": to_spark_schema(schema).jsonValue(),
        "comments": {
            field.name: f"{kind} {number}" if len(fields) > 1 else kind
            for kind, fields in (("row key", schema.row_keys), ("sort key", schema.sort_keys))
            for number, field in enumerate(fields, 1)
        },
        "properties": {**shown, **keys, "provider": "sleeper"},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A table that CREATE TABLE asks for.

    Attributes:
        columns: Its columns. Keys may count as nullable; a table has none that are null.
        row_keys, sort_keys: The names of its keys.
        properties: Its properties, by full name.
    """

    columns: StructType
    row_keys: list[str]
    sort_keys: list[str]
    properties: dict[str, str]


def new_table(columns: Mapping[str, Any], given: Mapping[str, str]) -> NewTable:
    """Return the table that columns and properties of CREATE TABLE describe.

    Args:
        columns: A Spark schema as JSON.
        given: The properties: `row_keys`, `sort_keys`, those of tables, and what Spark adds.

    Raises:
        BadRequest: no row key is named, a name is unknown, or there is something that tables lack.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415 - an extra, and slow to import

    # Spark repeats each of OPTIONS with this prefix.
    texts = {key: text for key, text in given.items() if not key.startswith("option.")}
    provider = texts.pop("provider", "sleeper")
    if provider != "sleeper":
        raise BadRequest(
            f"a table of Sleeper cannot be USING {provider}: leave USING out. saveAsTable names "
            "Spark's default: write a new table by df.writeTo('sleeper.NAME')"
            ".tableProperty('row_keys', 'COLUMN').create()"
        )
    kind = StructType.fromJson(dict(columns))
    names = kind.fieldNames()
    row_keys = _named(texts, ROW_KEYS, names)
    sort_keys = _named(texts, SORT_KEYS, names)
    if not row_keys:
        raise BadRequest(
            "name the columns that are row keys: TBLPROPERTIES ('row_keys' = 'id'), or "
            ".tableProperty('row_keys', 'id') of writeTo, and 'sort_keys' where there are any; the "
            f"columns are {', '.join(names)}"
        )
    for name in [*texts]:
        if name not in _OF_SPARK and not name.startswith(_OURS):
            raise BadRequest(
                f"a table of Sleeper has no {name!r}: it has row_keys, sort_keys and properties "
                f"such as {_OURS}parquet.compression.codec (docs/reference/properties.md)"
            )
    return NewTable(
        columns=kind,
        row_keys=row_keys,
        sort_keys=sort_keys,
        properties={name: text for name, text in texts.items() if name.startswith(_OURS)},
    )


def _named(texts: dict[str, str], name: str, columns: Iterable[str]) -> list[str]:
    """Take a property with names of columns out of `texts`."""
    named = columns_from_text(texts.pop(name, ""), f"property {name!r}")
    known = [*columns]
    if unknown := [column for column in named if column not in known]:
        raise BadRequest(f"{name} names {unknown[0]!r}; the columns are {', '.join(known)}")
    return named
