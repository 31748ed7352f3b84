"""Python objects become Arrow values unchanged, in each of the three doors alike."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sleeper.columns.any_values import checked_column
from sleeper.columns.python_values import MISFITS, python_array
from sleeper.columns.type_traits import arrow_type
from sleeper.engine.arrow_schema import conform, to_arrow
from sleeper.engine.inputs.sources import batches_of_dicts
from sleeper.errors import InputSchemaMismatch, QueryInvalid
from sleeper.lookup.keys import key_batch, key_rows
from sleeper.model.queries import exact_key
from sleeper.model.schema import KEY_TYPES, DecimalType, Field, ListType, MapType, Primitive, Schema
from tests.soak import tries

BERLIN = ZoneInfo("Europe/Berlin")


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class NoOffset(datetime):
    """A subclass, as test clocks have."""


odd_zones = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.floats(width=32).map(np.float32),
    st.sampled_from([2**31, 2**63, -(2**63), 2**24 + 1, 2**53 + 1, Level.LOW, np.bool_(True)]),
    st.sampled_from([Fraction(1, 2), Fraction(2), Decimal("1.5"), Decimal(2), Decimal("NaN")]),
    st.sampled_from([np.timedelta64(1, "s"), np.array(5), np.longdouble("0.1"), 1e39, 2.0]),
)
texts = st.one_of(
    st.text(),
    st.binary(),
    st.binary().map(bytearray),
    st.binary().map(memoryview),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).map(np.str_),
    st.sampled_from(["\ud800", Colour.RED, np.bytes_(b"x")]),
)
times = st.one_of(
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.datetimes(timezones=st.just(BERLIN)),
    st.datetimes(timezones=odd_zones),
    st.sampled_from(
        [
            pd.Timestamp(1, unit="ns"),
            pd.Timestamp(1_000, unit="ns"),
            pd.Timestamp(1, unit="ns", tz="UTC"),
            pd.Timestamp(datetime(2020, 1, 1), tz="Europe/Berlin"),
            pd.Timestamp(np.datetime64("20000-01-01", "s")),
            np.datetime64(1, "us"),
            NoOffset(2020, 1, 1),
            datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
            datetime.min.replace(tzinfo=timezone(timedelta(hours=2))),
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-2))),
        ]
    ),
)
anything = st.one_of(
    numbers, texts, times, st.sampled_from([None, pd.NA, pd.NaT, [], (), {}, object(), Colour])
)


def by_key(schema: Schema, value: object) -> object:
    """What `key=` looks for; None where it is refused."""
    try:
        whole = exact_key(schema, value)
    except QueryInvalid:
        return None
    return None if whole is None else whole[0]


def by_keys(schema: Schema, value: object) -> object:
    try:
        return key_rows(key_batch([value], schema, to_arrow(schema)))[0][0]
    except QueryInvalid:
        return None


def by_ingest(schema: Schema, value: object) -> object:
    """What a row of this value has in its key field; null is for others to refuse."""
    try:
        (batch,) = batches_of_dicts([{"k": value}], to_arrow(schema), "rows")
    except InputSchemaMismatch:
        return None
    table = conform(
        batch, to_arrow(schema), key_names=["k"], ignore_extra_columns=False, origin="rows"
    )
    return table["k"][0].as_py()


@pytest.mark.soak
@settings(max_examples=tries(400, soak=20_000))
@given(st.sampled_from(KEY_TYPES), anything)
@example(Primitive.LONG, 1.5)
@example(Primitive.DATE, datetime(2020, 1, 1, 5))
@example(Primitive.TIMESTAMP, datetime(2020, 1, 1))
@example(Primitive.BYTES, "text")
@example(Primitive.STRING, b"bytes")
@example(Primitive.TIMESTAMP_NTZ, pd.Timestamp(1, unit="ns"))
@example(Primitive.TIMESTAMP, datetime(2020, 1, 1, tzinfo=timezone(timedelta(microseconds=5))))
def test_key_and_keys_and_rows_agree_on_every_value(kind, value):
    """All three refuse it, or all three take it for the same value."""
    if isinstance(value, list | tuple | dict):
        return  # a key in parts
    schema = Schema(row_keys=(Field("k", kind),))

    found = [by_key(schema, value), by_keys(schema, value), by_ingest(schema, value)]

    assert found[0] == found[1] == found[2]
    assert type(found[0]) is type(found[1]) is type(found[2])


class TestRefused:
    """Values that pyarrow alone would change."""

    @pytest.mark.parametrize(
        ("kind", "value", "says"),
        [
            (Primitive.LONG, 1.5, "a float is not an integer"),
            (Primitive.LONG, 2.0, "a float is not an integer"),
            (Primitive.LONG, Decimal("1.5"), "Decimal"),
            (Primitive.INT, np.bool_(True), "bool is not"),
            (Primitive.INT, 2**31, "too large"),
            (Primitive.STRING, b"a", "bytes is not a string"),
            (Primitive.BYTES, "a", "str is not bytes"),
            (Primitive.DATE, 1, "int is not"),
            (Primitive.DATE, datetime(2020, 1, 1, 5), "datetime is not"),
            (Primitive.TIMESTAMP, datetime(2020, 1, 1), "no time zone"),
            (Primitive.TIMESTAMP, 1.5, "float is not"),
            (Primitive.TIMESTAMP_NTZ, pd.Timestamp(1, unit="ns"), "nanoseconds"),
            (Primitive.TIMESTAMP_NTZ, datetime(2020, 1, 1, tzinfo=UTC), "has a time zone"),
            (Primitive.FLOAT, 1e39, "out of the range"),
            (Primitive.FLOAT, 1e-50, "out of the range"),
            (Primitive.FLOAT, 2**24 + 1, "exactly"),
            (Primitive.DOUBLE, True, "bool is not a number"),
            (Primitive.DOUBLE, 2**53 + 1, "exactly"),
            (Primitive.DOUBLE, np.longdouble("0.1"), "longdouble"),
            (Primitive.BOOLEAN, 1, "int is not True"),
            (DecimalType(5, 2), Decimal("1.005"), "data loss"),
            (DecimalType(5, 2), Decimal("NaN"), "NaN"),
            (DecimalType(5, 2), 1.5, "float is not a Decimal"),
            (ListType(Primitive.LONG), [1.5], "float is not"),
            (ListType(Primitive.LONG), np.array([1.5]), "float64 is not"),
            (ListType(Primitive.LONG), b"ab", "bytes is not a list"),
            (ListType(Primitive.STRING), "ab", "str is not a list"),
            (ListType(Primitive.FLOAT), [1e39], "out of the range"),
            (ListType(Primitive.STRING), [b"a"], "bytes is not a string"),
            (MapType(Primitive.STRING, Primitive.LONG), {"a": 1.5}, "float is not"),
            (MapType(Primitive.STRING, Primitive.LONG), {None: 1}, "null"),
            (MapType(Primitive.STRING, Primitive.LONG), {b"a": 1}, "bytes is not a string"),
            (MapType(Primitive.STRING, Primitive.LONG), ["ab"], "not a pair"),
            (MapType(Primitive.STRING, Primitive.LONG), [("a", 1, 2)], "pairs"),
        ],
    )
    def test_with_the_reason_whatever_comes_before(self, kind, value, says):
        """A None or a good value first decides nothing about the others."""
        want = arrow_type(kind)

        for before in ([], [None], [None, None]):
            with pytest.raises(MISFITS, match=says):
                python_array([*before, value], want)


class TestTaken:
    """Values that mean the same in Arrow."""

    @pytest.mark.parametrize(
        ("kind", "value", "as_arrow"),
        [
            (Primitive.LONG, np.uint8(200), 200),
            (Primitive.LONG, Level.LOW, 1),
            (Primitive.STRING, Colour.RED, "red"),
            (Primitive.BYTES, memoryview(b"abcd")[::2], b"ac"),
            (Primitive.DOUBLE, float("inf"), float("inf")),
            (Primitive.FLOAT, float("-inf"), float("-inf")),
            (Primitive.FLOAT, np.float16(0.5), 0.5),
            (Primitive.FLOAT, 0, 0.0),
            (Primitive.BOOLEAN, np.bool_(True), True),
            (DecimalType(5, 2), Decimal("1.50000"), Decimal("1.50")),
            (DecimalType(5, 2), np.int64(3), Decimal("3.00")),
            (ListType(Primitive.INT), (1, np.int8(2)), [1, 2]),
            (ListType(Primitive.INT), np.array([1, 2]), [1, 2]),
            (ListType(Primitive.INT), [], []),
            (MapType(Primitive.STRING, Primitive.LONG), [("a", 1), ["b", 2]], [("a", 1), ("b", 2)]),
            (Primitive.STRING, pd.NA, None),
            (Primitive.TIMESTAMP, pd.NaT, None),
        ],
    )
    def test_with_nulls_beside_them(self, kind, value, as_arrow):
        """In lists and maps too."""
        array = python_array([None, value, None], arrow_type(kind))

        assert array.type == arrow_type(kind)
        assert array.to_pylist() == [None, as_arrow, None]

    @given(st.lists(st.one_of(st.none(), st.datetimes(timezones=odd_zones)), max_size=5))
    def test_instants_of_any_zone_are_exact(self, values):
        """Offsets of less than a second too, which pyarrow drops."""
        early, late = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
        values = [value for value in values if value is None or early < value < late]

        assert python_array(values, arrow_type(Primitive.TIMESTAMP)).to_pylist() == values


class TestColumns:
    """Arrays of other libraries say their type themselves."""

    @pytest.mark.parametrize(
        "values",
        [
            np.array([1, 2], np.int16),
            np.array([1.0, 2.0]),
            np.array([1, 2], object),
            pa.array([1, 2], pa.uint8()),
            pa.chunked_array([[1], [2]]),
            pl.Series([1, 2]),
            pd.Series([1, 2]),
            pd.Series([1, 2], dtype=object),
            pd.Index([1, 2]),
            (1, 2),
            iter([1, 2]),
            range(1, 3),
        ],
        ids=lambda values: f"{type(values).__module__}-{type(values).__name__}",
    )
    def test_may_hold_what_the_field_holds(self, values):
        """Each is the same column."""
        assert checked_column(values, pa.int64()).to_pylist() == [1, 2]

    @pytest.mark.parametrize(
        ("values", "kind", "says"),
        [
            (np.array([1.5]), Primitive.LONG, "1.5|truncated"),
            (np.array([1.5], object), Primitive.LONG, "number 0, 1.5: a float"),
            (pd.Series([1, b"a"], dtype=object), Primitive.LONG, "number 1, b'a'"),
            (np.array([True]), Primitive.LONG, "they are bool"),
            (np.array([1], "datetime64[D]"), Primitive.TIMESTAMP, "date32"),
            (np.array([1], "datetime64[us]"), Primitive.TIMESTAMP, "timestamp"),
            (np.array([1], "datetime64[ns]"), Primitive.TIMESTAMP_NTZ, "lose data"),
            (np.array([1], "datetime64[us]"), Primitive.DATE, "timestamp"),
            (pa.array([2**40]), Primitive.INT, "1099511627776"),
            (pa.array([-(2**62)], pa.timestamp("us")), Primitive.TIMESTAMP_NTZ, "years 1 to 9999"),
        ],
    )
    def test_are_refused_where_a_value_would_change(self, values, kind, says):
        """The message shows it."""
        with pytest.raises(ValueError, match=says):
            checked_column(values, arrow_type(kind))
