"""Makes the application that serves an instance: `make_app`.

The words: a *route* is a method and a path; it names the *role* that a caller needs. What all
routes use is a `ServedInstance`. A *statement* is SQL of a caller, or a query with a condition.

The steps of a request:

1. `LimitedRequests` refuses what is too large, or too much at once, and ends what takes too long.
2. The route's dependency finds who sent it by the token, and refuses a role that is too low
   (`authorization.py`).
3. The route reads the body (`bodies.py`) and calls one method of the instance or of a table. A
   statement runs in a process of its own (`statements/`).
4. Rows become a document or a stream (`answers.py`), an error becomes a problem (`problems.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from sleeper.instance.instance import Instance
from sleeper.interfaces.rest.authorization import ROLE, role_of
from sleeper.interfaces.rest.problems import answer_problems
from sleeper.interfaces.rest.request_limits import LimitedRequests, RequestLimits
from sleeper.interfaces.rest.routes import jobs, maintenance, rows, tables, uploads, whole_instance
from sleeper.interfaces.rest.served_instance import ServedInstance
from sleeper.interfaces.rest.statements.process_pool import MEMORY_BYTES, StatementProcesses
from sleeper.interfaces.rest.tokens import TokenFile

_ABOUT: Final = """\
Tables, rows, jobs and maintenance of one Sleeper instance.

Values in JSON are those of `sleeper query --json`: bytes in base64, dates and timestamps in
ISO 8601, decimals as text. Errors are problem documents (RFC 9457): `class` is a class of
`sleeper.errors`, and `retryable` says whether the same request may succeed later.
"""


def make_app(
    instance: Instance,
    *,
    tokens: TokenFile | None = None,
    limits: RequestLimits | None = None,
    input_folder: Path | None = None,
    statement_bytes: int | None = MEMORY_BYTES,
) -> FastAPI:
    """Return the ASGI application that serves an instance.

    Args:
        instance: The instance. Its tables stay open while the application is used.
        tokens: Who may do what. Without it every request may do everything: listen on loopback
            alone. Requests that reach it by another name are refused.
        limits: How large and how long requests and answers may be.
        input_folder: The folder of this machine whose files ingest jobs may name; without it,
            only files in buckets.
        statement_bytes: Memory that a statement in SQL, or a query with a condition, may use; it
            runs in a process of its own. None to run all in this process, without a limit; an
            instance in the memory of this process has no other way.
    """
    limits = limits or RequestLimits()
    statements = None
    if statement_bytes is not None and not instance.url.startswith("memory:"):
        statements = StatementProcesses(instance, limits, memory_bytes=statement_bytes)
    app = FastAPI(
        title="Sleeper",
        version="1",
        description=_ABOUT,
        openapi_url="/sleeper/openapi.json",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.served = ServedInstance(instance, tokens, limits, input_folder)
    app.state.statements = statements
    answer_problems(app)
    routers = [each.router for each in (tables, rows, uploads, jobs, maintenance, whole_instance)]
    for router in (*routers, rows.instance_router):
        # Not by include_router(), which would look for the route of a request twice in each router.
        app.router.routes.extend(_with_roles(router).routes)
    app.add_middleware(LimitedRequests, limits=limits)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Have a process ready for the first statement, and kill all at the end."""
    statements = app.state.statements
    if statements is None:
        yield
        return
    statements.start()
    try:
        yield
    finally:
        await statements.close()


def _with_roles(router: APIRouter) -> APIRouter:
    """Return a router whose routes say in their description which role they need."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            role = role_of(route.dependencies)
            route.openapi_extra = {**(route.openapi_extra or {}), ROLE: role and role.text}
    return router
