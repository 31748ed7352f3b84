"""A sample of row keys, leaf by leaf, as planning asks for it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import count

import pyarrow as pa
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.inputs import key_sample
from sleeper.engine.inputs.key_sample import KeySample, samples_by_leaf
from sleeper.engine.sorting.key_order import OrderedRows
from sleeper.model.partitions import split_partition, tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from tests.unit.model.grown_trees import split_tree

NUMBERS = Schema(row_keys=(Field("k", Primitive.LONG),))
PAIRS = Schema(row_keys=(Field("a", Primitive.LONG), Field("b", Primitive.STRING)))


def tree(schema, *points):
    numbers = count()
    return tree_from_split_points(schema, points, new_id=lambda: f"p{next(numbers)}")


def sample_of(schema, rows, row_count=None):
    """A sample of these rows, which stand for `row_count`."""
    columns = dict(zip(schema.row_key_names, zip(*rows, strict=True), strict=True))
    table = pa.table({name: list(values) for name, values in columns.items()})
    table = table.cast(to_arrow(schema))
    return KeySample(table, len(rows) if row_count is None else row_count)


def quantiles(sample, dimension=0):
    return [sample.quantile(dimension, fraction) for fraction in (0, 0.25, 0.5, 0.75, 1)]


def test_quantiles_are_those_of_the_rows_in_order():
    """SPL-4: the item at index min(n - 1, floor(q n)), whatever order the rows came in."""
    rows = [(n,) for n in (70, 10, 80, 20, 60, 30, 50, 40)]

    only = samples_by_leaf(sample_of(NUMBERS, rows), tree(NUMBERS), NUMBERS)["root"]

    assert quantiles(only) == [10, 30, 50, 70, 80]


def test_a_sample_is_sorted_once_for_all_trees(monkeypatch):
    """Given a sample that extends a tree and then plans the import into it, it is sorted once."""
    sorts = []

    class Counted(OrderedRows):
        def __init__(self, *arguments):
            sorts.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(key_sample, "OrderedRows", Counted)
    sample = sample_of(NUMBERS, [(n,) for n in (7, 1, 8, 2)])

    samples_by_leaf(sample, tree(NUMBERS), NUMBERS)
    halves = samples_by_leaf(sample, tree(NUMBERS, 5), NUMBERS)

    assert [quantiles(half)[-1] for half in halves.values()] == [2, 8]
    assert len(sorts) == 1


def test_each_leaf_has_its_own_rows():
    """A split point belongs to the upper leaf (SPL-5)."""
    partitions = tree(NUMBERS, 10, 20)
    low, middle, high = (leaf.partition_id for leaf in partitions.leaves())

    samples = samples_by_leaf(sample_of(NUMBERS, [(9,), (25,), (10,), (20,)]), partitions, NUMBERS)

    assert {name: sample.row_count for name, sample in samples.items()} == {
        low: 1,
        middle: 1,
        high: 2,
    }
    assert quantiles(samples[middle]) == [10] * 5


def test_a_leaf_without_rows_has_no_sample():
    """Planning takes it for no candidate."""
    partitions = tree(NUMBERS, 10)

    samples = samples_by_leaf(sample_of(NUMBERS, [(3,)]), partitions, NUMBERS)

    assert list(samples) == [next(iter(partitions.leaves())).partition_id]


def test_an_empty_sample_is_no_sample_of_any_leaf():
    """An input without rows."""
    empty = KeySample(to_arrow(NUMBERS).empty_table(), 0)

    assert samples_by_leaf(empty, tree(NUMBERS), NUMBERS) == {}


def test_rows_count_as_many_times_as_they_stand_for():
    """The sample's counts are scaled to the input's."""
    partitions = tree(NUMBERS, 10)
    sample = sample_of(NUMBERS, [(1,), (11,), (12,), (13,)], row_count=1_000)

    counts = [each.row_count for each in samples_by_leaf(sample, partitions, NUMBERS).values()]

    assert counts == [250, 750]


def test_leaves_that_share_values_of_the_first_row_key():
    """A tree split on its second row key: rows go by both."""
    numbers = count()
    root = tree(PAIRS)
    parent, *children = split_partition(
        root.root, "m", dimension=1, new_id=lambda: f"c{next(numbers)}"
    )
    partitions = split_tree(root, parent, children)
    sample = sample_of(PAIRS, [(1, "z"), (1, "a"), (2, "m"), (3, "b")])

    samples = samples_by_leaf(sample, partitions, PAIRS)

    assert quantiles(samples["c0"], 0) == [1, 1, 3, 3, 3]
    assert quantiles(samples["c0"], 1) == ["a", "a", "b", "b", "b"]
    assert quantiles(samples["c1"], 1) == ["m", "m", "z", "z", "z"]


def test_every_dimension_is_in_order_by_itself():
    """The second row key's median is that of all rows, not that of the middle row."""
    only = samples_by_leaf(sample_of(PAIRS, [(1, "c"), (2, "b"), (3, "a")]), tree(PAIRS), PAIRS)[
        "root"
    ]

    assert quantiles(only, 1) == ["a", "a", "b", "c", "c"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Primitive.INT, -7),
        (Primitive.STRING, "\U0001f600"),
        (Primitive.BYTES, b"\xff\x00"),
        (Primitive.DATE, date(1, 1, 1)),
        (Primitive.TIMESTAMP, datetime(2026, 5, 4, 12, 0, 0, 1, tzinfo=UTC)),
        (Primitive.TIMESTAMP_NTZ, datetime(9999, 12, 31)),
    ],
    ids=lambda kind: kind.value if isinstance(kind, Primitive) else "",
)
def test_quantiles_are_plain_values_of_keys(kind, value):
    """They become split points, so they are what partitions are made of."""
    schema = Schema(row_keys=(Field("k", kind),))

    only = samples_by_leaf(sample_of(schema, [(value,)]), tree(schema), schema)["root"]

    found = only.quantile(0, 0.5)
    assert (found, type(found)) == (value, type(value))
    assert getattr(found, "tzinfo", None) is getattr(value, "tzinfo", None)
