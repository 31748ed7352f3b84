"""Filters and aggregations over a stream: the same whatever the batches it comes in."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.processing.process import process
from sleeper.errors import SchemaInvalid
from sleeper.model.processing import AgeOff, Aggregation, Processing
from sleeper.model.schema import DecimalType, Field, MapType, Primitive, Schema

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def schema_of(**values):
    """A table of one row key and one sort key, with value fields of these types."""
    return Schema(
        row_keys=(Field("key", Primitive.STRING),),
        sort_keys=(Field("sort", Primitive.INT),),
        values=tuple(Field(name, kind) for name, kind in values.items()),
    )


def batches_of(schema, rows, sizes=(10**6,)):
    """Rows (tuples in key order) as batches; sizes are taken in turn."""
    arrow_schema = to_arrow(schema)
    columns = [
        pa.array([row[n] for row in rows], kind) for n, kind in enumerate(arrow_schema.types)
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=arrow_schema)
    batches, start, turn = [], 0, 0
    while start < len(rows):
        size = sizes[turn % len(sizes)]
        batches.append(whole.slice(start, size))
        start, turn = start + size, turn + 1
    return batches


def aggregated(schema, rows, sizes=(10**6,), **operations):
    """What aggregations make of rows, as tuples."""
    found = Processing(aggregations=tuple(Aggregation(op, name) for name, op in operations.items()))
    batches = list(process(batches_of(schema, rows, sizes), found, schema, now_ms=NOW_MS))
    assert all(batch.schema.equals(to_arrow(schema)) for batch in batches)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def aged(kind, values, max_age_ms, *, nullable=False):
    """Which values of a field an age-off keeps."""
    schema = Schema(row_keys=(Field("key", Primitive.INT),), values=(Field("at", kind, nullable),))
    batches = batches_of(schema, list(enumerate(values)))
    kept = process(batches, Processing((AgeOff("at", max_age_ms),)), schema, now_ms=NOW_MS)
    return [value for batch in kept for value in batch.column("at").to_pylist()]


class TestAgeOff:
    """A row stays while its field is not null and younger than the limit (rule PRC-2)."""

    def test_drops_a_row_exactly_as_old_as_the_limit(self):
        """The comparison is strict: now - value < limit."""
        kept = aged(Primitive.LONG, [NOW_MS - 1001, NOW_MS - 1000, NOW_MS - 999, NOW_MS + 5], 1000)

        assert kept == [NOW_MS - 999, NOW_MS + 5]

    def test_drops_nulls(self):
        """No instant is no youth."""
        assert aged(Primitive.LONG, [None, NOW_MS], 1000, nullable=True) == [NOW_MS]

    @pytest.mark.parametrize("zone", [UTC, None])
    def test_knows_timestamps(self, zone):
        """A timestamp counts as its instant, one without a zone as UTC."""
        kind = Primitive.TIMESTAMP if zone else Primitive.TIMESTAMP_NTZ
        edge = NOW.replace(tzinfo=zone) - timedelta(seconds=1)
        after = edge + timedelta(microseconds=1)

        assert aged(kind, [edge, after, datetime.min.replace(tzinfo=zone)], 1000) == [after]

    def test_knows_dates(self):
        """A date counts as its midnight in UTC: on 1 June at noon, 31 May is 36 hours old."""
        days = [date(2025, 5, 30), date(2025, 5, 31), date(2025, 6, 1)]

        assert aged(Primitive.DATE, days, 36 * 3_600_000) == days[2:]
        assert aged(Primitive.DATE, days, 36 * 3_600_000 + 1) == days[1:]

    @pytest.mark.parametrize("kind", [Primitive.LONG, Primitive.TIMESTAMP, Primitive.DATE])
    def test_may_reach_back_further_than_time_does(self, kind):
        """A limit of any number of milliseconds is allowed; nothing overflows."""
        first = {
            Primitive.LONG: -(2**63) + NOW_MS + 2,
            Primitive.TIMESTAMP: datetime.min.replace(tzinfo=UTC),
            Primitive.DATE: date.min,
        }[kind]

        assert aged(kind, [first], 2**63 - 1) == [first]

    def test_may_look_at_a_key(self):
        """A key field ages like any other."""
        schema = Schema(row_keys=(Field("at", Primitive.LONG),))
        batches = batches_of(schema, [(0,), (NOW_MS,)])

        kept = process(batches, Processing((AgeOff("at", 1),)), schema, now_ms=NOW_MS)

        assert [batch.to_pylist() for batch in kept] == [[{"at": NOW_MS}]]

    def test_comes_before_aggregation(self):
        """What is too old is not counted (rule PRC-1)."""
        schema = schema_of(at=Primitive.LONG)
        both = Processing((AgeOff("at", 1000),), (Aggregation("sum", "at"),))
        rows = [("a", 1, NOW_MS), ("a", 1, 5), ("b", 1, 5)]

        kept = list(process(batches_of(schema, rows), both, schema, now_ms=NOW_MS))

        assert [batch.to_pylist() for batch in kept] == [[{"key": "a", "sort": 1, "at": NOW_MS}]]


class TestAggregations:
    """Rows of equal row and sort keys become one (rule PRC-5)."""

    def test_unite_rows_of_equal_keys_only(self):
        """Both the row key and the sort key must be equal."""
        schema = schema_of(n=Primitive.LONG)
        rows = [("a", 1, 1), ("a", 1, 2), ("a", 2, 4), ("b", 2, 8), ("b", 2, 16)]

        assert aggregated(schema, rows, n="sum") == [("a", 1, 3), ("a", 2, 4), ("b", 2, 24)]

    def test_let_sums_wrap_around(self):
        """Integers overflow as two's complement does, alone and inside maps."""
        schema = schema_of(
            i=Primitive.INT, n=Primitive.LONG, m=MapType(Primitive.BYTES, Primitive.INT)
        )
        rows = [("a", 1, 2**31 - 1, 2**63 - 1, [(b"x", 2**31 - 1)]), ("a", 1, 1, 1, [(b"x", 1)])]

        found = aggregated(schema, rows, i="sum", n="sum", m="map_sum")

        assert found == [("a", 1, -(2**31), -(2**63), [(b"x", -(2**31))])]

    def test_take_the_least_and_greatest_by_the_types_order(self):
        """Code points, unsigned bytes, time, number."""
        cases = {
            Primitive.STRING: ["\uffff", "", "😀", "a\0"],
            Primitive.BYTES: [b"\x7f", b"\x80", b"\xff\0", b"\xff"],
            Primitive.DATE: [date.max, date.min, date(1970, 1, 1)],
            Primitive.TIMESTAMP: [NOW, NOW - timedelta(microseconds=1)],
            Primitive.TIMESTAMP_NTZ: [datetime.max, datetime.min],
            Primitive.FLOAT: [0.5, -0.25, math.inf],
            Primitive.DOUBLE: [-math.inf, 1e308],
            DecimalType(5, 2): [Decimal("999.99"), Decimal("-999.99")],
        }
        schema = schema_of(**{str(n): kind for n, kind in enumerate(cases)})
        longest = max(map(len, cases.values()))
        rows = [
            ("a", 1, *(values[n % len(values)] for values in cases.values()))
            for n in range(longest)
        ]

        for operation, best in (("min", min), ("max", max)):
            found = aggregated(
                schema, rows, **dict.fromkeys([f.name for f in schema.values], operation)
            )

            assert found == [("a", 1, *(best(values) for values in cases.values()))]

    @pytest.mark.parametrize("operation", ["min", "max"])
    def test_pass_over_what_is_not_a_number(self, operation):
        """NaN is the least or greatest only where there is nothing else."""
        schema = schema_of(x=Primitive.DOUBLE)
        rows = [
            ("a", 1, math.nan),
            ("a", 1, 2.0),
            ("a", 1, math.nan),
            ("b", 1, math.nan),
            ("b", 1, math.nan),
        ]

        (_, _, number), (_, _, none) = aggregated(schema, rows, x=operation)

        assert number == 2.0
        assert math.isnan(none)

    def test_unite_maps_entry_by_entry(self):
        """The union of the keys; empty maps add nothing."""
        schema = schema_of(m=MapType(Primitive.STRING, Primitive.LONG))
        rows = [
            ("a", 1, [("x", 1), ("y", 5)]),
            ("a", 1, []),
            ("a", 1, [("z", 7), ("x", 3)]),
            ("b", 1, []),
            ("b", 1, []),
        ]

        def united(operation):
            return [sorted(m) for _, _, m in aggregated(schema, rows, m=operation)]

        assert united("map_sum") == [[("x", 4), ("y", 5), ("z", 7)], []]
        assert united("map_min") == [[("x", 1), ("y", 5), ("z", 7)], []]
        assert united("map_max") == [[("x", 3), ("y", 5), ("z", 7)], []]

    @pytest.mark.parametrize(
        "kind", [Primitive.DATE, Primitive.BOOLEAN, DecimalType(4, 1), Primitive.INT]
    )
    def test_unite_maps_of_any_key(self, kind):
        """What an entry is called by may be of any primitive type."""
        name = {Primitive.DATE: date.min, Primitive.BOOLEAN: True, Primitive.INT: -1}.get(
            kind, Decimal("1.5")
        )
        schema = schema_of(m=MapType(kind, DecimalType(4, 1)))
        rows = [("a", 1, [(name, Decimal("1.5"))])] * 3

        assert aggregated(schema, rows, m="map_sum") == [("a", 1, [(name, Decimal("4.5"))])]

    def test_refuse_a_sum_that_its_decimal_type_cannot_hold(self):
        """Digits are not dropped in silence; the message names the field."""
        for kind in (DecimalType(3, 2), DecimalType(38, 2)):
            largest = Decimal("9" * (kind.precision - 2) + ".99")
            rows = [("a", 1, largest)] * 3

            with pytest.raises(SchemaInvalid, match="field 'money'"):
                aggregated(schema_of(money=kind), rows, money="sum")

    def test_do_without_fields_that_were_not_read(self):
        """A query for some columns aggregates those."""
        schema = schema_of(n=Primitive.LONG, x=Primitive.DOUBLE)
        both = Processing(aggregations=(Aggregation("sum", "n"), Aggregation("max", "x")))
        batches = batches_of(schema, [("a", 1, 1, 0.5), ("a", 1, 2, 0.0)])
        narrow = (batch.select(["x", "sort", "key"]) for batch in batches)

        (found,) = process(narrow, both, schema, now_ms=NOW_MS)

        assert found.to_pylist() == [{"x": 0.5, "sort": 1, "key": "a"}]

    def test_hand_out_a_group_as_soon_as_it_is_complete(self):
        """One batch in, one batch out: only the last group waits for the next key."""
        schema = schema_of(n=Primitive.LONG)
        seen = []

        def stream():
            for batch in batches_of(schema, [(key, 1, 1) for key in "aabbccdd"], sizes=(3,)):
                seen.append(batch.num_rows)
                yield batch

        rows = process(
            stream(), Processing(aggregations=(Aggregation("sum", "n"),)), schema, now_ms=0
        )

        assert next(rows).to_pylist() == [{"key": "a", "sort": 1, "n": 2}]
        assert seen == [3]
        assert [row["n"] for batch in rows for row in batch.to_pylist()] == [2, 2, 2]


