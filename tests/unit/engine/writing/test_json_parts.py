"""Rows as JSON in parts."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.writing.json_parts import json_parts
from sleeper.errors import QueryInvalid

LINE = len('{"s":""}')


def parts_of(batches, *, rows_max=1_000, bytes_max=100_000):
    """Return the rows of each part, and check what each says of itself."""
    found = []
    for part in json_parts(batches, rows_max=rows_max, bytes_max=bytes_max):
        rows = json.loads(f"[{part.rows}]")
        assert part.row_count == len(rows)
        assert len(part.rows.encode()) <= bytes_max
        found.append(rows)
    return found


def batch_of(*texts):
    return pa.record_batch({"s": pa.array(texts, pa.string())})


def test_no_rows_are_one_part_without_rows():
    """Whoever waits for an answer gets one, with no batch or with an empty one."""
    assert parts_of([]) == [[]]
    assert parts_of([batch_of()]) == [[]]


def test_parts_are_full_whatever_the_batches_are():
    """Two rows a part, of batches of three, none and two rows."""
    parts = parts_of([batch_of("a", "b", "c"), batch_of(), batch_of("d", "e")], rows_max=2)

    assert [[row["s"] for row in part] for part in parts] == [["a", "b"], ["c", "d"], ["e"]]


def test_a_part_that_would_be_too_long_has_fewer_rows():
    """Two rows and the comma between them have 21 bytes; a third does not fit."""
    batch = batch_of("aa", "bb", "cc")

    assert [len(part) for part in parts_of([batch], bytes_max=2 * LINE + 5)] == [2, 1]
    assert [len(part) for part in parts_of([batch], bytes_max=2 * LINE + 4)] == [1, 1, 1]


def test_a_row_that_is_too_long_is_refused_with_its_length():
    """Nothing can be sent in its place."""
    with pytest.raises(QueryInvalid, match=rf"a row has {LINE + 3} bytes.*may have {LINE + 2} "):
        parts_of([batch_of("a", "éa")], bytes_max=LINE + 2)


def test_values_are_written_as_upstream_does():
    """Bytes in base64, keys of maps as texts, nulls as nulls (QRY-11)."""
    table = pa.table(
        {
            "id": pa.array([2**62], pa.int64()),
            "raw": pa.array([b"\x00\xff"], pa.binary()),
            "none": pa.array([None], pa.string()),
            "tags": pa.array([["a", "b"]], pa.list_(pa.string())),
            "counts": pa.array([[(1, 10)]], pa.map_(pa.int64(), pa.int64())),
        }
    )

    [[row]] = parts_of(table.to_batches())

    assert row == {
        "id": 2**62,
        "raw": "AP8=",
        "none": None,
        "tags": ["a", "b"],
        "counts": {"1": 10},
    }


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5, float("nan")]),
        pa.array([float("inf")], pa.float32()),
        pa.array([[0.0], [float("-inf")]]),
        pa.array([[("a", float("nan"))]], pa.map_(pa.string(), pa.float64())),
    ],
)
def test_numbers_that_json_lacks_are_refused_not_lost(column):
    """They would arrive as null."""
    with pytest.raises(QueryInvalid, match="field 'f' has NaN or an infinity"):
        parts_of([pa.record_batch({"f": column})])


def test_finite_numbers_pass():
    """Nulls and lists of nothing among them."""
    columns = {"f": pa.array([1.5, None]), "l": pa.array([[None, 2.0], []], pa.list_(pa.float64()))}

    assert parts_of([pa.record_batch(columns)]) == [
        [{"f": 1.5, "l": [None, 2.0]}, {"f": None, "l": []}]
    ]


@given(
    texts=st.lists(st.text(max_size=5), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    rows_max=st.integers(1, 8),
    bytes_max=st.integers(LINE + 60, 200),
)
def test_every_row_arrives_once_in_order(texts, cuts, rows_max, bytes_max):
    """Any characters, batches and limits; no part that could have taken the next row is cut."""
    ends = [*sorted(cuts), len(texts)]
    starts = [0, *ends[:-1]]
    batches = [batch_of(*texts[start:end]) for start, end in zip(starts, ends, strict=True)]

    parts = parts_of(batches, rows_max=rows_max, bytes_max=bytes_max)

    assert [row["s"] for part in parts for row in part] == texts
    assert all(len(part) <= rows_max for part in parts)
    for part, following in pairwise(parts):
        one_more = [*part, following[0]]
        [longer, *_] = json_parts(
            [batch_of(*(row["s"] for row in one_more))], rows_max=31, bytes_max=10_000
        )
        assert len(part) == rows_max or len(longer.rows.encode()) > bytes_max
    sent = "".join(
        part.rows for part in json_parts(batches, rows_max=rows_max, bytes_max=bytes_max)
    )
    assert not {"\ufffe", "\uffff"} & {*sent}
