"""From a cold process to the first answer: a table of 100,000 references, one key.

Each run is a new process: it imports Sleeper, connects, opens the table from its snapshot and
log, and looks up one key. The time of a process that only imports pyarrow stands beside it.

With `--entries`, of tables whose logs have so many entries: CPU of what
reads the log's end. All entries but the last thousand change nothing and are written directly, each
with the digest of the one before; the last ones are ingests, compactions and deleted garbage.

With `--transactions`, the memory of a process that changes a small table and reads it after each
change, a compaction after every twentieth: anonymous resident MB, ten times on the way.

    python -m bench.open_table --references 100000
    python -m bench.open_table --entries 1000 --entries 1000000
    python -m bench.open_table --transactions 10000
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from uuid import uuid4

import pyarrow as pa

import sleeper
from sleeper.model.files import FileReference
from sleeper.state.log_entry import LogEntry, encode_entry, entry_digest
from sleeper.state.log_store import TransactionLogStateStore
from sleeper.state.snapshot import snapshot_parts
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import (
    AddFiles,
    Claim,
    ClaimFiles,
    DeleteFiles,
    RenewClaims,
    ReplaceFiles,
)

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
RUNS = 5
TAIL = 1_000
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


def long_log(entry_counts: Sequence[int]) -> list[str]:
    """Measure logs of so many entries, and return the lines of the report."""
    lines = [f"{'entries':>10} {'open':>8} {'history(50)':>12} {'kept versions':>14}  CPU ms"]
    for count in entry_counts:
        with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
            make_long_log(folder, count)
            command = [sys.executable, "-m", "bench.open_table", "--read-log", folder]
            done = subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                cwd=Path(__file__).parent.parent,
            )
            opened, history, kept = map(float, done.stdout.split())
            lines.append(f"{count:>10,} {opened:8.1f} {history:12.1f} {kept:14.1f}")
    return lines


def read_log(folder: str) -> None:
    """Open a table and read its history; print the CPU milliseconds of each."""
    with tempfile.TemporaryDirectory() as other:  # no module is loaded while something is measured
        small = sleeper.connect(other, create=True).create_table("t", SCHEMA, row_keys=["key"])
        small.history()
        small.references()
    begun = time.process_time()
    table = sleeper.connect(folder).table("bench")
    table.references()
    figures = [time.process_time() - begun]
    figures += [cpu_of(lambda: table.history(50)), cpu_of(table.kept_versions)]
    print(*(1000 * each for each in figures))


def cpu_of(work: Callable[[], object]) -> float:
    """Median CPU seconds of several calls."""
    seconds = []
    for _ in range(RUNS):
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    return median(seconds)


def read_changes(count: int) -> list[str]:
    """Change a table so often, read it after each change; return the lines of the report."""
    lines = [f"{'transactions':>12} {'files':>6} {'MB':>8}"]
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        made = sleeper.connect(folder, create=True)
        writer = made.create_table("bench", SCHEMA, row_keys=["key"])
        table = sleeper.connect(folder).table("bench")
        for number in range(count):
            key = f"{number % 1000:08d}"
            writer.ingest([{"key": key, "n": number}])
            if number % 20 == 19:
                writer.compact(all_files=True)
            assert table.query(key=key).to_arrow().num_rows
            assert table.query(range={"key": (key, f"{key}x")}).to_arrow().num_rows
            if number % (count // 10) == 0:
                files = len(table.references())
                lines.append(f"{table.refresh():>12,} {files:>6} {anonymous_mb():8.1f}")
    return lines


def anonymous_mb() -> float:
    """Return this process's anonymous resident memory, on Linux."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) / 1024


def make_long_log(folder: str, count: int) -> None:
    """A table whose log has so many entries."""
    table = sleeper.connect(folder, create=True).create_table("bench", SCHEMA, row_keys=["key"])
    opened = table._current()
    store, state = opened.store, opened.store.refresh()
    assert isinstance(store, TransactionLogStateStore)
    while state.number < count - TAIL:
        entry = LogEntry(
            entry_id=str(uuid4()),
            at=state.next_entry_time(datetime.now(UTC)),
            transactions=(RenewClaims(job_ids=(str(uuid4()),)),),
            format=state.format,
            prev=state.digest,
        )
        body = encode_entry(entry, opened.schema, new_id=lambda: str(uuid4()))
        number = state.number + 1
        name = Path(folder) / table.table_id / f"statestore/transactions/{number:020d}.json"
        name.write_bytes(body)
        digest = entry_digest(body) if state.format > 1 else None
        state = replace(state, number=number, at=entry.at, digest=digest)
        if number % 1000 == 0 or number == count - TAIL:
            store.snapshots.save(number, snapshot_parts(state, opened.schema))
    store = sleeper.connect(folder).table("bench")._current().store
    leaf = store.refresh().leaf_partitions()[0].partition_id
    live: list[str] = []
    while (state := store.refresh()).number < count:
        name, job = f"data/partition_{leaf}/{uuid4()}.parquet", str(uuid4())
        new = FileReference(filename=name, partition_id=leaf, row_count=100 * max(1, len(live)))
        if len(live) < 11:
            committed = CommittedJob(
                job_id=job,
                keep_until=datetime.now(UTC) + timedelta(days=1),
                rows_read=100,
                rows_written=100,
            )
            store.commit(AddFiles(references=(replace(new, row_count=100),), job=committed))
            live.append(name)
            continue
        claim = Claim(job_id=job, partition_id=leaf, filenames=tuple(live))
        store.commit(ClaimFiles(assignments=(claim,)))
        store.commit(ReplaceFiles(job_id=job, inputs=tuple(live), output=new))
        store.commit(DeleteFiles(filenames=tuple(live)))
        live = [name]


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
    parser.add_argument("--entries", type=int, action="append", help="repeat for more sizes")
    parser.add_argument("--transactions", type=int, help="change and read a small table so often")
    parser.add_argument("--read-log", metavar="FOLDER", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.read_log:
        read_log(chosen.read_log)
    elif chosen.transactions:
        print("\n".join(read_changes(chosen.transactions)))
    elif chosen.entries:
        print("\n".join(long_log(chosen.entries)))
    else:
        print("\n".join(main(chosen.references)))