class TestStreams:
    """Batches are how rows travel, and mean nothing."""

    @given(
        rows=st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.integers(0, 2),
                st.integers(-(2**31), 2**31 - 1),
                st.integers(-(2**63), 2**63 - 1),
                st.text("a😀", max_size=2),
                st.binary(max_size=2),
                st.decimals(-9, 9, places=1),
                st.dictionaries(st.sampled_from("xyz"), st.integers(-(2**31), 2**31 - 1)),
            ),
            max_size=40,
        ),
        sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
        operations=st.tuples(
            *[st.sampled_from(["sum", "min", "max"])] * 2,
            *[st.sampled_from(["min", "max"])] * 2,
            st.sampled_from(["sum", "min", "max"]),
            st.sampled_from(["map_sum", "map_min", "map_max"]),
        ),
    )
    def test_give_what_a_plain_fold_gives(self, rows, sizes, operations):
        """Groups may span any number of batches; the result is the model's."""
        schema = schema_of(
            i=Primitive.INT,
            n=Primitive.LONG,
            s=Primitive.STRING,
            b=Primitive.BYTES,
            d=DecimalType(6, 1),
            m=MapType(Primitive.STRING, Primitive.INT),
        )
        rows.sort(key=lambda row: row[:2])
        names = [field.name for field in schema.values]
        written = [(*row[:-1], [*row[-1].items()]) for row in rows]

        found = aggregated(schema, written, sizes, **dict(zip(names, operations, strict=True)))

        assert [(*row[:-1], dict(row[-1])) for row in found] == model(rows, operations)

    def test_pass_unchanged_without_processing(self):
        """Nothing to do is nothing done; tables are taken for batches."""
        schema = schema_of(n=Primitive.LONG)
        batches = batches_of(schema, [("a", 1, 1), ("a", 1, 2)], sizes=(1,))

        assert list(process(batches, Processing(), schema, now_ms=0)) == batches
        assert (
            list(process([pa.Table.from_batches(batches)], Processing(), schema, now_ms=0))
            == batches
        )

    def test_may_be_empty(self):
        """No rows, and batches without rows, give no batches."""
        schema = schema_of(n=Primitive.LONG)
        total = Processing((AgeOff("n", 5),), (Aggregation("sum", "n"),))
        empty = to_arrow(schema).empty_table()

        assert list(process([], total, schema, now_ms=0)) == []
        assert list(process([empty, empty], total, schema, now_ms=0)) == []


def model(rows, operations):
    """Aggregations as plain Python."""
    found = []
    for key, group in groupby(rows, key=lambda row: row[:2]):
        columns = list(zip(*group, strict=True))[2:]
        found.append(
            (
                *key,
                *(
                    fold(op, column, at)
                    for at, (op, column) in enumerate(zip(operations, columns, strict=True))
                ),
            )
        )
    return found


def fold(operation, values, at):
    bits = {0: 32, 1: 64, 5: 32}.get(at)
    if operation.startswith("map_"):
        names = {name for value in values for name in value}
        inner = operation.removeprefix("map_")
        return {name: fold(inner, [v[name] for v in values if name in v], at) for name in names}
    if operation != "sum":
        return {"min": min, "max": max}[operation](values)
    total = sum(values)
    return total if bits is None else (total + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
