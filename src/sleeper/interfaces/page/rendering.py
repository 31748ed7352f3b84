"""Renders templates, with the headers that keep scripts of others out of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sleeper.html.markup import Markup, compact, counted, element, size_text, time_text

_HERE: Final = Path(__file__).parent
_LONG: Final = 10_000_000
STATIC: Final = _HERE / "static"

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


def path_of(*segments: str) -> str:
    """Return the path of a page: `/page` and segments, in which any character may be.

    >>> path_of("tables", "a/b")
    '/page/tables/a%2Fb'
    """
    return "/".join(["/page", *(quote(segment, safe="") for segment in segments)])


def _time(moment: datetime | None) -> Markup:
    if moment is None:
        return Markup("&ndash;")
    return element("time", time_text(moment), datetime=moment.isoformat())


def _number(amount: float | None) -> str:
    return "\u2013" if amount is None else f"{amount:,}"


def _amount(amount: int) -> str:
    """Return a number that fits a small place."""
    return f"{amount:,}" if amount < _LONG else compact(amount)


_environment = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {
    "amount": _amount,
    "number": _number,
    "size": size_text,
    "time": _time,
}
_environment.globals |= {"path_of": path_of, "counted": counted}


def rendered(template: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    """Return a page."""
    text = _environment.get_template(template).render(values)
    # A lone surrogate, which UTF-8 cannot hold, becomes a question mark.
    return HTMLResponse(text.encode("utf-8", "replace"), status, headers=dict(HEADERS))


# ---------------------------------------------------------------- listings
#
# Lists in parts: pages of so many entries, and the first entries of what may be long.

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
