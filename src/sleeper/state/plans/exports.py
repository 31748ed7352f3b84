"""Plans an export: which leaves are written to which file. Pure.

Small neighbouring leaves share a file, and a large leaf is cut into several, in key order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sleeper.model.partitions import Partition
from sleeper.model.queries import LeafQuery, checked_columns
from sleeper.model.ranges import Range, Region
from sleeper.model.schema import Schema
from sleeper.state.plans.queries import plan_leaf_queries
from sleeper.state.table_state import TableState

PART_ROWS = 1_000_000
"""Neighbouring leaves with fewer rows than this are written to one file."""

CUT_ROWS = 4_000_000
"""A leaf with twice as many rows or more is cut into files of about so many."""

_DIGITS_MIN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafToCut:
    """A leaf that is written to several files.

    Attributes:
        leaf: The leaf.
        parts: How many files.
    """

    leaf: Partition
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPart:
    """One file to write.

    Attributes:
        name: Its name; names of parts sort in key order.
        groups: Leaves to read, in the groups of `plan_leaf_queries`; of a leaf that is cut, the
            regions of one part.
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


def leaves_to_cut(
    state: TableState, regions: Sequence[Region], *, cut_rows: int = CUT_ROWS
) -> Iterator[LeafToCut]:
    """Yield the leaves of an export that are so large that they are cut, in key order.

    Leaves that interleave with others are not: the rows of all of them are merged.
    """
    for group in plan_leaf_queries(state, regions):
        row_count = sum(_rows_of(state, leaf) for leaf in group)
        if len(group) == 1 and row_count >= 2 * cut_rows:
            leaf = state.partition(group[0].leaf_id)
            yield LeafToCut(leaf=leaf, parts=row_count // cut_rows)


def plan_export(
    state: TableState,
    schema: Schema,
    regions: Sequence[Region],
    *,
    columns: Sequence[str] | None = None,
    part_rows: int = PART_ROWS,
    cuts: Mapping[str, Sequence[Any]] | None = None,
) -> ExportPlan:
    """Plan an export of the rows inside any of `regions`, each once.

    Args:
        state: The state to export.
        schema: The table's schema.
        regions: Regions of the table.
        columns: The columns to write, in this order; None for all.
        part_rows: Neighbouring leaves are written to one file until it has about this many rows.
            A group of leaves is never divided.
        cuts: For leaves that are cut, by id, the values of the first row key at which a file
            ends and the next begins, ascending.

    Raises:
        QueryInvalid: a column is unknown or named twice.
    """
    packed = [*packed_leaves(state, regions, part_rows, cuts)] or [()]
    digits = max(_DIGITS_MIN, len(str(len(packed) - 1)))
    return ExportPlan(
        transaction=state.number,
        columns=checked_columns(schema, columns),
        parts=tuple(
            PlannedPart(name=f"part-{number:0{digits}}.parquet", groups=groups)
            for number, groups in enumerate(packed)
        ),
    )


def packed_leaves(
    state: TableState,
    regions: Sequence[Region],
    part_rows: int,
    cuts: Mapping[str, Sequence[Any]] | None = None,
) -> Iterator[tuple[Sequence[LeafQuery], ...]]:
    """Yield groups of leaves that are read together, each once, in key order.

    Args:
        state: The state to read.
        regions: Rows inside any of these.
        part_rows: Neighbouring leaves are joined until they have about this many rows.
        cuts: As for `plan_export`: a part of a leaf that is cut is alone.
    """
    cuts = cuts or {}
    together: list[Sequence[LeafQuery]] = []
    row_count = 0
    for group in plan_leaf_queries(state, regions):
        if len(group) == 1 and group[0].leaf_id in cuts:
            if together:
                yield tuple(together)
                together, row_count = [], 0
            yield from (([part],) for part in _cut(group[0], cuts[group[0].leaf_id]))
            continue
        together.append(group)
        row_count += sum(_rows_of(state, leaf) for leaf in group)
        if row_count >= part_rows:
            yield tuple(together)
            together, row_count = [], 0
    if together:
        yield tuple(together)


def _cut(query: LeafQuery, values: Sequence[Any]) -> Iterator[LeafQuery]:
    """Yield the parts of a leaf that have any of the requested regions, in key order."""
    least = min(region.ranges[0].min for region in query.regions)
    inside = [value for value in values if value > least]
    for low, high in pairwise([least, *inside, None]):
        part = Range(low, high)
        shared = [(region, region.ranges[0].intersection(part)) for region in query.regions]
        regions = [region.with_range(0, both) for region, both in shared if both is not None]
        if regions:
            yield replace(query, regions=tuple(regions))


def _rows_of(state: TableState, leaf: LeafQuery) -> int:
    """Estimate the rows of a leaf: half of an ancestor's rows go to each child."""
    return sum(
        reference.row_count >> depth
        for depth, partition_id in enumerate(state.tree.ids_upwards(leaf.leaf_id))
        for reference in state.files.references_on(partition_id)
    )
