"""A proxy before an S3 server: counts requests, and injects faults when a test asks for them.

A test opens one by `fault_proxy(server.endpoint)` and gives its endpoint to the client. Faults are
added with `inject` and end with `clear`; the condition of put-if-absent is kept, ignored or raced.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from tests.patience import PATIENCE_S

_OF_ONE_LINE = ("connection", "transfer-encoding", "content-length")
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_TAKEN = b"<Error><Code>PreconditionFailed</Code><Message>The key is taken.</Message></Error>"
_CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code><Message>Retry.</Message></Error>"
_REFUSALS = {"slow down": (503, _SLOW_DOWN), "conflict": (409, _CONFLICT)}
_RESET = struct.pack("ii", 1, 0)  # with SO_LINGER: close sends a reset

FaultKind = Literal["lost reply", "error after", "reset before", "reset mid", "slow down", "stall"]


@dataclass
class Fault:
    """Something that happens to some requests.

    Attributes:
        kind: `lost reply`: the server does it, and the connection is reset without a reply.
            `conflict`: 409 ConditionalRequestConflict is answered, and the server sees nothing.
            `error after`: the server does it, and 500 is answered.
            `reset before`: the connection is reset, and the server sees nothing.
            `reset mid`: the server gets half of the request.
            `slow down`: 503 SlowDown is answered, and the server sees nothing.
            `stall`: the request waits for `stall_s`, then goes on.
        share: Of how many requests, from 0 to 1.
        times: How often at most; None for no end.
        methods: Of which methods; none for all.
        path_holds: Of those whose path holds this.
        stall_s: How long a stall is.
    """

    kind: FaultKind
    share: float = 1.0
    times: int | None = None
    methods: tuple[str, ...] = ()
    path_holds: str = ""
    stall_s: float = 1.0


@dataclass
class Seen:
    """What went through.

    Attributes:
        requests: Method and path of each request, in order.
        kinds: How many requests of each kind: GET, GET-range, HEAD, LIST, PUT, PUT-if-absent ...
        injected: How many faults of each kind.
    """

    requests: list[tuple[str, str]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)


class FaultProxy(ThreadingHTTPServer):
    """A proxy before the server at `target`.

    Attributes:
        dead: Hang up on everybody.
        condition: What becomes of `If-None-Match: *`. `kept`: it is passed on. `ignored`: it is
            not, as by a server or a gateway that does not know it. `raced`: the proxy looks
            whether the key is free, waits, and writes, as a server does that checks first and
            writes later.
        race_s: How long it waits between look and write.
        latency_s: How long each request waits before it is passed on.
        faults: What happens to some requests.
        seen: What went through.

    Args:
        target: The server's URL.
        seed: Which requests get a fault whose share is below 1.
        certificate: Files of a certificate and its key: the proxy then speaks TLS.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, target: str, seed: int = 7, certificate: tuple[Path, Path] | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )
            self._scheme = "https"
        self.target = urlsplit(target).netloc
        self.dead = False
        self.condition: Literal["kept", "ignored", "raced"] = "kept"
        self.race_s = 0.02
        self.latency_s = 0.0
        self.faults: list[Fault] = []
        self.seen = Seen()
        self._random = random.Random(seed)
        self._lock = Lock()

    @property
    def endpoint(self) -> str:
        """Where clients reach it."""
        return f"{self._scheme}://127.0.0.1:{self.server_port}"

    def inject(self, kind: FaultKind, **options) -> None:
        """Begin a fault (see `Fault`)."""
        self.faults.append(Fault(kind, **options))

    def clear(self) -> None:
        """End all faults."""
        self.faults, self.dead, self.condition, self.latency_s = [], False, "kept", 0.0

    def forget(self) -> Seen:
        """Begin to count anew, and return what was counted."""
        seen, self.seen = self.seen, Seen()
        return seen

    def fault_for(self, method: str, path: str, operation: str) -> Fault | None:
        """Count a request's fault, if it gets one. `operation` is that of DynamoDB, if it is one."""
        with self._lock:
            for fault in self.faults:
                if fault.methods and method not in fault.methods:
                    continue
                if fault.path_holds not in path or fault.times == 0:
                    continue
                if self._random.random() < fault.share:
                    fault.times = None if fault.times is None else fault.times - 1
                    self.seen.injected[fault.kind] += 1
                    return fault
        return None

    def handle_error(self, *_):
        """Say nothing: hanging up is what it is for."""


