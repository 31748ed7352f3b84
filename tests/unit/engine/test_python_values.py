"""Rows of Arrow as values of Python: those of Arrow itself, which would load pandas for some."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.python_values import python_rows, python_values

ZONES = ["UTC", "Europe/Berlin", "+05:30", "America/New_York"]


@given(
    instants=st.lists(st.none() | st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1))),
    zone=st.sampled_from(ZONES),
    unit=st.sampled_from(["s", "ms", "us"]),
)
def test_instants_are_those_of_arrow(instants, zone, unit):
    """The same instant, the same clock and the same zone, also where a clock is put back."""
    column = pa.array(instants, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    column = column.cast(pa.int64()).cast(pa.timestamp(unit, zone))

    found, expected = python_values(column), column.to_pylist()

    assert found == expected
    assert [each and (each.tzinfo, each.fold, each.utcoffset()) for each in found] == [
        each and (each.tzinfo, each.fold, each.utcoffset()) for each in expected
    ]


def test_the_hour_that_comes_twice_is_told_apart():
    """In Berlin 2025-10-26 02:30 is an hour before and an hour after the clocks go back."""
    early, late = (
        datetime(2025, 10, 26, 0, 30, tzinfo=UTC),
        datetime(2025, 10, 26, 1, 30, tzinfo=UTC),
    )
    column = pa.array([early, late], pa.timestamp("us", "Europe/Berlin"))

    found = python_values(column)

    assert [each.fold for each in found] == [0, 1]
    assert found[0].tzinfo == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None]),
        pa.array([b"\x00", None]),
        pa.array([[("a", 1), ("b", 2)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([[1, None], None]),
        pa.array([[datetime(2025, 1, 1, tzinfo=UTC)], None], pa.list_(pa.timestamp("us", "UTC"))),
    ],
)
def test_other_values_are_those_of_arrow(column):
    """Lists, maps as dicts or as lists, and what is in them."""
    rows = pa.table({"value": column, "text": ["x", "y"]})

    assert python_rows(rows) == rows.to_pylist(maps_as_pydicts="lossy")
    assert python_rows(rows, maps=None) == rows.to_pylist()


@pytest.mark.parametrize("count", [0, 2])
def test_rows_without_columns_are_as_many_as_they_are(count):
    """A result may have rows and no column."""
    rows = pa.table({"n": pa.arange(0, count)}).select([])

    assert python_rows(rows) == [{}] * count


def test_an_instant_that_python_has_not_is_refused_as_arrow_refuses_it():
    """After the year 9999 there is no datetime."""
    column = pa.array([2**62]).cast(pa.timestamp("us", "UTC"))

    with pytest.raises((ValueError, OverflowError)):
        python_values(column)
