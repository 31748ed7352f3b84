"""What a key over REST costs the server, beside a constant answer of the same framework.

`sleeper server start` gets a key look-up in each request; FastAPI and uvicorn with one route that
reads the JSON and answers a constant of the same size get the same requests. Each runs in a
process of its own; one client keeps its connection. What is measured is the CPU of the server
(user and system, all threads), in turn.

    python -m bench.rest_key
    python -m bench.rest_key --before ../before        # and another checkout
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import pyarrow as pa

import sleeper
from bench.random_rows import SCHEMA, rows
from bench.server_process import server_process

ROWS = 200_000
ROUNDS = 3
REQUESTS = 400
HEADERS = {"Content-Type": "application/json"}

CONSTANT = """
import socket, sys
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response

app = FastAPI()
ANSWER = (
    b'{"transaction": 1, "rows": [{"key":"0123456789abcdef","ts":"2022-01-01T00:00:00.000000Z",'
    b'"value":"01234567890123456789012345678901234567890123456789","n":123456789012}]}'
)

@app.post("/sleeper/tables/t/query")
async def query(request: Request):
    await request.json()
    return Response(ANSWER, media_type="application/json")

opened = socket.create_server(("127.0.0.1", 0))
print(f"serving at http://127.0.0.1:{opened.getsockname()[1]}", file=sys.stderr, flush=True)
config = uvicorn.Config(
    app, http="h11", loop="asyncio", ws="none", log_config=None, access_log=False
)
uvicorn.Server(config).run(sockets=[opened])
"""


def main(before: Path | None = None, row_count: int = ROWS) -> list[str]:
    """Measure, and return the lines of the report."""
    folder = Path(tempfile.mkdtemp(prefix="sleeper-bench-"))
    try:
        instance = sleeper.connect(folder / "instance", create=True)
        table = instance.create_table("t", SCHEMA, row_keys=["key"])
        batches = list(rows(row_count, seed=1))
        table.ingest(pa.Table.from_batches(batches))
        keys = batches[0]["key"].to_pylist()[:REQUESTS]
        here = Path(__file__).resolve().parents[1]
        start = ["-m", "sleeper", "server", "start", "--listen", "127.0.0.1:0"]
        commands = {
            "a constant": (here, ["-c", CONSTANT]),
            **({} if before is None else {"a key, before": (before.resolve(), start)}),
            "a key": (here, start),
        }
        bodies = {
            "found": [json.dumps({"key": key}) for key in keys],
            "not there": [json.dumps({"key": key[:-1] + "~"}) for key in keys],
        }
        with ExitStack() as running:
            servers = {
                name: running.enter_context(_running(tree, command, instance.url))
                for name, (tree, command) in commands.items()
            }
            taken = _in_turn(servers, bodies)
    finally:
        shutil.rmtree(folder)
    lines = [f"{'CPU of the server':28} {'us a request':>12}  beside the constant"]
    for kind in bodies:
        floor = median(taken[kind, "a constant"])
        for name in commands:
            us = median(taken[kind, name])
            lines.append(f"{f'{name}, {kind}':28} {us:12,.0f}  {us / floor:.2f}")
    return lines


@contextmanager
def _running(
    tree: Path, command: Sequence[str], instance: str
) -> Iterator[tuple[int, http.client.HTTPConnection]]:
    """Run a server; its process and a connection to it."""
    environment = {**os.environ, "SLEEPER_INSTANCE": instance, "PYTHONPATH": str(tree / "src")}
    with server_process(command, environment) as (process, url):
        yield process, http.client.HTTPConnection(urlsplit(url).netloc)


def _in_turn(
    servers: dict[str, tuple[int, http.client.HTTPConnection]], bodies: dict[str, list[str]]
) -> dict[tuple[str, str], list[float]]:
    """Microseconds of a request, by kind and server; the first round is not counted."""
    taken: dict[tuple[str, str], list[float]] = {}
    for number in range(ROUNDS + 1):
        for kind, asked in bodies.items():
            for name, (process, connection) in servers.items():
                start = _cpu_s(process)
                for body in asked:
                    connection.request("POST", "/sleeper/tables/t/query", body, HEADERS)
                    answer = connection.getresponse()
                    content = answer.read()
                    assert answer.status == 200, content
                us = (_cpu_s(process) - start) / len(asked) * 1e6
                connection.close()  # a server closes one that waits for long
                if number:
                    taken.setdefault((kind, name), []).append(us)
    return taken


def _cpu_s(process: int) -> float:
    """CPU seconds of a process so far, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout")
    print("\n".join(main(parser.parse_args().before)))
