"""Reports on a table: its partitions and files, with counts (rules ADM-5, ADM-6)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from sleeper.html.values import NotebookHtml
from sleeper.model.files import FileReference
from sleeper.model.keys import key_type, smallest_value, value_to_text
from sleeper.model.partitions import Partition
from sleeper.model.schema import Schema
from sleeper.state.table_state import TableState
from sleeper.tables.open_table import OpenTable
from sleeper.tables.split_and_merge import leaf_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport(NotebookHtml):
    """The report on one partition.

    Attributes:
        partition_id: Its id.
        is_leaf: True without children.
        parent_id: None for the root.
        region: Each row key's range as text, `[min, max)`; a missing limit is left empty.
        files: References on it.
        files_on_jobs: References that a job has claimed.
        rows: Rows of its references.
        rows_estimated: True if `rows` includes estimates, or rows that are deleted and not yet
            out of their files.
        split_field: The row key it was split on; None for a leaf.
        split_value: The split point, as text.
        will_be_split: True for a leaf that the next splitting run splits.
    """

    partition_id: str
    is_leaf: bool
    parent_id: str | None
    region: str
    files: int
    files_on_jobs: int
    rows: int
    rows_estimated: bool
    split_field: str | None
    split_value: str | None
    will_be_split: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesReport(NotebookHtml):
    """Counts of a table's files.

    Attributes:
        transaction: The transaction number of the state.
        leaf_partitions: Partitions without children.
        non_leaf_partitions: The others.
        files: Files that are tracked.
        files_unreferenced: Those of them that wait for garbage collection.
        references: References of partitions to files.
        references_per_leaf: min, mean, median, max over leaves with references.
        rows: Rows in the table.
        rows_in_leaves: Rows referenced by leaves.
        rows_estimated: True if the counts include estimates.
    """

    transaction: int
    leaf_partitions: int
    non_leaf_partitions: int
    files: int
    files_unreferenced: int
    references: int
    references_per_leaf: dict[str, float]
    rows: int
    rows_in_leaves: int
    rows_estimated: bool


def report_partitions(table: OpenTable) -> list[PartitionReport]:
    """Describe every partition, and which leaves will be split (`Table.report_partitions`)."""
    to_split = {each.partition.partition_id for each in leaf_sizes(table) if each.will_be_split}
    return describe_partitions(table.store.refresh(), table.schema, to_split=to_split)


def describe_partitions(
    state: TableState, schema: Schema, *, to_split: Collection[str]
) -> list[PartitionReport]:
    """Describe every partition: leaves in key order first, then their parents, the root last.

    Args:
        state: The table.
        schema: The table's.
        to_split: Ids of the leaves that the next splitting run splits.
    """
    totals = state.files.totals()
    leaves = list(state.tree.leaves())
    shown = {leaf.partition_id for leaf in leaves}
    parents: list[Partition] = []
    for leaf in leaves:
        for ancestor in state.tree.ancestors(leaf.partition_id):
            if ancestor.partition_id not in shown:
                shown.add(ancestor.partition_id)
                parents.append(ancestor)
    depth = {p.partition_id: sum(1 for _ in state.tree.ancestors(p.partition_id)) for p in parents}
    parents.sort(key=lambda p: -depth[p.partition_id])
    return [
        _partition_report(partition, state, schema, totals, to_split)
        for partition in [*leaves, *parents]
    ]


def report_files(state: TableState) -> FilesReport:
    """Count a table's files, references and rows."""
    totals = state.files.totals()
    leaf_ids = {leaf.partition_id for leaf in state.tree.leaves()}
    per_leaf = [total.references for name, total in totals.items() if name in leaf_ids]
    unreferenced = sum(1 for _ in state.files.unreferenced())
    return FilesReport(
        transaction=state.number,
        leaf_partitions=len(leaf_ids),
        non_leaf_partitions=len(state.tree) - len(leaf_ids),
        files=state.files.file_count,
        files_unreferenced=unreferenced,
        references=state.files.reference_count,
        references_per_leaf=_spread(per_leaf),
        rows=sum(total.rows for total in totals.values()),
        rows_in_leaves=sum(total.rows for name, total in totals.items() if name in leaf_ids),
        rows_estimated=bool(state.deletes) or any(total.estimated for total in totals.values()),
    )


def list_references(state: TableState) -> list[FileReference]:
    """Return every reference, by partition in key order, then by file."""
    partitions = [leaf.partition_id for leaf in state.tree.leaves()]
    others = [name for name in state.tree.partitions if name not in set(partitions)]
    return [ref for name in [*partitions, *others] for ref in state.files.references_on(name)]


def _partition_report(
    partition: Partition,
    state: TableState,
    schema: Schema,
    totals: dict[str, Any],
    to_split: Collection[str],
) -> PartitionReport:
    total = totals.get(partition.partition_id)
    split_field = split_value = None
    if partition.dimension is not None:
        field = schema.row_keys[partition.dimension]
        lower = state.tree.partition(partition.child_ids[0])
        split_field = field.name
        split_value = value_to_text(key_type(field), lower.region.ranges[partition.dimension].max)
    return PartitionReport(
        partition_id=partition.partition_id,
        is_leaf=partition.is_leaf,
        parent_id=partition.parent_id,
        region=_region_text(partition, schema),
        files=total.references if total else 0,
        files_on_jobs=total.references_on_jobs if total else 0,
        rows=total.rows if total else 0,
        rows_estimated=bool(total and (total.estimated or state.deletes)),
        split_field=split_field,
        split_value=split_value,
        will_be_split=partition.partition_id in to_split,
    )


def _region_text(partition: Partition, schema: Schema) -> str:
    parts = []
    for field, key_range in zip(schema.row_keys, partition.region.ranges, strict=True):
        kind = key_type(field)
        least = key_range.min == smallest_value(kind)
        low = "" if least else value_to_text(kind, key_range.min)
        high = "" if key_range.max is None else value_to_text(kind, key_range.max)
        parts.append(f"{field.name} [{low}, {high})")
    return ", ".join(parts)


def _spread(counts: list[int]) -> dict[str, float]:
    if not counts:
        return {"min": 0, "mean": 0, "median": 0, "max": 0}
    return {
        "min": min(counts),
        "mean": round(mean(counts), 2),
        "median": median(counts),
        "max": max(counts),
    }
