"""Commits a second into a table in a folder, by one process and by sixteen at once.

Every writer is a process of its own that commits one small reference after the other, each as
durable as any commit: entry written, synced, linked, folder synced.

    python -m bench.commits --seconds 5
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import pyarrow as pa

import sleeper
from sleeper.model.files import FileReference
from sleeper.state.transactions.files import AddFiles

SCHEMA = pa.schema([("key", pa.string())])


def main(seconds: float = 5.0) -> list[str]:
    """Measure, and return the lines of the report."""
    heads = ("commits/s", "p50 ms", "p99 ms", "least", "most")
    lines = ["writers " + "".join(f"{head:>10}" for head in heads)]
    for writers in (1, 4, 16):
        with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
            instance = sleeper.connect(folder, create=True)
            instance.create_table("bench", SCHEMA, row_keys=["key"])
            lines.append(race(folder, writers, seconds))
    return lines


def race(folder: str, writers: int, seconds: float) -> str:
    """Let processes commit against each other."""
    command = [sys.executable, "-m", "bench.commits", "--writer", folder]
    started = [
        subprocess.Popen(
            [*command, str(number), "--seconds", str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        for number in range(writers)
    ]
    for process in started:  # all are ready before the first begins
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    took = [[float(ms) for ms in process.communicate()[0].split()] for process in started]
    every = sorted(ms for writer in took for ms in writer)
    counts = [len(writer) for writer in took]
    return (
        f"{writers:>7} {len(every) / seconds:>10.0f}{every[len(every) // 2]:>10.2f}"
        f"{every[len(every) * 99 // 100]:>10.1f}{min(counts):>10}{max(counts):>10}"
    )


def write(folder: str, number: str, seconds: float) -> None:
    """Commit for so many seconds, and print how long each commit took."""
    table = sleeper.connect(folder).table("bench")
    store = table._current().store
    root = store.refresh().tree.root_id
    print("ready", flush=True)
    sys.stdin.readline()
    end = perf_counter() + seconds
    took = []
    while (started := perf_counter()) < end:
        name = f"data/partition_root/{number}-{len(took)}.parquet"
        reference = FileReference(filename=name, partition_id=root, row_count=1)
        store.commit(AddFiles(references=(reference,)))
        took.append((perf_counter() - started) * 1000)
    print(" ".join(f"{ms:.3f}" for ms in took))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--writer", nargs=2, metavar=("FOLDER", "NUMBER"))
    chosen = parser.parse_args()
    if chosen.writer:
        folder, number = chosen.writer
        write(folder, number, chosen.seconds)
    else:
        print("\n".join(main(chosen.seconds)))
