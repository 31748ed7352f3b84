"""Finds in DataFusion's optimized plan which rows of each table a statement needs.

Each table is a dataset below a LIMIT that limits nothing (`barrier`). No condition may be pushed
through a LIMIT, so DataFusion evaluates every condition itself, on every row that it gets. Pushed
into the dataset a condition would have to be evaluated by pyarrow, which compares NaN and nulls in
lists otherwise than SQL. The conditions directly above the LIMIT narrow what is read.

Where several tables are joined, the LIMIT also says how large a table is beside the others: a
dataset tells DataFusion no number of rows, and a join keeps the smaller side in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from sleeper.engine.sql.conditions import datafusion_condition
from sleeper.state.plans.key_conditions import UNKNOWN, AnyOf, Condition

ROWS_MAX: Final = 2**63 - 1
"""The LIMIT above a table of which no number of rows is said."""

_SHIFT: Final = 24
_SMALL_BITS: Final = 10  # tables of fewer rows are alike


def rows_limit(row_count: int | None) -> int:
    """Return the LIMIT above a table: a power of two, 16 million times its rows or more.

    So limits are in the proportion of the tables, and no table reaches its own: row counts of a
    state may be estimates. Powers of two let statements share contexts while tables grow.

    Args:
        row_count: About how many rows the table has; None if that is not to be said.
    """
    if row_count is None:
        return ROWS_MAX
    return min(1 << (_SHIFT + max(_SMALL_BITS, row_count.bit_length())), ROWS_MAX)


def barrier(limit: int) -> str:
    """Return how DataFusion shows the LIMIT above a table."""
    return f"Limit: skip=0, fetch={limit}"


LIMITS: Final = (*(1 << n for n in range(_SHIFT + _SMALL_BITS, 63)), ROWS_MAX)
"""All that `rows_limit` returns."""

BARRIERS: Final = frozenset(map(barrier, LIMITS))
"""How DataFusion shows them."""

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


@dataclass(frozen=True, slots=True)
class BarredTable:
    """A table of a statement, below its LIMIT.

    Attributes:
        schema: Its columns.
        limit: The LIMIT.
    """

    schema: pa.Schema
    limit: int


def conditions_of(plan: Any, tables: Mapping[str, BarredTable]) -> dict[str, Condition]:
    """Return the condition that the rows of each table in a plan meet, by its name.

    A table that a statement scans several times is read with all its conditions, joined by OR. A
    plan may have scans where this does not find them, inside expressions: then nothing is known.

    Args:
        plan: The optimized logical plan.
        tables: All tables.
    """
    found: dict[str, list[Condition]] = {}
    for table, condition in _scans(plan, tables):
        found.setdefault(table, []).append(condition)
    shown = [line.strip() for line in plan.display_indent().splitlines()]
    conditions: dict[str, Condition] = {}
    for table in tables:
        start = f"TableScan: {STORED}.{table} "
        count = sum(line.startswith(start) for line in shown)
        parts = found.get(table, [])
        if count or parts:
            conditions[table] = AnyOf(tuple(parts)) if count == len(parts) else UNKNOWN
    return conditions


def direct_read(plan: Any, tables: Mapping[str, BarredTable]) -> DirectRead | None:
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
                scan = _scan(node, variant, tables)
                return None if scan is None else DirectRead(*scan)
            case _:
                return None
        node = node.inputs()[0]
    return None


def _scans(plan: Any, tables: Mapping[str, BarredTable]) -> Iterator[tuple[str, Condition]]:
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        scan = _scan(node, node_class(node), tables)
        if scan is not None:
            yield scan[0], UNKNOWN if scan[1] is None else scan[1]
        else:
            nodes += node.inputs()


def _scan(
    node: Any, variant: Any, tables: Mapping[str, BarredTable]
) -> tuple[str, Condition | None] | None:
    """Return the table below a LIMIT, and the condition above that, if this is one of these."""
    if type(variant).__name__ == "Filter":
        (below,) = node.inputs()
        table = _table_below_barrier(below, tables)
        return (
            None
            if table is None
            else (table, datafusion_condition(variant.predicate(), tables[table].schema))
        )
    table = _table_below_barrier(node, tables)
    return None if table is None else (table, None)


def _table_below_barrier(node: Any, tables: Mapping[str, BarredTable]) -> str | None:
    shown = node.display()
    if not shown.startswith("Limit:"):
        return None
    (below,) = node.inputs()
    variant = node_class(below)
    if type(variant).__name__ != "TableScan":
        return None
    _, schema, table = variant.fqn()
    if schema != STORED or table not in tables or shown != barrier(tables[table].limit):
        return None
    return str(table)


def node_class(node: Any) -> Any:
    """Return the class of a node or expression, or None of one that Python is not shown."""
    try:
        return node.to_variant()
    except Exception:  # noqa: BLE001 - a kind of node that DataFusion does not export
        return None


# ---------------------------------------------------------------- joined lists
#
# Finds statements whose lists (IN) DataFusion joins into one list that means something else.
#
# DataFusion 55 replaces `x IN (1, 2) AND x NOT IN (1, NULL)` by `x IN (2)`, and two lists without
# a common value by true or false; several `=` of one column are a list too. It forgets what nulls
# do: a list with a null is never false, and of a null nothing is true or false. Where constants or
# a null are gone from the optimized plan, the statement is planned without that rule.

_SEVERAL: Final = re.compile(r"(?:=|<>|\bin\b).*(?:=|<>|\bin\b)", re.IGNORECASE | re.DOTALL)
_LIST: Final = re.compile(r"(\S+) (?:NOT )?IN \(\[(.*?)\]\)", re.DOTALL)
_EQUAL: Final = re.compile(r'(\S+) !?= (\w+\((?:".*?"|.*?)\))', re.DOTALL)
_OF_COLUMN: Final = re.compile(r"\((?:[^\W\d]\w*|\".*\")\.")
_ELEMENTS: Final = re.compile(r"\), ")
_NULL: Final = re.compile(r"\bNULL\b")

SIMPLIFY: Final = "simplify_expressions"
"""The rule of DataFusion's optimizer that joins lists."""


