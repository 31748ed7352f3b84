"""Limits of requests: size, time, number at once, and how long a slow client is waited for."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

from fastapi import HTTPException

from sleeper.interfaces.rest.problems import UNEXPECTED, plain_problem

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_UPLOADS: Final = re.compile(r"/sleeper/tables/[^/]+/rows")
_QUESTIONS: Final = re.compile(r"/sleeper/(?:tables/[^/]+/(?:query|count|sql)|sql)")
_CHANGE_BYTES: Final = 4 << 20
"""Bytes of other JSON bodies: 10,000 files of a job, with long names."""
_FORM_BYTES: Final = 256 << 10
"""Bytes of a form of a page, whose parsing keeps all other requests waiting."""

_CLOSE: Final = (b"connection", b"close")
_TARGET_BYTES: Final = 32 << 10
_HEADERS_BYTES: Final = 32 << 10
_HEADERS_MAX: Final = 100
_NEEDS_1_1: Final = (
    "this answer is a stream, which needs HTTP/1.1: by HTTP/1.0 nobody could tell a whole answer "
    "from one that was broken off. A proxy may have changed the version (nginx: "
    "proxy_http_version 1.1)"
)
_HEADERS: Final = [(b"x-content-type-options", b"nosniff")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """How large and how long requests and answers may be.

    Attributes:
        requests: Requests at once; others are refused with the status 503.
        body_bytes: Bytes of a question: the JSON body of `/query`, `/count` and `/sql`. Other JSON
            may have 4 MiB, and no more than this; forms of pages 256 KiB.
        upload_bytes: Bytes of rows that are uploaded in one request.
        answer_rows: Rows of an answer in one JSON document. Streams have no such limit.
        answer_bytes: Bytes of such an answer.
        time_s: Seconds from the request's first byte to the last one of its answer.
        idle_s: Seconds that a client may send or take nothing.
        body_s: Seconds in which a body must be whole, but for an upload.
    """

    requests: int = 64
    body_bytes: int = 16 << 20
    upload_bytes: int = 4 << 30
    answer_rows: int = 10_000
    answer_bytes: int = 32 << 20
    time_s: float = 600
    idle_s: float = 30
    body_s: float = 60

    def bytes_of(self, path: str) -> int:
        """Return how many bytes the body of a request may have."""
        if _UPLOADS.fullmatch(path):
            return self.upload_bytes
        if _QUESTIONS.fullmatch(path):
            return self.body_bytes
        return min(self.body_bytes, _FORM_BYTES if path.startswith("/page") else _CHANGE_BYTES)


class LimitedRequests:
    """An ASGI application that passes requests on to another one, within limits.

    It also leaves the path of a request percent-encoded, so that a name with a slash is one segment
    of it; the converter `segment` of routes decodes it.
    """

    def __init__(self, app: Application, limits: RequestLimits) -> None:
        self._app = app
        self._limits = limits
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on the start and the end of the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        limits = self._limits
        request = _Request(receive, send, limits.bytes_of(scope["path"]))
        request.idle_s = limits.idle_s
        if _UPLOADS.fullmatch(scope["path"]) is None:
            request.ends_at = asyncio.get_running_loop().time() + limits.body_s
        request.knows_ends = scope.get("http_version") != "1.0"
        request.has_body = any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in scope["headers"]
        )
        if len(self._running) >= limits.requests:
            await request.refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the server answers {limits.requests} requests already; try again",
            )
            return
        if (refusal := _refused_head(scope)) is not None:
            await request.refuse(*refusal)
            return
        if (length := _length(scope)) is not None and length > request.bytes_max:
            await request.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, request.too_large())
            return
        task = asyncio.ensure_future(self._app(scope, request.receive, request.send))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await self._ended_in_time(task, request, scope)

    async def _ended_in_time(
        self, task: asyncio.Task[None], request: _Request, scope: Scope
    ) -> None:
        """Wait for an answer; when its time is over, the client is not kept waiting for it."""
        try:
            await asyncio.wait({task}, timeout=self._limits.time_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            if request.is_over:
                _looked_at(task)
                return
            if not task.cancelled() and (failure := task.exception()) is not None:
                what = "broke off" if request.is_answered else "failed"
                _log.error("%s %r %s", scope["method"], scope["path"], what, exc_info=failure)
                if not isinstance(failure, Exception) and not request.is_answered:
                    # Such as a panic of a native library, which handlers of errors do not see.
                    await request.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, UNEXPECTED)
                    return
            task.result()
            return
        request.is_over = True
        task.cancel()
        task.add_done_callback(_looked_at)
        _log.warning("%s %r took too long", scope["method"], scope["path"])
        if request.is_answered:
            raise TimeoutError(f"an answer took more than {self._limits.time_s:g} s")
        await request.refuse(
            HTTPStatus.GATEWAY_TIMEOUT,
            f"the request took more than {self._limits.time_s:g} s. If it changes something, that "
            "may still happen: send it again with the same job id.",
        )


class _Request:
    """One request: what is received of it and sent to it, within limits."""

    def __init__(self, receive: Receive, send: Send, bytes_max: int) -> None:
        self._receive = receive
        self._send = send
        self._received = 0
        self._is_whole = False
        self.bytes_max = bytes_max
        self.idle_s = 30.0
        self.ends_at = math.inf
        self.has_body = False
        self.is_answered = False
        self.is_over = False
        self.knows_ends = True

    def too_large(self) -> str:
        """Return the message for a body that is too large."""
        return f"the request's body is larger than the {self.bytes_max:,} bytes that are allowed"

    async def receive(self) -> Message:
        """Return the next part of the body."""
        if self._is_whole:
            return await self._receive()
        try:
            now = asyncio.get_running_loop().time()
            async with asyncio.timeout_at(min(now + self.idle_s, self.ends_at)):
                message = await self._receive()
        except TimeoutError:
            late = asyncio.get_running_loop().time() >= self.ends_at
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                "the body came too slowly"
                if late
                else f"nothing of the body came for {self.idle_s:g} s",
            ) from None
        self._received += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._received > self.bytes_max:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self.too_large())
        return message

    async def send(self, message: Message) -> None:
        """Send the next part of the answer."""
        if self.is_over:
            raise OSError("the request is over")
        if message["type"] == "http.response.start":
            headers = {name.lower() for name, _ in message.get("headers", ())}
            if not self.knows_ends and b"content-length" not in headers:
                # It would end where the connection ends: broken off, it would look whole.
                self.is_over = True
                await self.refuse(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, _NEEDS_1_1)
                raise OSError("the request is over")
            self.is_answered = True
            # What is left of a body that was refused is no request.
            end = [] if self._is_whole or not self.has_body else [_CLOSE]
            message["headers"] = [*message.get("headers", ()), *_HEADERS, *end]
        async with asyncio.timeout(self.idle_s):
            await self._send(message)

    async def refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer by a problem."""
        answer = plain_problem(status, detail).response()
        start = {
            "type": "http.response.start",
            "status": answer.status_code,
            "headers": [*answer.raw_headers, *_HEADERS, _CLOSE],
        }
        async with asyncio.timeout(self.idle_s):
            await self._send(start)
            await self._send({"type": "http.response.body", "body": answer.body})


def _refused_head(scope: Scope) -> tuple[HTTPStatus, str] | None:
    """Return why a request is refused for its first line or its headers; None if it is not."""
    if len(scope["path"]) + len(scope.get("query_string", b"")) > _TARGET_BYTES:
        return HTTPStatus.REQUEST_URI_TOO_LONG, f"an address has {_TARGET_BYTES:,} bytes at most"
    headers = scope["headers"]
    if len(headers) > _HEADERS_MAX or sum(map(len, chain(*headers))) > _HEADERS_BYTES:
        return (
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"a request has {_HEADERS_MAX} headers with {_HEADERS_BYTES:,} bytes at most",
        )
    names = {name for name, _ in headers}
    if b"transfer-encoding" in names and b"content-length" in names:
        # A proxy may take the other one for the body's end, and its rest for a request.
        return (
            HTTPStatus.BAD_REQUEST,
            "a request has the header Content-Length or Transfer-Encoding, not both",
        )
    return None


def _length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


def _looked_at(task: asyncio.Task[None]) -> None:
    """Log how a request ended that was answered before."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        _log.warning("a request that was answered before failed: %r", failure)
