"""One visit of a page: who visits, what is shown, and the proof that a form came from a page."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Coroutine
from datetime import datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Depends, Form, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from sleeper.errors import AccessRefused, SleeperError
from sleeper.instance.instance import Instance
from sleeper.interfaces.page.rendering import HEADERS, path_of, rendered
from sleeper.interfaces.rest.authorization import (
    ADMIN,
    COOKIE,
    READ,
    WRITE,
    Caller,
    check_role,
)
from sleeper.interfaces.rest.problems import problem_of
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.interfaces.rest.statements.process_pool import StatementProcesses, statements_of
from sleeper.interfaces.rest.tokens import Role
from sleeper.tables.table import Table

SIGN_IN: Final = path_of("sign-in")
_DONE: Final = {
    "saved": "The property was saved.",
    "redriven": "The messages are in their queue again.",
    "paused": "The instance is paused.",
    "resumed": "The instance is no longer paused.",
}
"""What pages say after a form; the address has the first word only."""


class Visit:
    """A request of a page by somebody who may see it.

    Attributes:
        request: The request.
        caller: Who sent it.
        form: What a form of a page has; empty without one.
    """

    def __init__(self, request: Request, caller: Caller, form: FormData | None = None) -> None:
        self.request = request
        self.caller = caller
        self.form = FormData() if form is None else form

    @property
    def instance(self) -> Instance:
        """The instance that is served."""
        return served_instance(self.request).instance

    @property
    def statements(self) -> StatementProcesses | None:
        """The processes that run SQL; None if this one does."""
        return statements_of(self.request)

    def now(self) -> datetime:
        """Return the time."""
        return self.instance.now()

    def table(self, name: str) -> Table:
        """Open a table.

        Raises:
            TableNotFound: there is no table with this name.
        """
        return served_instance(self.request).table(name)

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page with what every page has."""
        done = _DONE.get(self.request.query_params.get("done", ""))
        shared = {
            "instance_id": self.instance.instance_id,
            "caller": self.caller.name if served_instance(self.request).tokens else None,
            "may_administer": self.caller.role >= Role.ADMIN,
            "may_write": self.caller.role >= Role.WRITE,
            "form_proof": form_proof(self.request),
            "done": done,
        }
        return rendered(template, {**shared, **values}, status)


def reading(request: Request, caller: Annotated[Caller, READ]) -> Visit:
    """Return the visit of somebody who may read."""
    return Visit(request, caller)


def administering(
    request: Request, caller: Annotated[Caller, ADMIN], proof: Annotated[str, Form()] = ""
) -> Visit:
    """Return the visit of somebody who may do everything, with a form of a page.

    Raises:
        AccessRefused: the form is not of a page of this server, or of an earlier sign-in.
    """
    check_proof(request, proof)
    return Visit(request, caller)


def writing(request: Request, caller: Annotated[Caller, WRITE]) -> Visit:
    """Return the visit of somebody who may write, and looks."""
    return Visit(request, caller)


async def writing_form(request: Request, caller: Annotated[Caller, WRITE]) -> Visit:
    """Return the visit of somebody who may write, with a form of a page, whatever its fields.

    Raises:
        AccessRefused: the form is not of a page of this server, or of an earlier sign-in.
    """
    form = await request.form()
    proof = form.get("proof")
    check_proof(request, proof if isinstance(proof, str) else "")
    return Visit(request, caller, form)


Reading = Annotated[Visit, Depends(reading)]
Writing = Annotated[Visit, Depends(writing)]
WritingForm = Annotated[Visit, Depends(writing_form)]
Administering = Annotated[Visit, Depends(administering)]
_ROLES: Final = {administering: Role.ADMIN, writing_form: Role.WRITE}
"""What a visitor must be allowed to do before a form is read."""


def form_proof(request: Request) -> str:
    """Return the hidden field of forms: nobody without the visitor's cookie can make it.

    Without tokens there is no cookie, and a secret of this process is used instead.
    """
    cookie = request.cookies.get(COOKIE, "")
    secret: str = request.app.state.form_secret
    return hmac.new(secret.encode(), cookie.encode(), sha256).hexdigest()


def check_proof(request: Request, proof: str) -> None:
    """Check that a form comes from a page that this visitor was shown.

    Raises:
        AccessRefused: it does not.
    """
    if not hmac.compare_digest(proof.encode(), form_proof(request).encode()):
        raise AccessRefused(
            "the form is out of date, or not of this page: go back, reload the page, and send it "
            "again",
            is_known=True,
        )


class PageRoute(APIRoute):
    """A route that answers errors by a page; who is not signed in is led to the sign-in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with errors made pages."""
        handle = super().get_route_handler()
        needed = [_ROLES[c] for d in self.dependant.dependencies if (c := d.call) in _ROLES]

        async def answered(request: Request) -> Response:
            try:
                for role in needed:
                    await check_role(request, role)
                return await handle(request)
            except SleeperError as error:
                answer = _answer(request, error)
            except RequestValidationError as error:
                first = error.errors()[0]
                words = f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
                answer = problem_page(HTTPStatus.BAD_REQUEST, words)
            except HTTPException as error:
                answer = problem_page(error.status_code, error.detail)
            return _whole(request, answer)

        return answered


def _whole(request: Request, answer: Response) -> Response:
    """Let htmx load a page that is no part of another one."""
    if request.headers.get("hx-request") == "true":
        asked = request.url.path + (request.url.query and f"?{request.url.query}")
        to = answer.headers.get("location", asked)
        return Response(status_code=HTTPStatus.OK, headers={**HEADERS, "HX-Redirect": to})
    return answer


def _answer(request: Request, error: SleeperError) -> Response:
    if isinstance(error, AccessRefused) and not error.is_known:
        asked = request.url.path if request.method == "GET" else path_of()
        to = f"{SIGN_IN}?next={quote(asked, safe='')}"
        return RedirectResponse(to, HTTPStatus.SEE_OTHER, headers=dict(HEADERS))
    return problem_page(problem_of(error).status, str(error))


def problem_page(status: int, words: str) -> HTMLResponse:
    """Return a page that says what is wrong."""
    values = {"title": HTTPStatus(status).phrase, "words": words}
    return rendered("problem.html", values, status)


def moved(*segments: str, done: str, anchor: str = "") -> RedirectResponse:
    """Return the answer to a form: the page to show, which says what was done."""
    to = f"{path_of(*segments)}?done={done}{anchor and '#' + quote(anchor)}"
    return RedirectResponse(to, HTTPStatus.SEE_OTHER, headers=dict(HEADERS))
