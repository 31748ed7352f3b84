"""Builds HTML and SVG. Text is escaped unless it is `Markup` already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
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


# ---------------------------------------------------------------- amounts
#
# Writes numbers, sizes and times for people.

_STEPS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def compact(amount: float) -> str:
    """Return a number in at most five characters or so.

    >>> compact(999), compact(12_345), compact(4_500_000)
    ('999', '12.3k', '4.5M')
    """
    for size, letter in _STEPS:
        if abs(amount) >= size:
            return f"{_short(amount / size)}{letter}"
    return _short(amount)


def size_text(amount: int) -> str:
    """Return a number of bytes.

    >>> size_text(100), size_text(1536), size_text(3 * 2**30)
    ('100 bytes', '1.5 KiB', '3 GiB')
    """
    for size, letters in _SIZES:
        if abs(amount) >= size:
            return f"{_short(amount / size)} {letters}"
    return counted(amount, "byte")


def counted(amount: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "leaf", "leaves"), counted(2000, "file")
    ('1 leaf', '2,000 files')
    """
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def time_text(moment: datetime) -> str:
    """Return a time to the second, with its zone."""
    zone = " UTC" if moment.utcoffset() is not None and not moment.utcoffset() else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (zone or f"{moment:%z}")


def shortened(words: str, length_max: int) -> str:
    """Return text of at most so many characters; an ellipsis stands for what is left out."""
    return words if len(words) <= length_max else words[: max(0, length_max - 1)] + "\u2026"


def _short(amount: float) -> str:
    digits = 0 if abs(amount) >= 100 else 1
    written = f"{amount:.{digits}f}"
    return written.removesuffix(".0")
