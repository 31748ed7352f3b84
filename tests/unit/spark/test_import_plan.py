"""The plan of a bulk import: tasks, buckets and blocks from 1 GB to 100 TB."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, product
from statistics import median

import numpy as np
import pytest

from sleeper.model.partitions import tree_from_split_points
from sleeper.model.schema import Field, Primitive, Schema
from sleeper.spark.import_plan import (
    BLOCK_BYTES_MIN,
    FRAME_TASKS_MAX,
    TASK_BYTES_MAX,
    TASK_BYTES_MIN,
    ImportInput,
    explained,
    plan_import,
)
from sleeper.state.plans.bulk_imports import plan_buckets
from sleeper.state.plans.extend_tree import extend_tree

GB, TB = 10**9, 10**12
SIZES = (GB, 3 * GB, 10 * GB, 100 * GB, TB, 10 * TB, 100 * TB)
CORES = (2, 16, 400, 4000)
ROW_BYTES = 150
SCHEMA = Schema(row_keys=(Field("id", Primitive.LONG),))


def known(size, cores=400, *, frame=False, leaves=1, **more) -> ImportInput:
    """Files of 100 MB with row groups of 128 MiB, or a DataFrame in partitions of 128 MiB."""
    values = {
        "size_bytes": size,
        "row_count": size // ROW_BYTES,
        "files": 0 if frame else max(1, size // (100 * 10**6)),
        "row_groups": max(1, size // (128 << 20)),
        "leaves": leaves,
        "cores": cores,
        "memory_bytes": 1 << 30,
    }
    return ImportInput(**{**values, **more})


class TestBlocks:
    """What passes a shuffle is few large blocks."""

    @pytest.mark.parametrize(("size", "cores"), [*product(SIZES, CORES)])
    def test_of_files_are_a_megabyte_or_more(self, size, cores):
        """Map tasks times buckets never make blocks smaller than a megabyte, whatever the size."""
        plan = plan_import(known(size, cores))

        assert plan.block_bytes >= 10**6

    @pytest.mark.parametrize(("size", "cores", "frame"), [*product(SIZES, CORES, (False, True))])
    def test_are_below_a_million_a_terabyte(self, size, cores, frame):
        """A terabyte passes in less than a million blocks, ten in less than ten millions."""
        plan = plan_import(known(size, cores, frame=frame))

        assert plan.blocks < max(1, min(size, 10 * TB) / TB) * 10**6 * plan.levels

    @pytest.mark.parametrize(("size", "cores"), [*product(SIZES, CORES)])
    def test_of_a_data_frame_are_not_tiny(self, size, cores):
        """Spark divides a DataFrame, so that blocks of a gigabyte may be smaller, but never tiny."""
        plan = plan_import(known(size, cores, frame=True))

        assert plan.block_bytes >= BLOCK_BYTES_MIN
        assert plan.map_tasks <= FRAME_TASKS_MAX

    @pytest.mark.parametrize("size", [3 * GB, 300 * GB, 9 * TB, 70 * TB])
    def test_of_two_levels_are_counted_by_level(self, size):
        """Where rows pass two shuffles, the ranges of the first hold all buckets, and no range is empty."""
        plan = plan_import(known(size, 4000, frame=True))

        if plan.levels == 1:
            assert (plan.ranges, plan.slots, plan.shuffle_bytes) == (1, 1, size)
            assert plan.blocks == plan.map_tasks * plan.buckets
        else:
            each = -(-plan.buckets // plan.ranges)
            assert each * (plan.ranges - 1) < plan.buckets <= each * plan.ranges
            assert plan.slots * plan.ranges * plan.bucket_bytes >= size
            assert plan.shuffle_bytes == 2 * size


class TestTasks:
    """Tasks are neither too long nor too many."""

    @pytest.mark.parametrize(("size", "cores", "frame"), [*product(SIZES, CORES, (False, True))])
    def test_read_and_write_at_most_some_gigabytes(self, size, cores, frame):
        """No task is longer than minutes, which a lost executor may cost."""
        plan = plan_import(known(size, cores, frame=frame))

        assert plan.map_task_bytes <= TASK_BYTES_MAX + (128 << 20)
        assert TASK_BYTES_MIN <= plan.bucket_bytes <= TASK_BYTES_MAX

    @pytest.mark.parametrize(("size", "cores"), [*product(SIZES, CORES)])
    def test_leave_no_core_idle_for_long(self, size, cores):
        """Either each core has two tasks, or a task is about a gigabyte at most: half a minute."""
        plan = plan_import(known(size, cores))

        assert plan.buckets >= 2 * cores or plan.bucket_bytes <= 2 << 30

    @pytest.mark.parametrize("size", SIZES)
    def test_need_bounded_memory(self, size):
        """A worker sorts in pieces, and spills: it needs no more for 100 TB than for 10 GB."""
        plan = plan_import(known(size, memory_bytes=300 << 20))

        assert plan.piece_memory_bytes <= 300 << 20
        assert plan.task_memory_bytes <= (300 << 20) + (400 << 20)

    def test_of_a_small_import_are_few(self):
        """40 MB are read by one task and written by two: a task has a cost of its own."""
        plan = plan_import(known(40 * 10**6, 4000))

        assert (plan.map_tasks, plan.buckets, plan.levels) == (1, 2, 1)

    def test_write_no_more_where_the_input_has_few_row_groups(self):
        """50 TB in 500 huge row groups make few blocks, but buckets stay as long as others."""
        plan = plan_import(known(50 * TB, cores=2, row_groups=500))

        assert plan.map_tasks <= 500
        assert plan.bucket_bytes <= TASK_BYTES_MAX

    def test_of_an_empty_import_are_one(self):
        """Files without rows are planned, too."""
        plan = plan_import(known(0, row_count=0, row_groups=0, files=3))

        assert (plan.map_tasks, plan.buckets, plan.files_written) == (1, 1, 0)


class TestSkew:
    """Rows that fall into one leaf are written by as many tasks as others."""

    @pytest.mark.parametrize(
        ("size", "leaves", "share"),
        [*product((GB, 100 * GB, 10 * TB), (1, 64, 3000), (0.0, 0.3, 0.9))],
    )
    def test_longest_task_is_at_most_twice_the_median(self, size, leaves, share):
        """
        Given a table of some leaves and an import of which a share falls into one leaf, when its
        buckets are planned, then the largest has at most twice the rows of the median one.
        """
        plan = plan_import(known(size, leaves=leaves, largest_leaf_share=share))
        tree, samples = sampled(leaves, size // ROW_BYTES, share)

        buckets = plan_buckets(tree.leaves(), samples, plan.bucket_rows)

        rows = rows_of(buckets, samples)
        assert max(rows) <= 2 * median(rows)
        assert 0.5 * plan.buckets <= len(buckets) <= 2 * plan.buckets

    def test_a_leaf_that_gets_nearly_all_has_many_files(self):
        """90 % of 10 GB in one of 64 leaves are files of that leaf, each a range of its keys."""
        even = plan_import(known(10 * GB, leaves=64))
        skewed = plan_import(known(10 * GB, leaves=64, largest_leaf_share=0.9))

        assert even.files_written == even.leaves
        assert skewed.files_written == pytest.approx(even.files_written + 80, abs=10)


class Keys:
    """Evenly spread first keys of one leaf."""

    def __init__(self, low: int, high: int, row_count: int) -> None:
        self.low, self.high, self.row_count = low, high, row_count

    def quantile(self, dimension: int, fraction: float) -> int:
        assert dimension == 0
        return self.low + int(fraction * (self.high - self.low))


def sampled(leaves, row_count, share):
    """A tree of leaves, and what a sample says of each: the middle one gets the share."""
    numbers = count()
    width = 10**9
    tree = tree_from_split_points(
        SCHEMA, [width * n for n in range(1, leaves)], new_id=lambda: f"p{next(numbers)}"
    )
    heavy = leaves // 2
    rest = row_count * (1 - share) / max(1, leaves - 1) if share else row_count / leaves
    samples = {}
    for place, leaf in enumerate(tree.leaves()):
        rows = row_count if leaves == 1 else row_count * share if share and place == heavy else rest
        samples[leaf.partition_id] = Keys(width * place, width * (place + 1), max(1, round(rows)))
    return tree, samples


def rows_of(buckets, samples) -> list[float]:
    """Rows of each bucket: of a leaf that is in several, an equal part."""
    in_buckets: dict[str, int] = {}
    for leaves in buckets.leaves:
        for leaf in leaves:
            in_buckets[leaf.partition_id] = in_buckets.get(leaf.partition_id, 0) + 1
    return [
        sum(samples[leaf.partition_id].row_count / in_buckets[leaf.partition_id] for leaf in leaves)
        for leaves in buckets.leaves
    ]


class TestLeaves:
    """A table is split to leaves of a wanted size first."""

    @pytest.mark.parametrize(
        ("size", "leaves"), [(100 << 20, 1), (50 << 30, 400), (4 << 40, 4096), (100 * TB, 93_133)]
    )
    def test_are_not_limited_to_256(self, size, leaves):
        """A leaf has 128 MiB, and beyond 4,096 of them up to 1 GiB."""
        plan = plan_import(known(size, row_count=1))

        assert plan.leaves == leaves

    def test_follow_the_property_where_it_is_set(self):
        """Who says how many leaves there are to be, gets as many, and keeps what there are."""
        said = known(10 * TB, min_leaves=7)

        assert plan_import(said).leaves == 7
        assert plan_import(replace(said, leaves=100_000)).leaves == 100_000

    def test_can_be_planned_by_the_tens_of_thousands(self):
        """A tree is extended from one leaf to 20,000, of equal shares of the rows."""
        numbers = count()
        tree = tree_from_split_points(SCHEMA, [], new_id=lambda: f"p{next(numbers)}")
        (root,) = tree.leaves()
        samples = {root.partition_id: Keys(0, 1 << 40, 10**10)}

        extension = extend_tree(
            tree,
            samples,
            min_leaves=20_000,
            min_rows=1,
            min_percent=1,
            new_id=lambda: f"p{next(numbers)}",
        )

        widths = np.array(
            [
                (each.region.ranges[0].max or 1 << 40) - max(0, each.region.ranges[0].min)
                for each in extension.new
                if each.is_leaf
            ]
        )
        assert len(widths) == 20_000
        assert widths.max() <= 2 * widths.min() + 2


class TestDriver:
    """The driver's own work is bounded."""

    @pytest.mark.parametrize(
        ("size", "leaves", "frame"), [*product(SIZES, (1, 1000, 100_000), (False, True))]
    )
    def test_takes_a_minute_and_two_gigabytes_at_most(self, size, leaves, frame):
        """A driver reads no footer of many files, and looks for a bounded number of written ones."""
        plan = plan_import(known(size, leaves=leaves, frame=frame))

        assert plan.driver_seconds <= 60
        assert plan.driver_memory_bytes <= 2 * GB
        assert plan.requests <= 20_000

    def test_of_a_small_import_takes_seconds(self):
        """The plan of a gigabyte says that the driver is ready at once."""
        plan = plan_import(known(GB))

        assert plan.driver_seconds < 5


class TestExplanation:
    """The plan as text."""

    def test_says_what_will_run(self):
        """A line for each part, with its size; of two levels there is one more."""
        small, large = known(GB, cores=2), known(100 * TB, cores=400, largest_leaf_share=0.9)

        assert explained(small, plan_import(small)).splitlines()[:2] == [
            "input       1 GB before compression, 6,666,666 rows: 10 files, 7 row groups",
            "leaves      1, split to 8 before rows are moved",
        ]
        text = explained(large, plan_import(large))
        assert "one leaf gets 90% of the rows" in text
        assert "two levels  152 ranges of buckets, each cut into buckets by 154 tasks" in text
        assert "two levels" not in explained(small, plan_import(small))

    def test_of_a_data_frame_names_its_partitions(self):
        """It has no files."""
        frame = known(5 * GB, leaves=300, frame=True)

        text = explained(frame, plan_import(frame))

        assert "a DataFrame of 37 partitions" in text
        assert "300, which are enough" in text
