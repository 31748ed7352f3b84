"""Plans the merge of sorted files as a merge of streams, never a sort.

DataFusion trusts the declared order of a file and then only merges. If it sorted anyway, memory and
time would grow silently, so every plan is checked before it runs. The check also finds missing
files, which DataFusion silently treats as empty tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sleeper.engine.scan.session import FileMissing, column


def merge_plan(frames: Sequence[Any], order: Sequence[Any], columns: Sequence[str]) -> Any:
    """Return the physical plan that merges `frames`, all in `order`, and keeps `columns`.

    Raises:
        FileMissing: a file does not exist.
    """
    merged = list(frames)
    while len(merged) > 1:  # a balanced tree: the planner recurses over it
        pairs = zip(merged[::2], merged[1::2], strict=False)
        odd_one = merged[-1:] if len(merged) % 2 else []
        merged = [left.union(right) for left, right in pairs] + odd_one
    rows = merged[0].sort(*order) if len(frames) > 1 else merged[0]
    plan = rows.select(*[column(name) for name in columns]).execution_plan()
    _check_plan(plan)
    return plan


def node_names(plan: Any) -> list[str]:
    """Return the names of a physical plan's nodes, from the top."""
    names, nodes = [], [plan]
    while nodes:
        node = nodes.pop()
        names.append(node.display().split(":", 1)[0].split(None, 1)[0])
        nodes += reversed(node.children())
    return names


def _check_plan(plan: Any) -> None:
    names = node_names(plan)
    if "EmptyExec" in names:
        raise FileMissing
    if "SortExec" in names or plan.partition_count != 1:
        raise AssertionError(f"a merge must not sort its rows:\n{plan.display_indent()}")
