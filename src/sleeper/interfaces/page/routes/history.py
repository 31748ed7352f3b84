"""What the last transactions of a table did."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from sleeper.errors import BadRequest
from sleeper.interfaces.page.rendering import path_of
from sleeper.interfaces.page.visits import PageRoute, Reading
from sleeper.pictures.charts import history_picture
from sleeper.pictures.svg import NARROW, WIDE
from sleeper.tables.plots import history_points

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_DRAWN: Final = 50


@router.get(path_of("tables") + "/{table:segment}/history")
def show_history(visit: Reading, table: str) -> Response:
    """Show the last transactions; of a table whose state store keeps no log, say so."""
    opened = visit.table(table)
    failure = ""
    try:
        entries = opened.history(_DRAWN)
    except BadRequest as error:
        entries, failure = (), str(error)
    points = history_points(entries)
    return visit.page(
        "history.html",
        status=HTTPStatus.OK,
        table=opened.name,
        failure=failure,
        pictures=[history_picture(points, width=width) for width in (WIDE, NARROW)],
        entries=entries,
    )
