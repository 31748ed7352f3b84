"""What a table should hold, as plain Python: a list of rows, and what processing makes of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from itertools import groupby
from typing import Any

from sleeper.model.processing import AgeOff, Aggregation, Processing
from sleeper.model.schema import DecimalType, Field, FieldType, MapType, Primitive, Schema

Row = dict[str, Any]
_BITS = {Primitive.INT: 32, Primitive.LONG: 64}


class SumTooLarge(Exception):
    """Rows that come in have a sum of decimals that its field cannot hold."""


class TableModel:
    """All rows that a table was given, before anything was done to them but counting.

    Attributes:
        rows: They, in no order.
    """

    def __init__(self, schema: Schema, processing: Processing, now: datetime) -> None:
        self.schema = schema
        self.rows: list[Row] = []
        self._processing = processing
        self._now = now
        self._ends = processing.kept_end
        keys = schema.row_keys if self._ends else schema.keys
        self._group_names = [field.name for field in keys]

    def ingest(self, rows: list[Row]) -> None:
        """Add rows, all or none.

        Raises:
            SumTooLarge: they are refused.
        """
        counted = self._processing.counted_fields
        fresh = [
            {
                name: value if name not in counted else int(value is not None)
                for name, value in row.items()
            }
            for row in rows
        ]
        kept = [row for row in fresh if self._is_kept(row)]
        self._folded(kept, refuse=True)
        self.rows += kept

    def upsert(self, rows: list[Row]) -> None:
        """Put rows in place of all that have the row keys of those that filters leave."""
        kept = [row for row in rows if self._is_kept(row)]
        names = self.schema.row_key_names
        replaced = {tuple(row[name] for name in names) for row in kept}
        self.remove(lambda row: tuple(row[name] for name in names) in replaced)
        self.ingest(kept)

    def remove(self, is_gone: Callable[[Row], bool]) -> None:
        """Take rows away, before they are united."""
        self.rows = [row for row in self.rows if not is_gone(row)]

    def remove_shown(self, is_gone: Callable[[Row], bool]) -> None:
        """Take away what became rows of which something holds as they are shown."""
        gone = [row for row in self.shown() if is_gone(row)]
        if not self._processing.aggregations:
            self.remove(is_gone)
            return
        groups = {self._group(row) for row in gone}
        self.remove(lambda row: self._group(row) in groups)

    def _group(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._group_names)

    def shown(self) -> list[Row]:
        """The rows of the table in key order, with the columns in its order."""
        rows = self._folded(self.rows, refuse=False)
        return [{name: row[name] for name in self.schema.columns} for row in rows]

    def _is_kept(self, row: Row) -> bool:
        return all(_is_young(row[each.field], each, self._now) for each in self._processing.filters)

    def _folded(self, rows: list[Row], *, refuse: bool) -> list[Row]:
        names = self.schema.key_names
        ordered = sorted(rows, key=lambda row: [row[name] for name in names])
        if not self._processing.aggregations:
            return ordered
        groups = groupby(ordered, key=lambda row: [row[name] for name in self._group_names])
        return [self._united([*group], refuse=refuse) for _, group in groups]

    def _united(self, group: list[Row], *, refuse: bool) -> Row:
        kept = group[-1] if self._ends == "last" else group[0]
        row = {field.name: kept[field.name] for field in self.schema.keys}
        by_name = {each.field: each for each in self._processing.aggregations}
        for field in self.schema.values:
            values = [each[field.name] for each in group]
            row[field.name] = _aggregate(by_name[field.name], field, values, refuse=refuse)
        return row


def _is_young(value: Any, age_off: AgeOff, now: datetime) -> bool:
    if value is None:
        return False
    limit_ms = int(now.timestamp() * 1000) - age_off.max_age_ms
    if isinstance(value, datetime):
        since = value - datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return since // timedelta(microseconds=1) > limit_ms * 1000
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days > limit_ms // 86_400_000
    return bool(value > limit_ms)


def _aggregate(aggregation: Aggregation, field: Field, values: list[Any], *, refuse: bool) -> Any:
    match aggregation.operation:
        case "first":
            return values[0]
        case "last":
            return values[-1]
        case "count":
            return sum(values)
        case operation if operation.startswith("map_"):
            assert isinstance(field.type, MapType)
            entries: dict[Any, list[Any]] = {}
            for each in values:
                for name, value in each.items():
                    entries.setdefault(name, []).append(value)
            inner = operation.removeprefix("map_")
            kind = field.type.value
            return {name: _fold(inner, kind, each, refuse=refuse) for name, each in entries.items()}
        case operation:
            return _fold(operation, field.type, values, refuse=refuse)


def _fold(operation: str, kind: FieldType, values: list[Any], *, refuse: bool) -> Any:
    if operation != "sum":
        numbers = [value for value in values if not _is_nan(value)]
        return {"min": min, "max": max}[operation](numbers) if numbers else math.nan
    if isinstance(kind, DecimalType):
        with localcontext(prec=100):
            total = sum(values, Decimal(0))
            limit = Decimal((0, (9,) * kind.precision, -kind.scale))
            if refuse and abs(total) > limit:
                raise SumTooLarge
            return max(-limit, min(limit, total))
    bits = _BITS.get(kind) if isinstance(kind, Primitive) else None
    total = sum(values)
    return total if bits is None else (total + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def comparable(value: Any) -> Any:
    """Return a value so that equal means equal to the last bit, and NaN equals NaN."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else ("float", struct.pack("<d", value))
        case list():
            return tuple(map(comparable, value))
        case dict():
            return frozenset((comparable(name), comparable(item)) for name, item in value.items())
        case bool() | Decimal():
            return (type(value).__name__, str(value))
        case _:
            return value


def comparable_rows(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Return rows as tuples that can be compared and counted."""
    return [tuple(comparable(value) for value in row.values()) for row in rows]
