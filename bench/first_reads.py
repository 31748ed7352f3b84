"""What reads cost that compare pages with their checksums: the first read of pages, and later ones.

Five files of one leaf, whose rows interleave. Each question is asked by new processes, as pages are
checked once in a process; CPU time of all threads, imports and opening not counted. Give folders
with the sources of other versions to ask them side by side, each of files of its own.

    python -m bench.first_reads --rows 300000
    python -m bench.first_reads --rows 300000 --beside /path/to/older/src
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import pyarrow as pa

import sleeper

ROOT = Path(__file__).resolve().parent.parent
FILES = 5
RANGES = 40
RANGE_ROWS = 150
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("x", pa.float64()),
    ]
)
QUESTIONS = {
    "reads": ("first scan", "later scans"),
    "ranges": ("ranges of untouched pages", "the same ranges again"),
    "export": ("export",),
}


def main() -> None:
    """Print a line for each question, with a column for each version."""
    arguments = parsed()
    if arguments.ask:
        ASKED[arguments.ask](Path(arguments.folder), arguments.rows)
        return
    versions = [None, *arguments.beside]
    with tempfile.TemporaryDirectory(prefix="bench-first-reads-") as scratch:
        folders = [Path(scratch) / str(number) for number in range(len(versions))]
        for version, folder in zip(versions, folders, strict=True):
            asked("make", version, folder, arguments.rows)
        print(f"{'CPU ms, median':<28}" + "".join(f"{each or 'this':>16}" for each in versions))
        for question, names in QUESTIONS.items():
            runs: list[list[list[float]]] = [[] for _ in versions]
            for _ in range(arguments.runs):
                for number, version in enumerate(versions):
                    found = asked(question, version, folders[number], arguments.rows)
                    runs[number].append(found)
            for place, name in enumerate(names):
                figures = [median(run[place] for run in of_version) for of_version in runs]
                print(f"{name:<28}" + "".join(f"{figure:>16.2f}" for figure in figures))


def asked(question: str, version: str | None, folder: Path, row_count: int) -> list[float]:
    """Ask in a new process, and return its figures in milliseconds."""
    places = [*([version] if version else []), os.environ.get("PYTHONPATH", "")]
    arguments = ["--ask", question, "--folder", str(folder), "--rows", str(row_count)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.first_reads", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


def make(folder: Path, row_count: int) -> None:
    """Ingest five files."""
    table = sleeper.connect(folder, create=True).create_table("t", SCHEMA, row_keys=["key"])
    for number in range(FILES):
        table.ingest(rows(row_count, number))


def rows(count: int, number: int) -> pa.Table:
    """Return every fifth row, from `number` on."""
    places = np.arange(count) * FILES + number
    return pa.table(
        {
            "key": pa.array([f"user-{place:010}" for place in places.tolist()]),
            "n": pa.array(places * 7919 % 65537),
            "kind": pa.array([f"kind-{place % 50}" for place in places.tolist()]),
            "x": pa.array(places / 8),
        },
        schema=SCHEMA,
    )


def scans(folder: Path, _: int) -> None:
    """Read all rows, five times."""
    table = opened(folder)
    took = []
    for _ in range(5):
        started = process_time()
        for _ in table.query():
            pass
        took.append((process_time() - started) * 1000)
    print(took[0], min(took[1:]))


def ranges(folder: Path, row_count: int) -> None:
    """Read ranges here and there, the same ones twice; milliseconds of one."""
    table = opened(folder)
    whole = row_count * FILES
    places = [whole // (RANGES + 1) * number for number in range(1, RANGES + 1)]
    for _ in range(2):
        started = process_time()
        for place in places:
            ask(table, place)
        print((process_time() - started) * 1000 / RANGES)


def ask(table: sleeper.Table, place: int) -> None:
    """Read one range."""
    span = (f"user-{place:010}", f"user-{place + RANGE_ROWS:010}")
    assert table.query(range={"key": span}).to_arrow().num_rows == RANGE_ROWS


def export(folder: Path, _: int) -> None:
    """Export the table."""
    table = opened(folder)
    with tempfile.TemporaryDirectory() as out:
        started = process_time()
        table.export(Path(out) / "rows")
        print((process_time() - started) * 1000)


def opened(folder: Path) -> sleeper.Table:
    """Open the table, after a scan of another one, as the first plan of a process costs most."""
    other = sleeper.connect("memory://").create_table("t", SCHEMA, row_keys=["key"])
    for number in range(2):
        other.ingest(rows(30_000, number))
    for _ in other.query():
        pass
    table = sleeper.connect(folder).table("t")
    ask(table, 0)
    return table


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="of each file")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--beside", action="append", default=[], help="sources of another version")
    parser.add_argument("--ask", choices=ASKED)
    parser.add_argument("--folder")
    return parser.parse_args()


ASKED = {"make": make, "reads": scans, "ranges": ranges, "export": export}


if __name__ == "__main__":
    main()
