"""A few rows as JSON, which Python writes as polars writes many."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.engine.writing.few_json_lines import FEW_ROWS, few_json_lines
from sleeper.engine.writing.user_file import json_lines
from tests.soak import tries

I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"))
KINDS = {
    "text": (pa.string(), TEXT),
    "long text": (pa.large_string(), TEXT),
    "long": (pa.int64(), I64),
    "byte": (pa.uint8(), st.integers(0, 255)),
    "truth": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "day": (pa.date32(), st.dates()),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes()),
    "clock": (pa.timestamp("us"), st.datetimes()),
    "time": (pa.time64("us"), st.times()),
    "money": (pa.decimal128(38, 10), st.decimals(-(10**20), 10**20, places=10)),
}


@st.composite
def few_rows(draw):
    """A few rows of any columns."""
    count = draw(st.integers(1, 5))
    names = draw(st.lists(st.sampled_from([*KINDS]), min_size=1, unique=True))
    columns = {}
    for name in names:
        kind, values = KINDS[name]
        some = st.lists(st.none() | values, min_size=count, max_size=count)
        columns[draw(st.sampled_from([name, f'"{name}\\é\n']))] = pa.array(draw(some), kind)
    return pa.RecordBatch.from_pydict(columns)


def by_polars(rows: pa.RecordBatch) -> bytes:
    """The same rows, written among so many others that polars writes all."""
    many = pa.Table.from_batches([rows] * (FEW_ROWS + 1)).combine_chunks().to_batches()[0]
    lines = json_lines(many).splitlines(keepends=True)
    return b"".join(lines[: rows.num_rows])


@settings(max_examples=tries(100, soak=5_000))
@given(rows=few_rows())
def test_few_rows_have_the_text_of_many(rows):
    """Letter for letter, whatever the values."""
    assert few_json_lines(rows) == by_polars(rows)


@given(numbers=st.lists(st.none() | st.floats(), min_size=1, max_size=5))
def test_few_numbers_have_the_values_of_many(numbers):
    """A float is the same number, if not the same letters; NaN and infinities are null."""
    rows = pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.float64())})
    written = few_json_lines(rows)

    assert written is not None
    few, many = ([json.loads(x) for x in w.splitlines()] for w in (written, by_polars(rows)))
    assert repr(few) == repr(many)


def test_small_values_have_their_known_text():
    """What readers of JSON rely on: ISO 8601, base64, decimals as text."""
    rows = pa.RecordBatch.from_pydict(
        {
            "at": pa.array([datetime(2025, 1, 2, 3, 4, 5, 6000)], pa.timestamp("us", "UTC")),
            "raw": [b"\x00\xff"],
            "money": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
            "day": [date(2025, 1, 2)],
            "noon": pa.array([time(12)], pa.time64("us")),
            "n": [0.1],
            "text": ['a"\u2028\x1f'],
        }
    )

    assert (
        few_json_lines(rows)
        == (
            '{"at":"2025-01-02T03:04:05.006+00:00","raw":"AP8=","money":"1.50","day":"2025-01-02",'
            '"noon":"12:00:00","n":0.1,"text":"a\\"\u2028\\u001f"}\n'
        ).encode()
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0.1], pa.float32()),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([1], pa.duration("us")),
        pa.array([1], pa.timestamp("ns")),
        pa.array([1], pa.timestamp("s")),
        pa.array([1], pa.timestamp("us", "Europe/Berlin")),
        pa.array([2**62], pa.timestamp("us")),
        pa.array([2_932_897], pa.int32()).cast(pa.date32()),
        pa.array(["a"]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_what_python_writes_in_another_way_is_left_to_polars(column):
    """Short floats, nested values, other zones, times that Python has not."""
    rows = pa.RecordBatch.from_arrays([column], ["x"])

    assert few_json_lines(rows) is None
    assert json_lines(rows) == by_polars(rows)


def test_many_rows_are_left_to_polars():
    """A loop over rows is for a few of them."""
    rows = pa.RecordBatch.from_pydict({"n": pa.arange(0, FEW_ROWS + 1)})

    assert few_json_lines(rows) is None
    assert few_json_lines(rows.slice(1)) == json_lines(rows).split(b"\n", 1)[1]
