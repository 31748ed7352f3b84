"""Plans an export: which leaves are written to which file. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sleeper.model.queries import LeafQuery, checked_columns
from sleeper.model.ranges import Region
from sleeper.model.schema import Schema
from sleeper.state.plans.queries import plan_leaf_queries
from sleeper.state.table_state import TableState

PART_ROWS = 1_000_000
"""Neighbouring leaves with fewer rows than this are written to one file."""

_DIGITS_MIN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPart:
    """One file to write.

    Attributes:
        name: Its name; names of parts sort in key order.
        groups: Leaves to read, in the groups of `plan_leaf_queries`.
    """

    name: str
    groups: tuple[Sequence[LeafQuery], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """What to export, and in which files.

    Attributes:
        transaction: The transaction number of the exported state.
        columns: The columns to write, in this order.
        parts: The files, in key order. If there are no rows, one file without leaves, so that a
            reader of the export finds its columns.
    """

    transaction: int
    columns: tuple[str, ...]
    parts: tuple[PlannedPart, ...]


def plan_export(
    state: TableState,
    schema: Schema,
    regions: Sequence[Region],
    *,
    columns: Sequence[str] | None = None,
    part_rows: int = PART_ROWS,
) -> ExportPlan:
    """Plan an export of the rows inside any of `regions`, each once.

    Args:
        state: The state to export.
        schema: The table's schema.
        regions: Regions of the table.
        columns: The columns to write, in this order; None for all.
        part_rows: Neighbouring leaves are written to one file until it has about this many rows.
            A group of leaves is never divided.

    Raises:
        QueryInvalid: a column is unknown or named twice.
    """
    packed = [*_packed(state, regions, part_rows)] or [()]
    digits = max(_DIGITS_MIN, len(str(len(packed) - 1)))
    return ExportPlan(
        transaction=state.number,
        columns=checked_columns(schema, columns),
        parts=tuple(
            PlannedPart(name=f"part-{number:0{digits}}.parquet", groups=groups)
            for number, groups in enumerate(packed)
        ),
    )


def _packed(
    state: TableState, regions: Sequence[Region], part_rows: int
) -> Iterator[tuple[Sequence[LeafQuery], ...]]:
    """Yield groups of leaves for each file; neighbours are joined until they have enough rows."""
    together: list[Sequence[LeafQuery]] = []
    row_count = 0
    for group in plan_leaf_queries(state, regions):
        together.append(group)
        row_count += sum(_rows_of(state, leaf) for leaf in group)
        if row_count >= part_rows:
            yield tuple(together)
            together, row_count = [], 0
    if together:
        yield tuple(together)


def _rows_of(state: TableState, leaf: LeafQuery) -> int:
    """Estimate the rows of a leaf: half of an ancestor's rows go to each child."""
    ancestors = [partition.partition_id for partition in state.tree.ancestors(leaf.leaf_id)]
    return sum(
        reference.row_count >> depth
        for depth, partition_id in enumerate([leaf.leaf_id, *ancestors])
        for reference in state.files.references_on(partition_id)
    )
