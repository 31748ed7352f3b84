"""Maps united entry by entry, and sums of decimals, against plain dicts and exact numbers."""

from __future__ import annotations

import logging
from datetime import date, timedelta
from decimal import Decimal
from itertools import groupby
from random import Random

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.processing.aggregations import Overflow
from sleeper.engine.processing.process import process
from sleeper.errors import SchemaInvalid
from sleeper.model.processing import Aggregation, Processing
from sleeper.model.schema import DecimalType, Field, MapType, Primitive, Schema

ENTRY_KEYS = {
    Primitive.INT: lambda n: n * 7919 - 50_000,
    Primitive.LONG: lambda n: n * 2**40 - 2**62,
    Primitive.STRING: lambda n: "é😀\0"[n % 4 :] + str(n),
    Primitive.BYTES: lambda n: bytes((n % 256, 0xFF, n // 256)),
    Primitive.DATE: lambda n: date(1970, 1, 1) + timedelta(days=n),
    Primitive.DOUBLE: lambda n: n / 8 - 3,
    Primitive.BOOLEAN: lambda n: n % 2 == 0,
    DecimalType(9, 2): lambda n: Decimal(n) / 4,
}
FOLDS = {"map_sum": sum, "map_min": min, "map_max": max}


def schema_of(kind):
    return Schema(row_keys=(Field("key", Primitive.LONG),), values=(Field("m", kind),))


def batches_of(schema, rows, size):
    whole = pa.Table.from_pylist(rows, to_arrow(schema)).combine_chunks()
    return [
        batch for at in range(0, len(rows), size) for batch in whole[at : at + size].to_batches()
    ]


def united(schema, rows, operation, size=10**6, overflow=Overflow.REFUSE):
    processing = Processing(aggregations=(Aggregation(operation, "m"),))
    batches = batches_of(schema, rows, size)
    found = list(process(batches, processing, schema, now_ms=0, overflow=overflow))
    assert all(batch.schema.equals(to_arrow(schema)) for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


class TestMaps:
    """The entries of a row's map stay in that row."""

    @pytest.mark.parametrize("operation", FOLDS)
    @pytest.mark.parametrize("kind", ENTRY_KEYS, ids=str)
    def test_of_many_rows_are_united_as_dicts_are(self, kind, operation):
        """Arrow groups by whole numbers in an order of its own, from some hundreds of them on."""
        schema = schema_of(MapType(kind, Primitive.LONG))
        for seed in range(5):
            pick = Random(f"{kind} {operation} {seed}")
            keys = sorted(pick.randrange(60) for _ in range(pick.choice((2, 50, 200))))
            spread = pick.choice((3, 50, 2000))
            rows = [
                {"key": key, "m": {ENTRY_KEYS[kind](pick.randrange(spread)): pick.randrange(99)}}
                for key in keys
            ]
            for row in rows:
                more = (ENTRY_KEYS[kind](pick.randrange(spread)) for _ in range(pick.randrange(9)))
                row["m"] |= {name: pick.randrange(99) for name in more}
            written = [{**row, "m": [*row["m"].items()]} for row in rows]

            found = united(schema, written, operation, pick.choice((1, 7, 10**6)))

            assert [(row["key"], row["m"]) for row in found] == [
                (key, [*folded([row["m"] for row in group], FOLDS[operation]).items()])
                for key, group in groupby(rows, key=lambda row: row["key"])
            ], f"seed {seed}"

    @pytest.mark.parametrize("operation", ["min", "max"])
    @pytest.mark.parametrize(
        "kind", [Primitive.STRING, Primitive.BYTES, DecimalType(9, 2)], ids=str
    )
    def test_values_that_are_no_whole_numbers_stay_in_their_rows(self, kind, operation):
        """They are grouped by the number of their row, which is a whole number too."""
        schema, pick = schema_of(kind), Random(f"{kind} {operation}")
        rows = [
            {"key": key, "m": ENTRY_KEYS[kind](pick.randrange(5000))}
            for key in sorted(pick.randrange(1500) for _ in range(4000))
        ]

        found = united(schema, rows, operation)

        fold = {"min": min, "max": max}[operation]
        assert found == [
            {"key": key, "m": fold(row["m"] for row in group)}
            for key, group in groupby(rows, key=lambda row: row["key"])
        ]


def folded(maps, fold):
    """Dicts united entry by entry; entries in the order they came in."""
    values = {}
    for each in maps:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    return {name: fold(each) for name, each in values.items()}


MONEY = schema_of(DecimalType(3, 1))
PURSES = schema_of(MapType(Primitive.INT, DecimalType(3, 1)))
TENTHS = st.integers(-999, 999).map(lambda n: Decimal(n) / 10)


class TestDecimals:
    """A sum is exact, whatever the rows on its way; its type limits only what is shown."""

    @given(
        rows=st.lists(st.tuples(st.integers(0, 2), TENTHS), max_size=30),
        size=st.integers(1, 9),
        cut=st.integers(1, 9),
    )
    @example(rows=[(0, Decimal("99.9"))] * 3 + [(0, Decimal("-99.9"))] * 2, size=2, cut=1)
    def test_are_the_same_sum_whether_rows_were_rewritten_before_or_not(self, rows, size, cut):
        """Rows whose sum does not fit are kept apart until others make it fit."""
        rows = [{"key": key, "m": value} for key, value in sorted(rows, key=lambda row: row[0])]

        rewritten = united(MONEY, rows, "sum", size, Overflow.KEEP_APART)
        again = united(MONEY, rewritten, "sum", cut, Overflow.KEEP_APART)
        shown = united(MONEY, again, "sum", cut, Overflow.LIMIT)

        limit = Decimal("99.9")
        assert shown == [
            {"key": key, "m": max(-limit, min(limit, sum(row["m"] for row in group)))}
            for key, group in groupby(rows, key=lambda row: row["key"])
        ]
        assert sum(row["m"] for row in again) == sum(row["m"] for row in rows)
        assert [row["key"] for row in again] == sorted(row["key"] for row in again)

    def test_in_maps_are_kept_apart_and_limited_too(self, caplog):
        """One entry too large keeps the row's maps apart; other rows are united."""
        large, small = Decimal("99.9"), Decimal("1.0")
        rows = [
            {"key": 1, "m": [(7, small), (8, large)]},
            {"key": 1, "m": [(7, small), (8, large)]},
            {"key": 2, "m": [(7, small)]},
            {"key": 2, "m": [(7, small)]},
        ]

        kept = united(PURSES, rows, "map_sum", overflow=Overflow.KEEP_APART)
        with caplog.at_level(logging.WARNING):
            shown = united(PURSES, kept, "map_sum", overflow=Overflow.LIMIT)

        assert kept == [*rows[:2], {"key": 2, "m": [(7, 2 * small)]}]
        assert shown == [{"key": 1, "m": [(7, 2 * small), (8, large)]}, kept[2]]
        assert "field 'm' does not fit" in caplog.text

    def test_in_maps_are_limited_after_rows_that_fit(self, caplog):
        """The row that may go on in the next batch is cut off, and its entries are not converted."""
        large = Decimal("99.9")
        rows = [{"key": 1, "m": [(7, large)]}, *([{"key": 2, "m": [(8, large)]}] * 2)]

        shown = united(PURSES, rows, "map_sum", overflow=Overflow.LIMIT)

        assert shown == rows[:2]
        assert "field 'm' does not fit" in caplog.text
        with pytest.raises(SchemaInvalid, match="the sum of field 'm' does not fit"):
            united(PURSES, rows, "map_sum")

    @pytest.mark.parametrize("schema", [MONEY, PURSES], ids=["plain", "in a map"])
    def test_of_rows_that_come_in_are_refused(self, schema):
        """There it can be told to those who can mend it."""
        large = Decimal("-99.9")
        value = large if schema is MONEY else [(1, large)]
        operation = "sum" if schema is MONEY else "map_sum"

        with pytest.raises(SchemaInvalid, match="the sum of field 'm' does not fit"):
            united(schema, [{"key": 1, "m": value}] * 2, operation)


@pytest.mark.filterwarnings("error")
def test_sums_of_infinities_are_no_number_and_no_warning():
    """Both infinities together are NaN, one with numbers is itself."""
    inf = float("inf")
    rows = [{"key": 1, "m": inf}, {"key": 1, "m": -inf}, {"key": 2, "m": inf}, {"key": 2, "m": 1.0}]

    (none, infinite) = united(schema_of(Primitive.DOUBLE), rows, "sum")

    assert str(none["m"]) == "nan"
    assert infinite["m"] == inf
