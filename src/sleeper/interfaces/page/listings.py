"""Lists in parts: pages of so many entries, and the first entries of what may be long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from sleeper.language.value_classes import dataclass

PER_PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Some of the entries of a list.

    Attributes:
        entries: The entries of this page.
        page: Its number, from 1 on.
        pages: The number of pages.
        total: The number of all entries.
    """

    entries: Sequence[Any]
    page: int
    pages: int
    total: int


def listing(found: Sequence[Any], page: int, per_page: int = PER_PAGE) -> Listing:
    """Return one page of a list; a page that does not exist is the nearest that does.

    >>> listing(["a", "b", "c"], 9, per_page=2).entries
    ['c']
    """
    pages = max(1, -(-len(found) // per_page))
    here = min(max(1, page), pages)
    entries = found[(here - 1) * per_page : here * per_page]
    return Listing(entries=entries, page=here, pages=pages, total=len(found))


def first(found: Iterable[Any], count: int) -> tuple[list[Any], bool]:
    """Return the first entries, and whether there are more."""
    entries = list(islice(found, count + 1))
    return entries[:count], len(entries) > count
