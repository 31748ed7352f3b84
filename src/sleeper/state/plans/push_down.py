"""Plans moving references of split partitions down to the leaves (rules FRF-4, CMP-2).

References move all the way down in one run. The row counts that the leaves get add up to the
partition's count: each leaf's share is counted or estimated from the file's sketch, or halved if
there is no sketch. A leaf in which the file certainly has no row gets no reference. Other leaves
get one, and readers find out whether it has rows there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

from sleeper.model.files import FileReference, key_from_text
from sleeper.model.keys import Key
from sleeper.model.partitions import Partition, PartitionTree
from sleeper.model.ranges import Region
from sleeper.state.commit_changes import parts_max, push_changes
from sleeper.state.table_state import TableState
from sleeper.state.transactions.files import ReferencePush


class Ranks(Protocol):
    """The distribution of the row keys of a file: its sketches.

    Attributes:
        is_exact: True if the sketch holds every row, so that a rank is not an estimate.
    """

    @property
    def is_exact(self) -> bool:
        """Whether the sketch holds every row, so that a rank is not an estimate."""
        ...

    def rank(self, dimension: int, value: Any) -> float:
        """Return the share of rows whose key value is below `value`, from 0 to 1."""
        ...


RanksOf = Callable[[FileReference], Ranks | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushDownPlan:
    """References to move.

    Attributes:
        pushes: The moves, as many as fit one transaction.
        more: True if there are more for the next run.
    """

    pushes: tuple[ReferencePush, ...]
    more: bool


def references_above_leaves(state: TableState) -> Iterator[FileReference]:
    """Yield unclaimed references of split partitions, ordered by partition, then filename."""
    for partition_id in sorted(state.files.partition_ids()):
        if state.partition(partition_id).is_leaf:
            continue
        for reference in state.files.references_on(partition_id):
            if reference.job_id is None:
                yield reference


def plan_push_down(
    state: TableState, ranks_of: RanksOf, *, references_max: int, changes_max: int | None = None
) -> PushDownPlan:
    """Plan to move references down to the leaves.

    Args:
        state: The table.
        ranks_of: Returns a file's sketches, or None if there are none. Called once for each
            reference.
        references_max: Stop after this many new references.
        changes_max: How many changes the state store takes in one commit; None for any number. A
            reference that would become more is moved down a part of the way.
    """
    pushes: list[ReferencePush] = []
    made = changes = 0
    is_whole = True
    into_max = None if changes_max is None else parts_max(changes_max)
    waiting = references_above_leaves(state)
    for reference in waiting:
        known = FileKeys.of(reference, state, ranks_of(reference))
        into = _into_leaves(reference, state.tree, known, into_max)
        changes += push_changes(len(into))
        if changes_max is not None and changes > changes_max and pushes:
            return PushDownPlan(pushes=tuple(pushes), more=True)
        is_whole = is_whole and all(state.partition(ref.partition_id).is_leaf for ref in into)
        pushes.append(
            ReferencePush(
                filename=reference.filename, partition_id=reference.partition_id, into=into
            )
        )
        made += len(into)
        if made >= references_max:
            break
    more = not is_whole or any(True for _ in islice(waiting, 1))
    return PushDownPlan(pushes=tuple(pushes), more=more)


def _into_leaves(
    reference: FileReference, tree: PartitionTree, known: FileKeys, into_max: int | None
) -> tuple[FileReference, ...]:
    """Distribute a reference's rows to the leaves below its partition that may have some.

    If there are too many leaves, some of the rows go to partitions above them.
    """
    leaves: list[FileReference] = []
    exact = not reference.row_count_estimated
    waiting = deque([(tree.partition(reference.partition_id), reference.row_count)])
    while waiting:
        # With a limit the highest partition is next, so that the tree is descended evenly.
        here, row_count = waiting.pop() if into_max is None else waiting.popleft()
        is_full = into_max is not None and len(leaves) + len(waiting) + 1 >= into_max
        if here.is_leaf or is_full:
            part = replace(
                reference,
                partition_id=here.partition_id,
                row_count=row_count,
                row_count_estimated=not (known.are_counted(here) and exact),
                whole_file=False,
                updated=None,
            )
            leaves.append(part)
            continue
        lower, upper = (tree.partition(child) for child in here.child_ids)
        may_be = [child for child in (lower, upper) if known.may_lie_in(child.region)]
        if len(may_be) == 1:
            waiting.append((may_be[0], row_count))
            continue
        below = round(row_count * _share_below(here, lower, known.ranks))
        waiting += [(upper, row_count - below), (lower, below)]
    if len(leaves) == 1 and reference.whole_file:
        # All rows of the file are there, and they were counted.
        return (replace(leaves[0], whole_file=True, row_count_estimated=not exact),)
    return tuple(leaves)


@dataclass(frozen=True, slots=True)
class FileKeys:
    """What is certain about the row keys of a file.

    Attributes:
        first: The least row key; None if it is not known.
        last: The greatest.
        ranks: Their distribution; None if it is not known.
    """

    first: Key | None
    last: Key | None
    ranks: Ranks | None

    @classmethod
    def of(cls, reference: FileReference, state: TableState, ranks: Ranks | None) -> FileKeys:
        """Return what a reference and the ranks of its file tell."""
        schema = state.schemas.get(reference.schema_id or 0)
        if schema is None or reference.first_key is None or reference.last_key is None:
            return cls(None, None, ranks)
        first, last = (key_from_text(t, schema) for t in (reference.first_key, reference.last_key))
        return cls(first, last, ranks)

    def are_counted(self, partition: Partition) -> bool:
        """Return whether ranks tell the rows of a partition: all of its only row key field."""
        known = self.ranks is not None and self.ranks.is_exact
        return known and len(partition.region.ranges) == 1

    def may_lie_in(self, region: Region) -> bool:
        """Return False only if the file certainly has no row in a region."""
        return not (self._is_outside(region) or self._has_no_rank_in(region))

    def _is_outside(self, region: Region) -> bool:
        """Compare with the first and last key, field by field while the two are equal."""
        if self.first is None or self.last is None:
            return False
        for low, high, wanted in zip(self.first, self.last, region.ranges, strict=True):
            if high < wanted.min or (wanted.max is not None and low >= wanted.max):
                return True
            if low != high:
                return False
        return False

    def _has_no_rank_in(self, region: Region) -> bool:
        if self.ranks is None or not self.ranks.is_exact:
            return False
        return any(
            (1.0 if wanted.max is None else self.ranks.rank(dimension, wanted.max))
            <= self.ranks.rank(dimension, wanted.min)
            for dimension, wanted in enumerate(region.ranges)
        )


def _share_below(parent: Partition, lower: Partition, ranks: Ranks | None) -> float:
    """Estimate the fraction of a partition's rows that are in its lower half."""
    assert parent.dimension is not None
    whole, below = (each.region.ranges[parent.dimension] for each in (parent, lower))
    if ranks is None:
        return 0.5
    least = ranks.rank(parent.dimension, whole.min)
    most = 1.0 if whole.max is None else ranks.rank(parent.dimension, whole.max)
    middle = ranks.rank(parent.dimension, below.max)
    return (middle - least) / (most - least) if most > least else 0.5
