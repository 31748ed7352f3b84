"""Finds in DataFusion's optimized plan which rows of each table a statement needs.

Each table is a dataset below a LIMIT that limits nothing (`BARRIER`). No condition may be pushed
through a LIMIT, so DataFusion evaluates every condition itself, on every row that it gets. Pushed
into the dataset a condition would have to be evaluated by pyarrow, which compares NaN and nulls in
lists otherwise than SQL. The conditions directly above the LIMIT narrow what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.sql.conditions import condition_of
from sleeper.language.value_classes import dataclass
from sleeper.state.plans.key_conditions import UNKNOWN, AnyOf, Condition

ROWS_MAX: Final = 2**63 - 1
BARRIER: Final = f"Limit: skip=0, fetch={ROWS_MAX}"
"""How DataFusion shows the LIMIT above each table."""

STORED: Final = "stored"
"""The schema that has the datasets; users name the views on them."""


@dataclass(frozen=True, slots=True)
class DirectRead:
    """A statement that only selects columns of one table, maybe with a condition.

    Attributes:
        table: The table's name.
        condition: The condition; None if there is none.
    """

    table: str
    condition: Condition | None


def conditions_of(plan: Any, schemas: Mapping[str, pa.Schema]) -> dict[str, Condition]:
    """Return the condition that the rows of each table in a plan meet, by its name.

    A table that a statement scans several times is read with all its conditions, joined by OR. A
    plan may have scans where this does not find them, inside expressions: then nothing is known.

    Args:
        plan: The optimized logical plan.
        schemas: The columns of all tables.
    """
    found: dict[str, list[Condition]] = {}
    for table, condition in _scans(plan, schemas):
        found.setdefault(table, []).append(condition)
    shown = [line.strip() for line in plan.display_indent().splitlines()]
    conditions: dict[str, Condition] = {}
    for table in schemas:
        start = f"TableScan: {STORED}.{table} "
        count = sum(line.startswith(start) for line in shown)
        parts = found.get(table, [])
        if count or parts:
            conditions[table] = AnyOf(tuple(parts)) if count == len(parts) else UNKNOWN
    return conditions


def direct_read(plan: Any, schemas: Mapping[str, pa.Schema]) -> DirectRead | None:
    """Return what a plan reads if it only selects columns by a condition, else None."""
    node = plan
    while (variant := node_class(node)) is not None:
        match type(variant).__name__:
            case "SubqueryAlias":
                pass
            case "Projection":
                if not all(
                    type(node_class(each)).__name__ == "Column" for each in variant.projections()
                ):
                    return None
            case "Filter" | "Limit":
                scan = _scan(node, variant, schemas)
                return None if scan is None else DirectRead(*scan)
            case _:
                return None
        node = node.inputs()[0]
    return None


def _scans(plan: Any, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, Condition]]:
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        scan = _scan(node, node_class(node), schemas)
        if scan is not None:
            yield scan[0], UNKNOWN if scan[1] is None else scan[1]
        else:
            nodes += node.inputs()


def _scan(
    node: Any, variant: Any, schemas: Mapping[str, pa.Schema]
) -> tuple[str, Condition | None] | None:
    """Return the table below a LIMIT, and the condition above that, if this is one of these."""
    if type(variant).__name__ == "Filter":
        (below,) = node.inputs()
        table = _table_below_barrier(below, schemas)
        return None if table is None else (table, condition_of(variant.predicate(), schemas[table]))
    table = _table_below_barrier(node, schemas)
    return None if table is None else (table, None)


def _table_below_barrier(node: Any, schemas: Mapping[str, pa.Schema]) -> str | None:
    if node.display() != BARRIER:
        return None
    (below,) = node.inputs()
    variant = node_class(below)
    if type(variant).__name__ != "TableScan":
        return None
    _, schema, table = variant.fqn()
    return str(table) if schema == STORED and table in schemas else None


def node_class(node: Any) -> Any:
    """Return the class of a node or expression, or None of one that Python is not shown."""
    try:
        return node.to_variant()
    except Exception:  # noqa: BLE001 - a kind of node that DataFusion does not export
        return None
