"""What commits change, and how much, for stores that take only so many changes at once.

`StateStore.changes_max` says what counts as a change, and how many a commit may make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from sleeper.model.files import FileReference
from sleeper.state.transactions.files import Claim

Item = TypeVar("Item")

_OF_AN_OUTPUT = 3
"""A compaction adds a reference and a file, and ends its job's claim."""
_OF_A_PUSH = 2
"""A push removes a reference, and changes how many the file has."""
_OF_A_SPLIT = 3
_OF_A_MERGE = 5
"""A merge removes two leaves, changes their parent, and notes what became of both."""


def inputs_max(changes_max: int) -> int:
    """Return how many inputs a compaction job may have, so that its commit fits.

    Each input is two changes: the reference that is removed, and its file.
    """
    return (changes_max - _OF_AN_OUTPUT) // 2


def claim_changes(claim: Claim) -> int:
    """Return how many changes it is at most to claim or release files for a job."""
    return len(claim.filenames) + 1


def push_changes(parts: int) -> int:
    """Return how many changes it is to replace a reference by so many others."""
    return parts + _OF_A_PUSH


def parts_max(changes_max: int) -> int:
    """Return by how many others a reference may be replaced in one commit."""
    return changes_max - _OF_A_PUSH


def splits_max(changes_max: int) -> int:
    """Return how many leaves one commit may split: each is changed, and has two new children."""
    return changes_max // _OF_A_SPLIT


def merge_changes(lower: Sequence[FileReference], upper: Sequence[FileReference]) -> int:
    """Return how many changes it is at most to merge leaves with these references."""
    names = [{ref.filename for ref in side} for side in (lower, upper)]
    both, either = names[0] & names[1], names[0] | names[1]
    return _OF_A_MERGE + len(lower) + len(upper) + len(either) + len(both)


def in_groups(
    items: Iterable[Item], changes_of: Callable[[Item], int], changes_max: int | None
) -> Iterator[tuple[Item, ...]]:
    """Yield items in groups that each fit in one commit; an item that never fits comes alone.

    Args:
        items: The items, in order.
        changes_of: Returns how many changes an item is.
        changes_max: How many changes fit; None for any number, so that there is one group.
    """
    group: list[Item] = []
    changes = 0
    for item in items:
        more = changes_of(item)
        if group and changes_max is not None and changes + more > changes_max:
            yield tuple(group)
            group, changes = [], 0
        group.append(item)
        changes += more
    if group:
        yield tuple(group)


def claim_groups(claims: Iterable[Claim], changes_max: int | None) -> Iterator[tuple[Claim, ...]]:
    """Yield claims in groups that can each be released by one commit; large ones are divided."""
    return in_groups(_divided(claims, changes_max), claim_changes, changes_max)


def _divided(claims: Iterable[Claim], changes_max: int | None) -> Iterator[Claim]:
    for claim in claims:
        if changes_max is None or claim_changes(claim) <= changes_max:
            yield claim
            continue
        step = changes_max - 1
        for start in range(0, len(claim.filenames), step):
            yield replace(claim, filenames=claim.filenames[start : start + step])
