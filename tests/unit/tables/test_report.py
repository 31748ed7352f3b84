"""Reports: partitions and files, counted from one state."""

from __future__ import annotations

from sleeper.tables.report import describe_partitions, list_references, report_files
from tests.unit.tables.small_tables import PAIRS, small_table

ROWS = [(n, "a") for n in range(10)]


def test_partitions_leaves_in_key_order_then_parents():
    """Each with its region, rows, and where it was split (ADM-6)."""
    table = small_table([3, 6])
    table.ingest(ROWS)

    state = table.store.refresh()
    (*_, last) = state.leaf_partitions()
    found = describe_partitions(state, PAIRS, to_split={last.partition_id})

    assert [(p.region, p.rows, p.files, p.is_leaf) for p in found] == [
        ("a [, 3), b [, )", 3, 1, True),
        ("a [3, 6), b [, )", 3, 1, True),
        ("a [6, ), b [, )", 4, 1, True),
        ("a [, 6), b [, )", 0, 0, False),
        ("a [, ), b [, )", 0, 0, False),
    ]
    assert [p.will_be_split for p in found] == [False, False, True, False, False]
    assert [(p.split_field, p.split_value) for p in found[3:]] == [("a", "3"), ("a", "6")]
    assert {p.parent_id for p in found[:2]} == {found[3].partition_id}
    assert found[-1].parent_id is None


def test_a_later_dimension_is_named():
    """A partition that was split on the second row key says so."""
    table = small_table()
    table.split("root", "m", dimension=1)

    found = describe_partitions(table.store.refresh(), PAIRS, to_split=())

    assert [p.region for p in found] == ["a [, ), b [, m)", "a [, ), b [m, )", "a [, ), b [, )"]
    assert (found[-1].split_field, found[-1].split_value) == ("b", "m")


def test_files_in_figures():
    """Files, references, rows, and how they spread over leaves (ADM-5)."""
    table = small_table([3, 6])
    table.ingest(ROWS, one_file_per_leaf=False)
    table.ingest(ROWS[:2])

    found = report_files(table.store.refresh())

    assert (found.transaction, found.files, found.references) == (3, 2, 4)
    assert (found.leaf_partitions, found.non_leaf_partitions) == (3, 2)
    assert (found.rows, found.rows_in_leaves, found.rows_estimated) == (12, 12, False)
    assert found.references_per_leaf == {"min": 1, "mean": 1.33, "median": 1, "max": 2}
    assert found.files_unreferenced == 0


def test_rows_above_the_leaves_are_told_apart():
    """A file may still be referenced by a partition that was split (PRT-13)."""
    table = small_table()
    table.ingest(ROWS)
    table.split("root", 5)

    found = report_files(table.store.refresh())

    assert (found.rows, found.rows_in_leaves, found.references) == (10, 0, 1)
    assert found.references_per_leaf == {"min": 0, "mean": 0, "median": 0, "max": 0}
    assert [r.partition_id for r in list_references(table.store.refresh())] == ["root"]


def test_references_by_partition_in_key_order():
    """Leaves first, as a reader meets them."""
    table = small_table([3, 6])
    table.ingest(ROWS)

    found = list_references(table.store.refresh())

    leaves = [leaf.partition_id for leaf in table.store.refresh().tree.leaves()]
    assert [reference.partition_id for reference in found] == leaves


def test_a_table_without_rows():
    """Everything is 0, and nothing fails."""
    found = report_files(small_table().store.refresh())

    assert (found.files, found.rows, found.references, found.leaf_partitions) == (0, 0, 0, 1)
