"""A value is stored and looked for as it is, or refused: by `key=`, `keys=` and in rows."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InputSchemaMismatch, QueryInvalid
from sleeper.model.schema import Field, Primitive, Schema

ONE_SECOND = datetime(1970, 1, 1, 0, 0, 1)
CASES = [
    (Primitive.LONG, 1, 1.5),
    (Primitive.LONG, 1, 1.0),
    (Primitive.LONG, 1, True),
    (Primitive.DATE, date(1970, 1, 1), ONE_SECOND),
    (Primitive.TIMESTAMP, ONE_SECOND.replace(tzinfo=UTC), ONE_SECOND),
    (Primitive.TIMESTAMP_NTZ, ONE_SECOND, ONE_SECOND.replace(tzinfo=UTC)),
    (Primitive.TIMESTAMP_NTZ, ONE_SECOND, pd.Timestamp(1_000_000_001, unit="ns")),
    (Primitive.BYTES, b"a", "a"),
    (Primitive.STRING, "a", b"a"),
]


@pytest.fixture
def instance():
    return sleeper.connect("memory://")


@pytest.mark.parametrize(("kind", "stored", "near"), CASES)
def test_a_value_of_another_kind_is_refused_in_every_door(instance, kind, stored, near):
    """What is like a stored value, but is not it, neither finds it nor becomes it."""
    table = instance.create_table("t", Schema(row_keys=(Field("k", kind),)))
    table.ingest([{"k": stored}])

    for question in ({"key": near}, {"keys": [near]}, {"keys": [stored, near]}):
        with pytest.raises(QueryInvalid, match="'k'"):
            table.query(**question)
    for rows in ([{"k": near}], [{"k": stored}, {"k": near}], [{"k": None}, {"k": near}]):
        with pytest.raises(InputSchemaMismatch, match=rf"row {len(rows) - 1} .*'k'"):
            table.ingest(rows)

    assert table.query(keys=[stored]).to_pylist() == [{"k": stored}]


@pytest.mark.parametrize(
    ("kind", "first", "value"),
    [
        (Primitive.FLOAT, 1.0, 1e39),
        (Primitive.TIMESTAMP_NTZ, None, pd.Timestamp(1, unit="ns")),
        (Primitive.DATE, None, ONE_SECOND),
        (Primitive.STRING, None, b"bytes"),
        (Primitive.BYTES, None, "text"),
        (Primitive.DOUBLE, 1.5, True),
    ],
)
def test_first_rows_decide_nothing_about_later_ones(instance, kind, first, value):
    """A value field is checked row by row against the schema; row, field and value are named."""
    schema = Schema(
        row_keys=(Field("k", Primitive.LONG),), values=(Field("v", kind, nullable=True),)
    )
    table = instance.create_table("t", schema)
    rows = [{"k": 1, "v": first}, {"k": 2, "v": value}]

    for given in (rows, pd.DataFrame(rows, dtype=object)):
        with pytest.raises(InputSchemaMismatch, match=r"row 1 .*'v'") as refused:
            table.ingest(given)

        assert repr(value) in str(refused.value)


def test_arrays_of_other_libraries_are_cast_only_where_nothing_is_lost(instance):
    """In `keys=` as in an ingest."""
    table = instance.create_table("t", Schema(row_keys=(Field("k", Primitive.LONG),)))
    table.ingest(pa.table({"k": [1.0, 2.0]}))

    assert table.query(keys=np.array([1.0])).count() == 1
    assert table.query(keys=pd.Series([1, 2], dtype="int8")).count() == 2
    with pytest.raises(QueryInvalid, match=r"'k'.*truncated"):
        table.query(keys=np.array([1.5]))
    with pytest.raises(QueryInvalid, match=r"'k'.*bool"):
        table.query(keys=np.array([True]))
    with pytest.raises(InputSchemaMismatch, match=r"'k'.*truncated"):
        table.ingest(pa.table({"k": [1.5]}))
