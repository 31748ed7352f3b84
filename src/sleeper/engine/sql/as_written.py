"""Writes a statement so that DataFusion reads it as SQL means it: two things that its parser does.

It takes AND, OR and comparisons that follow IS DISTINCT FROM for its right side. And it makes
nanoseconds of the text after TIMESTAMP, which are of the years 1677 to 2262 alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|\"(?:[^\"]|\"\")*\"|`[^`]*`|\w+|::|.",
    re.DOTALL,
)
_OTHER_TEXT: Final = re.compile(r"\b[eE]'|\$\w*\$")
"""Texts with backslashes or between dollars, which end elsewhere."""

_ENDS: Final = re.compile(
    r"AND|OR|AS|THEN|WHEN|ELSE|END|FROM|WHERE|GROUP|HAVING|ORDER|LIMIT|OFFSET|FETCH|UNION|INTERSECT"
    r"|EXCEPT|WINDOW|QUALIFY|ON|JOIN|INNER|FULL|CROSS|NATURAL|ASC|DESC|NULLS|FOR|[,;)\]]"
)
"""What ends the right side of IS DISTINCT FROM."""

_STARTS: Final = re.compile(
    r"AND|OR|NOT|WHERE|SELECT|ON|WHEN|THEN|ELSE|CASE|HAVING|BY|DISTINCT|ALL|QUALIFY|VALUES|[,;(\[]"
)
"""What its left side follows."""

_UNCLEAR: Final = re.compile(r"BETWEEN|IS|I?LIKE|IN|SIMILAR|RLIKE|REGEXP")
"""What may have an AND or a NOT of its own, or binds as strongly."""

_OPENING: Final = ("(", "[", "CASE")
_CLOSING: Final = (")", "]", "END")
_YEAR: Final = re.compile(r"'\s*(\d{4,})-")
_YEARS: Final = (1678, 2261)
"""The years whose every moment is a number of nanoseconds."""


def as_written(text: str) -> str:
    """Return a statement or condition that DataFusion reads as SQL means `text`.

    >>> as_written("a IS DISTINCT FROM 1 AND b > TIMESTAMP '9999-01-01'")
    "(a IS DISTINCT FROM 1) AND b > TIMESTAMP(6) '9999-01-01'"
    """
    upper = text.upper()
    is_distinct, is_timed = "DISTINCT" in upper, "TIMESTAMP" in upper
    if not (is_distinct or is_timed) or _OTHER_TEXT.search(text):
        return text
    tokens = [match[0] for match in _TOKEN.finditer(text)]
    if is_timed:
        tokens = _in_microseconds(tokens)
    if is_distinct:
        tokens = _in_parentheses(tokens)
    return "".join(tokens)


def called_function(text: str, names: Collection[str]) -> str | None:
    """Return the first of some functions, in lower case, that a statement or condition calls.

    >>> called_function("n > 5 OR Random () < 0.5 OR a = 'uuid()'", {"random", "uuid"})
    'random'
    """
    tokens = [match[0] for match in _TOKEN.finditer(text) if match["space"] is None]
    pairs = pairwise(tokens)
    return next(
        (name.lower() for name, after in pairs if after == "(" and name.lower() in names), None
    )


def _solid(tokens: Sequence[str]) -> list[int]:
    """Return the places of tokens that are neither spaces nor comments."""
    return [
        place
        for place, token in enumerate(tokens)
        if not token.isspace() and not token.startswith(("--", "/*"))
    ]


def _in_microseconds(tokens: list[str]) -> list[str]:
    """Return tokens with TIMESTAMP(6) before texts, if one is of a year that needs it."""
    places = _solid(tokens)
    words = [tokens[place].upper() for place in places]
    found, is_needed = list[int](), False
    for at, word in enumerate(words):
        if word != "TIMESTAMP":
            continue
        literal = _text_of(words[max(0, at - 4) : at], "".join(words[at + 1 : at + 2]))
        if literal is None:
            continue
        found.append(places[at])
        year = _YEAR.match(literal)
        is_needed |= year is not None and not _YEARS[0] <= int(year[1]) <= _YEARS[1]
    if not is_needed:
        return tokens
    return [f"{token}(6)" if at in found else token for at, token in enumerate(tokens)]


def _text_of(before: Sequence[str], after: str) -> str | None:
    """Return the text that a TIMESTAMP between some words is for; None if it is for another value.

    It is TIMESTAMP 'text', CAST('text' AS TIMESTAMP) or 'text'::TIMESTAMP.
    """
    if after.startswith("'"):
        return after
    match before:
        case ["CAST" | "TRY_CAST", "(", text, "AS"] if after == ")":
            pass
        case [*_, text, "::"] if after not in ("(", "WITH", "WITHOUT"):
            pass
        case _:
            return None
    return text if text.startswith("'") else None


def _in_parentheses(tokens: list[str]) -> list[str]:
    """Return tokens with each comparison by IS DISTINCT FROM in parentheses.

    None is if nobody can tell here where one begins or ends, such as beside BETWEEN and IS.
    """
    places = _solid(tokens)
    words = [tokens[place].upper() for place in places]
    before, after = [0] * len(tokens), [0] * len(tokens)
    for at in range(3, len(words)):
        if words[at - 2 : at] != ["DISTINCT", "FROM"] or words[at - 3] not in ("IS", "NOT"):
            continue
        start, end = _start_of_side(words, words.index("IS", at - 4)), _end_of_side(words, at)
        if start is None or end is None or end == at:
            return tokens
        before[places[start]] += 1
        after[places[end - 1]] += 1
    pairs = zip(before, tokens, after, strict=True)
    return [f"{'(' * opened}{token}{')' * closed}" for opened, token, closed in pairs]


def _start_of_side(words: Sequence[str], end: int) -> int | None:
    """Return the place where the expression before a place begins; None if nobody can tell."""
    for at in _outer(words, range(end - 1, -1, -1), _CLOSING, _OPENING):
        word = words[at]
        if _UNCLEAR.fullmatch(word) or (word == "AND" and _is_of_between(words, at)):
            return None
        if _STARTS.fullmatch(word):
            return at + 1
    return 0


def _is_of_between(words: Sequence[str], place: int) -> bool:
    """Return whether an AND may be that of a BETWEEN before it."""
    for at in _outer(words, range(place - 1, -1, -1), _CLOSING, _OPENING):
        if _STARTS.fullmatch(words[at]):
            return False
        if words[at] == "BETWEEN":
            return True
    return False


def _end_of_side(words: Sequence[str], start: int) -> int | None:
    """Return the place after the expression that begins at one; None if nobody can tell."""
    for at in _outer(words, range(start, len(words)), _OPENING, _CLOSING):
        word = words[at]
        if _UNCLEAR.fullmatch(word):
            return None
        if _ENDS.fullmatch(word) or (word in ("LEFT", "RIGHT") and words[at + 1 : at + 2] != ["("]):
            return at
    return len(words)


def _outer(
    words: Sequence[str], places: Iterable[int], opening: Sequence[str], closing: Sequence[str]
) -> Iterator[int]:
    """Yield those of some places that are not in parentheses or CASE that begin among them."""
    depth = 0
    for at in places:
        if words[at] in opening:
            depth += 1
        elif words[at] in closing and depth:
            depth -= 1
        elif not depth:
            yield at
