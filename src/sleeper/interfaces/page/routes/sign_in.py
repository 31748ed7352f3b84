"""Sign in with a token, and out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from sleeper.errors import AccessRefused
from sleeper.interfaces.page.rendering import HEADERS, path_of, rendered
from sleeper.interfaces.page.visits import SIGN_IN, PageRoute, check_proof, form_proof
from sleeper.interfaces.rest.authorization import COOKIE, check_origin, checked_token
from sleeper.interfaces.rest.served_instance import served_instance

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_LONGEST: Final = 200
_DAYS_30: Final = 30 * 24 * 3600


@router.get(SIGN_IN)
def ask_for_token(request: Request, next: str = "") -> Response:  # noqa: A002 - in the address
    """Show the form that asks for a token."""
    check_origin(request)
    if served_instance(request).tokens is None:
        return RedirectResponse(path_of(), HTTPStatus.SEE_OTHER, headers=dict(HEADERS))
    return _form(request, next)


@router.post(SIGN_IN)
def sign_in(
    request: Request,
    token: Annotated[str, Form()],
    proof: Annotated[str, Form()] = "",
    next: Annotated[str, Form()] = "",  # noqa: A002 - in the address
) -> Response:
    """Check a token, and remember it in a cookie that scripts cannot read."""
    check_origin(request)
    tokens = served_instance(request).tokens
    if tokens is None:
        return RedirectResponse(path_of(), HTTPStatus.SEE_OTHER, headers=dict(HEADERS))
    check_proof(request, proof)
    text = token.strip()[:_LONGEST]
    try:
        checked_token(tokens, text)
    except AccessRefused as error:
        return _form(request, next, str(error))
    answer = RedirectResponse(_inside(next), HTTPStatus.SEE_OTHER, headers=dict(HEADERS))
    answer.set_cookie(
        COOKIE,
        text,
        max_age=_DAYS_30,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post(path_of("sign-out"))
def sign_out(request: Request, proof: Annotated[str, Form()] = "") -> Response:
    """Forget the token."""
    check_origin(request)
    check_proof(request, proof)
    answer = RedirectResponse(SIGN_IN, HTTPStatus.SEE_OTHER, headers=dict(HEADERS))
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


def _form(request: Request, after: str, failure: str = "") -> Response:
    values = {
        "instance_id": served_instance(request).instance.instance_id,
        "form_proof": form_proof(request),
        "next": _inside(after),
        "failure": failure,
    }
    return rendered("sign_in.html", values, HTTPStatus.FORBIDDEN if failure else HTTPStatus.OK)


def _inside(after: str) -> str:
    """Return the page to show after signing in: never one of another server."""
    plain = after.startswith("/page") and "\\" not in after and after.isprintable()
    return after if plain and not after.startswith(("//", "/page//")) else path_of()
