"""The routes of REST, for people: `/docs` leads here."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from sleeper.interfaces.page.rendering import HEADERS, path_of
from sleeper.interfaces.page.visits import PageRoute, Reading

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/docs")
def docs() -> Response:
    """Lead to the list of routes, from where other servers of FastAPI have theirs."""
    return RedirectResponse(path_of("rest"), HTTPStatus.SEE_OTHER, headers=dict(HEADERS))


@router.get(path_of("rest"))
def show_routes(visit: Reading) -> Response:
    """Show the method, the path and the summary of each route."""
    paths = visit.request.app.openapi()["paths"]
    routes = [
        (method.upper(), path, route.get("summary", ""))
        for path, methods in paths.items()
        for method, route in methods.items()
    ]
    return visit.page("routes.html", routes=routes)
