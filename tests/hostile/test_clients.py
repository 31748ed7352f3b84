"""Clients that leave, stop or trickle leave a server as it was: open for others, and no larger."""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pyarrow as pa
import pytest

import sleeper
from sleeper.interfaces.page.mount import add_pages
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.request_limits import RequestLimits
from tests.patience import PATIENCE_S, becomes_true
from tests.soak import tries
from tests.unit.interfaces.rest.running_server import running_server

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts in /proc"),
]
BODY = b'{"format": "%s"}'
FORMS = (b"jsonl", b"csv", b"arrow", b"parquet")


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """A table whose answers are longer than what sockets hold."""
    with sleeper.create_instance(tmp_path_factory.mktemp("served") / "i") as opened:
        table = opened.create_table(
            "t", pa.schema([("id", pa.int64()), ("n", pa.float64())]), row_keys=["id"]
        )
        ids = np.arange(1_000_000)
        table.ingest({"id": ids, "n": np.random.default_rng(1).random(len(ids))})
        yield opened


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)


def request(path: str, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode() + body


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError


def settled(measure, most: int) -> int:
    """A figure when it is small enough, or when it never is."""
    becomes_true(lambda: measure() <= most)
    return measure()


def test_a_storm_of_clients_that_leave_in_streams_leaves_nothing_behind(instance):
    """Some read a little, some nothing, some reset the connection: files, threads, memory stay."""
    with running_server(make_app(instance, statement_bytes=None)) as url:

        def leave(count: int) -> None:
            for number in range(count):
                with connected(url) as opened:
                    body = BODY % FORMS[number % len(FORMS)]
                    opened.sendall(request("/sleeper/tables/t/query", body))
                    if number % 3:
                        opened.recv(1 << (number % 16))
                    if number % 2:
                        linger = struct.pack("ii", 1, 0)
                        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

        # given a server that has had such clients
        leave(24)
        time.sleep(1)
        files, threads, size = open_files(), threading.active_count(), resident()

        # when many more come and leave
        leave(tries(40, soak=4_000))

        # then it has no more files and threads, is not larger, and answers
        assert settled(open_files, files + 4) <= files + 4
        assert settled(threading.active_count, threads + 4) <= threads + 4
        assert settled(resident, size + (256 << 20)) <= size + (256 << 20)
        assert httpx.get(f"{url}/sleeper/health", timeout=PATIENCE_S).status_code == 200


@pytest.mark.parametrize("path", ["/sleeper/tables/t/query", "/page/sign-in"])
def test_bodies_that_trickle_keep_nobody_out(instance, path):
    """Each byte comes in time, and yet the whole does not: they end, and others are answered."""
    limits = RequestLimits(requests=8, idle_s=0.5, body_s=1.5)
    app = make_app(instance, limits=limits, statement_bytes=None)
    add_pages(app)
    with running_server(app) as url:
        # given as many requests as the server answers, whose bodies come byte by byte
        slow = [connected(url) for _ in range(limits.requests)]
        for opened in slow:
            opened.sendall(request(path, b"{", 10_000))
        began = time.monotonic()

        # when they trickle on, then soon others are answered
        status = 503
        while status == 503 and time.monotonic() - began < PATIENCE_S:
            for opened in slow:
                try:
                    opened.sendall(b" ")
                except OSError:
                    continue
            time.sleep(0.2)
            status = httpx.get(f"{url}/sleeper/health", timeout=PATIENCE_S).status_code
        for opened in slow:
            opened.close()

    assert status == 200
