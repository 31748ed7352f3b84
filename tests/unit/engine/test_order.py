"""Python, polars, pyarrow, DataFusion and Parquet's statistics order keys alike."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime

import datafusion
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.columns.type_traits import arrow_type
from sleeper.engine.sorting.key_order import OrderedRows
from sleeper.model.schema import KEY_TYPES, Primitive

# Text that begins alike, and characters on both sides of what UTF-16 writes with surrogates.
TEXTS = st.one_of(
    st.text(alphabet="ab\0\x7fé\ud7ff\ue000\uffff\U00010000\U0010ffff", max_size=12),
    st.text(max_size=20),
    st.text(alphabet="ab", max_size=3).map("a shared beginning ".__add__),
)
BYTES = st.one_of(
    st.binary(max_size=12),
    st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), max_size=12).map(bytes),
)
VALUES = {
    Primitive.INT: st.integers(-(2**31), 2**31 - 1),
    Primitive.LONG: st.integers(-(2**63), 2**63 - 1),
    Primitive.STRING: TEXTS,
    Primitive.BYTES: BYTES,
    Primitive.DATE: st.dates(),
    Primitive.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    Primitive.TIMESTAMP_NTZ: st.datetimes(),
}
EXTREMES = {
    Primitive.INT: [-(2**31), -1, 0, 2**31 - 1],
    Primitive.LONG: [-(2**63), -1, 0, 2**63 - 1],
    Primitive.STRING: ["", "\0", "a", "a\0", "é", "\ud7ff", "\uffff", "\U00010000", "\U0010ffff"],
    Primitive.BYTES: [b"", b"\0", b"\x7f", b"\x7f\xff", b"\x80", b"\xff", b"\xff\0"],
    Primitive.DATE: [date.min, date(1969, 12, 31), date(1970, 1, 1), date.max],
    Primitive.TIMESTAMP: [
        datetime.min.replace(tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
    Primitive.TIMESTAMP_NTZ: [datetime.min, datetime(1969, 12, 31), datetime.max],
}


def column_of(kind: Primitive, values: list) -> pa.Array:
    return pa.array(values, arrow_type(kind))


def sorted_by_ours(column: pa.Array) -> list:
    ordered = OrderedRows(pa.table({"k": column}), ["k"])
    return ordered.take(0, len(column))["k"].to_pylist()


def sorted_by_datafusion(column: pa.Array) -> list:
    context = datafusion.SessionContext()
    context.register_record_batches("t", [[pa.record_batch({"k": column})]])
    return context.sql("select k from t order by k").to_arrow_table()["k"].to_pylist()


def statistics_of(column: pa.Array) -> tuple:
    output = io.BytesIO()
    pq.write_table(pa.table({"k": column}), output)
    found = pq.ParquetFile(output).metadata.row_group(0).column(0).statistics
    return found.min, found.max


@pytest.mark.parametrize("kind", KEY_TYPES)
class TestKeysOfEachType:
    """Every type that a key may have (rule SCH-8)."""

    def test_are_ordered_by_every_engine_as_by_python(self, kind):
        """The same values, sorted five ways, are the same list."""

        @given(st.lists(VALUES[kind], min_size=1, max_size=40))
        def check(drawn):
            values = drawn + EXTREMES[kind]
            column, expected = column_of(kind, values), sorted(values)

            assert sorted_by_ours(column) == expected
            assert pl.Series(pl.from_arrow(column)).sort().to_arrow().to_pylist() == expected
            assert column.take(pc.sort_indices(column)).to_pylist() == expected

        check()

    def test_are_ordered_by_datafusion_and_statistics_as_by_python(self, kind):
        """ORDER BY sorts so, and a row group's least and largest value are Python's."""
        values = EXTREMES[kind][::-1]
        column = column_of(kind, values)

        assert sorted_by_datafusion(column) == sorted(values)
        assert statistics_of(column) == (min(values), max(values))
