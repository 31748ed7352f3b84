"""Builds HTML and SVG. Text is escaped unless it is `Markup` already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WITHOUT_END: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML or SVG. Templates that know `__html__` do not escape it again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def text(value: object) -> Markup:
    """Return a value as escaped text; characters that XML does not allow are replaced."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(_NOT_XML.sub("\ufffd", str(value)), quote=True))


def joined(parts: Iterable[object]) -> Markup:
    """Return parts one after the other, each escaped unless it is markup."""
    return Markup("".join(map(text, parts)))


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element; children and attributes are escaped.

    >>> element("td", "a < b", class_="key")
    '<td class="key">a &lt; b</td>'

    Args:
        name: Its tag.
        children: Texts, or markup.
        attributes: A trailing underscore is dropped and others become hyphens. None leaves an
            attribute out, True writes its name alone.
    """
    written = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _WITHOUT_END:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def _attribute(key: str) -> str:
    if key == "viewBox":
        return key
    return key.rstrip("_").replace("_", "-")


def grid(
    headings: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: object = None,
    numeric: Iterable[int] = (),
) -> Markup:
    """Return a table with column headings.

    Args:
        headings: One for each column.
        rows: Cells, in the order of the headings.
        caption: What the table shows.
        numeric: Indices of columns that are aligned to the right.
    """
    right = frozenset(numeric)
    head = element(
        "tr",
        *(
            element("th", heading, scope="col", class_="number" if n in right else None)
            for n, heading in enumerate(headings)
        ),
    )
    body = joined(
        element(
            "tr",
            *(
                element("td", cell, class_="number" if n in right else None)
                for n, cell in enumerate(row)
            ),
        )
        for row in rows
    )
    title = "" if caption is None else element("caption", caption)
    return element("table", title, element("thead", head), element("tbody", body))


def facts(pairs: Iterable[tuple[object, object]]) -> Markup:
    """Return a table of names and values, one pair a row."""
    rows = joined(
        element("tr", element("th", name, scope="row"), element("td", value))
        for name, value in pairs
    )
    return element("table", element("tbody", rows), class_="facts")
