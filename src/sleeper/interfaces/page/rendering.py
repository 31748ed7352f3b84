"""Renders templates, with the headers that keep scripts of others out of a page."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sleeper.pictures.amounts import compact, counted, size_text, time_text
from sleeper.pictures.markup import Markup, element

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
