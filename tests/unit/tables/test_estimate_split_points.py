"""Split points from a sample of the input, before there is a table (TBL-10)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.errors import InputNotFound, InputSchemaMismatch, SplitPointsInvalid
from sleeper.tables.extend_partitions import estimate_split_points
from tests.unit.tables.small_tables import PAIRS


def keys(*values):
    """Input with these values of the first row key."""
    nothing = pa.array([0] * len(values), pa.int64())
    return pa.table(
        {"a": pa.array(values, pa.int64()), "b": nothing.cast(pa.string()), "v": nothing}
    )


def test_partitions_get_equal_shares():
    """Quantiles of the first row key (TBL-10)."""
    assert estimate_split_points(keys(*range(100)), PAIRS, 4) == [25, 50, 75]


def test_repeated_values_make_fewer():
    """A value is a split point once, and the least one never (TBL-9, TBL-10)."""
    assert estimate_split_points(keys(*[7] * 99, 8), PAIRS, 4) == [7]
    assert estimate_split_points(keys(*[-(2**63)] * 100), PAIRS, 4) == []


def test_nulls_are_passed_over_and_nothing_gives_nothing():
    """Rows without a key have no partition."""
    assert estimate_split_points(keys(None, 1, None, 2), PAIRS, 2) == [2]
    assert estimate_split_points(keys(), PAIRS, 2) == []
    assert estimate_split_points(keys(None), PAIRS, 2) == []


def test_only_the_first_rows_of_each_file(tmp_path):
    """`rows_per_file_max` bounds what is read of each (TBL-10)."""
    for name, start in (("x", 0), ("y", 1000)):
        pq.write_table(keys(*range(start, start + 500)), tmp_path / f"{name}.parquet")

    assert estimate_split_points(tmp_path, PAIRS, 2) == [1000]
    assert estimate_split_points(tmp_path, PAIRS, 4, rows_per_file_max=10) == [5, 1000, 1005]


def test_what_cannot_be_is_refused(tmp_path):
    """Fewer than two partitions, no input, no key column."""
    with pytest.raises(SplitPointsInvalid, match="at least 2"):
        estimate_split_points(keys(1), PAIRS, 1)
    with pytest.raises(InputNotFound):
        estimate_split_points(tmp_path / "none", PAIRS, 2)
    with pytest.raises(InputSchemaMismatch, match="'a'"):
        estimate_split_points(pa.table({"b": ["x"]}), PAIRS, 2)
