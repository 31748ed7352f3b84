"""Avro files of encoded columns."""

from __future__ import annotations

from io import BytesIO

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.columns.joined import joined_bytes
from sleeper.engine.published.avro import avro_file, file_metadata, long_bytes, longs, sized

RECORD = {
    "type": "record",
    "name": "pair",
    "fields": [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}],
}
LONGS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(LONGS))
def test_a_column_of_longs_is_encoded_as_each_of_them(values):
    """Given any longs, then the column has the bytes of each."""
    encoded = longs(pa.array(values, pa.int64()))

    assert encoded.to_pylist() == [long_bytes(value) for value in values]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (2**31, "8080808010")],
)
def test_longs_are_as_the_specification_of_avro_has_them(value, encoded):
    """Zigzag, seven bits a byte, the lowest first."""
    assert long_bytes(value).hex() == encoded


@given(st.lists(st.tuples(LONGS, st.text(st.characters(exclude_categories=["Cs"]))), min_size=1))
def test_another_reader_reads_what_was_written(pairs):
    """Given records, then polars has them."""
    numbers = pa.array([number for number, _ in pairs], pa.int64())
    texts = pa.array([text for _, text in pairs], pa.large_string())

    body = avro_file(RECORD, {"mine": "é"}, joined_bytes([longs(numbers), sized(texts)]))

    assert pl.read_avro(BytesIO(body)).rows() == pairs
    assert file_metadata(body)["mine"] == "é"


@pytest.mark.parametrize("length", [0, 3, 5, 9, 40])
def test_the_head_of_a_file_that_ends_too_early_is_refused(length):
    """Given the first bytes of a file, then the error is one that callers expect."""
    body = avro_file(RECORD, {"mine": "text"}, pa.array([], pa.large_binary()))

    with pytest.raises(ValueError, match=r"ends too early|does not begin"):
        file_metadata(body[:length])
