"""Requests of each operation on a bucket, and what Amazon charges for a million of them.

A table with many leaves is read and written through a proxy that counts requests and lets each wait
for as long as one to S3 takes. The first instance is in a bucket, `s3://`, the others are in AWS,
`aws://`. Prices: `bench/counting_proxy.py`. Nothing is asked while the instance is idle, which the
last line shows.

    python -m bench.requests --rows 1000000 --leaves 16 --delay-ms 20
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from bench.aws_server import aws_server, new_bucket, use
from bench.counting_proxy import CountingProxy, counting_proxy, told
from bench.state_stores import CLASS, STORES
from sleeper.model.known_properties.given import PropertyValue
from sleeper.workers.open_worker import open_worker
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import WorkerSettings

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
TABLE = "bench"
HERE = Path(__file__).parent.parent
REPEATS = 10


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that is measured.

    Attributes:
        name: What it is.
        run: Does it, given how often it was done before.
        repeats: How often it is done.
        is_told: False for what comes once in a process, before the operation that is told.
    """

    name: str
    run: Callable[[int], object]
    repeats: int = REPEATS
    is_told: bool = True


def main(rows: int = 1_000_000, leaves: int = 16, delay_ms: float = 20.0) -> None:
    """Measure each store in a process of its own, and print the report."""
    command = [sys.executable, "-m", "bench.requests", "--rows", str(rows)]
    with aws_server():
        for store in STORES:
            more = ["--leaves", str(leaves), "--delay-ms", str(delay_ms), "--store", store]
            subprocess.run([*command, *more], check=True, cwd=HERE)


def measure(store: str, rows: int, leaves: int, delay_ms: float) -> None:
    """Measure one store on the server that the environment names."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    heads = f"{'requests':>10}{'ms':>9}{'$ a million':>13}"
    print(f"\n{store:<34}{heads}  of them")
    with (
        TemporaryDirectory(prefix="sleeper-bench-") as folder,
        counting_proxy(endpoint) as proxy,
    ):
        use(proxy.endpoint)
        url = f"aws://bench-{uuid.uuid4().hex[:8]}"
        if store == STORES[0]:
            url = f"s3://{new_bucket(endpoint)}/bench"
        made(url, store, rows, leaves)
        proxy.delay_s = delay_ms / 1000
        for operation in operations(url, Path(folder), rows):
            found = measured(operation, proxy)
            if operation.is_told:
                print(found, flush=True)
        proxy.take()
        sleep(5)
        print(f"{'  idle, for 5 seconds':<34}{len(proxy.take()):>10}")


def made(url: str, store: str, rows: int, leaves: int) -> None:
    """Make an instance, whose jobs are in SQS and DynamoDB, and fill its table."""
    properties: dict[str, PropertyValue | None] = {}
    if url.startswith("s3:"):
        properties = {"sleeper.id": f"bench-{uuid.uuid4().hex[:8]}", "sleeper.jobs.url": "sqs"}
    points = [key(rows * n // leaves) for n in range(1, leaves)]
    with sleeper.create_instance(url, properties) as instance:
        table = instance.create_table(
            TABLE, SCHEMA, row_keys=["key"], split_points=points, properties={CLASS: store}
        )
        table.ingest(pa.table({"key": [key(n) for n in range(rows)], "value": range(rows)}))


def key(number: int) -> str:
    """Return the key of a row; rows have even numbers only in their last digit's place."""
    return f"{number:012d}0"


def operations(url: str, folder: Path, rows: int) -> list[Operation]:
    """Return what is measured, in order; the table stays open after the first."""
    table = sleeper.connect(url).table(TABLE)
    instance = sleeper.connect(url)
    files = []
    for n in range(REPEATS + 1):
        files.append(folder / f"{uuid.uuid4()}.parquet")
        pq.write_table(pa.table({"key": [f"new-{n}"], "value": [n]}, schema=SCHEMA), files[-1])

    def first(_: int) -> None:
        with sleeper.connect(url) as opened:
            assert opened.table(TABLE).query(key=key(rows // 3)).to_pylist()

    return [
        Operation("open and first key", first, 3),
        Operation("first key of an open table", lambda _: table.query(key=key(5)).to_pylist(), 1),
        Operation("key that is there", lambda n: table.query(key=key(n * 17 + 3)).to_pylist()),
        Operation("key that is not", lambda n: table.query(key=f"{n * 17:012d}5").to_pylist()),
        Operation(
            "range of 100 rows",
            lambda n: table.query(range={"key": (key(n * 900), key(n * 900 + 100))}).to_pylist(),
        ),
        Operation("first ingest", lambda _: table.ingest(files[0]), 1, is_told=False),
        Operation("ingest of one row", lambda n: table.ingest(files[1 + n]), 3),
        Operation("first job", lambda _: send(instance, files[4]), 1, is_told=False),
        Operation("send an ingest job", lambda n: send(instance, files[5 + n]), 3),
        Operation("first job run", lambda _: work(instance, 1), 1, is_told=False),
        Operation("run an ingest job", lambda _: work(instance, 1), 3),
    ]


def send(instance: sleeper.Instance, file: Path) -> None:
    """Send an ingest job to its queue."""
    instance.jobs.submit_ingest(TABLE, str(file))


def work(instance: sleeper.Instance, jobs: int) -> None:
    """Run so many jobs of the ingest queue, as a worker does."""
    settings = WorkerSettings(wait_s=0, jobs_max=jobs)
    open_worker(instance, "ingest", settings, StopSignal()).run()


def measured(operation: Operation, proxy: CountingProxy) -> str:
    """Do something some times; return a line with the means."""
    proxy.take()
    begun_s = perf_counter()
    for n in range(operation.repeats):
        operation.run(n)
    took_ms = 1000 * (perf_counter() - begun_s) / operation.repeats
    seen = proxy.take()
    each = len(seen) / operation.repeats
    dollars = 1e6 * sum(request.dollars for request in seen) / operation.repeats
    figures = f"{each:>10.1f}{took_ms:>9.0f}{dollars:>13.2f}"
    return f"  {operation.name:<32}{figures}  all {operation.repeats}: {told(seen)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--leaves", type=int, default=16)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--store")
    chosen = parser.parse_args()
    if chosen.store:
        measure(chosen.store, chosen.rows, chosen.leaves, chosen.delay_ms)
    else:
        main(chosen.rows, chosen.leaves, chosen.delay_ms)