@dataclass
class _Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy

    def do_any(self):
        proxy = self.server
        headers = dict(self.headers.items())
        lower = {name.lower(): value for name, value in headers.items()}
        proxy.seen.requests.append((self.command, self.path))
        proxy.seen.kinds[_kind_of(self.command, self.path, lower)] += 1
        if proxy.dead:
            self.close_connection = True
            return
        body = self.rfile.read(int(lower.get("content-length", 0)))
        if proxy.latency_s:
            time.sleep(proxy.latency_s)
        operation = lower.get("x-amz-target", "").rpartition(".")[2]
        fault = proxy.fault_for(self.command, self.path, operation)
        kind = fault.kind if fault else ""
        if kind == "error after":
            self._pass_on(headers, lower, body)
            self._answer(_Reply(500, [], b""))
            return
        if kind in _REFUSALS:
            status, content = _REFUSALS[kind]
            self._answer(_Reply(status, [("Content-Type", "application/xml")], content))
            return
        if kind == "reset before":
            self._reset()
            return
        if kind == "reset mid":
            self._send_half(headers, body)
            self._reset()
            return
        if fault is not None and kind == "stall":
            time.sleep(fault.stall_s)
        try:
            reply = self._pass_on(headers, lower, body)
        except (OSError, HTTPException):
            reply = None
        if reply is None or kind == "lost reply":
            self._reset()
            return
        self._answer(reply)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815

    def _pass_on(self, headers, lower, body) -> _Reply:
        proxy = self.server
        if lower.get("if-none-match") == "*" and proxy.condition != "kept":
            headers = {k: v for k, v in headers.items() if k.lower() != "if-none-match"}
            if proxy.condition == "raced":
                found = self._request("HEAD", {"Host": headers.get("Host", "")}, b"")
                if found.status == 200:
                    return _Reply(412, [("Content-Type", "application/xml")], _TAKEN)
                time.sleep(proxy.race_s)
        return self._request(self.command, headers, body)

    def _request(self, method, headers, body) -> _Reply:
        server = HTTPConnection(self.server.target, timeout=PATIENCE_S)
        try:
            server.request(method, self.path, body, headers)
            found = server.getresponse()
            return _Reply(found.status, found.getheaders(), found.read())
        finally:
            server.close()

    def _send_half(self, headers, body) -> None:
        server = HTTPConnection(self.server.target, timeout=PATIENCE_S)
        with suppress(OSError, HTTPException):
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                server.putheader(name, value)
            server.endheaders(body[: len(body) // 2])
        server.close()

    def _reset(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _answer(self, reply: _Reply) -> None:
        self.send_response_only(reply.status)
        length = str(len(reply.body))
        for name, value in reply.headers:
            if name.lower() not in _OF_ONE_LINE:
                self.send_header(name, value)
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, *_):
        pass


def _kind_of(method: str, path: str, headers: dict[str, str]) -> str:
    """Return the kind of a request, as a store's price list has them."""
    query = parse_qs(urlsplit(path).query, keep_blank_values=True)
    if method == "GET":
        if query.keys() & {"list-type", "prefix", "uploads"}:
            return "LIST"
        return "GET-range" if "range" in headers else "GET"
    if method == "PUT" and "partNumber" in query:
        return "PUT-part"
    if method == "PUT" and headers.get("if-none-match") == "*":
        return "PUT-if-absent"
    if method == "POST":
        kinds = {"uploads": "POST-begin", "uploadId": "POST-complete", "delete": "POST-delete"}
        return next((kind for name, kind in kinds.items() if name in query), "POST")
    return method


@contextmanager
def fault_proxy(
    target: str, kind: type[FaultProxy] = FaultProxy, **options
) -> Iterator[FaultProxy]:
    """Open a proxy before a server; close it in the end."""
    proxy = kind(target, **options)
    thread = Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
