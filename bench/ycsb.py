"""YCSB's workloads A and F: rows are read and replaced by keys of which few are asked for often.

A reads a row or replaces one, half of each; F reads a row, or reads one and replaces it. Each
system has the same rows, and does the same operations one after the other, each committed before
the next. The systems take turns in parts, in one process; figures are medians of wall time, and
ratios to SQLite's, whose file is a local one of one process. Ours keeps old versions and its
history. It is compacted after each part, which is told by itself.

    python -m bench.ycsb --records 20000 --operations 300
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

import sleeper

FIELDS = 10
FIELD_BYTES = 100
PARTS = 3
ZIPF = 1.2
SCHEMA = pa.schema(
    [pa.field("key", pa.string(), nullable=False)]
    + [pa.field(f"field{n}", pa.string()) for n in range(FIELDS)]
)


def key_of(number: int) -> str:
    """Return YCSB's name of a record: neighbours in number are none in order."""
    return f"user{number * 2_654_435_761 % 2**32:010}"


def records(numbers: list[int], letter: str) -> pa.Table:
    """Return whole records, whose fields have a letter each."""
    fields = [[letter * FIELD_BYTES] * len(numbers)] * FIELDS
    return pa.table([[key_of(number) for number in numbers], *fields], schema=SCHEMA)


class Sleeper:
    """Ours, with an upsert for each record that is replaced."""

    def __init__(self, folder: Path, record_count: int) -> None:
        instance = sleeper.connect(folder / "sleeper", create=True)
        self.table = instance.create_table("t", SCHEMA, row_keys=["key"])
        self.table.ingest(records([*range(record_count)], "a"))

    def read(self, key: str) -> int:
        return self.table.query(key=key).to_arrow().num_rows

    def replace(self, number: int) -> None:
        self.table.upsert(records([number], "b"))

    def maintain(self) -> None:
        self.table.compact(all_files=True)


class SQLite:
    """A file with a write-ahead log, which is synced at each commit."""

    def __init__(self, folder: Path, record_count: int) -> None:
        self.db = sqlite3.connect(folder / "t.db")
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("pragma synchronous=full")
        names = ", ".join(SCHEMA.names[1:])
        self.db.execute(f"create table t (key text primary key, {names}) without rowid")
        self.marks = ", ".join("?" * len(SCHEMA))
        self._put([*range(record_count)], "a")

    def _put(self, numbers: list[int], letter: str) -> None:
        rows = [(key_of(each), *[letter * FIELD_BYTES] * FIELDS) for each in numbers]
        with self.db:
            self.db.executemany(f"insert or replace into t values ({self.marks})", rows)

    def read(self, key: str) -> int:
        return len(self.db.execute("select * from t where key = ?", (key,)).fetchall())

    def replace(self, number: int) -> None:
        self._put([number], "b")

    def maintain(self) -> None:
        self.db.execute("pragma wal_checkpoint(truncate)")


SYSTEMS: dict[str, Callable[[Path, int], Sleeper | SQLite]] = {"SQLite": SQLite, "Sleeper": Sleeper}
Times = dict[tuple[str, str, str], list[float]]
"""Seconds by workload, system and kind of operation."""


def asked_for(draw: np.random.Generator, record_count: int, count: int) -> list[int]:
    """Return numbers of records, of which few come often."""
    return ((draw.zipf(ZIPF, count) - 1) % record_count).tolist()


def run(system: Sleeper | SQLite, workload: str, numbers: list[int], writes: list[bool]) -> Times:
    """Do operations, and return how long each took."""
    found: Times = {}
    for number, is_write in zip(numbers, writes, strict=True):
        begun_s = time.perf_counter()
        if not is_write or workload == "F":
            assert system.read(key_of(number)) == 1
        if is_write:
            system.replace(number)
        kind = "read" if not is_write else "replace" if workload == "A" else "read and replace"
        found.setdefault((workload, type(system).__name__, kind), []).append(
            time.perf_counter() - begun_s
        )
    begun_s = time.perf_counter()
    system.maintain()
    found[workload, type(system).__name__, "upkeep"] = [time.perf_counter() - begun_s]
    return found


def main(record_count: int, operation_count: int) -> list[str]:
    """Measure, and return the lines of the report."""
    draw, times = np.random.default_rng(1), Times()
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        systems = [make(Path(folder), record_count) for make in SYSTEMS.values()]
        for workload in ("A", "F"):
            for _ in range(PARTS):
                numbers = asked_for(draw, record_count, operation_count // PARTS)
                writes = (draw.random(len(numbers)) < 0.5).tolist()
                for system in systems:
                    for name, took in run(system, workload, numbers, writes).items():
                        times.setdefault(name, []).extend(took)
    lines = [f"{record_count:,} records of {FIELDS * FIELD_BYTES:,} bytes; ms, and ratio to SQLite"]
    for (workload, system, kind), took in times.items():
        base = median(times[workload, "SQLite", kind])
        figures = f"{median(took) * 1000:10.3f} {median(took) / base:8.1f}"
        lines.append(f"{workload}  {system:8} {kind:17}{figures}  ({len(took)} times)")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--operations", type=int, default=300)
    options = parser.parse_args()
    print("\n".join(main(options.records, options.operations)))
