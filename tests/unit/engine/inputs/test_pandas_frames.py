"""DataFrames of pandas as their users have them: sorted, filtered, grouped, with missing values."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sleeper.engine.arrow_schema import conform
from sleeper.engine.inputs.sources import open_source
from sleeper.errors import InputSchemaMismatch

ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
FRAME = pd.DataFrame({"id": [30, 10, 20, 40], "name": ["c", "a", None, "d"]})


def rows_of(frame, schema=ARROW, *, ignore=False):
    source = open_source(frame, schema)
    source.check(ignore_extra_columns=ignore)
    key = [schema.names[0]]
    return [
        row
        for batch in source.batches()
        for row in conform(
            batch, schema, key_names=key, ignore_extra_columns=ignore, origin=source.origin
        ).to_pylist()
    ]


class TestIndex:
    """An index without a name is not read, one with a name is a column."""

    @pytest.mark.parametrize(
        "index",
        [
            range(4),
            [5, 1, 2, 9],
            ["w", "x", "y", "z"],
            pd.date_range("2026-01-01", periods=4),
            pd.CategoricalIndex(["p", "q", "p", "q"]),
            pd.MultiIndex.from_product([["p", "q"], [1, 2]]),
        ],
        ids=lambda index: type(index).__name__,
    )
    def test_without_a_name_is_not_read(self, index):
        """Whatever it holds."""
        frame = FRAME.set_axis(pd.Index(index) if isinstance(index, list) else index, axis=0)

        assert rows_of(frame) == rows_of(FRAME)

    @pytest.mark.parametrize(
        ("frame", "ids"),
        [
            (FRAME.sort_values("id"), [10, 20, 30, 40]),
            (FRAME.dropna(), [30, 10, 40]),
            (FRAME[FRAME["id"] > 15], [30, 20, 40]),
            (FRAME.sample(frac=1, random_state=3).drop_duplicates("id"), None),
            (FRAME.iloc[0:0], []),
            (next(iter(FRAME.groupby(FRAME["id"] > 15)))[1], [10]),
        ],
        ids=["sorted", "without nulls", "filtered", "shuffled", "empty", "group"],
    )
    def test_of_work_done_before_is_not_read(self, frame, ids):
        """Frames that were sorted, filtered or grouped have any row numbers."""
        found = [row["id"] for row in rows_of(frame)]

        assert found == ids if ids is not None else sorted(found) == [10, 20, 30, 40]

    def test_with_a_name_is_a_column(self):
        """Also of objects, and as one level of several."""
        one = FRAME.set_index("id")
        two = FRAME.set_index(["name", "id"])
        partly = FRAME.set_index([FRAME["id"], pd.Index([9, 8, 7, 6])]).drop(columns="id")

        assert rows_of(one) == rows_of(two) == rows_of(partly) == rows_of(FRAME)

    def test_with_the_name_of_no_column_is_refused_unless_ignored(self):
        """The refusal says how it is dropped."""
        frame = FRAME.rename_axis("line")

        with pytest.raises(InputSchemaMismatch, match=r"\['line'\].*reset_index\(drop=True\)"):
            rows_of(frame)

        assert rows_of(frame, ignore=True) == rows_of(FRAME)

    def test_with_the_name_of_a_column_too_is_refused(self):
        """Which of them is meant cannot be known."""
        with pytest.raises(InputSchemaMismatch, match=r"index .* \['id'\], as is a column"):
            rows_of(FRAME.set_index("id", drop=False))


class TestColumns:
    """Columns of every kind that pandas has."""

    @pytest.mark.parametrize(
        ("values", "kind", "wanted"),
        [
            (pd.Series([1, None, 3], dtype="Int64"), pa.int64(), [1, None, 3]),
            (pd.Series([1, np.nan, 3]), pa.int64(), [1, None, 3]),
            (pd.Series([True, None, False], dtype="boolean"), pa.bool_(), [True, None, False]),
            (pd.Series(["a", None, "b"], dtype="category"), pa.string(), ["a", None, "b"]),
            (pd.Series([7, None, 8]).astype("category"), pa.int64(), [7, None, 8]),
            (pd.Series(["a", np.nan, None], dtype=object), pa.string(), ["a", None, None]),
            (pd.Series([1, np.nan, None], dtype=object), pa.int64(), [1, None, None]),
            (pd.Series(["a", None, "b"], dtype="string[pyarrow]"), pa.string(), ["a", None, "b"]),
            (
                pd.Series(
                    pd.to_datetime(["2026-01-01", None, "2026-01-02"], utc=True)
                ).dt.tz_convert("Asia/Tokyo"),
                pa.timestamp("us", "UTC"),
                [datetime(2026, 1, 1, tzinfo=UTC), None, datetime(2026, 1, 2, tzinfo=UTC)],
            ),
        ],
        ids=lambda value: str(getattr(value, "dtype", "")),
    )
    def test_are_read_with_their_missing_values(self, values, kind, wanted):
        """None, NaN, NA and NaT are null."""
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", kind)])
        frame = pd.DataFrame({"id": [1, 2, 3], "value": values})

        assert [row["value"] for row in rows_of(frame, schema)] == wanted

    @pytest.mark.parametrize(
        ("frame", "words"),
        [
            (pd.DataFrame([[1, 2]], columns=["id", "id"]), r"more than one column named \['id'\]"),
            (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "id")])), "several lev"),
            (
                pd.DataFrame({"id": pd.period_range("2026-01", periods=2, freq="M")}),
                r"'id' .* period\[M\]: make times",
            ),
            (pd.DataFrame({"id": [1, 2], "name": ["a", 5]}), "5 does not fit field 'name'"),
            (pd.DataFrame({"id": [1.5]}), "column 'id' of the DataFrame does not fit"),
            (pd.DataFrame({"nr": [1]}), r"lacks required columns \['id'\]"),
        ],
        ids=["doubled", "levels", "period", "objects", "fraction", "missing"],
    )
    def test_are_refused_by_name(self, frame, words):
        """The message says which column it is, and what is wrong with it."""
        with pytest.raises(InputSchemaMismatch, match=words):
            rows_of(frame)

    def test_that_are_ignored_need_no_type(self):
        """A column of several types that the table does not have is not converted."""
        frame = FRAME.assign(notes=[1, "a", None, object()])

        assert rows_of(frame, ignore=True) == rows_of(FRAME)
