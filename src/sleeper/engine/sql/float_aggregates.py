"""Writes aggregates of floating-point numbers so that DataFusion computes them as SQL says.

DataFusion 55 computes min in groups from the largest finite number down and max from the least up,
and each value replaces a NaN: min of an infinity alone is 1.797e308, and beside a NaN the result
depends on the order of rows. So min and max are written over integers that have the order of the
numbers. Sums of a moving window are reduced by what leaves it, and after an infinity or a NaN they
stay NaN. So values are checked to be finite there. Variances may become negative so: refused.

The types of arguments are known only when a statement is planned. So it is planned with a marker
around each of them first, and their types are read from that plan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.engine.reading.session import datafusion
from sleeper.engine.sql.plans import node_class
from sleeper.errors import QueryInvalid

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r'|(?P<word>[^\W\d]\w*|"(?:[^"]|"")*"|`[^`]*`)'
    r"|(?P<other>\d\w*|.)",
    re.DOTALL,
)
_EXTREMES: Final = ("min", "max")
_UPDATED: Final = re.compile(r"sum|avg|mean|stddev\w*|var|var_\w+|covar\w*|corr|regr_\w+")
"""Aggregates whose value in a moving window is changed by the rows that leave it."""

_GROUPED: Final = re.compile(r"\bAggregate: groupBy=\[\[(?!\]\])")
_EXTREME: Final = re.compile(r"\b(?:min|max)\(")
_MOVING: Final = re.compile(r"\bWindowAggr: .*\bBETWEEN (?!UNBOUNDED PRECEDING)", re.DOTALL)
_LAST: Final = r'WHEN Utf8\("{marker} (\d+)"\) IS NULL THEN NULL END\)(?: ROWS [A-Z ]+)?:'
_TYPE: Final = _LAST + r"(\w+)"
_NAME: Final = r'Utf8\("{marker}"\) IS NULL THEN ((?:(?!{marker}).)*) ' + _LAST
"""How DataFusion shows a marked argument and its type: where the schema of a plan's part is."""

_BITS: Final = {
    "Float16": (pa.float16(), pa.int16()),
    "Float32": (pa.float32(), pa.int32()),
    "Float64": (pa.float64(), pa.int64()),
}
_THERE, _BACK = "order_of_", "number_of_order_"
CHECKED: Final = "finite_for_moving_window"

_FRAME: Final = ("rows", "range", "groups")
_QUERY: Final = ("select", "with", "from", "values")
_AFTER_COLUMN: Final = (",", "from", ")", ";", "")
_SETS: Final = ("union", "except", "intersect", "minus")


HOW_TO_NAME: Final = (
    "min and max of floating-point numbers, and their sums in moving windows, are computed by "
    "functions of their own here, which does not fit this statement: compute them in a query of "
    "their own and name them, as in (SELECT g, min(x) AS least FROM t GROUP BY g)"
)


def may_need_rewriting(plan: Any) -> bool:
    """Return whether a plan may have min or max of floats in groups, or moving sums of them.

    Args:
        plan: The optimized plan of a statement.
    """
    shown = plan.display_indent_schema()
    is_extreme = _EXTREME.search(shown) is not None
    if is_extreme and ":Struct(" in shown:
        return True
    has_groups = is_extreme and _GROUPED.search(shown) is not None
    return ":Float" in shown and (has_groups or _MOVING.search(shown) is not None)


def check_rewritten(plan: Any, types_of: Callable[[Any], Sequence[pa.DataType]], what: str) -> None:
    """Check that groups of a plan have no min and max of floats: each was found in the text.

    Args:
        plan: The optimized plan.
        types_of: Returns the types of the columns of a part of the plan.
        what: The statement for messages.

    Raises:
        QueryInvalid: there are some.
    """
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        nodes += node.inputs()
        variant = node_class(node)
        if type(variant).__name__ != "Aggregate" or not variant.group_by_exprs():
            continue
        names = [each.canonical_name() for each in variant.aggregate_exprs()]
        types = types_of(node)[-len(names) :] if names else ()
        for name, kind in zip(names, types, strict=True):
            if _EXTREME.match(name) and pa.types.is_floating(kind):
                raise QueryInvalid(f"{what}: {HOW_TO_NAME}")


