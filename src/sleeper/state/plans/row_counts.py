"""Plans a count of rows: which rows the state has counted, and which files must be looked at. Pure.

A reference has the number of its rows. It is an estimate after a push-down, and useless where only
some rows of its partition are asked for. Source: rule QRY-21.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sleeper.language.value_classes import dataclass
from sleeper.model.partitions import Partition
from sleeper.model.ranges import Region
from sleeper.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class RowCountPlan:
    """How to count rows that no filter, aggregation or function changes.

    Attributes:
        known_rows: Rows that the state has counted.
        regions_by_file: Files with other rows to count, and the regions that these are in.
    """

    known_rows: int
    regions_by_file: Mapping[str, tuple[Region, ...]]


def plan_row_count(state: TableState, regions: Sequence[Region]) -> RowCountPlan:
    """Plan a count of the rows inside any of `regions`."""
    known_rows = 0
    by_file: dict[str, list[Region]] = {}
    for partition in _partitions_overlapping(state, regions):
        references = state.files.references_on(partition.partition_id)
        if not references:
            continue
        shared = [each for region in regions if (each := region.intersection(partition.region))]
        whole = partition.region in shared
        for reference in references:
            if whole and not reference.row_count_estimated:
                known_rows += reference.row_count
            else:
                by_file.setdefault(reference.filename, []).extend(shared)
    return RowCountPlan(known_rows, {name: tuple(each) for name, each in by_file.items()})


def _partitions_overlapping(state: TableState, regions: Sequence[Region]) -> Iterator[Partition]:
    """Yield the leaves that share keys with a region, and all partitions above them, each once."""
    seen = set[str]()
    for leaf in state.tree.leaves_overlapping(regions):
        yield leaf
        for ancestor in state.tree.ancestors(leaf.partition_id):
            if ancestor.partition_id in seen:
                break
            seen.add(ancestor.partition_id)
            yield ancestor
