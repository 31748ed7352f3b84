"""Keys of several fields: whole, by prefix, by name, and many at once."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import QueryInvalid

SCHEMA = pa.schema([("sensor", pa.string()), ("hour", pa.int64()), ("value", pa.float64())])
ROWS = [
    {"sensor": sensor, "hour": hour, "value": hour / 2}
    for sensor in ("a", "b", "c")
    for hour in range(24)
]


@pytest.fixture(scope="module")
def readings():
    table = sleeper.connect("memory://").create_table(
        "readings", SCHEMA, row_keys=["sensor", "hour"], split_points=["b"]
    )
    table.ingest(reversed(ROWS[::2]))
    table.ingest(ROWS[1::2])
    return table


def of(sensor: str, *hours: int) -> list[dict[str, object]]:
    return [row for row in ROWS if row["sensor"] == sensor and row["hour"] in hours]


@pytest.mark.parametrize("key", [("b", 7), ["b", 7], {"hour": 7, "sensor": "b"}])
def test_a_whole_key(readings, key):
    """As a tuple in schema order, or by field name in any."""
    assert readings.query(key=key).to_pylist() == of("b", 7)


@pytest.mark.parametrize("key", ["b", ("b",), {"sensor": "b"}])
def test_a_prefix_finds_all_that_begin_with_it(readings, key):
    """The first field alone: all its rows, in order of the others."""
    assert readings.query(key=key).to_pylist() == of("b", *range(24))


def test_a_whole_key_after_a_range_of_the_same_table():
    """What a range has read of a file's page indexes is no more than a range needs."""
    table = sleeper.connect("memory://").create_table(
        "readings", SCHEMA, row_keys=["sensor", "hour"]
    )
    table.ingest(ROWS)

    assert table.query().count() == len(ROWS)
    assert table.query(key=("b", 7)).to_pylist() == of("b", 7)


def test_a_later_field_alone(readings):
    """{field: value} may leave out the first one; partitions and pages are still skipped."""
    assert readings.query(key={"hour": 7}).to_pylist() == [row for row in ROWS if row["hour"] == 7]


@pytest.mark.parametrize(
    "key", [("b", None), {"sensor": None}, {"sensor": None, "hour": 7}, [None]]
)
@pytest.mark.parametrize("more", [{}, {"where": "value > 0"}], ids=["alone", "where"])
def test_none_is_no_value_of_a_key(readings, key, more):
    """It does not stand for any value: a field that may have any is left out."""
    with pytest.raises(QueryInvalid, match=r"None is not a value for key field '(hour|sensor)'"):
        readings.query(key=key, **more).to_pylist()
    with pytest.raises(QueryInvalid, match="None is not a value for key field"):
        readings.count(key=key, **more)


def test_many_keys_come_in_key_order_each_once(readings):
    """Whatever the order they are asked in; keys that are not there are no error."""
    keys = [("c", 1), ("a", 2), ("nobody", 1), ("c", 1), ("b", 99)]

    assert readings.query(keys=keys).to_pylist() == [*of("a", 2), *of("c", 1)]


def test_ranges_on_each_field_narrow_together(readings):
    """[min, max) on any row key; None is no limit."""
    found = readings.query(range={"sensor": ("b", None), "hour": (20, 22)})

    assert found.to_pylist() == [*of("b", 20, 21), *of("c", 20, 21)]


def test_each_end_may_be_in_or_out(readings):
    """(min, min_inclusive, max, max_inclusive) says otherwise (rule PRT-2)."""
    found = readings.query(range={"sensor": ("a", True, "a", True), "hour": (20, False, 22, True)})

    assert found.to_pylist() == of("a", 21, 22)


def test_regions_that_overlap_give_each_row_once(readings):
    """Several regions are one question."""
    regions = [{"sensor": ("a", "b"), "hour": (0, 3)}, {"sensor": ("a", "c"), "hour": (2, 4)}]

    found = readings.query(regions=regions, columns=["hour", "sensor"])

    assert found.to_pylist() == [
        {"hour": row["hour"], "sensor": row["sensor"]}
        for row in [*of("a", 0, 1, 2, 3), *of("b", 2, 3)]
    ]
