"""How notebooks show values: their facts as HTML, each escaped, and all of bounded length.

A value shows the public fields of its data class, unless its class says otherwise in `_html`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from sleeper.html.markup import (
    Markup,
    counted,
    element,
    facts,
    grid,
    joined,
    shortened,
    size_text,
    time_text,
)

_Each = TypeVar("_Each")

_ITEMS_MAX: Final = 20
_COLUMNS_MAX: Final = 6
_LETTERS_MAX: Final = 160

_STYLE: Final = element(
    "style",
    Markup(
        ".sleeper-view table{border-collapse:collapse;margin:.3em 0;font-size:13px}"
        ".sleeper-view caption{caption-side:top;text-align:left;opacity:.75;padding:.2em 0}"
        ".sleeper-view th,.sleeper-view td{text-align:left;padding:.25em .7em;"
        "border-bottom:1px solid rgba(128,128,128,.35);vertical-align:top;"
        "max-width:32em;overflow-wrap:anywhere;unicode-bidi:isolate}"
        ".sleeper-view .number{text-align:right;font-variant-numeric:tabular-nums}"
        ".sleeper-view .facts>tbody>tr>th{font-weight:normal;opacity:.75;white-space:nowrap}"
        ".sleeper-view .facts>tbody>tr>td{max-width:none}"
        ".sleeper-view .none{opacity:.55}"
        ".sleeper-view .scroll{overflow-x:auto}"
    ),
)
"""Readable on light and dark: it sets no colour of text or background."""


class NotebookHtml:
    """A value that notebooks show as HTML: IPython calls `_repr_html_`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return in_notebook(self._html())

    def _html(self) -> Markup:
        """Return the name of the value's class, and the fields that its `repr` shows."""
        return joined([element("strong", type(self).__name__), facts(_named(self))])


class NotebookTuple(tuple[_Each, ...], NotebookHtml):
    """A tuple of values of one data class, which notebooks show as a table."""

    __slots__ = ()

    def _html(self) -> Markup:
        return joined([_items(self)])


def in_notebook(*parts: object) -> Markup:
    """Return HTML that brings its own style, so that it looks the same in any notebook."""
    return element("div", _STYLE, *parts, class_="sleeper-view")


def text_of(value: object) -> object:
    """Return a field's value as a person reads it."""
    match value:
        case None:
            return element("span", "none", class_="none")
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case datetime():
            return time_text(value)
        case Mapping():
            return ", ".join(f"{name} {text_of(each)}" for name, each in value.items()) or "none"
        case list() | tuple():
            return _items(value)
        case _:
            return shortened(str(value), _LETTERS_MAX)


def _items(items: Sequence[object]) -> object:
    if not items:
        return element("span", "none", class_="none")
    first = items[:_ITEMS_MAX]
    more = [f"and {len(items) - len(first):,} more"] if len(items) > len(first) else []
    kinds = {type(each) for each in first}
    if len(kinds) == 1 and is_dataclass(kind := kinds.pop()):
        shown = [each.name for each in fields(kind) if each.repr]
        names = [n for n in shown if any(getattr(each, n) is not None for each in first)]
        names = names[:_COLUMNS_MAX]
        rows = [[_in_grid(getattr(each, name)) for name in names] for each in first]
        headings = [name.replace("_", " ") for name in names]
        return joined([grid(headings, rows), *more])
    return joined(part for each in [*first, *more] for part in (text_of(each), element("br")))


def _in_grid(value: object) -> object:
    """Return a value as text for a cell: no table is inside another's."""
    if isinstance(value, list | tuple) and value and is_dataclass(value[0]):
        return counted(len(value), "item")
    return text_of(value)


def _named(value: Any) -> list[tuple[object, object]]:
    """Return the fields of a value that its `repr` shows, each with its text."""
    shown: list[tuple[object, object]] = []
    for each in fields(value):
        if not each.repr or each.name.startswith("_"):
            continue
        found = getattr(value, each.name)
        is_size = each.name.endswith("bytes") and isinstance(found, int)
        words = size_text(found) if is_size else text_of(found)
        shown.append((each.name.replace("_", " "), words))
    return shown
