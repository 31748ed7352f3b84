"""A server that speaks S3: it keeps objects in memory, delays each reply, and records requests.

It knows what Sleeper sends: GET with a range, HEAD, PUT with and without `If-None-Match`, uploads in
parts, DELETE of one object and of many, and listings. It checks no signatures.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

WRITES = ("PUT", "POST", "LIST")
"""Operations with the price of a write; DELETE is free, all others have that of a read."""
DOLLARS_A_WRITE, DOLLARS_A_READ = 5.00e-6, 0.40e-6
_TIME = "%Y-%m-%dT%H:%M:%S.000Z"


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was answered.

    Attributes:
        operation: `GET`, `HEAD`, `PUT`, `POST`, `LIST` or `DELETE`.
        key: The object, or the prefix of a listing.
        bytes_range: The range of a GET, as its header says; empty without one.
        status: The status of the reply.
        sent_bytes: Length of the reply's body.
        begun_s: When it arrived, by a monotonic clock.
        ended_s: When the reply was sent.
    """

    operation: str
    key: str
    bytes_range: str
    status: int
    sent_bytes: int
    begun_s: float
    ended_s: float

    def __str__(self) -> str:
        """The request in a line, for messages of tests."""
        return f"{self.operation} {self.key} {self.bytes_range} {self.status} {self.sent_bytes}"


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one operation, in the order in which they arrived."""

    seen: Sequence[Request]

    @property
    def round_trips(self) -> int:
        """The length of the longest chain of requests of which each began after the one before."""
        ended_s, chain = float("-inf"), 0
        for request in sorted(self.seen, key=lambda each: each.ended_s):
            if request.begun_s >= ended_s:
                ended_s, chain = request.ended_s, chain + 1
        return chain

    @property
    def writes(self) -> int:
        """How many have the price of a write."""
        return sum(each.operation in WRITES for each in self.seen)

    @property
    def read_bytes(self) -> int:
        """How many bytes were received."""
        return sum(each.sent_bytes for each in self.seen)

    def __len__(self) -> int:
        return len(self.seen)

    def __str__(self) -> str:
        """All requests with the times at which they began and ended, a line each."""
        first_s = min((each.begun_s for each in self.seen), default=0.0)
        counted = Counter(each.operation for each in self.seen)
        lines = [", ".join(f"{name} {n}" for name, n in sorted(counted.items()))]
        for each in sorted(self.seen, key=lambda each: each.begun_s):
            begun_ms, ended_ms = (1000 * (s - first_s) for s in (each.begun_s, each.ended_s))
            lines.append(f"{begun_ms:7.1f} to {ended_ms:7.1f} ms  {each}")
        return "\n".join(lines)


@dataclass(slots=True)
class _Stored:
    """The objects of one bucket, with times, and unfinished uploads by their ids."""

    bodies: dict[str, bytes] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def put(self, key: str, body: bytes) -> None:
        self.bodies[key], self.times[key] = body, float(int(time.time()))


class CountingS3(ThreadingHTTPServer):
    """The server. It listens on 127.0.0.1, and has every bucket that is asked for.

    Attributes:
        delay_s: How long each request waits before it is carried out.
    """

    daemon_threads = True

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.delay_s = delay_s
        self.lock = Lock()
        self._buckets: dict[str, _Stored] = {}
        self._seen: list[Request] = []

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def bucket(self, name: str) -> _Stored:
        """Return what a bucket holds; hold `lock` meanwhile."""
        return self._buckets.setdefault(name, _Stored())

    def record(self, request: Request) -> None:
        """Remember a request."""
        with self.lock:
            self._seen.append(request)

    def take(self) -> Requests:
        """Return the requests since the last call."""
        with self.lock:
            taken, self._seen = self._seen, []
        return Requests(sorted(taken, key=lambda each: each.begun_s))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


@contextmanager
def counting_s3(delay_s: float = 0.0) -> Iterator[CountingS3]:
    """Run a server."""
    server = CountingS3(delay_s)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet for head and body
    server: CountingS3

    def _answer(self) -> None:
        begun_s = time.monotonic()
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        asked = urlsplit(self.path)
        query = dict(parse_qsl(asked.query, keep_blank_values=True))
        bucket, _, key = unquote(asked.path).lstrip("/").partition("/")
        if self.server.delay_s:
            time.sleep(self.server.delay_s)
        operation, answer = self.command, _Answer(405)
        with self.server.lock:
            stored = self.server.bucket(bucket)
            if self.command in ("GET", "HEAD") and not key:
                operation, key = "LIST", query.get("prefix", "")
                answer = _listed(stored, query)
            elif self.command in ("GET", "HEAD"):
                answer = _got(stored, key, self.headers.get("Range", ""))
            elif self.command == "PUT":
                answer = _put(stored, key, query, body, self.headers.get("If-None-Match"))
            elif self.command == "POST":
                operation = "DELETE" if "delete" in query else "POST"
                answer = _posted(stored, key, query, body)
            elif self.command == "DELETE":
                stored.bodies.pop(key, None)
                answer = _Answer(204)
        sent = answer.body if self.command != "HEAD" else b""
        spanned = self.headers.get("Range", "").removeprefix("bytes=")
        self.server.record(
            Request(operation, key, spanned, answer.status, len(sent), begun_s, time.monotonic())
        )
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - names of the base class

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _got(stored: _Stored, key: str, asked: str) -> _Answer:
    body = stored.bodies.get(key)
    if body is None:
        return _error(404, "NoSuchKey")
    headers = (
        ("ETag", _etag(body)),
        ("Last-Modified", formatdate(stored.times[key], usegmt=True)),
    )
    if not asked:
        return _Answer(200, body, headers)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    begin = int(first) if first else max(0, len(body) - int(last))
    end = min(len(body), int(last) + 1) if first and last else len(body)
    if begin >= len(body):
        return _error(416, "InvalidRange")
    spanned = f"bytes {begin}-{end - 1}/{len(body)}"
    return _Answer(206, body[begin:end], (*headers, ("Content-Range", spanned)))


def _put(
    stored: _Stored, key: str, query: dict[str, str], body: bytes, if_none_match: str | None
) -> _Answer:
    if "partNumber" in query:
        stored.uploads[query["uploadId"]][int(query["partNumber"])] = body
    elif if_none_match == "*" and key in stored.bodies:
        return _error(412, "PreconditionFailed")
    elif key:
        stored.put(key, body)
    return _Answer(headers=(("ETag", _etag(body)),))


def _posted(stored: _Stored, key: str, query: dict[str, str], body: bytes) -> _Answer:
    if "delete" in query:
        deleted = ""
        for found in ET.fromstring(body).iter():
            if found.tag.rpartition("}")[2] == "Key":
                stored.bodies.pop(found.text or "", None)
                deleted += f"<Deleted><Key>{escape(found.text or '')}</Key></Deleted>"
        return _xml("DeleteResult", deleted)
    if "uploads" in query:
        upload = f"upload-{len(stored.uploads)}"
        stored.uploads[upload] = {}
        return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
    parts = stored.uploads[query["uploadId"]]
    joined = b"".join(parts[number] for number in sorted(parts))
    stored.put(key, joined)
    etag = escape(_etag(joined))
    return _xml("CompleteMultipartUploadResult", f"<Key>{escape(key)}</Key><ETag>{etag}</ETag>")


def _listed(stored: _Stored, query: dict[str, str]) -> _Answer:
    """Return a page of a listing, without a delimiter."""
    prefix, pages_keys = query.get("prefix", ""), int(query.get("max-keys", 1000))
    after = query.get("continuation-token", query.get("start-after", ""))
    names = sorted(name for name in stored.bodies if name.startswith(prefix))
    begin = bisect_right(names, after) if after else 0
    page = names[begin : begin + pages_keys]
    more = begin + len(page) < len(names)
    found = "".join(
        f"<Contents><Key>{escape(name)}</Key>"
        f"<LastModified>{time.strftime(_TIME, time.gmtime(stored.times[name]))}</LastModified>"
        f"<ETag>{escape(_etag(stored.bodies[name]))}</ETag>"
        f"<Size>{len(stored.bodies[name])}</Size></Contents>"
        for name in page
    )
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
    head = f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
    return _xml("ListBucketResult", f"{head}{truncated}{token}{found}")


def _xml(name: str, content: str, status: int = 200) -> _Answer:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}>{content}</{name}>'
    return _Answer(status, text.encode(), (("Content-Type", "application/xml"),))


def _error(status: int, code: str) -> _Answer:
    return _xml("Error", f"<Code>{code}</Code><Message>{code}</Message>", status)


def _etag(body: bytes) -> str:
    return f'"{md5(body, usedforsecurity=False).hexdigest()}"'
