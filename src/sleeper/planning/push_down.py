"""Plans moving references of split partitions down to the leaves (rules FRF-4, CMP-2).

All the way in one run, and no row is lost on the way: what the leaves get adds up to what the
partition had. How much each leaf gets is estimated from the file's sketch, or halved where there
is none; whether it has any row at all is for readers to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

from sleeper.model.files import FileReference
from sleeper.model.partitions import Partition, PartitionTree
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import ReferencePush


class Ranks(Protocol):
    """How the row keys of a file are spread: its sketches."""

    def rank(self, dimension: int, value: Any) -> float:
        """Return the share of rows whose key value lies below `value`, from 0 to 1."""
        ...


RanksOf = Callable[[str], Ranks | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushDownPlan:
    """References to move.

    Attributes:
        pushes: As many as one transaction takes.
        more: True when others wait for the next run.
    """

    pushes: tuple[ReferencePush, ...]
    more: bool


def references_above_leaves(state: TableState) -> Iterator[FileReference]:
    """Yield unclaimed references of partitions that were split, by partition, then filename."""
    for partition_id in sorted(state.files.partition_ids()):
        if state.partition(partition_id).is_leaf:
            continue
        for reference in state.files.references_on(partition_id):
            if reference.job_id is None:
                yield reference


def plan_push_down(state: TableState, ranks_of: RanksOf, *, references_max: int) -> PushDownPlan:
    """Plan to move references down to the leaves.

    Args:
        state: The table.
        ranks_of: Returns a file's sketches, or None where they are not to be had. Called once a
            reference.
        references_max: New references after which no further one is moved.
    """
    pushes: list[ReferencePush] = []
    made = 0
    waiting = references_above_leaves(state)
    for reference in waiting:
        into = _into_leaves(reference, state.tree, ranks_of(reference.filename))
        pushes.append(
            ReferencePush(
                filename=reference.filename, partition_id=reference.partition_id, into=into
            )
        )
        made += len(into)
        if made >= references_max:
            break
    return PushDownPlan(pushes=tuple(pushes), more=any(True for _ in islice(waiting, 1)))


def _into_leaves(
    reference: FileReference, tree: PartitionTree, ranks: Ranks | None
) -> tuple[FileReference, ...]:
    """Share a reference's rows out to the leaves below its partition."""
    leaves: list[FileReference] = []
    waiting = [(tree.partition(reference.partition_id), reference.row_count)]
    while waiting:
        here, row_count = waiting.pop()
        if here.is_leaf:
            part = replace(
                reference,
                partition_id=here.partition_id,
                row_count=row_count,
                row_count_estimated=True,
                whole_file=False,
                updated=None,
            )
            leaves.append(part)
            continue
        lower, upper = (tree.partition(child) for child in here.child_ids)
        below = round(row_count * _share_below(here, lower, ranks))
        waiting += [(upper, row_count - below), (lower, below)]
    return tuple(leaves)


def _share_below(parent: Partition, lower: Partition, ranks: Ranks | None) -> float:
    """Estimate the share of a partition's rows that lie in its lower half."""
    assert parent.dimension is not None
    whole, below = (each.region.ranges[parent.dimension] for each in (parent, lower))
    if ranks is None:
        return 0.5
    least = ranks.rank(parent.dimension, whole.min)
    most = 1.0 if whole.max is None else ranks.rank(parent.dimension, whole.max)
    middle = ranks.rank(parent.dimension, below.max)
    return (middle - least) / (most - least) if most > least else 0.5
