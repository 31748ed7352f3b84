"""Converts a condition of DataFusion's optimized plan into one on keys.

The optimizer writes conditions in few forms: a column left and a constant of the column's type
right, BETWEEN as two comparisons, NOT inside them, starts_with and simple patterns as LIKE. What
has another form, or a constant of another type, is unknown and narrows nothing: DataFusion
evaluates the whole condition on every row in any case.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from sleeper.state.plans.key_conditions import (
    UNKNOWN,
    AllOf,
    AnyOf,
    Condition,
    Implication,
    KeyCondition,
    Negation,
    Operator,
)

_COMPARISONS: Final[dict[str, Operator]] = {
    "=": "=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_TERMS_MAX: Final = 300
_UP_TO_WILDCARD = re.compile(r"[^%_\\]*")


def datafusion_condition(expression: Any, arrow_schema: pa.Schema) -> Condition:
    """Return the condition that an expression of DataFusion's optimized plan is.

    Args:
        expression: The expression. Rows are those of which it is true.
        arrow_schema: The columns of the table that it is about.
    """
    try:
        return _converted(expression, arrow_schema)
    except RecursionError:  # thousands of terms, each inside the one before
        return UNKNOWN


def _converted(expression: Any, arrow_schema: pa.Schema) -> Condition:
    variant = _variant(expression)
    match type(variant).__name__:
        case "BinaryExpr":
            operator = variant.op()
            if operator in ("AND", "OR"):
                terms = _terms(variant, operator)
                if terms is None:
                    return UNKNOWN
                parts = tuple(_converted(term, arrow_schema) for term in terms)
                return AllOf(parts) if operator == "AND" else AnyOf(parts)
            sides = variant.left(), variant.right()
            return _comparison(_COMPARISONS.get(operator), *sides, arrow_schema)
        case "Not":
            return Negation(_converted(variant.expr(), arrow_schema))
        case "IsTrue":  # true of no null, so its negation is another one
            return Implication(_converted(variant.expr(), arrow_schema))
        case "InList":
            return _in_list(variant, arrow_schema)
        case "Like":
            return _like(expression, variant, arrow_schema)
        case _:
            return UNKNOWN


def _terms(variant: Any, operator: str) -> list[Any] | None:
    """Return what AND or OR joins, of a chain of them; None if that is very much.

    To take a term off the chain copies the rest of it, so many terms would take their square.
    """
    terms, rest = list[Any](), [variant.right(), variant.left()]
    while rest:
        term = rest.pop()
        inner = _variant(term)
        if type(inner).__name__ == "BinaryExpr" and inner.op() == operator:
            rest += [inner.right(), inner.left()]
        else:
            terms.append(term)
        if len(terms) + len(rest) > _TERMS_MAX:
            return None
    return terms


def _variant(expression: Any) -> Any:
    """Return the class of an expression, or None of one that DataFusion does not show Python."""
    try:
        return expression.to_variant()
    except Exception:  # noqa: BLE001 - such as functions: ValueError now, whatever it is later
        return None


def _comparison(
    operator: Operator | None, left: Any, right: Any, arrow_schema: pa.Schema
) -> Condition:
    column, constant = _column(left, arrow_schema), _constant(right)
    if operator is None or column is None or constant is None:
        return UNKNOWN
    known, value = _plain_value(constant, column.type)
    if not known or value is None:
        return UNKNOWN
    return KeyCondition(column.name, operator, value)


def _in_list(variant: Any, arrow_schema: pa.Schema) -> Condition:
    column = _column(variant.expr(), arrow_schema)
    if column is None:
        return UNKNOWN
    values = []
    for each in variant.list():
        constant = _constant(each)
        known, value = (False, None) if constant is None else _plain_value(constant, column.type)
        if not known:
            return UNKNOWN
        values.append(value)
    return KeyCondition(column.name, "not in" if variant.negated() else "in", values)


def _like(expression: Any, variant: Any, arrow_schema: pa.Schema) -> Condition:
    column, constant = _column(variant.expr(), arrow_schema), _constant(variant.pattern())
    if column is None or constant is None or variant.escape_char() is not None:
        return UNKNOWN
    # The class does not say whether case matters: only its text tells LIKE from ILIKE.
    word = "NOT LIKE" if variant.negated() else "LIKE"
    sides = variant.expr().canonical_name(), variant.pattern().canonical_name()
    if expression.canonical_name() != f"{sides[0]} {word} {sides[1]}":
        return UNKNOWN
    known, pattern = _plain_value(constant, column.type)
    if not known or not isinstance(pattern, str):
        return UNKNOWN
    found = pattern_condition(column.name, pattern)
    return Negation(found) if variant.negated() else found


def pattern_condition(column: str, pattern: str) -> Condition:
    r"""Return the condition that a column is LIKE a pattern.

    >>> pattern_condition("path", "usr/%")
    KeyCondition(column='path', operator='prefix', value='usr/')
    """
    start = _UP_TO_WILDCARD.match(pattern)
    prefix = start[0] if start else ""
    rest = pattern[len(prefix) :]
    if not rest:
        return KeyCondition(column, "=", prefix)
    if not rest.strip("%"):
        return KeyCondition(column, "prefix", prefix)
    return Implication(KeyCondition(column, "prefix", prefix))


def _column(expression: Any, arrow_schema: pa.Schema) -> pa.Field | None:
    variant = _variant(expression)
    if type(variant).__name__ != "Column" or variant.name() not in arrow_schema.names:
        return None
    return arrow_schema.field(variant.name())


def _constant(expression: Any) -> pa.Scalar | None:
    if type(_variant(expression)).__name__ != "Literal":
        return None
    value = expression.python_value()
    return value if isinstance(value, pa.Scalar) else None


def _plain_value(constant: pa.Scalar, column_type: pa.DataType) -> tuple[bool, Any]:
    """Return whether a constant has a column's type, and its Python value."""
    if constant.type != column_type:
        return False, None
    try:
        return True, constant.as_py()
    except (ValueError, OverflowError):  # such as dates after the year 9999
        return False, None
