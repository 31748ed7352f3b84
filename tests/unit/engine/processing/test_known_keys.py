"""Rows of known keys are told from others, chunk by chunk."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.processing.known_keys import RowsWithoutKeys, first_repeated, keys_inside
from sleeper.model.ranges import Range, Region

TEXTS = st.sampled_from(["", "\x00", "a", "a\x00", "b", "\uffff", "\U0001f600"])
DAYS = (-719_162, 2_932_896)
"""From the first day of year 1 to the last of year 9999, as days since 1970."""
MICROSECONDS = 86_400_000_000
PAIRS = st.lists(st.tuples(TEXTS, st.integers(-2, 2)), max_size=30)


def chunks(rows, names, types, length):
    """Rows in key order, in chunks of a length."""
    rows = sorted(rows)
    for start in range(0, len(rows), length):
        part = rows[start : start + length]
        columns = [pa.array([row[n] for row in part], kind) for n, kind in enumerate(types)]
        yield pa.Table.from_arrays(columns, names=names)


def keys_of(rows, names, types):
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(types)]
    return pa.Table.from_arrays(columns, names=names)


@pytest.mark.parametrize("length", [1, 3, 100])
@given(rows=PAIRS, keys=PAIRS)
def test_rows_of_pairs(length, rows, keys):
    """Given pairs as keys, the rows that stay are those of no pair, in their order."""
    names, types = ["a", "b"], [pa.string(), pa.int32()]
    kept = RowsWithoutKeys(chunks(rows, names, types, length), keys_of(sorted(keys), names, types))

    found = [tuple(row.values()) for chunk in kept for row in chunk.to_pylist()]

    assert found == [row for row in sorted(rows) if row not in keys]
    assert kept.left_out == len(rows) - len(found)


@pytest.mark.parametrize("length", [1, 3, 100])
@pytest.mark.parametrize(
    ("kind", "plain", "least", "greatest"),
    [
        (pa.int64(), pa.int64(), -(2**63), 2**63 - 1),
        (pa.int32(), pa.int32(), -(2**31), 2**31 - 1),
        (pa.date32(), pa.int32(), *DAYS),
        (pa.timestamp("us"), pa.int64(), *(day * MICROSECONDS for day in DAYS)),
        (pa.timestamp("us", "UTC"), pa.int64(), *(day * MICROSECONDS for day in DAYS)),
    ],
    ids=["long", "int", "date", "time", "time in UTC"],
)
@given(data=st.data())
def test_rows_of_one_key(length, kind, plain, least, greatest, data):
    """Given numbers and times as keys, from the least to the greatest, as well."""
    numbers = st.lists(st.integers(least, greatest) | st.integers(-3, 3), max_size=30)
    rows, keys = data.draw(numbers), data.draw(numbers)

    def table(values):
        return pa.table({"k": pa.array(sorted(values), plain).view(kind)})

    batches = table(rows).to_batches(max_chunksize=length)
    kept = RowsWithoutKeys((pa.Table.from_batches([each]) for each in batches), table(keys))

    found = pa.concat_tables([table([]), *kept])

    assert found.equals(table([row for row in rows if row not in keys]))


@given(keys=PAIRS, low=TEXTS, high=TEXTS, least=st.integers(-2, 2))
def test_keys_inside_a_region(keys, low, high, least):
    """Given a region of two fields, keys are inside as Python compares them."""
    region = Region((Range(low, high), Range(least, None)))

    found = keys_inside(keys_of(keys, ["a", "b"], [pa.string(), pa.int32()]), region)

    inside = [key for key in keys if low <= key[0] < high and key[1] >= least]
    assert [tuple(row.values()) for row in found.to_pylist()] == inside


@pytest.mark.parametrize("length", [1, 2, 3, 100])
@given(rows=PAIRS)
def test_the_first_repeated_key(length, rows):
    """Given rows in order, in batches of any length, the first that is there twice is found."""
    names, types = ["a", "b"], [pa.string(), pa.int32()]
    batches = [
        batch for chunk in chunks(rows, names, types, length) for batch in chunk.to_batches()
    ]

    found = first_repeated(batches)

    twice = [row for row in sorted(rows) if rows.count(row) > 1]
    assert found == (dict(zip(names, twice[0], strict=True)) if twice else None)
