"""What format 2, deleted keys and changed columns cost, beside the same table without them.

Three tables have the same rows in the same files: of format 1, of format 2, and of format 2 with a
change. Rounds of the same work on each take turns, in one process; figures are medians of CPU
seconds, and ratios to format 1. Then a column is added to a table of many references.

    python -m bench.changes --rows 1000000 --references 100000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

import sleeper
from bench.open_table import make_table
from sleeper.tables.table import Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int32()),
        ("price", pa.float64()),
        ("note", pa.string()),
    ]
)
FILES = 4
RUNS = 5
HITS = 200


def rows(first: int, last: int, step: int) -> pa.Table:
    """Each `step`th number, so that files lie in each other."""
    ids = np.arange(first, last, step)
    numbers = np.random.default_rng(first).integers(0, 10_000, len(ids))
    columns = [ids, numbers.astype("i4"), numbers / 7, np.char.add("note ", numbers.astype("U5"))]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def made(instance: sleeper.Instance, name: str, row_count: int, *, format_2: bool) -> Table:
    """A table of four files that lie in each other."""
    table = instance.create_table(name, SCHEMA, row_keys=["id"])
    if not format_2:
        table.downgrade()
    for number in range(FILES):
        table.ingest(rows(number, row_count, FILES))
    return table


def works(row_count: int) -> dict[str, Callable[[Table], object]]:
    """What is measured on each table."""
    keys = np.random.default_rng(7).integers(0, row_count, HITS).tolist()
    return {
        f"{HITS} hits": lambda table: [table.query(key).to_arrow() for key in keys],
        "full scan": lambda table: sum(len(each) for each in table.query()),
        "scan of one column": lambda table: table.query(columns=["n"], ordered=False).to_arrow(),
        "ingest of 100,000 rows": lambda table: table.ingest(
            rows(row_count, row_count + 100_000, 1).rename_columns(table.columns[: len(SCHEMA)])
        ),
        "compaction of all files": lambda table: table.compact(all_files=True),
    }


def main(row_count: int = 1_000_000, references: int = 100_000) -> list[str]:
    """Measure, and return the lines of the report."""
    heads = ("format 1", "format 2", "a key deleted", "columns changed")
    lines = [f"{'CPU s, and ratio to format 1':28}" + "".join(f"{head:>18}" for head in heads)]
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
            instance = sleeper.connect(folder, create=True)
            tables = {
                head: made(instance, f"t{number}", row_count, format_2=bool(number))
                for number, head in enumerate(heads)
            }
            tables["a key deleted"].delete(key=row_count // 2)
            tables["columns changed"].alter(
                rename={"note": "remark"},
                widen={"n": pa.int64()},
                add=[pa.field("more", pa.int64())],
            )
            for work, run in works(row_count).items():
                for head, table in tables.items():
                    run_once = time.process_time()
                    run(table)
                    took = time.process_time() - run_once
                    found.setdefault(work, {}).setdefault(head, []).append(took)
    for work, by_head in found.items():
        base = median(by_head["format 1"])
        cells = [
            f"{median(by_head[head]):9.3f} ({median(by_head[head]) / base:4.2f})" for head in heads
        ]
        lines.append(f"{work:28}" + "".join(f"{cell:>18}" for cell in cells))
    return [*lines, *added_column(references)]


def added_column(references: int) -> list[str]:
    """A column is added to a table of many references."""
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        make_table(folder, references)
        instance = sleeper.connect(folder)
        table = instance.table("bench")
        before, opened = stored(folder), opening(folder)
        start, cpu = time.perf_counter(), time.process_time()
        table.alter(add=[pa.field("more", pa.int64())])
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        new = {name: size for name, size in stored(folder).items() if name not in before}
        return [
            f"a column added, {references:,} references: {wall:.3f} s, CPU {cpu:.3f} s; new:",
            *(f"    {name} {size:,} bytes" for name, size in sorted(new.items())),
            f"open and first key, CPU s: {opened:.3f} before, {opening(folder):.3f} after",
        ]


def stored(folder: str) -> dict[str, int]:
    """The objects of an instance, with their sizes."""
    found = (each for each in Path(folder).rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.stat().st_size for each in found}


def opening(folder: str) -> float:
    """CPU seconds to open a table and look up a key, the median of some handles."""
    took = []
    for _ in range(RUNS):
        start = time.process_time()
        with sleeper.connect(folder) as instance:
            assert len(instance.table("bench").query("a00000").to_pylist()) == 1
        took.append(time.process_time() - start)
    return median(took)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--references", type=int, default=100_000)
    options = parser.parse_args()
    print("\n".join(main(options.rows, options.references)))
