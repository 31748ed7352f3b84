"""Adds the pages to an application of REST: `add_pages`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from sleeper.instance.instance import new_secret
from sleeper.interfaces.page.rendering import HEADERS, STATIC, path_of
from sleeper.interfaces.page.routes import (
    deletion,
    history,
    instance,
    jobs,
    maintenance,
    properties,
    rest,
    rows,
    sign_in,
    table,
)
from sleeper.interfaces.page.visits import PageRoute
from sleeper.pictures.svg import PICTURE_STYLE

_FILES: Final = {
    "htmx.min.js": "text/javascript",
    "page.js": "text/javascript",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
}
_KEPT: Final = {"Cache-Control": "public, max-age=3600"}

_router = APIRouter(route_class=PageRoute, include_in_schema=False)


@_router.get("/")
def front() -> Response:
    """Lead to the page of the instance."""
    return RedirectResponse(path_of(), HTTPStatus.SEE_OTHER, headers=dict(HEADERS))


@_router.get("/page/static/{name}")
def static_file(name: str) -> Response:
    """Return a file of the pages: script, style, icon."""
    if name == "pictures.css":
        return Response(PICTURE_STYLE, media_type="text/css", headers=_KEPT)
    if name not in _FILES:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such file")
    body = (STATIC / name).read_bytes()
    return Response(body, media_type=_FILES[name], headers=_KEPT)


_last = APIRouter(route_class=PageRoute, include_in_schema=False)


@_last.get("/page/{anything:path}")
def no_page(anything: str) -> Response:
    """Say that there is no such page; `/page/` leads to `/page`."""
    if not anything:
        return RedirectResponse(path_of(), HTTPStatus.SEE_OTHER, headers=dict(HEADERS))
    raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such page")


def add_pages(app: FastAPI) -> None:
    """Add the pages to an application that `make_app` of `interfaces.rest` made."""
    app.state.form_secret = new_secret()
    rooms = (sign_in, instance, table, rows, deletion, properties, history, maintenance, jobs, rest)
    for router in (_router, *(room.router for room in rooms), _last):
        app.include_router(router)
