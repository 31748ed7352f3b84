"""Commits a second by state store: for 1, 4 and 16 writers, and for a committer of groups.

Each writer is a process that commits one small reference after the other. A commit that lost ten
races is tried again, and its time goes on. The last line of each store is one process that commits
groups of 64, as the committer does. All stores but the first are in a bucket, on one local server
that speaks S3 and DynamoDB: its times are not Amazon's, the ratios and the requests are.

    python -m bench.state_stores --seconds 4 --runs 3
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import sleeper
from bench.aws_server import aws_server, new_bucket, use
from bench.committer import SCHEMA, begin, peak_megabytes, ready, transactions, waits
from bench.counting_proxy import counting_proxy, told
from sleeper.errors import CommitContended

HERE = Path(__file__).parent.parent
GROUP = 64
CLASS = "sleeper.table.statestore.classname"
STORES = (
    "TransactionLogStateStore",
    "DynamoDBTransactionLogStateStore",
    "DynamoDBStateStore",
    "S3StateStore",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one table.

    Attributes:
        rate: Commits a second.
        p50_ms: How long half of them took at most.
        p99_ms: How long 99 of 100 took at most.
        lost: Share of commits that lost ten races.
        cpu_ms: CPU time of a commit, of all its writer did.
        peak_mb: Memory of the largest writer.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    lost: float
    cpu_ms: float
    peak_mb: float


def main(seconds: float = 4.0, runs: int = 3) -> list[str]:
    """Measure, and return the lines of the report."""
    heads = ("commits/s", "p50 ms", "p99 ms", "lost", "CPU ms", "peak MB")
    lines = [f"{'store':<34}{'writers':>8}" + "".join(f"{head:>11}" for head in heads)]
    with aws_server() as endpoint:
        for place, store in [("folder", STORES[0]), *(("bucket", each) for each in STORES)]:
            for writers in (1, 4, 16, 0):
                found = [measured(place, store, endpoint, writers, seconds) for _ in range(runs)]
                lines.append(line(f"{place}, {store.removesuffix('StateStore')}", writers, found))
                print(lines[-1], flush=True)
            if place == "bucket":
                lines.append(f"{'':<8}{counted(store)}")
                print(lines[-1], flush=True)
    return lines


def line(name: str, writers: int, found: list[Measured]) -> str:
    """Return the medians of several runs."""
    names = ("rate", "p50_ms", "p99_ms", "lost", "cpu_ms", "peak_mb")
    middle = [median(getattr(each, name) for each in found) for name in names]
    formats = (".0f", ".2f", ".1f", ".2%", ".2f", ".0f")
    figures = "".join(f"{value:>11{each}}" for value, each in zip(middle, formats, strict=True))
    return f"{name:<34}{writers or 'groups':>8}{figures}"


@contextmanager
def instance_url(place: str, store: str, endpoint: str) -> Iterator[str]:
    """Make an instance with the table `bench`."""
    with TemporaryDirectory(prefix="sleeper-bench-") as folder:
        url = folder if place == "folder" else f"s3://{new_bucket(endpoint)}/bench"
        identity = {"sleeper.id": f"bench-{uuid.uuid4().hex[:8]}"}
        with sleeper.create_instance(url, identity) as instance:
            properties = {CLASS: store}
            instance.create_table("bench", SCHEMA, row_keys=["key"], properties=properties)
        yield url


def measured(place: str, store: str, endpoint: str, writers: int, seconds: float) -> Measured:
    """Let so many processes commit against each other; one that commits groups for 0."""
    with instance_url(place, store, endpoint) as url:
        command = [sys.executable, "-m", "bench.state_stores", "--seconds", str(seconds), "--write"]
        size = "1" if writers else str(GROUP)
        processes = [
            subprocess.Popen(
                [*command, url, str(number), size],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=HERE,
            )
            for number in range(writers or 1)
        ]
        begin(*processes)
        outputs = [process.communicate()[0].splitlines() for process in processes]
    took = [float(ms) for _, times in outputs for ms in times.split()]
    each = [list(map(float, figures.split())) for figures, _ in outputs]
    committed = sum(figures[0] for figures in each)
    p50, p99, _ = waits(took)
    return Measured(
        rate=committed / seconds,
        p50_ms=p50,
        p99_ms=p99,
        lost=sum(figures[1] for figures in each) / len(took),
        cpu_ms=1000 * sum(figures[2] for figures in each) / committed,
        peak_mb=max(figures[3] for figures in each),
    )


def counted(store: str) -> str:
    """Return what `requests_of` returns, by a new process: its clients of AWS use the proxy."""
    command = [sys.executable, "-m", "bench.state_stores", "--count", store]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE).stdout[:-1]


def requests_of(store: str) -> str:
    """Return the requests of a commit and of a refresh that finds nothing new."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    with counting_proxy(endpoint) as proxy:
        use(proxy.endpoint)
        with instance_url("bucket", store, endpoint) as url, sleeper.connect(url) as instance:
            opened = instance.table("bench")._current().store
            wanted = transactions(opened.refresh().tree.root_id, "counted", 1)
            opened.commit(next(wanted))
            proxy.take()
            opened.commit(next(wanted))
            commit = proxy.take()
            opened.refresh()
            refresh = proxy.take()
    dollars = 1e6 * sum(request.dollars for request in commit)
    return f"a commit: {told(commit)} (${dollars:.2f} a million); nothing new: {told(refresh)}"


def write(url: str, name: str, size: int, seconds: float) -> None:
    """Commit in a loop; print figures, and how long each commit took in ms."""
    store = sleeper.connect(url).table("bench")._current().store
    wanted = transactions(store.refresh().tree.root_id, f"writer{name}", 1)
    ready()
    end, spent_s = perf_counter() + seconds, process_time()
    took, lost = [], 0
    while (start := perf_counter()) < end:
        group = [next(wanted) for _ in range(size)]
        while True:
            try:
                done = store.commit_group(group)
                break
            except CommitContended:
                lost += 1
        assert not any(done.refusals)
        took.append((perf_counter() - start) * 1000)
    spent_s = process_time() - spent_s
    print(size * len(took), lost, spent_s, peak_megabytes(os.getpid()))
    print(" ".join(f"{ms:.3f}" for ms in took))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", nargs=3, metavar=("URL", "NAME", "SIZE"))
    parser.add_argument("--count", metavar="STORE")
    chosen = parser.parse_args()
    if chosen.count:
        print(requests_of(chosen.count))
    elif chosen.write:
        write(chosen.write[0], chosen.write[1], int(chosen.write[2]), chosen.seconds)
    else:
        main(chosen.seconds, chosen.runs)
