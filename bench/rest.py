"""The REST server beside the direct call: start, a key, requests a second, a scan, an ingest.

The server runs in a process of its own, on the same machine. A key is asked for by the Python
client, and by a client of HTTP that does nothing else; a scan comes as an Arrow stream.

    python -m bench.rest --rows 5000000
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

import sleeper
from bench.server_process import server_process

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
LOOK_UPS = 500
SECONDS = 3.0
SCANS = 5


def main(row_count: int = 5_000_000) -> list[str]:
    """Measure, and return the lines of the report."""
    folder = Path(tempfile.mkdtemp(prefix="sleeper-bench-"))
    try:
        instance = sleeper.connect(folder / "instance", create=True)
        table = instance.create_table("t", SCHEMA, row_keys=["id"])
        table.ingest(made(row_count))
        with running(instance.url) as (url, started_s), sleeper.connect(url, token=None) as remote:
            return [
                f"start of the server: {started_s:.2f} s",
                *one_key(table, remote.table("t"), url, row_count),
                *scans(table, remote.table("t")),
                *ingests(instance, remote, made(row_count // 5)),
            ]
    finally:
        shutil.rmtree(folder)


def made(row_count: int) -> pa.Table:
    """Rows with ascending keys."""
    ids = np.arange(row_count)
    numbers = np.random.default_rng(1).permutation(row_count)
    return pa.table(
        {"id": ids, "n": numbers, "text": pa.array(numbers % 9973).cast(pa.string())}, SCHEMA
    )


@contextmanager
def running(instance: str) -> Iterator[tuple[str, float]]:
    """Run a server; its URL, and the seconds until it answered."""
    arguments = ["-m", "sleeper", "server", "start", "--listen", "127.0.0.1:0"]
    started = perf_counter()
    with server_process(arguments, {**os.environ, "SLEEPER_INSTANCE": instance}) as (_, url):
        ask(url, "GET", "/sleeper/health")
        yield url, perf_counter() - started


def ask(url: str, method: str, path: str, body: str | None = None) -> bytes:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    content = connection.getresponse().read()
    connection.close()
    return content


def one_key(table: Any, remote: Any, url: str, row_count: int) -> list[str]:
    """p50 of one key, and requests a second of eight clients."""
    keys = np.random.default_rng(2).integers(0, row_count, LOOK_UPS).tolist()
    direct = median_us(lambda key: table.query(key=key).to_pylist(), keys)
    by_client = median_us(lambda key: remote.query(key=key).to_pylist(), keys)
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def by_http(key: int, own: http.client.HTTPConnection = connection) -> None:
        own.request(
            "POST",
            "/sleeper/tables/t/query",
            json.dumps({"key": key}),
            {"Content-Type": "application/json"},
        )
        answer = own.getresponse()
        assert answer.read().count(b'"id"') == 1

    plain = median_us(by_http, keys)
    counts = [0] * 8
    end = perf_counter() + SECONDS

    def run(client: int) -> None:
        own = http.client.HTTPConnection(urlsplit(url).netloc)
        while perf_counter() < end:
            by_http(keys[counts[client] % LOOK_UPS], own)
            counts[client] += 1
        own.close()

    threads = [threading.Thread(target=run, args=(client,)) for client in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection.close()
    return [
        (
            f"a key, p50: {direct:,.0f} us direct, {by_client:,.0f} us by sleeper.connect, "
            f"{plain:,.0f} us by HTTP as JSON"
        ),
        f"keys by HTTP from 8 clients: {sum(counts) / SECONDS:,.0f} requests a second",
    ]


def median_us(call: Callable[[int], object], keys: list[int]) -> float:
    """The median of calls, in microseconds."""
    taken = []
    for key in keys:
        started = perf_counter()
        call(key)
        taken.append(perf_counter() - started)
    return median(taken) * 1e6


def scans(table: Any, remote: Any) -> list[str]:
    """All rows, in turn."""
    rates: dict[str, list[float]] = {"direct": [], "by REST": []}
    for _ in range(SCANS):
        for name, each in (("direct", table), ("by REST", remote)):
            started = perf_counter()
            count = sum(batch.num_rows for batch in each.query())
            rates[name].append(count / (perf_counter() - started) / 1e6)
    direct, by_rest = (median(each) for each in rates.values())
    return [
        (
            f"a scan: {direct:.1f} million rows/s direct, {by_rest:.1f} as Arrow by REST "
            f"({by_rest / direct:.2f} of it)"
        )
    ]


def ingests(instance: Any, remote: Any, rows: pa.Table) -> list[str]:
    """The same rows, into a table each."""
    taken = {}
    for name, owner in (("direct", instance), ("by REST", remote)):
        table = owner.create_table(name, SCHEMA, row_keys=["id"])
        started = perf_counter()
        table.ingest(rows)
        taken[name] = rows.num_rows / (perf_counter() - started) / 1e6
    direct, by_rest = taken.values()
    return [f"an ingest: {direct:.1f} million rows/s direct, {by_rest:.1f} by REST"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    print("\n".join(main(parser.parse_args().rows)))
