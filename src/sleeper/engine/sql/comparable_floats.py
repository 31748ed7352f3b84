"""Gives the SQL engine floating-point numbers that it compares as SQL does.

For SQL -0.0 equals 0.0, and NaN equals NaN and is greater than all numbers. DataFusion compares
bits where it hashes constants (IN, CASE), divides windows and sorts, and it orders NaN by its sign:
a NaN that a processor computed usually has one. So DataFusion gets zeros without a sign, and one
NaN. What `query` returns is the number as it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.rows import Rows
from sleeper.engine.sql.table_scan import NarrowedRead, ScannedTable
from sleeper.engine.sql.whole_files import WholeFiles
from sleeper.state.plans.key_conditions import Condition

_STORED: Final = "stored "
_COMPARED_BY_DATAFUSION: Final = (pa.float32(), pa.float64())


def comparable_table(table: ScannedTable) -> ScannedTable:
    """Return a table whose floating-point numbers are those that SQL compares."""
    if not _float_names(table.arrow_schema):
        return table
    return _changed(table, {})


def comparable_and_stored(table: ScannedTable) -> tuple[ScannedTable, dict[str, str]]:
    """Return such a table that has these numbers as they are stored as well.

    Returns:
        The table, and the names of the columns as they are stored by the names in the table.
    """
    schema = table.arrow_schema
    floats = _float_names(schema)
    if not floats:
        return table, {}
    start = _STORED
    while any(name.startswith(start) for name in schema.names):
        start += "_"
    stored = {name: start + name for name in floats}
    fields = [schema.field(name).with_name(stored[name]) for name in floats]
    both = replace(table, arrow_schema=pa.schema([*schema, *fields]))
    return _changed(both, {theirs: name for name, theirs in stored.items()}), stored


@dataclass(frozen=True, slots=True)
class ComparableRead:
    """A read whose floating-point numbers are changed; `NarrowedRead` says more.

    Attributes:
        stored: The read of the numbers as they are.
        unchanged: Columns that are read as they are stored: the names in the table, by their own.
    """

    stored: NarrowedRead
    unchanged: Mapping[str, str]

    @property
    def is_exact(self) -> bool:
        """True if every row that is read meets the condition: conditions are on keys."""
        return self.stored.is_exact

    @property
    def transaction(self) -> int:
        """The transaction number of the state that is read."""
        return self.stored.transaction

    def rows(self, columns: Sequence[str] | None, *, rows_max: int | None = None) -> Rows:
        """Return the rows with these columns; without any, with all columns of the table."""
        needed = None
        if columns is not None:
            needed = [*dict.fromkeys(self.unchanged.get(name, name) for name in columns)]
        rows = self.stored.rows(needed, rows_max=rows_max)
        names = rows.schema.names if columns is None else [*columns]
        sources = [self.unchanged.get(name, name) for name in names]
        if names == sources == rows.schema.names:
            return _comparable_rows(rows)
        fields = [
            rows.schema.field(source).with_name(name)
            for name, source in zip(names, sources, strict=True)
        ]
        schema = pa.schema(fields)

        def batches() -> Iterator[pa.RecordBatch]:
            with rows:
                for batch in rows:
                    found = [
                        batch.column(source) if source != name else comparable(batch.column(source))
                        for name, source in zip(names, sources, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(found, schema=schema)

        return _with_batches(rows, batches(), schema)

    def whole_files(self, rows_min: int) -> WholeFiles | None:
        """Return the files, and which of their columns have floating-point numbers."""
        files = self.stored.whole_files(rows_min)
        if files is None:
            return None
        names = frozenset(_float_names(files.arrow_schema))
        plain = {each.name for each in files.arrow_schema if each.type in _COMPARED_BY_DATAFUSION}
        return replace(files, comparable=names & plain, changed=names - plain)

    def explain(self) -> str:
        """Return what is read."""
        return self.stored.explain()


def _comparable_rows(rows: Rows) -> Rows:
    """Return rows with all numbers as SQL compares them."""
    schema = rows.schema
    floats = [_has_floats(field.type) for field in schema]
    if not any(floats):
        return rows

    def batches() -> Iterator[pa.RecordBatch]:
        with rows:
            for batch in rows:
                pairs = zip(batch.columns, floats, strict=True)
                found = [comparable(each) if is_float else each for each, is_float in pairs]
                yield pa.RecordBatch.from_arrays(found, schema=schema)

    return _with_batches(rows, batches(), schema)


def _with_batches(rows: Rows, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Rows:
    """Return as many rows as others, which are counted as those are."""
    return Rows(
        *(batches, schema, rows.transaction),
        counter=rows.count,
        known_count=rows.known_count,
    )


def comparable(array: pa.Array) -> pa.Array:
    """Return an array whose zeros have no sign, and whose NaN is one; also inside others.

    >>> comparable(pa.array([-0.0, 1.5])).to_pylist()
    [0.0, 1.5]
    """
    kind = array.type
    if pa.types.is_floating(kind):
        without_sign = pc.add(array, pa.scalar(0.0, kind))  # -0.0 + 0.0 is 0.0
        return pc.if_else(pc.is_nan(array), pa.scalar(math.nan, kind), without_sign)
    if not _has_floats(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [comparable(array.field(at)) for at in range(kind.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=kind.fields, mask=mask)
    # A batch may be a slice of a large one: only its own values are taken.
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    places = pc.subtract(array.offsets, start)
    mask = array.is_null() if array.null_count else None
    values = array.values.slice(start, end - start)
    if pa.types.is_map(kind):
        keys, items = values.field(0), comparable(values.field(1))
        return pa.MapArray.from_arrays(places, keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(places, comparable(values), type=kind, mask=mask)


def _changed(table: ScannedTable, unchanged: Mapping[str, str]) -> ScannedTable:
    def narrowed(condition: Condition) -> ComparableRead:
        return ComparableRead(table.narrowed(condition), unchanged)

    return replace(table, narrowed=narrowed)


def _float_names(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _has_floats(field.type)]


def _has_floats(kind: pa.DataType) -> bool:
    """Return whether values of a type are floating-point numbers, or have some."""
    if pa.types.is_list(kind):
        return _has_floats(kind.value_type)
    if pa.types.is_map(kind):
        return _has_floats(kind.item_type)
    if pa.types.is_struct(kind):
        return any(_has_floats(part.type) for part in kind.fields)
    return bool(pa.types.is_floating(kind))
