"""Routes of the instance: its health, its properties, what it has, and figures for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from sleeper.interfaces.rest.authorization import ADMIN, READ, CheckedRoute
from sleeper.interfaces.rest.bodies import ChangedProperties
from sleeper.interfaces.rest.json_values import json_answer
from sleeper.interfaces.rest.routes.tables import answers
from sleeper.interfaces.rest.served_instance import served_instance

router = APIRouter(prefix="/sleeper", tags=["watching"], route_class=CheckedRoute)


@router.get("/health", responses=answers({"healthy": True}))
def health(request: Request) -> Response:
    """Answer 200 if the instance can be read and is the one that was opened; needs no token."""
    served_instance(request).instance.check()
    return json_answer({"healthy": True})


@router.get("/instance", dependencies=[READ])
def show_instance(request: Request) -> Response:
    """Show the instance: its id, how many tables it has, and whether it is paused."""
    instance = served_instance(request).instance
    return json_answer(
        {
            "id": instance.instance_id,
            "tables": len(instance.tables()),
            "paused_since": instance.pause_switch.paused_since(),
        }
    )


@router.get(
    "/instance/properties",
    dependencies=[READ],
    responses=answers({"properties": {"sleeper.id": "demo"}}),
)
def show_properties(request: Request) -> Response:
    """Show the properties of the instance that are set, as this server uses them."""
    return json_answer({"properties": dict(served_instance(request).instance.properties.values)})


@router.patch("/instance/properties", status_code=204, dependencies=[ADMIN])
def change_properties(body: ChangedProperties, request: Request) -> Response:
    """Set properties of the instance; they are in force for tables that are opened from now on."""
    served_instance(request).instance.set_properties(body.properties)
    return Response(status_code=204)


@router.get(
    "/metrics",
    dependencies=[READ],
    response_class=PlainTextResponse,
)
def metrics(request: Request) -> Response:
    """Return figures of queues and jobs in Prometheus' text format."""
    figures = served_instance(request).metrics
    return PlainTextResponse(figures.text(), media_type="text/plain; version=0.0.4")
