"""Which rows the state has counted, and which files a count must look at (rule QRY-21)."""

from __future__ import annotations

from dataclasses import replace

from sleeper.model.files import FileReference
from sleeper.model.queries import region_from_request
from sleeper.model.ranges import Region
from sleeper.state.plans.queries import plan_row_count
from sleeper.state.table_state import TableState
from tests.unit.state.plans.test_queries import NOON, ONE_KEY, state, tree


def counted(table: TableState, *references: FileReference) -> TableState:
    return replace(table, files=table.files.changed(added=references, at=NOON))


def two_leaves() -> TableState:
    """Return a table with a file in each of two leaves, cut at 10, and one in the root."""
    partitions = tree(ONE_KEY, 10)
    low, high = partitions.leaves()
    return counted(
        state(partitions),
        FileReference(filename="low", partition_id=low.partition_id, row_count=3),
        FileReference(filename="high", partition_id=high.partition_id, row_count=5),
        FileReference(filename="all", partition_id=partitions.root_id, row_count=7),
    )


def region(low: int | None, high: int | None) -> Region:
    return region_from_request(ONE_KEY, {"k": (low, high)})


class TestRowCounts:
    """Planning a count (rule QRY-21)."""

    def test_rows_of_whole_partitions_are_known(self):
        """References on leaves and on partitions above them count, and no file is needed."""
        table = two_leaves()

        plan = plan_row_count(table, [region(None, None)])

        assert (plan.known_rows, dict(plan.regions_by_file)) == (15, {})

    def test_estimates_are_never_used(self):
        """A half of a file that was pushed down is counted in the file, inside its leaf."""
        partitions = tree(ONE_KEY, 10)
        low, high = partitions.leaves()
        half = FileReference(
            filename="f",
            partition_id=low.partition_id,
            row_count=50,
            row_count_estimated=True,
            whole_file=False,
        )
        table = counted(state(partitions), half, replace(half, partition_id=high.partition_id))

        plan = plan_row_count(table, [region(None, None)])

        assert plan.known_rows == 0
        assert dict(plan.regions_by_file) == {"f": (region(None, 10), region(10, None))}

    def test_a_part_of_a_partition_is_counted_in_its_files(self):
        """Of two leaves one is asked for whole: only the other's file is needed, and the root's."""
        table = two_leaves()

        plan = plan_row_count(table, [region(None, 20)])

        assert plan.known_rows == 3
        assert dict(plan.regions_by_file) == {"high": (region(10, 20),), "all": (region(None, 20),)}

    def test_nothing_asked_for_is_no_rows(self):
        """An empty list of regions."""
        partitions = tree(ONE_KEY, 10)

        plan = plan_row_count(state(partitions, ("all", partitions.root_id)), [])

        assert (plan.known_rows, dict(plan.regions_by_file)) == (0, {})
