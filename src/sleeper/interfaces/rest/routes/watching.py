"""Routes for monitoring: health, figures for Prometheus, and the instance at a glance."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from sleeper.interfaces.rest.authorization import READ, CheckedRoute
from sleeper.interfaces.rest.json_values import json_answer
from sleeper.interfaces.rest.routes.tables import answers
from sleeper.interfaces.rest.served import served_by

router = APIRouter(prefix="/sleeper", tags=["watching"], route_class=CheckedRoute)


@router.get("/health", responses=answers({"healthy": True}))
def health(request: Request) -> Response:
    """Answer 200 if the instance can be read; needs no token, and says nothing else."""
    served_by(request).instance.tables()
    return json_answer({"healthy": True})


@router.get("/instance", dependencies=[READ])
def show_instance(request: Request) -> Response:
    """Show the instance: its id, how many tables it has, and whether it is paused."""
    instance = served_by(request).instance
    return json_answer(
        {
            "id": instance.instance_id,
            "tables": len(instance.tables()),
            "paused_since": instance.pause_switch.paused_since(),
        }
    )


@router.get(
    "/metrics",
    dependencies=[READ],
    response_class=PlainTextResponse,
)
def metrics(request: Request) -> Response:
    """Return figures of queues and jobs in Prometheus' text format."""
    figures = served_by(request).metrics
    return PlainTextResponse(figures.text(), media_type="text/plain; version=0.0.4")
