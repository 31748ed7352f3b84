"""A bad line to a good server: passes requests on, and has troubles when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

_OF_ONE_LINE = ("connection", "transfer-encoding", "content-length")


class BadLine(ThreadingHTTPServer):
    """A line to the server at `target`.

    Attributes:
        dead: Hang up on everybody.
        losing: Pass on so many PUT requests more whose reply is lost,
        losing_at: of those whose path holds this.
        forgetful: Leave out `If-None-Match`, as servers do that do not know it.
        seen: Method and path of each request.
    """

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target).netloc
        self.dead = self.forgetful = False
        self.losing = 0
        self.losing_at = ""
        self.seen: list[tuple[str, str]] = []

    @property
    def endpoint(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """Say nothing: hanging up is what it is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BadLine

    def do_any(self):
        line = self.server
        line.seen.append((self.command, self.path))
        if line.dead:
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = dict(self.headers.items())
        if line.forgetful:
            headers = {k: v for k, v in headers.items() if k.lower() != "if-none-match"}
        server = HTTPConnection(line.target, timeout=30)
        with suppress(OSError):
            server.request(self.command, self.path, body, headers)
            reply = server.getresponse()
            content = reply.read()
        server.close()
        if line.losing and self.command == "PUT" and line.losing_at in self.path:
            line.losing -= 1
            self.close_connection = True
            return
        self.send_response_only(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in _OF_ONE_LINE:
                self.send_header(name, value)
        length = reply.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815

    def log_message(self, *_):
        pass


@contextmanager
def bad_line(target: str) -> Iterator[BadLine]:
    """Open a line to a server; close it in the end."""
    line = BadLine(target)
    thread = Thread(target=line.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield line
    finally:
        line.shutdown()
        line.server_close()
        thread.join()
