"""What rows that change cost, beside the same work without: each line is two figures of one run.

1. a commit in format 2, beside one in format 1
2. one deleted key of many rows: the entry, and hits of other keys, beside those before
3. an upsert of rows into ten times as many, beside an append of the same rows: of 1,000 keys, and
   of more that lie all over the table, follow each other, lie in blocks, or are new
4. a scan of which a fifth is hidden, by a range and by single keys, beside the scan before

Format 2 beside format 1, a changed column, and a column added to many references are in
`bench.changes`; a purge beside a compaction in `bench.purges`; peers in `bench.replaced_rows`.

    python -m bench.changed_rows --rows 100000
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
from bench.changes import made, rows
from sleeper.tables.table import Table

RUNS = 5
HITS = 100
COMMITS = 20
KEYS_OF_AN_ENTRY = 1_000
BLOCKS = 20


def seconds(work: Callable[[], object], runs: int = RUNS) -> float:
    """Return the median of the wall time of some work."""
    took = []
    for _ in range(runs):
        begun_s = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun_s)
    return median(took)


def line(what: str, before_s: float, after_s: float, more: str = "") -> str:
    """Return a line of the report."""
    ratio = after_s / before_s
    return f"{what:52}{before_s * 1000:10.2f}{after_s * 1000:10.2f}{ratio:8.2f}  {more}".rstrip()


def commits(instance: sleeper.Instance) -> str:
    """Commit one row in each format, in turn."""
    tables = [made(instance, f"commits{n}", 100, format_2=bool(n)) for n in (0, 1)]
    took: list[list[float]] = [[], []]
    for number in range(COMMITS):
        new = rows(1_000 + number, 1_001 + number, 1)
        for place, table in enumerate(tables):
            took[place].append(seconds(lambda: table.ingest(new), 1))  # noqa: B023 - it is called
    return line("ingest of a row: format 1, format 2", median(took[0]), median(took[1]))


def one_deleted_key(instance: sleeper.Instance, folder: Path, row_count: int) -> list[str]:
    """Delete one key, and look up others."""
    table = made(instance, "one", row_count, format_2=True)
    keys = np.random.default_rng(7).integers(1, row_count, HITS).tolist()

    def hits() -> None:
        for key in keys:
            table.query(key).to_arrow()

    hits()
    before_s, known = seconds(hits), stored(folder)
    delete_s = seconds(lambda: table.delete(key=0), 1)
    new = {name: size for name, size in stored(folder).items() if name not in known}
    after_s = seconds(hits)
    sizes = ", ".join(f"{size:,}" for size in new.values())
    deleted = f"a key of {row_count:,} rows deleted in {delete_s * 1000:.1f} ms"
    return [
        f"{deleted}: {len(new)} new objects, of {sizes} bytes",
        line(f"{HITS} hits elsewhere: before, after", before_s, after_s),
    ]


def upserts(instance: sleeper.Instance, row_count: int) -> list[str]:
    """Replace a tenth of the rows, and append as many."""
    few, many = min(KEYS_OF_AN_ENTRY, row_count // 10), row_count // 10
    block = max(1, many // BLOCKS)
    blocks = [
        rows(first, first + block, 1) for first in range(0, row_count, max(1, row_count // BLOCKS))
    ]
    works = {
        "all over a small one": (few, rows(0, few * 10, 10)),
        "all over it": (many, rows(0, many * 10, 10)),
        "in a row": (many, rows(many, many * 2, 1)),
        f"in {BLOCKS} blocks": (many, pa.concat_tables(blocks[:BLOCKS])),
        "new": (many, rows(many * 10, many * 11, 1)),
    }
    found = []
    for where, (key_count, new) in works.items():
        names = [f"{what} {where}".replace(" ", "-") for what in ("append", "upsert")]
        tables = [made(instance, name, key_count * 10, format_2=True) for name in names]
        append_s = seconds(lambda: tables[0].ingest(new), 1)  # noqa: B023 - it is called here
        upsert_s = seconds(lambda: tables[1].upsert(new), 1)  # noqa: B023
        what = f"{key_count:,} rows into {key_count * 10:,}: append, upsert"
        found.append(line(what, append_s, upsert_s, where))
    return found


def hidden_fifth(instance: sleeper.Instance, row_count: int) -> list[str]:
    """Scan tables of which a fifth is deleted, and lies in files."""
    by_range = made(instance, "range", row_count, format_2=True)
    few = KEYS_OF_AN_ENTRY * 5
    by_keys = made(instance, "keys", few, format_2=True)

    def scan(table: Table) -> pa.Table:
        return table.query().to_arrow()

    whole_s = [seconds(lambda: scan(table)) for table in (by_range, by_keys)]  # noqa: B023
    by_range.delete(range={"id": (row_count // 5, row_count // 5 * 2)})
    by_keys.delete(keys=[*range(0, few, 5)])
    assert scan(by_range).num_rows == row_count - row_count // 5
    assert scan(by_keys).num_rows == few - few // 5
    left_s = [seconds(lambda: scan(table)) for table in (by_range, by_keys)]  # noqa: B023
    return [
        line(f"scan of {row_count:,}: whole, a fifth hidden", whole_s[0], left_s[0], "a range"),
        line(f"scan of {few:,}: whole, a fifth hidden", whole_s[1], left_s[1], "1,000 keys"),
    ]


def stored(folder: Path) -> dict[str, int]:
    """Return the objects of an instance, with their sizes."""
    found = (each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.stat().st_size for each in found}


def main(row_count: int) -> list[str]:
    """Measure, and return the lines of the report."""
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as name:
        folder = Path(name)
        instance = sleeper.connect(folder, create=True)
        return [
            f"{'ms, medians, and the ratio of the second':52}",
            commits(instance),
            *one_deleted_key(instance, folder, row_count),
            *upserts(instance, row_count),
            *hidden_fifth(instance, row_count),
        ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    print("\n".join(main(parser.parse_args().rows)))
