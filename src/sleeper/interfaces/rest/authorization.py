"""Who may do what: tokens with a role, or requests of this machine alone.

A server without a token file listens on a loopback address only, and every request may do
everything. So that no page of another site can use it through a browser on the same machine, the
`Host` of a request must be a loopback name, and its `Origin`, if it has one, the server itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import Depends, Request, params
from fastapi.responses import Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from sleeper.errors import AccessRefused, BadRequest, StorageFailed
from sleeper.interfaces.rest.served_instance import served_instance
from sleeper.interfaces.rest.tokens import Role, Token, TokenFile
from sleeper.model.authors import commit_from_here_on

_log = logging.getLogger(__name__)

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1", "[::1]")
ROLE: Final = "x-sleeper-role"
"""The name in the description of a route of the role that it needs; null for none."""
REASON: Final = "Sleeper-Reason"
"""A header that says why a request is made, for the history; percent-encoded."""
COOKIE: Final = "sleeper_token"
_LONGEST: Final = 200

_bearer = HTTPBearer(
    auto_error=False, description="A token of `sleeper server token add`, with a role."
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: The name of the token; `local` without tokens.
        role: What the request may do.
    """

    name: str
    role: Role

    def check(self, role: Role, what: str = "this") -> None:
        """Check that a request may do what needs a role.

        Raises:
            AccessRefused: its role is too small.
        """
        if self.role < role:
            raise AccessRefused(
                f"token {self.name!r} has the role {self.role.text}, and {what} needs the role "
                f"{role.text}",
                is_known=True,
            )


_LOCAL: Final = Caller("local", Role.ADMIN)


async def caller_of(
    request: Request,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None,
) -> Caller:
    """Return who sent a request.

    Raises:
        AccessRefused: there is no token, or it is not valid, or another site sent the request.
    """
    check_origin(request)
    tokens = served_instance(request).tokens
    reason = request.headers.get(REASON)
    if tokens is None:
        commit_from_here_on(reason=reason and unquote(reason))
        return _LOCAL
    text = request.cookies.get(COOKIE) if bearer is None else bearer.credentials
    if not text:
        raise AccessRefused(
            "this server needs a token: send the header 'Authorization: Bearer TOKEN'. "
            "`sleeper server token add` makes one."
        )
    token = checked_token(tokens, text)
    commit_from_here_on(by=f"token {token.name}", reason=reason and unquote(reason))
    return Caller(token.name, token.role)


def checked_token(tokens: TokenFile, text: str) -> Token:
    """Return the token of which `text` is the whole.

    Raises:
        AccessRefused: it is none, or has expired.
        StorageFailed: the file of tokens cannot be read. Who asks is not known, so the log alone
            says why.
    """
    try:
        return tokens.checked(text[:_LONGEST])
    except BadRequest as error:
        _log.error("tokens cannot be checked, so every request is refused: %s", error)
        raise StorageFailed("the server cannot check tokens; its log says why") from None


def check_origin(request: Request) -> None:
    """Check that no page of another site sent a request.

    Raises:
        AccessRefused: another site did, or reached this server by a name that it does not have.
    """
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    scheme, _, name = (origin or "").lower().partition("://")
    # A proxy with TLS may be before a server without, so its pages may have https.
    is_weaker = request.url.scheme == "https" and scheme != "https"
    if origin is not None and (name != host.lower() or is_weaker):
        raise AccessRefused(
            f"the request comes from a page of {origin[:_LONGEST]!r}, which this server does not "
            "serve",
            is_known=True,
        )
    if served_instance(request).tokens is None and not _is_loopback(_name_in(host)):
        raise AccessRefused(
            f"a server without tokens answers at 127.0.0.1 or localhost, not as "
            f"{host[:_LONGEST]!r}; start it with --tokens FILE to serve others",
            is_known=True,
        )


def _is_loopback(name: str) -> bool:
    """Return whether a name is this machine's alone: localhost, ::1, or any of 127.0.0.0/8."""
    if name in LOOPBACK:
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _name_in(host: str) -> str:
    """Return a `Host` header without its port."""
    name, separator, port = host.lower().rpartition(":")
    return name if separator and port.isdecimal() else host.lower()


class _RoleNeeded:
    """A dependency that refuses callers whose role is too small."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
        caller.check(self.role)
        return caller


READ: Final = Depends(_RoleNeeded(Role.READ))
WRITE: Final = Depends(_RoleNeeded(Role.WRITE))
ADMIN: Final = Depends(_RoleNeeded(Role.ADMIN))


async def check_role(request: Request, role: Role) -> None:
    """Check who sent a request, before its body is read.

    Raises:
        AccessRefused: there is no token, or its role is too small.
    """
    await _RoleNeeded(role)(await caller_of(request, await _bearer(request)))


def role_of(dependencies: Iterable[params.Depends]) -> Role | None:
    """Return the role that a route with these dependencies needs; None for none."""
    for each in dependencies:
        if isinstance(each.dependency, _RoleNeeded):
            return each.dependency.role
    return None


class CheckedRoute(APIRoute):
    """A route that checks who asks before it reads the body of a request.

    FastAPI reads and parses the body before dependencies, and to parse a large one keeps all other
    requests waiting.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with the check before it, and not once more among dependencies."""
        role, described = role_of(self.dependencies), self.dependant
        others = [each for each in described.dependencies if not isinstance(each.call, _RoleNeeded)]
        self.dependant = replace(described, dependencies=others)
        handle = super().get_route_handler()
        self.dependant = described  # which OpenAPI tells

        async def checked(request: Request) -> Response:
            if role is not None:
                await check_role(request, role)
            return await handle(request)

        return checked
