"""Converts a condition that is an expression of pyarrow into one on keys.

pyarrow has no way to look into an expression but its text, which promises nothing. So the text is
read, an expression is built from what was understood, and pyarrow compares it with the given one.
Only if they are equal, what was understood is what is meant; else nothing is known.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.language.value_classes import dataclass
from sleeper.state.plans.key_conditions import (
    UNKNOWN,
    AllOf,
    AnyOf,
    Condition,
    KeyCondition,
    Negation,
    Operator,
)

_OPERATORS: Final[dict[str, Operator]] = {
    "==": "=",
    "!=": "!=",
    "<=": "<=",
    ">=": ">=",
    "<": "<",
    ">": ">",
}
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PLAIN: Final = re.compile(r"[^()\[\]{}\",]+")
_ESCAPED: Final = re.compile(r"\\(.)")
_LIST: Final = re.compile(r", \{value_set=[^\[\]]*:\[\s*")


class _NotUnderstood(Exception):
    """The text has another form."""


@dataclass(frozen=True, slots=True)
class _Understood:
    """A part of a text: as an expression of pyarrow, and as a condition."""

    expression: pc.Expression
    condition: Condition


def condition_of(expression: pc.Expression, arrow_schema: pa.Schema) -> Condition:
    """Return the condition that an expression is; `UNKNOWN` if it is not understood."""
    try:
        reader = _Reader(str(expression), arrow_schema)
        found = reader.whole()
    except (_NotUnderstood, pa.ArrowException, RecursionError, ValueError):
        return UNKNOWN
    return found.condition if found.expression.equals(expression) else UNKNOWN


class _Reader:
    """Reads the text of an expression from left to right."""

    def __init__(self, text: str, arrow_schema: pa.Schema) -> None:
        self._text = text
        self._place = 0
        self._schema = arrow_schema
        self._names = sorted(arrow_schema.names, key=len, reverse=True)

    def whole(self) -> _Understood:
        """Return what the whole text is."""
        found = self._condition()
        if self._place != len(self._text):
            raise _NotUnderstood
        return found

    def _condition(self) -> _Understood:
        if self._takes("invert("):
            part = self._condition()
            self._expect(")")
            return _Understood(~part.expression, Negation(part.condition))
        if self._takes("if_else(is_valid("):
            return self._in_list()
        if self._takes("is_valid("):
            name = self._name()
            self._expect(")")
            return _Understood(pc.field(name).is_valid(), UNKNOWN)
        if self._takes("is_null("):
            name = self._name()
            self._expect(", {nan_is_null=false})")
            return _Understood(pc.field(name).is_null(), UNKNOWN)
        self._expect("(")
        if self._text.startswith(("(", "invert(", "if_else(", "is_"), self._place):
            return self._both()
        return self._comparison()

    def _both(self) -> _Understood:
        left = self._condition()
        word = next((word for word in (" and ", " or ") if self._takes(word)), None)
        right = self._condition()
        self._expect(")")
        parts = (left.condition, right.condition)
        if word == " and ":
            return _Understood(left.expression & right.expression, AllOf(parts))
        if word == " or ":
            return _Understood(left.expression | right.expression, AnyOf(parts))
        raise _NotUnderstood

    def _comparison(self) -> _Understood:
        name = self._name()
        sign = next((sign for sign in _OPERATORS if self._takes(f" {sign} ")), None)
        if sign is None:
            raise _NotUnderstood
        constant = self._constant(self._schema.field(name).type)
        self._expect(")")
        compare = {
            "==": pc.Expression.__eq__,
            "!=": pc.Expression.__ne__,
            "<=": pc.Expression.__le__,
            ">=": pc.Expression.__ge__,
            "<": pc.Expression.__lt__,
            ">": pc.Expression.__gt__,
        }[sign]
        condition = KeyCondition(name, _OPERATORS[sign], constant.as_py())
        return _Understood(compare(pc.field(name), pc.scalar(constant)), condition)

    def _in_list(self) -> _Understood:
        """Read DuckDB's form of IN: null of a null."""
        name = self._name()
        self._expect("), is_in(")
        self._expect(name)
        start = _LIST.match(self._text, self._place)
        if start is None:
            raise _NotUnderstood
        self._place = start.end()
        kind, values = self._schema.field(name).type, list[pa.Scalar]()
        while not values or self._takes(","):
            self._blanks()
            values.append(self._constant(kind))
            self._blanks()
        self._expect("], null_matching_behavior=MATCH}), null[bool])")
        plain = [value.as_py() for value in values]
        column = pc.field(name)
        found = pc.if_else(
            column.is_valid(), column.isin(pa.array(plain, kind)), pa.scalar(None, pa.bool_())
        )
        return _Understood(found, KeyCondition(name, "in", plain))

    def _constant(self, kind: pa.DataType) -> Any:
        quoted = _TEXT.match(self._text, self._place)
        if quoted:
            self._place = quoted.end()
            if kind != pa.string():
                raise _NotUnderstood
            return pa.scalar(_ESCAPED.sub(r"\1", quoted[1]), kind)
        plain = _PLAIN.match(self._text, self._place)
        if plain is None or kind in (pa.string(), pa.binary()):
            raise _NotUnderstood
        self._place = plain.end()
        return pa.scalar(plain[0].strip()).cast(kind)

    def _name(self) -> str:
        name: str
        for name in self._names:
            if self._takes(name):
                return name
        raise _NotUnderstood

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._place):
            return False
        self._place += len(text)
        return True

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise _NotUnderstood

    def _blanks(self) -> None:
        while self._takes(" ") or self._takes("\n"):
            pass
