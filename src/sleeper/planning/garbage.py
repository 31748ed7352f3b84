"""Which files are garbage: those that no head of a table and no version that is kept reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import groupby

from sleeper.state.table_state import TableState


def collectable(heads: Sequence[TableState], kept_since: datetime) -> Iterator[str]:
    """Yield the files that may be deleted, by name.

    A version is a state that a head had at some time, and it is kept while that time is not
    before `kept_since`. So a file is needed while a head references it, and while a head has
    referenced it at `kept_since` or later. A file that a head does not track, it does not need.

    Args:
        heads: The newest state of each line of versions. A table has one line today.
        kept_since: Versions from before this time are kept no longer; nor are readers of them.
    """
    waiting = merge(*([name for name, _ in head.files.unreferenced(kept_since)] for head in heads))
    for name, _ in groupby(waiting):
        if not any(_is_needed(name, head, kept_since) for head in heads):
            yield name


def _is_needed(filename: str, head: TableState, kept_since: datetime) -> bool:
    since = head.files.unreferenced_since(filename)
    if since is not None:
        return since >= kept_since
    return head.files.is_tracked(filename)
