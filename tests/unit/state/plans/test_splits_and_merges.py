"""Which leaves are split as they grow, and where (rules SPL-1 to SPL-4)."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sleeper.engine.sketches.stored_sketch import SketchBuilder, read_sketches
from sleeper.model.files import FileReference
from sleeper.model.partitions import tree_from_split_points
from sleeper.model.ranges import Range
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.state.plans.splits_and_merges import files_to_sketch, plan_splits, split_point
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import AddFiles
from sleeper.state.transactions.partitions import InitialisePartitions

ONE_KEY = Schema(row_keys=(Field("k", Primitive.LONG),))
TWO_KEYS = Schema(row_keys=(Field("a", Primitive.LONG), Field("b", Primitive.STRING)))
AT = datetime(2026, 6, 1, tzinfo=UTC)


def sketches(schema, *rows):
    """The sketches of a file with these keys, in key order."""
    builder = SketchBuilder(schema)
    columns = zip(*rows, strict=True)
    names = schema.row_key_names
    builder.add(pa.table({name: list(column) for name, column in zip(names, columns, strict=True)}))
    return read_sketches(builder.to_bytes(), schema, "sketch")


def one_key(values):
    return sketches(ONE_KEY, *((value,) for value in values))


def leaf(schema=ONE_KEY, **ranges):
    """A leaf with these ranges of its row keys, everything without."""
    tree = tree_from_split_points(schema, [], new_id=lambda: "unused")
    region = tree.root.region
    for name, (low, high) in ranges.items():
        region = region.with_range(schema.row_key_names.index(name), Range(low, high))
    from dataclasses import replace  # noqa: PLC0415

    return replace(tree.root, region=region)


class TestWhere:
    """`split_point`."""

    @pytest.mark.parametrize(
        ("values", "point"),
        [
            (range(1000), 500),
            ([25, 50, 75], 50),
            (range(10, 81, 10), 50),
        ],
    )
    def test_it_is_the_median(self, values, point):
        """SPL-4: of n values in order that at index n // 2."""
        assert split_point(leaf(), one_key(values)) == (0, point)

    @pytest.mark.parametrize(
        ("values", "point"), [((1, 1, 1, 2), 2), ((1, 1, 1, 3, 9), 3), ((1, 2, 2, 2), 2)]
    )
    def test_one_key_of_most_rows_is_cut_off(self, values, point):
        """SPL-3: the next key above the median, so that both sides have rows."""
        assert split_point(leaf(), one_key(values)) == (0, point)

    @pytest.mark.parametrize("values", [(7, 7), (7,)])
    def test_rows_of_one_key_are_not_split(self, values):
        """There is no point that leaves rows on both sides."""
        assert split_point(leaf(), one_key(values)) is None

    def test_only_what_lies_in_the_leaf_counts(self):
        """Ours: sketches are of whole files, which may have rows elsewhere."""
        assert split_point(leaf(k=(100, 200)), one_key(range(1000))) == (0, 150)
        assert split_point(leaf(k=(2000, None)), one_key(range(1000))) is None
        assert split_point(leaf(k=(5, 8)), one_key([1, 2, 5, 5, 5, 7, 9, 9])) == (0, 7)
        assert split_point(leaf(k=(5, 7)), one_key([1, 2, 5, 5, 5, 7, 9, 9])) is None

    def test_the_next_field_is_tried(self):
        """SPL-3: the first dimension that can be split."""
        same = sketches(TWO_KEYS, *((1, text) for text in "abcde"))

        assert split_point(leaf(TWO_KEYS), same) == (1, "c")

    def test_a_median_of_a_later_field_wins_over_a_skewed_split(self):
        """Halves are of more use than one key cut off."""
        skewed = sketches(TWO_KEYS, (1, "a"), (2, "b"), (2, "c"), (2, "d"))

        assert split_point(leaf(TWO_KEYS), skewed) == (1, "c")


def table(*leaves):
    """Two leaves, with files of (rows, estimated) each."""
    ids = iter(["low", "high", "root"])
    tree = tree_from_split_points(ONE_KEY, [10], new_id=lambda: next(ids))
    partitions = tuple(tree.partitions.values())
    state = InitialisePartitions(partitions=partitions).apply(TableState.empty(), AT)
    references = tuple(
        FileReference(
            filename=f"{name}-{number}",
            partition_id=name,
            row_count=rows,
            row_count_estimated=estimated,
            whole_file=not estimated,
        )
        for name, files in zip(("low", "high"), leaves, strict=True)
        for number, (rows, estimated) in enumerate(files)
    )
    return AddFiles(references=references).apply(state, AT)


class TestWhich:
    """`plan_splits`, `files_to_sketch`."""

    def test_a_leaf_is_split_from_the_threshold_on(self):
        """SPL-1: as many rows are enough; the largest leaf comes first."""
        state = table([(5, False)], [(5, False), (5, False)])

        sizes = plan_splits(state, 10)

        assert [(size.partition.partition_id, size.too_large) for size in sizes] == [
            ("high", True),
            ("low", False),
        ]

    def test_estimated_rows_count_too(self):
        """Upstream would never split such a leaf."""
        (size,) = plan_splits(table([(10, True)], []), 10)

        assert (size.too_large, size.estimated) == (True, True)

    def test_sketches_of_the_largest_files_are_read(self):
        """SPL-2: no more than so many."""
        state = table([(1, False), (9, False), (5, False)], [])

        largest = files_to_sketch(state, "low", 2)

        assert [reference.filename for reference in largest] == ["low-1", "low-2"]
