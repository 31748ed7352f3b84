"""Conditions in SQL at random, each written for DataFusion and for DuckDB."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from sleeper.model.schema import DecimalType, Field, Primitive, Schema
from tests.random_tables.random_values import ValueSource
from tests.random_tables.table_model import Row

_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)


@dataclass(frozen=True)
class Written:
    """The same condition, for DataFusion and for DuckDB."""

    ours: str
    theirs: str


class ConditionSource:
    """Conditions over the columns of a table.

    Args:
        pick: Where chance comes from.
        schema: The table's.
        source: Where values come from that the table may not have.
        rows: The table's.
    """

    def __init__(self, pick: Random, schema: Schema, source: ValueSource, rows: list[Row]) -> None:
        self._pick = pick
        self._schema = schema
        self._source = source
        self._rows = rows
        kinds = (Primitive, DecimalType)
        self._plain = [each for each in schema.fields if isinstance(each.type, kinds)]
        self._keys = [*schema.row_keys]

    def condition(self, depth: int = 3) -> Written:
        """Return a condition; conditions on row keys are likelier than others."""
        pick = self._pick
        if depth == 0 or pick.random() < 0.25:
            return self._comparison()
        match pick.randrange(5):
            case 0 | 1 | 2:
                word = pick.choice(("AND", "AND", "OR"))
                parts = [self.condition(depth - 1) for _ in range(pick.choice((2, 2, 3)))]
                return Written(
                    f"({f' {word} '.join(part.ours for part in parts)})",
                    f"({f' {word} '.join(part.theirs for part in parts)})",
                )
            case 3:
                part = self.condition(depth - 1)
                return Written(f"(NOT {part.ours})", f"(NOT {part.theirs})")
            case _:
                part = self.condition(depth - 1)
                word = pick.choice(("IS TRUE", "IS NOT TRUE", "IS NOT NULL", "IS NULL"))
                return Written(f"({part.ours}) {word}", f"({part.theirs}) {word}")

    def of_keys(self) -> str:
        """Return comparisons of row keys joined by AND: most of them need no plan."""
        parts = [self._comparison(of_key=True).ours for _ in range(self._pick.choice((1, 1, 2, 3)))]
        return " AND ".join(
            part[1:-1] if part.startswith("(") and " BETWEEN " in part else part for part in parts
        )

    def _comparison(self, *, of_key: bool = False) -> Written:
        pick = self._pick
        field = pick.choice(self._keys if of_key or pick.random() < 0.7 else self._plain)
        columns = Written(quoted(field.name), their_column(self._schema, field))
        if field.type is Primitive.BOOLEAN:
            return columns
        match pick.randrange(8):
            case 0:
                word = pick.choice(("IN", "NOT IN"))
                values = [self._literal(field) for _ in range(pick.choice((1, 2, 5)))]
                if pick.random() < 0.1:
                    values.append(Written("NULL", "NULL"))
                return Written(
                    f"{columns.ours} {word} ({', '.join(value.ours for value in values)})",
                    f"{columns.theirs} {word} ({', '.join(value.theirs for value in values)})",
                )
            case 1:
                word = pick.choice(("BETWEEN", "NOT BETWEEN"))
                low, high = self._literal(field), self._literal(field)
                return Written(
                    f"({columns.ours} {word} {low.ours} AND {high.ours})",
                    f"({columns.theirs} {word} {low.theirs} AND {high.theirs})",
                )
            case 2:
                word = pick.choice(("IS NULL", "IS NOT NULL"))
                return Written(f"{columns.ours} {word}", f"{columns.theirs} {word}")
            case 3 | 4 if field.type is Primitive.STRING:
                return self._pattern(field, columns)
            case _:
                word, value = pick.choice(_COMPARISONS), self._literal(field)
                return Written(
                    f"{columns.ours} {word} {value.ours}", f"{columns.theirs} {word} {value.theirs}"
                )

    def _pattern(self, field: Field, columns: Written) -> Written:
        pick = self._pick
        value = self._value(field)
        start = "".join(char for char in value if char not in "\0\\%_")[: pick.randrange(4)]
        if pick.random() < 0.3:
            text = _text(start)
            name = "starts_with"
            return Written(f"{name}({columns.ours}, {text})", f"{name}({columns.theirs}, {text})")
        word = pick.choice(("LIKE", "NOT LIKE", "LIKE", "ILIKE"))
        pattern = _text(start + pick.choice(("", "%", "%", "_", "%a", "%_%", "_%")))
        return Written(f"{columns.ours} {word} {pattern}", f"{columns.theirs} {word} {pattern}")

    def _literal(self, field: Field) -> Written:
        return literal(self._value(field), field)

    def _value(self, field: Field) -> Any:
        """Return a value of a row, or another one that SQL text can hold."""
        pick = self._pick
        while True:
            value = None
            if self._rows and pick.random() < 0.6:
                value = pick.choice(self._rows)[field.name]
            if value is None:
                value = self._source.value(field.type)
            if not (isinstance(value, str) and "\0" in value):
                return value


def literal(value: Any, field: Field) -> Written:
    """Return a constant of a field."""
    match value:
        case str():
            return Written(_text(value), _text(value))
        case bytes():
            hexes = "".join(f"\\x{byte:02X}" for byte in value)
            return Written(f"X'{value.hex()}'", f"'{hexes}'::BLOB")
        case datetime():
            text = value.isoformat()
            kind = "TIMESTAMPTZ" if field.type is Primitive.TIMESTAMP else "TIMESTAMP"
            # DataFusion reads text alone as nanoseconds first, which end in the year 2262.
            zone = " WITH TIME ZONE" if field.type is Primitive.TIMESTAMP else ""
            ours = f"CAST('{text}' AS TIMESTAMP(6){zone})"
            return Written(ours, f"'{text}'::{kind}")
        case date():
            return Written(f"'{value.isoformat()}'", f"'{value.isoformat()}'::DATE")
        case time():
            return Written(f"'{value.isoformat()}'", f"'{value.isoformat()}'::TIME")
        case timedelta():
            count = value // timedelta(microseconds=1)
            return Written(f"INTERVAL '{count} microseconds'", f"to_microseconds({count})")
        case Decimal():
            assert isinstance(field.type, DecimalType)
            kind = f"DECIMAL({field.type.precision}, {field.type.scale})"
            text = f"CAST('{value:f}' AS {kind})"
            return Written(text, text)
        case float():
            value += 0.0  # -0.0 in a list is refused
            kind = "REAL" if field.type is Primitive.FLOAT else "DOUBLE"
            text = str(value) if math.isfinite(value) else str(value).replace("inf", "infinity")
            return Written(f"CAST('{text}' AS {kind})", f"CAST('{text}' AS {kind})")
        case _:
            return Written(str(value), str(value))


def quoted(name: str) -> str:
    """Return a name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def their_column(schema: Schema, field: Field) -> str:
    """Return the column of DuckDB's table: its names do not depend on case, ours do."""
    return f"c{schema.fields.index(field)}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