def rewritten(text: str, planned: Callable[[str], str], what: str) -> str:
    """Return a statement whose aggregates of floats are computed as SQL says.

    It is the same statement if there is nothing to change.

    Args:
        text: The statement.
        planned: Plans another statement, and returns its plan with types, not optimized.
        what: The statement for messages.

    Raises:
        QueryInvalid: the types of its calls cannot be read from its plan.
    """
    tokens = _tokens(text)
    calls = _calls(tokens)
    if not all(call.needs_type for call in calls.values()):
        raise QueryInvalid(f"{what}: {NO_DEVIATIONS}")
    kinds, names = _arguments(tokens, calls, planned) if calls else ({}, {})
    if kinds.keys() != calls.keys():
        raise QueryInvalid(f"{what}: {HOW_TO_NAME}")
    if any(kinds[place] == "Struct" and call.is_extreme for place, call in calls.items()):
        raise QueryInvalid(
            f"{what}: min and max of structs lose rows with nulls here: write first_value(s ORDER "
            "BY s) or first_value(s ORDER BY s DESC NULLS LAST)"
        )
    changed = {
        place: call
        for place, call in calls.items()
        if kinds[place] in _BITS and not (call.is_extreme and call.is_window)
    }

    def right(place: int, write: _Write) -> tuple[str, int]:
        call = changed[place]
        given = [write(*each) for each in call.arguments]
        name = tokens[place].text
        if call.is_window:
            if call.filter is not None:  # other rows may have any numbers
                start = _next(tokens, call.filter[0] + 1) + 1  # after WHERE
                condition = write(start, call.filter[1] - 1)
                given = [f"CASE WHEN {condition}\n THEN {each}\n END" for each in given]
            checked = [f"{CHECKED}(CAST({each}\n AS DOUBLE))" for each in given]
            word = "DISTINCT " if call.is_distinct else ""
            return f"{name}({word}{', '.join(checked)})", call.after_arguments
        condition = "" if call.filter is None else f" FILTER {write(*call.filter)}"
        kind = kinds[place].lower()
        found = f"{_BACK}{kind}({name}({_THERE}{kind}({given[0]}\n)){condition})"
        if call.is_column:
            shown = f"{tokens[place].plain}({names.get(place)})"
            if call.is_distinct or call.filter is not None or place not in names:
                shown = _words(tokens, (place, call.end))
            found += ' AS "' + shown.replace('"', '""') + '"'
        return found, call.end

    return _written(tokens, changed, right)


