"""Errors as answers: which HTTP status each error class has, and the problem document (RFC 9457).

    {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no table 'flight'; ...",
     "class": "TableNotFound", "retryable": false,
     "error": "not_found", "message": "no table 'flight'; ..."}

`class` is a class of `sleeper.errors`; `error` and `message` are what upstream's REST API answers.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from sleeper import errors
from sleeper.errors import SleeperError

_log = logging.getLogger(__name__)

PROBLEM_TYPE: Final = "application/problem+json"

STATUSES: Final[Mapping[type[SleeperError], HTTPStatus]] = {
    errors.BadRequest: HTTPStatus.BAD_REQUEST,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.AlreadyExists: HTTPStatus.CONFLICT,
    errors.InputRefused: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.CommitRefused: HTTPStatus.CONFLICT,
    errors.CommitContended: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.CommitUnknown: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.CommitOverwritten: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.TableFunctionFailed: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.DataDamaged: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.ResultsIncomplete: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.SubmissionFailed: HTTPStatus.BAD_GATEWAY,
    errors.DeploymentFailed: HTTPStatus.BAD_GATEWAY,
    errors.FormatTooNew: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.LibraryFailed: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.MissingExtra: HTTPStatus.NOT_IMPLEMENTED,
    errors.AccessRefused: HTTPStatus.UNAUTHORIZED,
    errors.StorageFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StorageFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.StorageReadOnly: HTTPStatus.FORBIDDEN,
    errors.ObjectNotFound: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.ObjectTooShort: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""The status of each class; a class that is not listed has that of its base class."""

_UPSTREAM_CODES: Final = {
    HTTPStatus.BAD_REQUEST: "invalid_request",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_error",
}
_CLASS_OF_STATUS: Final[Mapping[int, type[SleeperError]]] = {
    HTTPStatus.NOT_FOUND: errors.NotFound,
    HTTPStatus.REQUEST_TIMEOUT: errors.StorageFailed,
    HTTPStatus.SERVICE_UNAVAILABLE: errors.StorageFailed,
    HTTPStatus.GATEWAY_TIMEOUT: errors.StorageFailed,
    HTTPStatus.INTERNAL_SERVER_ERROR: errors.SleeperError,
}
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="sleeper"'}


_DETAIL_MAX: Final = 10_000
"""Characters of a message. A request that repeats in it what it was given gets no more."""

UNEXPECTED: Final = "the server failed in a way that it does not know; its log says more"
"""The detail of an answer to a request that failed with an error that nobody expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What an answer says of an error.

    Attributes:
        status: The HTTP status.
        error_class: The class of `sleeper.errors`, by name.
        detail: What happened, and what to do.
        retryable: True if the same request may succeed later.
        code: What upstream calls it.
        headers: Headers of the answer.
        attributes: Attributes of the error, such as `failures`.
    """

    status: int
    error_class: str
    detail: str
    retryable: bool = False
    code: str
    headers: Mapping[str, str]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the problem document."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "class": self.error_class,
            "retryable": self.retryable,
            "error": self.code,
            "message": self.detail,
            **({"attributes": self.attributes} if self.attributes else {}),
        }

    def body(self) -> bytes:
        """Return the problem document as JSON."""
        return json.dumps(self.document()).encode()

    def response(self) -> Response:
        """Return the answer."""
        return Response(
            self.body(), self.status, media_type=PROBLEM_TYPE, headers=dict(self.headers)
        )


def status_of(kind: type[SleeperError]) -> HTTPStatus:
    """Return the HTTP status of an error class.

    Raises:
        LookupError: neither the class nor one of its bases is listed.
    """
    return next(STATUSES[base] for base in kind.__mro__ if base in STATUSES)


def problem_of(error: SleeperError) -> Problem:
    """Return the problem that an error is."""
    status, headers = status_of(type(error)), {}
    if isinstance(error, errors.AccessRefused):
        if error.is_known:
            status = HTTPStatus.FORBIDDEN
        else:
            headers = _CHALLENGE
    elif error.retryable:
        headers = {"Retry-After": "1"}
    name, text = type(error).__name__, str(error)
    code = "table_already_exists" if name == "TableAlreadyExists" else _UPSTREAM_CODES.get(status)
    return Problem(
        status=status,
        error_class=name,
        detail=text if len(text) <= _DETAIL_MAX else f"{text[:_DETAIL_MAX]}...",
        retryable=error.retryable,
        code=code or re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(),
        headers=headers,
        attributes={key: value for key, value in vars(error).items() if _is_plain(value)},
    )


def _is_plain(value: object) -> bool:
    """Return whether the value of an attribute can be sent: a number, a text, or several."""
    parts = [*value.values()] if isinstance(value, dict) else value
    if isinstance(parts, list | tuple):
        return all(isinstance(part, str | int | float) for part in parts)
    return isinstance(value, str | int | float)


def plain_problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    """Return the problem of a request that no error class describes, such as an unknown path."""
    kind = _CLASS_OF_STATUS.get(status, errors.BadRequest)
    phrase = HTTPStatus(status).phrase
    return Problem(
        status=status,
        error_class=kind.__name__,
        detail=detail,
        retryable=kind.retryable,
        code=_UPSTREAM_CODES.get(HTTPStatus(status), phrase.lower().replace(" ", "_")),
        headers={**(headers or {}), **({"Retry-After": "1"} if kind.retryable else {})},
    )


def answer_problems(app: FastAPI) -> None:
    """Answer every error of an application by a problem document."""
    app.add_exception_handler(SleeperError, _sleeper_error)
    app.add_exception_handler(RequestValidationError, _wrong_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _sleeper_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SleeperError)
    problem = problem_of(error)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("%s %r failed: %s", request.method, request.url.path, error)
    return problem.response()


_READ_AS_TEXT: Final = ("model_attributes_type", "model_type", "dict_type")
"""What pydantic says of a body that was not read as JSON."""


async def _wrong_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    is_text = any(each["type"] in _READ_AS_TEXT for each in found)
    if is_text and not kind.endswith("json"):
        detail = (
            f"the body has the Content-Type {kind!r:.200}"
            if kind
            else "the body has no Content-Type"
        )
        detail += ": this path takes JSON, sent with Content-Type: application/json"
        return plain_problem(HTTPStatus.BAD_REQUEST, detail).response()
    return plain_problem(HTTPStatus.BAD_REQUEST, wrong_form(found)).response()


def wrong_form(found: Sequence[Any]) -> str:
    """Say which parts of a request are wrong; its values are not repeated.

    Args:
        found: What pydantic found: the place and the message of each.
    """
    shown = [f"{'.'.join(map(str, each['loc'])):.200}: {each['msg']:.500}" for each in found[:10]]
    return "the request does not have the form that this path takes: " + "; ".join(shown)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    texts = {
        HTTPStatus.NOT_FOUND: f"no route for {request.method} of this path; /sleeper/openapi.json "
        "lists the routes",
        HTTPStatus.METHOD_NOT_ALLOWED: f"this path does not answer {request.method}",
    }
    detail = texts.get(HTTPStatus(error.status_code), error.detail)
    return plain_problem(error.status_code, detail, error.headers).response()


async def _unexpected(request: Request, error: Exception) -> Response:
    """Say nothing of an error that nobody expected; `LimitedRequests` logs it, with its trace."""
    return plain_problem(HTTPStatus.INTERNAL_SERVER_ERROR, UNEXPECTED).response()
