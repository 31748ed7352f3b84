"""Runs the application by uvicorn, until it is asked to end.

1. a server that others can reach needs tokens, and should have a certificate (`Listening.check`)
2. the socket is opened before uvicorn starts, so that an address in use is an error of ours
3. each connection is watched: one is closed whose headers, or whose taking of an answer, take long,
   and if there are too many, one without a request (`ImpatientProtocol`)
4. SIGTERM and Ctrl-C end it: requests under way have 20 seconds, their threads 10 more
   (`run_server`); then the process ends without them
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from sleeper.errors import BadRequest
from sleeper.interfaces.rest.request_limits import RequestLimits

_log = logging.getLogger(__name__)

_END_S: Final = 20
_KEEP_ALIVE_S: Final = 15
_THREADS_S: Final = 10
_THREADS: Final = ("answer", "AnyIO worker thread")
_HEADER_BYTES: Final = 32 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a server listens, and by which certificate.

    Attributes:
        host: An address or name of this machine.
        port: The port; 0 for any that is free.
        certificate: A file with the certificate and its chain (PEM); None for no TLS.
        key: A file with its key; None if it is in the file of the certificate.
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """True if only processes of this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check(self, *, with_tokens: bool) -> None:
        """Check that a server may listen there.

        Raises:
            BadRequest: others could reach it, and there are no tokens.
        """
        if not self.is_loopback and not with_tokens:
            raise BadRequest(
                f"others can reach {self.host!r}: a server without tokens listens at 127.0.0.1 "
                "alone. Make tokens (sleeper server token add), and name their file: --tokens FILE"
            )
        if not self.is_loopback and self.certificate is None:
            _log.warning(
                "tokens and rows travel in the clear to %s: give --certificate and --key, or put "
                "a proxy with TLS before this server",
                self.host,
            )


def run_server(app: FastAPI, listening: Listening, limits: RequestLimits) -> None:
    """Serve an application until SIGTERM or Ctrl-C; requests under way have 20 seconds to end.

    Raises:
        BadRequest: the address cannot be listened at, or the certificate cannot be used.
    """
    with listening_socket(listening) as opened:
        config = server_config(app, listening, limits)
        # LimitedRequests logs what fails.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        scheme = "http" if listening.certificate is None else "https"
        host = f"[{listening.host}]" if ":" in listening.host else listening.host
        _log.info("serving at %s://%s:%d", scheme, host, opened.getsockname()[1])
        _Server(config).run(sockets=[opened])
    if not threads_end(_THREADS_S):
        # They are in native code, and Python crashes if they come back while it ends.
        _log.warning("ended, though requests are still under way")
        logging.shutdown()
        os._exit(0)
    _log.info("ended")


def threads_end(seconds: float) -> bool:
    """Wait until no thread works for a request; False if some still do after so long."""
    working = [each for each in threading.enumerate() if each.name.startswith(_THREADS)]

    def join_all() -> None:
        for thread in working:
            thread.join()

    waiting = threading.Thread(target=join_all, daemon=True)
    waiting.start()
    waiting.join(seconds)
    return not waiting.is_alive()


def server_config(app: FastAPI, listening: Listening, limits: RequestLimits) -> uvicorn.Config:
    """Return how uvicorn serves an application.

    Raises:
        BadRequest: the certificate cannot be used.
    """
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        ws="none",
        loop="asyncio",
        lifespan="auto",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_END_S,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        limit_concurrency=4 * limits.requests,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise BadRequest(
            f"the certificate {str(listening.certificate)!r} cannot be used: {error}"
        ) from None
    return config


def listening_socket(listening: Listening) -> socket.socket:
    """Return a socket that listens.

    Raises:
        BadRequest: the address cannot be listened at.
    """
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # asyncio sets TCP_NODELAY where the protocol is named; without it an answer waits for 40 ms.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((listening.host, listening.port))
        opened.listen(512)
    except OSError as error:
        opened.close()
        raise BadRequest(
            f"cannot listen at {listening.host}:{listening.port}: {error.strerror or error}"
        ) from None
    return opened


class _Server(uvicorn.Server):
    """A server that ends with success when it is asked to end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class ImpatientProtocol(H11Protocol):
    """A connection that is closed if a request's headers, or the taking of an answer, take long.

    Attributes:
        waits_since: Since when it waits for a request, by the loop's clock; None if it has one.
    """

    header_s: float = 10
    taking_s: float = 60
    waits_since: float | None = None
    _waits_for_headers: asyncio.TimerHandle | None = None
    _waits_for_taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; if there are many connections, close one that waits."""
        super().connection_made(transport)
        self._watch()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def _make_room(self) -> None:
        """Close a connection without a request: of the peer with most of them, the oldest.

        Whoever opens many keeps nobody else out: who sends a request at once is answered.
        """
        waiting: dict[str, list[ImpatientProtocol]] = {}
        for each in self.connections:
            if isinstance(each, ImpatientProtocol) and each.waits_since is not None:
                waiting.setdefault(each.client[0] if each.client else "", []).append(each)
        if waiting:
            for crowd in waiting.values():
                crowd.sort(key=lambda each: each.waits_since or 0)
            oldest = max(waiting.values(), key=lambda c: (len(c), -(c[0].waits_since or 0)))[0]
            self.connections.discard(oldest)
            oldest._end("there are too many connections")  # noqa: SLF001 - of this class

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._unwatch()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take the next bytes, and wait for the rest of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn closes the connection after a while."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:
            self.waits_since = self.loop.time()

    def pause_writing(self) -> None:
        """Wait until the client has taken most of what was written."""
        super().pause_writing()
        self._waits_for_taking = self.loop.call_later(self.taking_s, self._end)

    def resume_writing(self) -> None:
        """Write on."""
        if self._waits_for_taking is not None:
            self._waits_for_taking.cancel()
            self._waits_for_taking = None
        super().resume_writing()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._waits_for_headers is None:
            self._waits_for_headers = self.loop.call_later(self.header_s, self._end)
            self.waits_since = self.loop.time()

    def _unwatch(self) -> None:
        if self._waits_for_headers is not None:
            self._waits_for_headers.cancel()
            self._waits_for_headers = None
        self.waits_since = None

    def _end(self, why: str = "it is too slow") -> None:
        _log.info("closing the connection of %s: %s", self.client, why)
        self.transport.abort()