def _arguments(
    tokens: list[_Token], typed: Mapping[int, _Call], planned: Callable[[str], str]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the types of calls' arguments, and what DataFusion names these, where it is known.

    Args:
        tokens: The statement.
        typed: Its calls, by the places of their names.
        planned: As for `rewritten`.
    """
    marker = "sleeper"
    while any(marker in token.text for token in tokens):
        marker += "_"
    numbers: dict[tuple[object, ...], int] = {}
    number_of = {
        # What is in SELECT and again in ORDER BY must stay the same, as for DISTINCT.
        place: numbers.setdefault(
            (place if call.is_window else _words(tokens, (place, call.end)), call.block),
            len(numbers),
        )
        for place, call in typed.items()
    }

    def marked(place: int, write: _Write) -> tuple[str, int]:
        call = typed[place]
        name = tokens[place].text
        found = (
            f"{'max' if call.is_window else name}(CASE"
            f" WHEN '{marker}' IS NULL THEN {write(*call.arguments[0])}\n"
            f" WHEN '{marker} {number_of[place]}' IS NULL THEN NULL END)"
        )
        if call.is_window:  # of sums and means, which other calls may be about, it is another type
            given = ", ".join(f"{write(*each)}\n" for each in call.arguments)
            found = f"CASE WHEN {found} OVER () IS NULL THEN {name}({given}) OVER () END"
        return found, call.end

    shown = planned(_written(tokens, typed, marked))
    types: dict[str, set[str]] = {}
    for number, kind in re.findall(_TYPE.format(marker=marker), shown):
        types.setdefault(number, set()).add(kind)
    names = {
        number: name for name, number in re.findall(_NAME.format(marker=marker), shown, re.DOTALL)
    }
    kinds, shown_names = dict[int, str](), dict[int, str]()
    for place, number in number_of.items():
        found = types.get(str(number), set())
        if len(found) == 1:
            kinds[place] = next(iter(found))
        if str(number) in names:
            shown_names[place] = names[str(number)]
    return kinds, shown_names


@dataclass(frozen=True, slots=True)
class _Token:
    """A part of a statement's text.

    Attributes:
        text: What is written.
        plain: A word in lower case, if it is not quoted; "" of a space or comment; else `text`.
        is_space: True of a space or comment.
    """

    text: str
    plain: str
    is_space: bool


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an aggregate that may have to be written in another form.

    Attributes:
        block: The number of the query that it is in.
        is_distinct: True with DISTINCT.
        is_column: True of a whole column of SELECT without a name: it keeps its own, also where
            ORDER BY has its number.
        arguments: Where each argument begins and ends among the tokens.
        filter: Where the condition of FILTER, with its parentheses, begins and ends.
        after_arguments: The first token after its arguments' parenthesis.
        end: The first token after the call, with FILTER and OVER.
        is_window: True of a call with OVER: of a sum in a moving window, or any min and max.
        is_extreme: True of min and max.
        needs_type: True if it depends on the type whether it is changed; others are refused.
    """

    block: int
    is_distinct: bool
    is_column: bool
    arguments: tuple[tuple[int, int], ...]
    filter: tuple[int, int] | None
    after_arguments: int
    end: int
    is_window: bool
    is_extreme: bool
    needs_type: bool


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(text):
        written, is_space = match[0], match["space"] is not None
        plain = written
        if match["word"] is not None:
            plain = written[1:-1] if written[0] in '"`' else written.lower()
        found.append(_Token(written, "" if is_space or match["text"] else plain, is_space))
    return found


def _next(tokens: list[_Token], place: int) -> int:
    """Return the first place from one on that is no space."""
    while place < len(tokens) and tokens[place].is_space:
        place += 1
    return place


def _plain(tokens: list[_Token], place: int) -> str:
    return tokens[place].plain if place < len(tokens) else ""


def _closing(tokens: list[_Token], place: int) -> int:
    """Return where the parenthesis that opens at a place is closed."""
    depth = 0
    for end in range(place, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[end].plain, 0)
        if not depth:
            return end
    return len(tokens)


def _calls(tokens: list[_Token]) -> dict[int, _Call]:
    """Return the calls by the places of their names."""
    windows = {*_moving_names(tokens)}
    found: dict[int, _Call] = {}
    blocks, in_select, block_count, before = [0], [False], 0, ""
    for place, token in enumerate(tokens):
        if token.is_space:
            continue
        if token.plain == "(":
            is_query = _plain(tokens, _next(tokens, place + 1)) in _QUERY
            block_count += is_query
            blocks.append(block_count if is_query else blocks[-1])
            in_select.append(False)
        elif token.plain == ")" and len(blocks) > 1:
            blocks.pop()
            in_select.pop()
        elif token.plain in ("select", "from"):
            in_select[-1] = token.plain == "select"
        elif token.plain in _SETS:
            block_count += 1
            blocks[-1] = block_count
        opening = _next(tokens, place + 1)
        if _plain(tokens, opening) == "(" and before != ".":
            may_be_column = in_select[-1] and before in ("select", "distinct", "all", ",")
            call = _call(
                *(tokens, token.plain, opening, blocks[-1], windows), may_be_column=may_be_column
            )
            if call is not None:
                found[place] = call
        before = token.plain
    return found


def _call(
    tokens: list[_Token],
    name: str,
    opening: int,
    block: int,
    windows: set[str],
    *,
    may_be_column: bool,
) -> _Call | None:
    if name not in _EXTREMES and _UPDATED.fullmatch(name) is None:
        return None
    closing = _closing(tokens, opening)
    end, condition = closing + 1, None
    after = _next(tokens, end)
    if _plain(tokens, after) == "filter":
        start = _next(tokens, after + 1)
        end = _closing(tokens, start) + 1
        condition = start, end
        after = _next(tokens, end)
    is_window = _plain(tokens, after) == "over"
    if is_window:
        window = _next(tokens, after + 1)
        if name not in _EXTREMES and not _is_moving(tokens, window, windows):
            return None
        end = (_closing(tokens, window) if _plain(tokens, window) == "(" else window) + 1
    elif name not in _EXTREMES:
        return None
    start = _next(tokens, opening + 1)
    word = _plain(tokens, start)
    if word in ("distinct", "all"):
        start = _next(tokens, start + 1)
    return _Call(
        block=block,
        is_distinct=word == "distinct",
        is_column=may_be_column and _plain(tokens, _next(tokens, end)) in _AFTER_COLUMN,
        arguments=tuple(_split(tokens, start, closing)),
        filter=condition,
        after_arguments=closing + 1,
        end=end,
        is_window=is_window,
        is_extreme=name in _EXTREMES,
        needs_type=name in (*_EXTREMES, "sum", "avg", "mean"),
    )


def _split(tokens: list[_Token], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where arguments begin and end, up to ORDER BY."""
    depth, place = 0, start
    while place < end and not (depth == 0 and tokens[place].plain == "order"):
        plain = tokens[place].plain
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(plain, 0)
        if depth == 0 and plain == ",":
            yield start, place
            start = place + 1
        place += 1
    yield start, place


def _is_moving(tokens: list[_Token], place: int, windows: set[str]) -> bool:
    """Return whether the window at a place, a name or in parentheses, leaves rows behind."""
    if _plain(tokens, place) != "(":
        return _plain(tokens, place) in windows
    first = _next(tokens, place + 1)
    if _plain(tokens, first) in windows:
        return True
    depth = 0
    for each in range(place, _closing(tokens, place)):
        depth += {"(": 1, ")": -1}.get(tokens[each].plain, 0)
        if depth == 1 and tokens[each].plain in _FRAME:
            start = _next(tokens, each + 1)
            if _plain(tokens, start) == "between":
                start = _next(tokens, start + 1)
            if _plain(tokens, start) != "unbounded":
                return True
    return False


def _moving_names(tokens: list[_Token]) -> Iterator[str]:
    """Yield the names of moving windows: `WINDOW name AS (...)`."""
    plain = [place for place, token in enumerate(tokens) if not token.is_space]
    for name, word, opening in zip(plain, plain[1:], plain[2:], strict=False):
        is_named = (tokens[word].plain, tokens[opening].plain) == ("as", "(")
        if is_named and _is_moving(tokens, opening, set()):
            yield tokens[name].plain


def _words(tokens: list[_Token], place: tuple[int, int]) -> str:
    return " ".join(each.text for each in tokens[slice(*place)] if not each.is_space)


_Write = Callable[[int, int], str]


def _written(
    tokens: list[_Token],
    calls: Mapping[int, _Call],
    form: Callable[[int, _Write], tuple[str, int]],
) -> str:
    """Return the text of a statement whose calls have another form.

    Args:
        tokens: The statement.
        calls: The calls to change, by the places of their names.
        form: Returns the text of a call, and the place after it, given its place and what writes
            the tokens inside it.
    """

    def write(start: int, end: int) -> str:
        parts, place = list[str](), start
        while place < end:
            if place in calls:
                text, place = form(place, write)
                parts.append(text)
            else:
                parts.append(tokens[place].text)
                place += 1
        return "".join(parts)

    return write(0, len(tokens))


def register_functions(context: Any) -> None:
    """Give a context of DataFusion the functions that rewritten statements call."""
    module = datafusion()
    for kind, (floats, integers) in _BITS.items():
        for name, change, types in (
            (_THERE, _order_of, (floats, integers)),
            (_BACK, _number_of, (integers, floats)),
        ):
            context.register_udf(
                module.udf(change, [types[0]], types[1], "immutable", f"{name}{kind.lower()}")
            )
    checked = module.udf(_all_finite, [pa.float64()], pa.float64(), "immutable", CHECKED)
    context.register_udf(checked)


def _order_of(numbers: pa.Array) -> pa.Array:
    """Return integers that have the order of floats: NaN, whatever its bits, is the greatest.

    >>> _order_of(pa.array([-1.5, -0.0, 0.0, 5e-324])).to_pylist()
    [-4609434218613702657, -1, 0, 1]
    """
    kind = next(integers for floats, integers in _BITS.values() if floats == numbers.type)
    found = _swapped(numbers.view(kind), kind)
    infinity = pa.scalar(math.inf, numbers.type)
    ends = pa.array([infinity, infinity]).view(kind)
    limit = ends[0].as_py()
    extremes = pc.min_max(found)
    lowest, highest = extremes["min"].as_py(), extremes["max"].as_py()
    if lowest is not None and (lowest < -limit - 1 or highest > limit):
        nan = pa.array([math.nan], numbers.type).view(kind)
        is_number = pc.and_(
            pc.greater_equal(found, pa.scalar(-limit - 1, kind)),
            pc.less_equal(found, pa.scalar(limit, kind)),
        )
        found = pc.if_else(is_number, found, pa.scalar(abs(nan[0].as_py()), kind))
    return found


def _number_of(order: pa.Array) -> pa.Array:
    """Return the floats that have places in the order of floats.

    >>> _number_of(pa.array([-4609434218613702657, 0, 1, None])).to_pylist()
    [-1.5, 0.0, 5e-324, None]
    """
    floats = next(floats for floats, integers in _BITS.values() if integers == order.type)
    return _swapped(order, order.type).view(floats)


def _swapped(bits: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return integers whose bits but the sign are turned over where the sign is set."""
    others = pa.scalar(2 ** (kind.bit_width - 1) - 1, kind)
    is_negative = pc.less(bits, pa.scalar(0, kind))
    return pc.if_else(is_negative, pc.bit_wise_xor(bits, others), bits)


def _all_finite(numbers: pa.Array) -> pa.Array:
    """Return numbers that a moving window can take away again.

    Raises:
        ValueError: one of them is an infinity or NaN.
    """
    if pc.all(pc.is_finite(numbers)).as_py() is False:
        raise ValueError(NOT_FINITE)
    return numbers


NO_DEVIATIONS: Final = (
    "deviations, variances and regressions in a window that rows leave (ROWS BETWEEN n PRECEDING) "
    "are rounded so that they may be negative or NaN here: begin the window at UNBOUNDED "
    "PRECEDING, or ask DuckDB by Table.to_duckdb()"
)
NOT_FINITE: Final = (
    "a sum or mean in a window that rows leave (ROWS BETWEEN n PRECEDING) has an "
    "infinity or NaN, and would stay NaN after that left the window: compute it of finite numbers, "
    "as in CASE WHEN abs(x) < 'infinity'::DOUBLE THEN x END, or begin the window at UNBOUNDED "
    "PRECEDING"
)