def joins_lists(text: str, frame: Any, plan: Any) -> bool:
    """Return whether lists of one column are joined so that values, or a null, are gone.

    It may say so of a statement that is right, which is then planned without the rule in vain.

    Args:
        text: The statement or condition.
        frame: It as a frame of DataFusion.
        plan: Its optimized plan.
    """
    if _SEVERAL.search(text) is None:
        return False
    pairs = _compared(frame.logical_plan().display_indent())
    columns = [column for column, _, _ in pairs]
    several = {column for column in columns if columns.count(column) > 1}
    if not several:
        return False
    if any(column in several and is_list and _NULL.search(text) for column, text, is_list in pairs):
        return True
    before, after = _constants(pairs), _constants(_compared(plan.display_indent()))
    return any(len(after.get(column, ())) < len(before[column]) for column in several)


def _compared(shown: str) -> list[tuple[str, str, bool]]:
    """Return each column that is compared with constants, these, and whether they are a list."""
    lists = [(_name(column), values, True) for column, values in _LIST.findall(shown)]
    alone = [
        (_name(column), value, False)
        for column, value in _EQUAL.findall(shown)
        if _OF_COLUMN.search(value) is None
    ]
    return lists + alone


def _constants(pairs: Iterable[tuple[str, str, bool]]) -> dict[str, set[str]]:
    """Return the constants that each column is compared with."""
    found: dict[str, set[str]] = {}
    for column, values, _ in pairs:
        constants = [each.rstrip(")") for each in _ELEMENTS.split(values)]
        found.setdefault(column, set()).update(constants)
    return found


def _name(column: str) -> str:
    """Return a column as it is shown, without its table: that may have an alias in one plan."""
    return column.rpartition(".")[2].lstrip("(")
