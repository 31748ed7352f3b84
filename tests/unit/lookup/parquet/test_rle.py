"""Indexes of dictionaries, as pyarrow writes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.lookup.parquet.rle import read_runs

RUNS = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(0, 2**20 - 1), min_size=8, max_size=24)),
    min_size=1,
    max_size=6,
)


def encoded(runs, width):
    """Return the bytes of runs, and the numbers that they hold."""
    data, numbers = bytes([width]), []
    for packed, some in runs:
        values = [value % (1 << width) for value in some]
        if packed:
            values = values[: len(values) // 8 * 8]
            bits = sum(value << (width * place) for place, value in enumerate(values))
            data += bytes([len(values) // 8 << 1 | 1]) + bits.to_bytes(
                width * len(values) // 8, "little"
            )
        else:
            values = values[:1] * len(values)
            data += bytes([len(values) << 1]) + values[0].to_bytes((width + 7) // 8, "little")
        numbers += values
    return data, numbers


@given(pages=st.lists(st.tuples(RUNS, st.integers(0, 20)), min_size=1, max_size=3))
def test_numbers_of_any_runs_are_read_one_by_one_and_together(pages):
    """Repeated and packed, of several pages with widths of their own."""
    parts = [encoded(runs, width) for runs, width in pages]
    numbers = [number for _, some in parts for number in some]

    runs = read_runs([(data, len(some)) for data, some in parts])

    assert runs.length == len(numbers)
    assert runs.at(np.arange(len(numbers))).tolist() == numbers
    assert [runs.one(place) for place in range(len(numbers))] == numbers


def test_runs_after_the_wanted_rows_are_not_looked_at():
    """A look-up of an early row does not depend on what is behind it."""
    data, numbers = encoded([(True, list(range(8))), (False, [3] * 9)], 4)

    assert read_runs([(data[:-1], 17)], needed=8).at(np.arange(8)).tolist() == numbers[:8]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "impossible width"),
        (b"\x21\x02\x00", "impossible width"),
        (b"\x04\x03\x00\x00", "damaged"),
        (b"\x04\x06\x01", "fewer indexes"),
        (b"\x04\x80", "within a number"),
    ],
)
def test_damaged_runs_are_refused(data, complaint):
    """Whatever bytes there are."""
    with pytest.raises(ValueError, match=complaint):
        read_runs([(data, 8)])
