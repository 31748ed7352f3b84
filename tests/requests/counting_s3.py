"""A server that speaks S3: it keeps objects in memory, delays each reply, and records requests.

It knows what Sleeper sends: GET with a range, HEAD, PUT with and without `If-None-Match`, uploads in
parts, DELETE of one object and of many, and listings. It checks no signatures. It runs in a thread,
and takes 0.1 to 0.2 ms of CPU a request. `bench.folder_bucket` is this server with a folder for a bucket.
`GET /_taken` returns as JSON what was asked since the last one, and is not counted.
`bench.counting_proxy` is another thing: it stands before servers of S3, DynamoDB and SQS that others
wrote, and knows what Amazon charges for each request.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import md5
from mmap import mmap
from threading import Lock, Thread
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


Body = bytes | mmap


@dataclass(slots=True)
class Stored:
    """The objects of one bucket, with times, and unfinished uploads by their ids."""

    bodies: MutableMapping[str, Body] = field(default_factory=dict)
    times: MutableMapping[str, float] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def put(self, key: str, body: bytes) -> None:
        """Store an object."""
        self.bodies[key], self.times[key] = body, float(int(time.time()))


class CountingS3:
    """The server. It listens on 127.0.0.1, and has every bucket that is asked for.

    Args:
        delay_s: How long each request waits before it is carried out.
        buckets: Buckets that hold something already.

    Attributes:
        delay_s: The same.
        endpoint: Its URL.
    """

    def __init__(self, delay_s: float, buckets: dict[str, Stored]) -> None:
        self.delay_s = delay_s
        self.endpoint = ""
        self._buckets = buckets
        self._lock = Lock()
        self._seen: list[Request] = []

    def take(self) -> Requests:
        """Return the requests since the last call."""
        with self._lock:
            taken, self._seen = self._seen, []
        return Requests(sorted(taken, key=lambda each: each.begun_s))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                begun_s = time.monotonic()
                method, target, _ = head[0].split(" ", 2)
                pairs = (line.partition(":") for line in head[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if target == "/_taken":
                    writer.write(_reply(method, self._taken()))
                    continue
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                operation, key, answer = self._answer(method, target, headers, body)
                sent = 0 if method == "HEAD" else len(answer.body)
                spanned = headers.get("range", "").removeprefix("bytes=")
                # Recorded before it is sent: who has the reply may ask for what was counted.
                with self._lock:
                    ended_s = time.monotonic()
                    self._seen.append(
                        Request(operation, key, spanned, answer.status, sent, begun_s, ended_s)
                    )
                writer.write(_reply(method, answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has hung up
        finally:
            writer.close()

    def _answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[str, str, _Answer]:
        """Carry out a request; return what it is, of which object, and its answer."""
        asked = urlsplit(target)
        query = dict(parse_qsl(asked.query, keep_blank_values=True))
        bucket, _, key = unquote(asked.path).lstrip("/").partition("/")
        stored = self._buckets.setdefault(bucket, Stored())
        if method in ("GET", "HEAD") and not key:
            return "LIST", query.get("prefix", ""), _listed(stored, query)
        if method in ("GET", "HEAD"):
            return method, key, _got(stored, key, headers.get("range", ""))
        if method == "PUT":
            return method, key, _put(stored, key, query, body, headers.get("if-none-match"))
        if method == "POST":
            operation = "DELETE" if "delete" in query else "POST"
            return operation, key, _posted(stored, key, query, body)
        if method == "DELETE":
            stored.bodies.pop(key, None)
            return method, key, _Answer(204)
        return method, key, _Answer(405)

    def _taken(self) -> _Answer:
        seen = self.take()
        counts = {
            "requests": len(seen),
            "round_trips": seen.round_trips,
            "bytes": seen.read_bytes,
            "missing": sum(each.status == 404 for each in seen.seen),
        }
        return _Answer(200, json.dumps(counts).encode())


@contextmanager
def counting_s3(
    delay_s: float = 0.0, buckets: dict[str, Stored] | None = None
) -> Iterator[CountingS3]:
    """Run a server."""
    counting, loop = CountingS3(delay_s, buckets or {}), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(counting.serve, "127.0.0.1", 0))
    counting.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield counting
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(_end_connections())
        loop.close()


async def _end_connections() -> None:
    """Cancel what still waits for a request of a client that is gone."""
    waiting = asyncio.all_tasks() - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int = 200
    body: Body = b""
    headers: tuple[tuple[str, str], ...] = ()


def _reply(method: str, answer: _Answer) -> bytes:
    """Return head and body; of HEAD the head alone, with the length that the body would have."""
    headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"HTTP/1.1 {answer.status} -\r\n{lines}\r\n".encode("latin-1")
    return head if method == "HEAD" else head + answer.body[:]


def _got(stored: Stored, key: str, asked: str) -> _Answer:
    body = stored.bodies.get(key)
    if body is None:
        return _error(404, "NoSuchKey")
    headers = (
        ("ETag", _etag_of(stored, key)),
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
    stored: Stored, key: str, query: dict[str, str], body: bytes, if_none_match: str | None
) -> _Answer:
    if "partNumber" in query:
        stored.uploads[query["uploadId"]][int(query["partNumber"])] = body
    elif if_none_match == "*" and key in stored.bodies:
        return _error(412, "PreconditionFailed")
    elif key:
        stored.put(key, body)
    return _Answer(headers=(("ETag", _etag(body)),))


def _posted(stored: Stored, key: str, query: dict[str, str], body: bytes) -> _Answer:
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


def _listed(stored: Stored, query: dict[str, str]) -> _Answer:
    """Return a page of a listing; with a delimiter, what is below one is named once."""
    prefix, pages_keys = query.get("prefix", ""), int(query.get("max-keys", 1000))
    delimiter = query.get("delimiter", "")
    after = query.get("continuation-token", query.get("start-after", ""))
    names = sorted(name for name in stored.bodies if name.startswith(prefix))
    begin = bisect_right(names, after) if after else 0
    page = names[begin : begin + pages_keys]
    more = begin + len(page) < len(names)
    below = {name for name in page if delimiter and delimiter in name[len(prefix) :]}
    folders = {prefix + name[len(prefix) :].partition(delimiter)[0] + delimiter for name in below}
    found = "".join(
        f"<Contents><Key>{escape(name)}</Key>"
        f"<LastModified>{time.strftime(_TIME, time.gmtime(stored.times[name]))}</LastModified>"
        f"<ETag>{escape(_etag_of(stored, name))}</ETag>"
        f"<Size>{len(stored.bodies[name])}</Size></Contents>"
        for name in page
        if name not in below
    )
    for folder in sorted(folders):
        found += f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
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


def _etag_of(stored: Stored, key: str) -> str:
    return f'"{stored.times[key]:.6f}-{len(stored.bodies[key])}"'
