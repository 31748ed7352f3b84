"""Runs of rows that keys touch are found in a stream, and covered by few ranges (rule DEL-3)."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.engine.processing import touched_runs as module
from sleeper.engine.processing.touched_runs import (
    RunLimits,
    TouchedRuns,
    joined_over_leaves,
    touched_runs,
)

NAMES, TYPES = ["a", "b"], [pa.string(), pa.int32()]
TEXTS = st.sampled_from(["", "\x00", "a", "a\x00", "b", "\uffff", "\U0001f600"])
PAIRS = st.lists(st.tuples(TEXTS, st.integers(-2, 2)), max_size=30)
NUMBERS = st.lists(st.tuples(st.integers(0, 40)), max_size=40)
ANY_RUNS = RunLimits(runs_max=100, gap_min=1, others_max=1_000, keys_max=-1)


def table_of(rows):
    width = len(rows[0]) if rows else 1
    types = TYPES if width == 2 else [pa.int64()]
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(types)]
    return pa.Table.from_arrays(columns, names=NAMES[:width])


def chunks(rows, length):
    for start in range(0, len(rows), length):
        yield table_of(rows[start : start + length])


def runs_of(rows, keys):
    """The runs as Python finds them: first and last place, and their first values."""
    values = {key[0] for key in keys}
    found = []
    for is_touched, group in groupby(enumerate(rows), lambda each: each[1][0] in values):
        places = [*group]
        if is_touched:
            found.append((places[0][0], places[-1][0], places[0][1][0], places[-1][1][0]))
    return found


def as_tuples(runs):
    lows, highs = runs.lows.to_pylist(), runs.highs.to_pylist()
    return [*zip(runs.firsts.tolist(), runs.lasts.tolist(), lows, highs, strict=True)]


@pytest.mark.parametrize("length", [1, 3, 100])
@given(st.one_of(st.tuples(PAIRS, PAIRS), st.tuples(NUMBERS, NUMBERS)))
def test_runs_are_those_of_a_loop(length, given_rows):
    """Given rows in chunks of any length, runs begin and end where Python finds them."""
    rows, keys = map(sorted, given_rows)
    if not keys:
        return

    runs = touched_runs(chunks(rows, length), table_of(keys), ANY_RUNS)

    assert as_tuples(runs) == runs_of(rows, keys)
    assert runs.rows == len(rows)
    assert runs.with_keys == sum(row in keys for row in rows)


@given(rows=NUMBERS, keys=NUMBERS, keys_max=st.integers(0, 20))
def test_keys_that_rows_have_are_kept_while_they_are_few(rows, keys, keys_max):
    """Given up to so many rows with keys, their keys are told; else none is."""
    rows, keys = sorted(rows), sorted({*keys, (3,)})
    limits = RunLimits(runs_max=100, gap_min=1, others_max=1_000, keys_max=keys_max)

    some = touched_runs(chunks(rows, 4), table_of(keys), limits).some_keys

    there = [row for row in rows if row in keys]
    kept = None if some is None else [(each["a"],) for each in some.to_pylist()]
    assert kept == (there if len(there) <= keys_max else None)


@given(data=st.data(), runs_max=st.integers(1, 6), gap_min=st.integers(1, 5))
def test_few_ranges_have_every_run_and_leave_the_widest_gaps_out(data, runs_max, gap_min):
    """Given leaves, all runs are inside of ranges, which are few, and no wide gap is for nothing."""
    leaves, all_gaps = [], []
    for _ in range(data.draw(st.integers(0, 3))):
        rows, keys = sorted(data.draw(NUMBERS)), sorted({*data.draw(NUMBERS), (3,)})
        leaves.append(touched_runs(chunks(rows, 7), table_of(keys), ANY_RUNS))
        all_gaps += leaves[-1].gaps().tolist()

    joined = joined_over_leaves(leaves, runs_max, gap_min)

    with_runs = sum(bool(len(each.firsts)) for each in leaves)
    for before, after in zip(leaves, joined, strict=True):
        ranges = as_tuples(after)
        for first, last, low, high in as_tuples(before):
            assert any(a <= first <= last <= b and c <= low <= high <= d for a, b, c, d in ranges)
        assert after.with_keys == before.with_keys
    left_out = [gap for each in joined for gap in each.gaps().tolist()]
    wanted = sorted((gap for gap in all_gaps if gap >= gap_min), reverse=True)
    assert sorted(left_out, reverse=True) == wanted[: max(0, runs_max - with_runs)]


@given(
    rows=NUMBERS,
    keys=NUMBERS,
    length=st.integers(1, 9),
    others_max=st.integers(0, 12),
    runs_max=st.integers(1, 4),
)
def test_it_is_known_early_that_ranges_have_too_many_other_rows(
    rows, keys, length, others_max, runs_max
):
    """Given a look after each chunk, it gives up if, and only if, the whole stream says so."""
    rows, keys = sorted(rows), sorted({*keys, (3,)})
    limits = RunLimits(runs_max=runs_max, gap_min=2, others_max=others_max, keys_max=-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LOOK_FROM", 0)
        patch.setattr(module, "_LOOK_AGAIN", 1.0)
        found = touched_runs(chunks(rows, length), table_of(keys), limits)
    whole = touched_runs(chunks(rows, 1_000), table_of(keys), ANY_RUNS)
    joined = whole.joined(runs_max, 2)

    assert (found is None) == (joined.covered() - whole.with_keys > others_max)


def test_rows_that_come_no_more_are_not_read():
    """Given keys all over many rows, most rows are not asked for."""
    asked = []

    def stream():
        for start in range(0, 1_000_000, 10_000):
            asked.append(start)
            yield pa.table({"a": pa.array(range(start, start + 10_000), pa.int64())})

    keys = pa.table({"a": pa.array(range(0, 1_000_000, 10), pa.int64())})
    limits = RunLimits(runs_max=64, gap_min=1_000, others_max=100_000, keys_max=1_000)

    assert touched_runs(stream(), keys, limits) is None
    assert len(asked) <= 20


def test_no_rows_have_no_runs():
    """Given a leaf without rows, there is nothing to cover."""
    assert joined_over_leaves([TouchedRuns()], 3, 1)[0].covered() == 0
