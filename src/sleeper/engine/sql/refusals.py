"""Refuses statements that DataFusion plans as something else than SQL says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from sleeper.engine.sql.failures import time_text
from sleeper.engine.sql.plans import BARRIERS, STORED, node_class
from sleeper.errors import QueryInvalid

_NEGATIVE_ZERO: Final = r"Float(?:16|32|64)\(-0\)"
_COMPARED_BY_BITS: Final = re.compile(
    rf"IN \(\[[^\]]*{_NEGATIVE_ZERO}|WHEN {_NEGATIVE_ZERO}|nullif\(.*, {_NEGATIVE_ZERO}\)"
)
"""How DataFusion shows constants -0.0 that it would not find equal to 0.0."""

_IN_QUERY: Final = "IN (<subquery>)"
_JOINED_QUERY: Final = re.compile(r"SubqueryAlias: __correlated_sq_\d+\b")
_ANTI_JOIN: Final = re.compile(r"Anti Join: (?:null_aware|.*\bFilter: .*null_aware)$", re.MULTILINE)
"""A join for NOT IN that has not one key alone: it forgets nulls."""

_STORED_SCAN: Final = re.compile(rf"TableScan: (?:\w+\.)?{STORED}\.")
_MARK: Final = re.compile(r"__correlated_sq_\d+\.mark\b")

_DISTINCT: Final = re.compile(r"\bDISTINCT\s+FROM\s*\(", re.IGNORECASE)
_WEAKER: Final = re.compile(r" (?:AND|OR|=|!=|<|<=|>|>=|IS|(?:NOT )?LIKE|(?:NOT )?IN) ")


def check_written(text: str, frame: Any, what: str) -> None:
    """Check that IS DISTINCT FROM compares what it seems to: DataFusion takes all that follows.

    Args:
        text: The statement or condition.
        frame: It as a frame of DataFusion.
        what: It for messages.

    Raises:
        QueryInvalid: it does not.
    """
    if "distinct" not in text.lower():
        return
    shown = frame.logical_plan().display_indent()
    found = [match.end() for match in _DISTINCT.finditer(shown)]
    taken = sum(_WEAKER.search(_inside(shown, place)) is not None for place in found)
    if taken > len(_DISTINCT.findall(text)):
        raise QueryInvalid(
            f"{what}: IS DISTINCT FROM takes AND, OR and comparisons that follow it for its right "
            "side: write it in parentheses, such as (a IS DISTINCT FROM b) AND c"
        )


def check_times(frame: Any, what: str) -> None:
    """Check that no date, time or timestamp is compared with a number, which DataFusion counts by.

    Args:
        frame: The statement or condition as a frame of DataFusion, which is not optimized yet.
        what: It for messages.

    Raises:
        QueryInvalid: one is.
    """
    shown = frame.logical_plan().display_indent_schema()
    kinds: dict[str, set[str]] = {}
    for name, kind in _COLUMN_KIND.findall(shown):
        kinds.setdefault(name, set()).add(kind)
    times = [name for name, found in kinds.items() if all(map(_IS_TIME.match, found))]
    if not times:
        return
    numbers = [name for name, found in kinds.items() if all(map(_IS_NUMBER.match, found))]
    time, number = _one_of(times), rf"(?:{_NUMBER}|{_one_of(numbers)})"
    compared = (
        (
            rf"{_BEFORE}(?P<time>{time}) (?:{_COMPARISON} (?P<number>{number}){_AFTER}"
            rf"|(?:NOT )?IN \(\[{_NUMBER}"
            rf"|(?:NOT )?BETWEEN (?:(?:(?!AND )\S+ )+AND )?{number}{_AFTER})"
        ),
        rf"{_BEFORE}(?P<number>{number}) {_COMPARISON} (?P<time>{time}){_AFTER}",
    )
    sides = (
        match.group("time", "number") for each in compared for match in re.finditer(each, shown)
    )
    names = (
        name
        for side, other in sides
        if (name := _column(side, kinds)) in times
        and (other is None or "(" in other or _column(other, kinds) in numbers)
    )
    name = next(names, None)
    if name is None:
        return
    kind = min(kinds[name])
    quoted = name if name.isidentifier() else f'"{name}"'
    number_type = "Int32" if kind in ("Date32", "Time32") else "Int64"
    raise QueryInvalid(
        f"{what}: column {name!r} has times, and is compared with a number: write "
        f"{time_text(kind)}. For the number that it is stored as, write "
        f"arrow_cast({quoted}, '{number_type}')"
    )


_COLUMN_KIND: Final = re.compile(r"[\[,] ?([^\[\],]+?):([A-Z]\w*(?:\([^)]*\))?)(?:;N)?(?=[,\]])")
"""The columns of each node of a plan as DataFusion shows them, each with its type."""

_IS_TIME: Final = re.compile(r"Date|Time")
_IS_NUMBER: Final = re.compile(r"U?Int|Float|Decimal")
_NUMBER: Final = r"(?:U?Int\d+|Float\d+|Decimal\d+)\([^)]*\)"
_COMPARISON: Final = r"(?:=|!=|<|<=|>|>=|IS (?:NOT )?DISTINCT FROM)"
_BEFORE: Final = r"(?<![\w.])(?<![-+*/%] )"
_AFTER: Final = r"(?![\w.])(?! [-+*/%])"
"""What stands beside a whole side of a comparison: no operator that takes it first."""


def _one_of(names: Sequence[str]) -> str:
    """Return a pattern for one of some columns, with or without its table."""
    every = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return rf"(?:[^\s()\[\],]+\.)?(?:{every or '(?!)'})"


def _column(shown: str, names: Collection[str]) -> str:
    """Return the column that a plan shows, with or without its table: names may have dots too."""
    parts = shown.split(".")
    ends = (".".join(parts[place:]) for place in range(len(parts)))
    return next(end for end in ends if end in names)


def check_planned(frame: Any, plan: Any, what: str) -> None:
    """Check that nulls and zeros of a statement are compared as SQL says.

    Args:
        frame: The statement or condition as a frame of DataFusion.
        plan: Its optimized plan.
        what: It for messages.

    Raises:
        QueryInvalid: they are not.
    """
    shown = plan.display_indent()
    _check_names(frame, what)
    _check_durations(plan, shown, what)
    # A list may have been written as OR; columns have no zeros with a sign.
    if _COMPARED_BY_BITS.search(shown):
        raise QueryInvalid(
            f"{what}: -0.0 cannot be in a list (IN, or OR of several values), in CASE x WHEN and "
            "in nullif: write 0.0, which equals -0.0"
        )
    asked = frame.logical_plan().display_indent().count(_IN_QUERY)
    if not asked:
        return
    is_gone = len(_JOINED_QUERY.findall(shown)) < asked
    is_unused = len({*_MARK.findall(shown)}) < shown.count("LeftMark Join:")
    forgets = _ANTI_JOIN.search(shown) is not None
    if is_gone or is_unused or forgets or not all(map(_is_right, _all(plan))):
        raise QueryInvalid(
            f"{what}: IN (SELECT ...) is never null here. That is right in WHERE, joined by AND, "
            "and for IN also by OR; elsewhere, such as in NOT, IS, CASE, or NOT IN beside OR or "
            "with columns of the outer query, write EXISTS (SELECT ...)"
        )


def _check_durations(plan: Any, shown: str, what: str) -> None:
    """Check that a length of time meets no days and no months, which DataFusion compares apart.

    It casts the length to an interval, of which 36 hours are then less than one day.
    """
    cast = set(_AS_INTERVAL.findall(shown))
    if not cast:
        return
    schema = plan.display_indent_schema()
    kinds = dict(_COLUMN_KIND.findall(schema))
    texts = {each for each in cast if "Utf8" in each + kinds.get(each.rpartition(".")[2], "")}
    if "Duration(" in schema and cast - texts and (texts or _HAS_DAYS.search(shown)):
        raise QueryInvalid(
            f"{what}: an INTERVAL of days or months, or one that is a text, has no one length that "
            f"{min(cast - texts)} could be compared with, or added to: write hours, such as "
            "INTERVAL '36 hours'"
        )


_AS_INTERVAL: Final = re.compile(
    r"CAST\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))+) AS Interval\(MonthDayNano\)\)"
)
_HAS_DAYS: Final = re.compile(r"IntervalMonthDayNano \{ (?:months: -?[1-9]|[^}]*\bdays: -?[1-9])")


def _check_names(frame: Any, what: str) -> None:
    """Check that a statement names tables, and not what they are made of: those are read otherwise.

    Each is below a LIMIT, which keeps conditions out of it.
    """
    above = ""
    for line in map(str.strip, frame.logical_plan().display_indent().splitlines()):
        if _STORED_SCAN.match(line) and above not in BARRIERS:
            raise QueryInvalid(f"{what}: there is no schema {STORED!r}; name the table alone")
        above = line


def _inside(shown: str, place: int) -> str:
    """Return the text from a place to the parenthesis that ends it."""
    depth = 1
    for end in range(place, len(shown)):
        depth += {"(": 1, ")": -1}.get(shown[end], 0)
        if not depth:
            return shown[place:end]
    return shown[place:]


def _all(plan: Any) -> Iterator[Any]:
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        yield node
        nodes += node.inputs()


def _is_right(node: Any) -> bool:
    """Return whether a node uses what is never null only where null is as good as false."""
    if _MARK.search(node.display()) is None:
        return True
    variant = node_class(node)
    match type(variant).__name__:
        case "Filter":
            return _is_alone(variant.predicate(), ("AND", "OR"))
        case "Projection":
            return all(_is_alone(each, ()) for each in variant.projections())
        case _:
            return False


def _is_alone(expression: Any, operators: Sequence[str]) -> bool:
    """Return whether an expression joins what is never null to others by some operators only."""
    terms = [expression]
    while terms:
        term = terms.pop()
        if _MARK.search(term.canonical_name()) is None:
            continue
        variant = node_class(term)
        if type(variant).__name__ == "BinaryExpr" and variant.op() in operators:
            terms += [variant.left(), variant.right()]
        elif type(variant).__name__ != "Column":
            return False
    return True
