"""A proxy before an AWS-compatible server that records each request, with what AWS charges for it.

It understands S3, DynamoDB and SQS as boto3 and obstore speak them. Prices are those of
`tools/costs.py`.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread, local
from typing import Any
from urllib.parse import parse_qs, urlsplit

_SKIPPED = ("connection", "transfer-encoding", "content-length", "date", "server")
_KILOBYTE = 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A request that went through.

    Attributes:
        service: `S3`, `DynamoDB` or `SQS`.
        operation: What was asked: `GET`, `PUT`, `LIST`, `PutItem`, `SendMessage`, ...
        charged: What Amazon charges for, a name of its prices; or empty.
        units: How much of that.
        received_bytes: Length of the reply's body.
    """

    service: str
    operation: str
    charged: str
    units: float
    received_bytes: int

    @property
    def dollars(self) -> float:
        """What Amazon charges for it."""
        from tools.costs import DOLLARS  # noqa: PLC0415 - an older checkout cannot import it

        return self.units * DOLLARS[self.charged] if self.charged else 0.0


class CountingProxy(ThreadingHTTPServer):
    """The proxy. It listens on 127.0.0.1.

    Args:
        target: URL of the server.
        delay_s: How long each request waits before it goes on.
    """

    daemon_threads = True

    def __init__(self, target: str, delay_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarder)
        self.target = urlsplit(target).netloc
        self.delay_s = delay_s
        self.connections = local()
        self._seen: list[Request] = []
        self._lock = Lock()

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def record(self, request: Request) -> None:
        """Remember a request."""
        with self._lock:
            self._seen.append(request)

    def take(self) -> list[Request]:
        """Return the requests since the last call."""
        with self._lock:
            taken, self._seen = self._seen, []
        return taken

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


class _Forwarder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CountingProxy

    def _forward(self) -> None:
        body = self._body()
        if self.server.delay_s:
            time.sleep(self.server.delay_s)
        connection = HTTPConnection(self.server.target, timeout=60)
        headers = {n: v for n, v in self.headers.items() if n.lower() not in _SKIPPED}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        found = described(self.command, self.path, dict(self.headers.items()), body, content)
        self.server.record(found)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _SKIPPED:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815 - names of the base class

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def counting_proxy(target: str, delay_s: float = 0.0) -> Iterator[CountingProxy]:
    """Run a proxy before a server."""
    proxy = CountingProxy(target, delay_s)
    Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()


def described(
    method: str, path: str, headers: dict[str, str], body: bytes, content: bytes
) -> Request:
    """Return what a request was, and its price."""
    target = next((v for n, v in headers.items() if n.lower() == "x-amz-target"), "")
    if target.startswith("DynamoDB"):
        operation = target.partition(".")[2]
        return Request(
            "DynamoDB", operation, *_dynamo_units(operation, body, content), len(content)
        )
    if target.startswith("AmazonSQS"):
        kind = "SQS FIFO request" if b".fifo" in body else "SQS request"
        return Request("SQS", target.partition(".")[2], kind, 1, len(content))
    operation = (
        "LIST" if method == "GET" and "list-type" in parse_qs(urlsplit(path).query) else method
    )
    if operation == "DELETE" or (operation == "POST" and "delete" in path):
        return Request("S3", "DELETE", "", 0, len(content))
    kind = "S3 write" if operation in ("PUT", "POST", "LIST") else "S3 read"
    return Request("S3", operation, kind, 1, len(content))


def _dynamo_units(operation: str, body: bytes, content: bytes) -> tuple[str, float]:
    """Return what is charged for, from lengths of JSON: some more than Amazon's count of bytes."""
    asked: dict[str, Any] = json.loads(body or b"{}")
    if operation in ("GetItem", "Query", "Scan"):
        units = max(1, math.ceil(len(content) / (4 * _KILOBYTE)))
        return "DynamoDB read unit", units * (1 if asked.get("ConsistentRead") else 0.5)
    if operation == "TransactWriteItems":
        writes = 2 * sum(_kilobytes(part) for part in asked["TransactItems"])
    elif operation == "BatchWriteItem":
        writes = sum(_kilobytes(part) for parts in asked["RequestItems"].values() for part in parts)
    elif operation in ("PutItem", "UpdateItem", "DeleteItem"):
        writes = _kilobytes(asked.get("Item") or asked.get("ExpressionAttributeValues") or {})
    else:
        return "", 0
    return "DynamoDB write unit", writes


def _kilobytes(item: Any) -> int:
    return max(1, math.ceil(len(json.dumps(item)) / _KILOBYTE))


def told(requests: list[Request]) -> str:
    """Return how many requests there were of each operation, as a clause.

    >>> told([Request("S3", "GET", "", 0, 0)] * 2 + [Request("SQS", "X", "", 0, 0)])
    'S3 GET 2, SQS X 1'
    """
    counted = Counter((each.service, each.operation) for each in requests)
    return ", ".join(f"{service} {what} {n}" for (service, what), n in sorted(counted.items()))
