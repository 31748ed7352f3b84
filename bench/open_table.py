"""From a cold process to the first answer: a table of 100,000 references, one key.

Each run is a new process: it imports Sleeper, connects, opens the table from its snapshot and
log, and looks up one key. The time of a process that only imports pyarrow stands beside it.

    python -m bench.open_table --references 100000
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import pyarrow as pa

import sleeper
from sleeper.model.files import FileReference
from sleeper.state.transactions.files import AddFiles

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
RUNS = 5
QUERY = """
import sleeper, sys
rows = sleeper.connect(sys.argv[1]).table("bench").query(key="a00000").to_pylist()
assert len(rows) == 1, rows
"""


def main(reference_count: int = 100_000) -> list[str]:
    """Measure, and return the lines of the report."""
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        make_table(folder, reference_count)
        lines = [f"{'process':44} {'wall s':>7} {'CPU s':>7}"]
        for name, code in (("import pyarrow, and no more", "import pyarrow"), ("query", QUERY)):
            wall, cpu = runs(code, folder)
            label = f"first query, {reference_count:,} references" if name == "query" else name
            lines.append(f"{label:44} {wall:7.2f} {cpu:7.2f}")
        return lines


def make_table(folder: str, reference_count: int) -> None:
    """A table with one real file, and many references that are only named."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    points = [a + b for a in letters for b in letters][1:]
    instance = sleeper.connect(folder, create=True)
    table = instance.create_table("bench", SCHEMA, row_keys=["key"], split_points=points)
    table.ingest([{"key": "a00000", "n": 1}])
    leaves = [leaf.partition_id for leaf in table.state().tree.leaves()][1:]
    store = table._current().store
    per_commit = 1_000
    for start in range(0, reference_count, per_commit):
        names = range(start, min(start + per_commit, reference_count))
        references = [
            FileReference(
                filename=f"data/partition_{leaves[n % len(leaves)]}/{n:036}.parquet",
                partition_id=leaves[n % len(leaves)],
                row_count=1_000_000,
            )
            for n in names
        ]
        store.commit(AddFiles(references=tuple(references)))


def runs(code: str, folder: str) -> tuple[float, float]:
    """Median seconds of wall time and CPU of a new process that runs `code`."""
    walls, cpus = [], []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        command = [sys.executable, "-c", code, folder]
        subprocess.run(command, check=True, cwd=Path(__file__).parent.parent)
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(walls), median(cpus)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--references", type=int, default=100_000)
    print("\n".join(main(parser.parse_args().references)))
