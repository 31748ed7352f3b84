"""The web page of an instance with a large table: 10,000 leaves and 100,000 file references.

Each page is asked for cold, of a server that has read nothing yet, and then again.

    python -m bench.web_page --leaves 10000 --references 100000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from statistics import median
from urllib.request import urlopen

import pyarrow as pa

import sleeper
from sleeper.model.files import FileReference
from sleeper.state.transactions.files import AddFiles
from tools.screenshots import served

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
RUNS = 3
PAGES = {
    "instance": "/page",
    "table: tree, leaves, fields": "/page/tables/bench",
    "leaves, page 100": "/page/tables/bench?page=100",
    "rows: one key": "/page/tables/bench/rows?by=key&key0=k000000&ask=1",
    "history": "/page/tables/bench/history",
    "properties": "/page/tables/bench/properties",
    "maintenance": "/page/tables/bench/maintenance",
}


def main(leaves: int = 10_000, references: int = 100_000) -> list[str]:
    """Measure, and return the lines of the report."""
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        make_table(folder, leaves, references)
        lines = [f"{'page':32} {'cold s':>7} {'CPU s':>6} {'again s':>8} {'CPU s':>6} {'KiB':>5}"]
        for name, path in PAGES.items():
            with served(sleeper.connect(folder)) as url:
                times = [timed(url + path) for _ in range(RUNS + 1)]
            (cold, cold_cpu, size), *others = times
            again, cpu = (median(each[n] for each in others) for n in (0, 1))
            lines.append(
                f"{name:32} {cold:7.2f} {cold_cpu:6.2f} {again:8.2f} {cpu:6.2f} {size / 1024:5.0f}"
            )
        return lines


def timed(url: str) -> tuple[float, float, int]:
    """The seconds until a page is there, the seconds of CPU, and its size."""
    start, cpu = time.perf_counter(), time.process_time()
    with urlopen(url) as answer:
        size = len(answer.read())
    return time.perf_counter() - start, time.process_time() - cpu, size


def make_table(folder: str, leaves: int, references: int) -> None:
    """A table with one real file, and many references that are only named."""
    instance = sleeper.connect(folder, create=True)
    points = [f"k{n:06}" for n in range(1, leaves)]
    table = instance.create_table("bench", SCHEMA, row_keys=["key"], split_points=points)
    table.ingest([{"key": "k000000", "n": 1}])
    ids = [leaf.partition_id for leaf in table.state().tree.leaves()][1:]
    store = table._current().store
    per_commit = 1_000
    for start in range(0, references, per_commit):
        names = range(start, min(start + per_commit, references))
        added = [
            FileReference(
                filename=f"data/partition_{ids[n % len(ids)]}/{n:08}.parquet",
                partition_id=ids[n % len(ids)],
                row_count=1_000 + n % 977,
                size_bytes=20_000,
            )
            for n in names
        ]
        store.commit(AddFiles(references=tuple(added)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=10_000)
    parser.add_argument("--references", type=int, default=100_000)
    given = parser.parse_args()
    print("\n".join(main(given.leaves, given.references)))
