"""Hot keys of a table in a bucket: look-ups with and without a disk cache, beside SlateDB.

A counting server is the bucket, and each request waits for as long as one to S3 takes. Both systems
have the same rows, and are asked for the same keys one after the other: evenly drawn ones, ones by
Zipf's law (0.99, as in YCSB), and ones that are not there. Ours may be a second old in each answer,
which is how often SlateDB looks for newer states by default. Each line is a process of its own:
without a cache, with an empty one, and with the one that the process before has filled. Shown are
the wall time of a look-up, its CPU, and the requests of all look-ups, without those that open.

    python -m bench.hot_keys --rows 1000000 --questions 1000
    python -m bench.hot_keys --systems sleeper        where slatedb is not installed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sleeper
from tests.requests.counting_s3 import counting_s3
from tests.requests.world import use

ROOT = Path(__file__).parent.parent
URL = "s3://hot/keys"
SCHEMA = pa.schema(
    [("key", pa.string()), ("ts", pa.int64()), ("value", pa.string()), ("n", pa.int64())]
)
WORKLOADS = ("zipf", "uniform", "missing")
CACHES = ("none", "empty", "filled")
ZIPF = 0.99
BATCH_ROWS = 10_000
WARM_UP = 3
"""Look-ups that come first and are not counted: they open files, and load code."""


def key_of(number: int) -> str:
    """Return a key of 16 characters; neighbours in number are none in order."""
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def questions(workload: str, row_count: int, count: int) -> list[str]:
    """Return the keys that are asked for."""
    draw = np.random.default_rng(7)
    if workload == "missing":
        return [key_of(int(n)) for n in draw.integers(row_count, 2**40, count)]
    if workload == "uniform":
        return [key_of(int(n)) for n in draw.integers(0, row_count, count)]
    weights = 1 / np.arange(1, row_count + 1) ** ZIPF
    ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), draw.random(count))
    return [key_of(int(n)) for n in draw.permutation(row_count)[ranks]]


# ---------------------------------------------------------------- systems


def load_sleeper(row_count: int) -> None:
    instance = sleeper.create_instance(URL)
    table = instance.create_table("t", SCHEMA, row_keys=["key"])
    numbers = range(row_count)
    keys, values = [key_of(n) for n in numbers], [f"{key_of(n)}{n:034x}" for n in numbers]
    table.ingest(pa.table([keys, numbers, values, numbers], schema=SCHEMA))


def ask_sleeper(keys: list[str], folder: str | None) -> list[tuple[float, int]]:
    """Return for each key how long the look-up took, and how many rows it found."""
    table = sleeper.connect(URL, cache_folder=folder).table("t")

    def ask(key: str) -> int:
        return table.query(key=key, max_age=1).to_arrow().num_rows

    return timed(ask, keys)


def timed(ask: Callable[[str], int], keys: list[str]) -> list[tuple[float, int]]:
    found = []
    for key in keys:
        begun_s = time.perf_counter()
        rows = ask(key)
        found.append((time.perf_counter() - begun_s, rows))
    return found


def slate() -> Any:
    """The binding of SlateDB, which need not be installed."""
    return import_module("slatedb.uniffi")


async def open_slate(folder: str | None) -> Any:
    binding = slate()
    settings = binding.Settings.default()
    if folder is not None:
        settings.set("object_store_cache_options.root_folder", json.dumps(folder))
    builder = binding.DbBuilder("keys", binding.ObjectStore.resolve("s3://slate"))
    builder.with_settings(settings)
    return await builder.build()


def load_slate(row_count: int) -> None:
    async def load() -> None:
        binding, db = slate(), await open_slate(None)
        for first in range(0, row_count, BATCH_ROWS):
            batch = binding.WriteBatch()
            for n in range(first, min(first + BATCH_ROWS, row_count)):
                row = n.to_bytes(8, "big") + f"{key_of(n)}{n:034x}".encode() + n.to_bytes(8, "big")
                batch.put(key_of(n).encode(), row)
            await db.write(batch)
        await db.flush_with_options(binding.FlushOptions(flush_type=binding.FlushType.MEM_TABLE))
        await db.shutdown()

    asyncio.run(load())


def ask_slate(keys: list[str], folder: str | None) -> list[tuple[float, int]]:
    async def ask() -> list[tuple[float, int]]:
        db, found = await open_slate(folder), []
        get: Callable[[bytes], Awaitable[bytes | None]] = db.get
        for key in keys:
            begun_s = time.perf_counter()
            value = await get(key.encode())
            found.append((time.perf_counter() - begun_s, value is not None))
        await db.shutdown()
        return found

    return asyncio.run(ask())


LOAD = {"sleeper": load_sleeper, "slatedb": load_slate}
ASK = {"sleeper": ask_sleeper, "slatedb": ask_slate}


# ---------------------------------------------------------------- processes


def serve(told: Connection, delay_s: float) -> None:
    """Serve until the other end is closed."""
    with counting_s3(delay_s) as server:
        told.send(server.endpoint)
        try:
            told.recv()
        except EOFError:
            return


@contextmanager
def bucket(delay_s: float) -> Iterator[None]:
    """Serve a bucket from a process of its own, and let processes of this one use it."""
    spawned = get_context("spawn")
    here, there = spawned.Pipe()
    process = spawned.Process(target=serve, args=(there, delay_s), daemon=True)
    process.start()
    there.close()

    class Server:
        endpoint = here.recv()

    use(Server, os.environ.__setitem__)  # type: ignore[arg-type]  # its endpoint is enough
    os.environ["AWS_ALLOW_HTTP"] = "true"
    try:
        yield
    finally:
        here.close()
        process.join()


def taken() -> dict[str, int]:
    """Return what was asked of the bucket since the last call."""
    with urllib.request.urlopen(f"{os.environ['AWS_ENDPOINT_URL']}/_taken") as answer:
        found: dict[str, int] = json.load(answer)
    return found


def child(phase: str, system: str, row_count: int, *more: str) -> dict[str, float]:
    """Do a phase in a process of its own, and return what it measured."""
    command = [sys.executable, "-m", "bench.hot_keys", "--phase", phase, "--systems", system]
    command += ["--rows", str(row_count), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{phase} of {system} failed:\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(system: str, row_count: int, workload: str, count: int, folder: str | None) -> None:
    """Ask for keys, and print what it took."""
    keys = questions(workload, row_count, count + WARM_UP)
    taken()
    begun_s = time.process_time()
    found = ASK[system](keys, folder)
    cpu_s, asked = time.process_time() - begun_s, taken()
    assert sum(rows for _, rows in found) == (0 if workload == "missing" else len(keys))
    times_ms = np.array([seconds for seconds, _ in found[WARM_UP:]]) * 1e3
    p50, p90, p99 = np.percentile(times_ms, [50, 90, 99])
    print(
        json.dumps(
            {
                "p50": p50,
                "p90": p90,
                "p99": p99,
                "cpu_ms": cpu_s * 1e3 / len(keys),
                "requests": asked["requests"] / len(keys),
                "kilobytes": asked["bytes"] / len(keys) / 1e3,
            }
        )
    )


def main() -> None:
    """Measure, and print the report."""
    asked = arguments()
    if asked.phase == "load":
        LOAD[asked.systems[0]](asked.rows)
        print("{}")
        return
    if asked.phase == "ask":
        measure(asked.systems[0], asked.rows, asked.workload, asked.questions, asked.folder)
        return
    missing = [name for name in asked.systems if name == "slatedb" and not find_spec("slatedb")]
    columns = ("p50", "p90", "p99", "cpu_ms", "requests", "kilobytes")
    print(f"{asked.rows:,} rows, {asked.questions:,} look-ups, {asked.delay_ms} ms a request")
    print(f"{'system':9}{'keys':9}{'cache':8}" + "".join(f"{each:>11}" for each in columns))
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as scratch:
        for system in (name for name in asked.systems if name not in missing):
            with bucket(asked.delay_ms / 1e3):
                child("load", system, asked.rows)
                for workload in WORKLOADS:
                    for cache in CACHES:
                        more = ["--workload", workload, "--questions", str(asked.questions)]
                        if cache != "none":
                            more += ["--folder", f"{scratch}/{system}-{workload}"]
                        found = child("ask", system, asked.rows, *more)
                        shown = "".join(f"{found[each]:11.2f}" for each in columns)
                        print(f"{system:9}{workload:9}{cache:8}{shown}", flush=True)
    for name in missing:
        print(f"{name} is not installed: requirements/peers.txt has it")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_keys")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--systems", nargs="+", choices=[*LOAD], default=[*LOAD])
    parser.add_argument("--phase", choices=["load", "ask"], help=argparse.SUPPRESS)
    parser.add_argument("--workload", choices=WORKLOADS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
