"""Random tables, trees and rows for the tests on Spark, and what must hold for their files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import shown_schema, to_arrow
from sleeper.engine.sketches.stored_sketch import read_stored_sketch
from sleeper.model.schema import DecimalType, Field, ListType, MapType, Primitive, Schema
from sleeper.storage.local.folder import FolderObjects

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VALUES = {
    Primitive.INT: st.integers(-4, 4) | st.integers(-(2**31), 2**31 - 1),
    Primitive.LONG: st.integers(-4, 4) | st.integers(-(2**63), 2**63 - 1),
    Primitive.STRING: st.text("abé\U0001f600￿\0", max_size=3),
    Primitive.BYTES: st.binary(max_size=3),
    Primitive.DATE: st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    Primitive.TIMESTAMP: st.integers(-(10**15), 10**15).map(
        lambda us: EPOCH + timedelta(microseconds=us)
    ),
    Primitive.FLOAT: st.floats(width=32, allow_nan=False),
    Primitive.DOUBLE: st.floats(allow_nan=False),
    Primitive.BOOLEAN: st.booleans(),
}
KEYS = [Primitive.INT, Primitive.LONG, Primitive.STRING, Primitive.BYTES]
KEYS += [Primitive.DATE, Primitive.TIMESTAMP]


def values_of(kind):
    match kind:
        case DecimalType(_, scale):
            return st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-scale))
        case ListType(element):
            return st.lists(VALUES[element], max_size=3)
        case MapType(key, value):
            return st.dictionaries(VALUES[key], VALUES[value], max_size=3).map(
                lambda entries: list(entries.items())
            )
        case _:
            return VALUES[kind]


VALUE_TYPES = [
    *VALUES,
    DecimalType(9, 2),
    ListType(Primitive.STRING),
    ListType(Primitive.LONG),
    MapType(Primitive.STRING, Primitive.LONG),
    MapType(Primitive.INT, Primitive.STRING),
]


@st.composite
def schemas(draw) -> Schema:
    """One or two row keys, perhaps a sort key, some values, nullable or not; in any order."""
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    sort_keys = draw(st.lists(st.sampled_from(KEYS), max_size=1))
    values = draw(
        st.lists(st.tuples(st.sampled_from(VALUE_TYPES), st.booleans()), min_size=1, max_size=4)
    )
    schema = Schema(
        row_keys=tuple(Field(f"k{n}", kind) for n, kind in enumerate(keys)),
        sort_keys=tuple(Field(f"s{n}", kind) for n, kind in enumerate(sort_keys)),
        values=tuple(Field(f"v {n}", kind, nullable) for n, (kind, nullable) in enumerate(values)),
    )
    return replace(schema, columns=draw(st.permutations(schema.names)))


def rows_of(schema: Schema, rows_max: int = 60):
    """Rows of a schema, as an Arrow table with its columns in the order of answers."""
    fields = {
        field.name: (st.none() | values_of(field.type) if field.nullable else values_of(field.type))
        for field in schema.fields
    }
    arrow_schema = shown_schema(schema, to_arrow(schema))
    return st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=rows_max).map(
        lambda rows: pa.Table.from_pylist(rows, schema=arrow_schema)
    )


def multiset(table: pa.Table) -> Counter:
    """Rows with how often each comes; the order of a map's entries says nothing."""
    return Counter(repr([_plain(value) for value in row.values()]) for row in table.to_pylist())


def _plain(value):
    return (
        sorted(value)
        if isinstance(value, list) and value and isinstance(value[0], tuple)
        else value
    )


def check_files(table, root: Path) -> None:
    """See that every file is sorted, inside its leaf, and what its reference and sketch say."""
    tree, names = table.state().tree, table.schema.key_names
    for reference in table.references():
        stored = pq.ParquetFile(root / table.table_id / reference.filename).read()
        leaf = tree.partition(reference.partition_id)
        assert leaf.is_leaf
        assert stored.schema.remove_metadata().equals(to_arrow(table.schema))
        assert stored.num_rows == reference.row_count
        keys = list(zip(*(_comparable(stored.column(name)) for name in names), strict=True))
        assert all(before <= after for before, after in pairwise(keys))
        row_keys = stored.select(table.schema.row_key_names).to_pylist()
        for row in row_keys:
            assert tree.leaf_of(tuple(_instant(value) for value in row.values())) == leaf
        files = FolderObjects(root / table.table_id)
        known = read_stored_sketch(files, reference, table.schema)
        assert known.row_count == reference.row_count
        for place, name in enumerate(table.schema.row_key_names):
            column = sorted(_comparable(stored.column(name)))
            assert _number(known.quantile(place, 0.0)) == column[0]
            assert _number(known.quantile(place, 1.0)) == column[-1]


def _comparable(column: pa.ChunkedArray) -> list:
    return [_number(value) for value in column.to_pylist()]


def _number(value):
    return value.encode() if isinstance(value, str) else value


def _instant(value):
    return value
