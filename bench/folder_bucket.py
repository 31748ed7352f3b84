"""A bucket of the files in a folder: S3's GET, HEAD, LIST, PUT and DELETE, counted, with latency.

It runs in a thread of a process that does nothing else, so it takes little of the measured
process's time. A PUT may ask that the name is free; there are no uploads in parts. `/_taken`
returns what was asked since it was last asked: requests, round trips (the longest chain of
requests of which each began when the one before had ended), and bytes. That is not counted itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from threading import Thread
from time import perf_counter
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "b"
LIST_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was answered: when it came and was answered, and the bytes of its body."""

    kind: str
    begun_s: float
    ended_s: float
    sent_bytes: int


def round_trips(requests: list[Asked]) -> int:
    """Return the length of the longest chain of requests that waited for each other.

    >>> round_trips([Asked("GET", 0, 2, 0), Asked("GET", 1, 3, 0), Asked("GET", 2.5, 4, 0)])
    2
    """
    chain, free_from = 0, float("-inf")
    for each in sorted(requests, key=lambda request: request.ended_s):
        if each.begun_s >= free_from:
            chain, free_from = chain + 1, each.ended_s
    return chain


class FolderBucket:
    """The server's state.

    Args:
        root: The folder that is the bucket.
        delay_s: How long each request waits before it is answered.
    """

    def __init__(self, root: Path, delay_s: float = 0.0) -> None:
        self.root = root
        self.delay_s = delay_s
        self.endpoint = ""
        self._asked: list[Asked] = []

    def take(self) -> dict[str, float]:
        """Return what was asked since the last call."""
        taken, self._asked = self._asked, []
        return {
            "requests": len(taken),
            "round_trips": round_trips(taken),
            "bytes": sum(each.sent_bytes for each in taken),
            "missing": sum(each.kind == "missing" for each in taken),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                begun = perf_counter()
                method, target, _ = head[0].split(" ", 2)
                pairs = (line.partition(":") for line in head[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if target == "/_taken":
                    kind, answer = "", _response(200, json.dumps(self.take()).encode())
                else:
                    await asyncio.sleep(self.delay_s)
                    kind, answer = self._answer(method, target, headers, body)
                writer.write(answer)
                await writer.drain()
                if kind:
                    sent = len(answer) - answer.index(b"\r\n\r\n") - 4
                    self._asked.append(Asked(kind, begun, perf_counter(), sent))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[str, bytes]:
        url = urlsplit(target)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if not key:
            return "LIST", self._listing(parse_qs(url.query, keep_blank_values=True))
        path = self.root / key
        if method in ("PUT", "DELETE"):
            return method, _changed(path, method, headers, body)
        if method not in ("GET", "HEAD"):
            return "refused", _response(405, b"<Error><Code>MethodNotAllowed</Code></Error>")
        if not path.is_file():
            body = b"" if method == "HEAD" else b"<Error><Code>NoSuchKey</Code></Error>"
            return "missing", _response(404, body)
        size = path.stat().st_size
        about = _about(path)
        if method == "HEAD":
            return "HEAD", _response(200, b"", {**about, "Content-Length": str(size)})
        first, last, status = 0, size - 1, 200
        if "range" in headers:
            low, _, high = headers["range"].removeprefix("bytes=").partition("-")
            first = int(low) if low else max(0, size - int(high))
            last = min(size - 1, int(high)) if low and high else size - 1
            status = 206
            about["Content-Range"] = f"bytes {first}-{last}/{size}"
        with path.open("rb") as file:
            file.seek(first)
            return "GET", _response(status, file.read(last - first + 1), about)

    def _listing(self, asked: dict[str, list[str]]) -> bytes:
        prefix = asked.get("prefix", [""])[0]
        after = max(asked.get("start-after", [""])[0], asked.get("continuation-token", [""])[0])
        delimiter = asked.get("delimiter", [""])[0]
        most = min(LIST_MAX, int(asked.get("max-keys", [str(LIST_MAX)])[0]))
        folder = self.root / prefix.rpartition("/")[0]
        paths = folder.rglob("*") if folder.is_dir() else iter(())
        keys = sorted(path.relative_to(self.root).as_posix() for path in paths if path.is_file())
        found: list[str] = []
        groups: list[str] = []
        more = last = ""
        for key in keys:
            if not key.startswith(prefix) or key <= after:
                continue
            if len(found) + len(groups) == most:
                more = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
                break
            last = key
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                group = prefix + rest.partition(delimiter)[0] + delimiter
                groups += [group] if group not in groups else []
                continue
            known = (self.root / key).stat()
            at = datetime.fromtimestamp(known.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            found.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{at}</LastModified>"
                f"<ETag>&quot;{known.st_mtime_ns}&quot;</ETag><Size>{known.st_size}</Size></Contents>"
            )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in groups
        )
        body = (
            f'<?xml version="1.0"?><ListBucketResult><Name>{BUCKET}</Name>'
            f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
            f"<KeyCount>{len(found)}</KeyCount>{''.join(found)}{common}</ListBucketResult>"
        )
        return _response(200, body.encode(), {"Content-Type": "application/xml"})


@contextmanager
def folder_bucket(root: Path, delay_s: float = 0.0) -> Iterator[FolderBucket]:
    """Serve a folder on 127.0.0.1 while the block runs."""
    bucket, loop = FolderBucket(root, delay_s), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(bucket.serve, "127.0.0.1", 0))
    bucket.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield bucket
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(_end_connections(loop))
        loop.close()


async def _end_connections(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still waits for a request of a client that is gone."""
    waiting = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _changed(path: Path, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Write or delete a file."""
    if method == "DELETE":
        path.unlink(missing_ok=True)
        return _response(204, b"")
    if headers.get("if-none-match") == "*" and path.exists():
        return _response(412, b"<Error><Code>PreconditionFailed</Code></Error>")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return _response(200, b"", {"ETag": _about(path)["ETag"]})


def _about(path: Path) -> dict[str, str]:
    known = path.stat()
    return {
        "ETag": f'"{known.st_mtime_ns}"',
        "Last-Modified": formatdate(known.st_mtime, usegmt=True),
    }


def _response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    named = {"Content-Length": str(len(body)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} -\r\n{lines}\r\n".encode("latin-1") + body
