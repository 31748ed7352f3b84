"""What reading costs beside replaced and deleted rows, until a compaction takes the old ones out.

Four tables have the same rows, in four files that lie in each other: as they are, with a tenth and
a fifth of the rows replaced by one upsert, and with a tenth deleted by a list of keys, all over the
table. Rounds of the same reading of each take turns, in one process; figures are medians of CPU
milliseconds, and ratios to the table as it is.

    python -m bench.left_out_rows --rows 1000000 --key text
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
from bench.changes import FILES, rows
from bench.replaced_rows import new_rows
from sleeper.tables.table import Table

RUNS = 5


def keyed(table: pa.Table, key: str) -> pa.Table:
    """The rows with their numbers, or with texts of the same order."""
    if key == "number":
        return table
    texts = pa.array(np.char.mod("key%012d", table["id"].to_numpy()))
    return table.set_column(0, pa.field("id", pa.string(), nullable=False), texts)


def made(instance: sleeper.Instance, name: str, row_count: int, key: str) -> Table:
    table = instance.create_table(name, keyed(rows(0, 1, 1), key).schema, row_keys=["id"])
    for number in range(FILES):
        table.ingest(keyed(rows(number, row_count, FILES), key))
    return table


READINGS: dict[str, Callable[[Table], object]] = {
    "all rows in any order": lambda table: sum(map(len, table.query(ordered=False))),
    "all rows in key order": lambda table: sum(map(len, table.query())),
    "a column in any order": lambda table: sum(map(len, table.query(columns=["n"], ordered=False))),
    "a column in key order": lambda table: sum(map(len, table.query(columns=["n"]))),
    "count()": lambda table: table.count(),
}


def main(row_count: int, key: str) -> list[str]:
    """Measure, and return the lines of the report."""
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        instance = sleeper.connect(Path(folder), create=True)
        tables = {
            head: made(instance, f"t{number}", row_count, key)
            for number, head in enumerate(("as it is", "10 % replaced", "20 %", "10 % deleted"))
        }
        tables["10 % replaced"].upsert(keyed(new_rows(row_count, row_count // 10), key))
        tables["20 %"].upsert(keyed(new_rows(row_count, row_count // 5), key))
        tables["10 % deleted"].delete(keys=keyed(new_rows(row_count, row_count // 10), key)["id"])
        costs: dict[tuple[str, str], list[float]] = {}
        for _ in range(RUNS):
            for what, read in READINGS.items():
                for head, table in tables.items():
                    begun = time.process_time()
                    read(table)
                    costs.setdefault((what, head), []).append(time.process_time() - begun)
    lines = [f"{row_count:,} rows, row key a {key}".ljust(36) + "".join(f"{h:>20}" for h in tables)]
    for what in READINGS:
        base = median(costs[what, "as it is"])
        found = [(median(costs[what, head]), median(costs[what, head]) / base) for head in tables]
        lines.append(f"{what:36}" + "".join(f"{1e3 * s:12.1f} {ratio:7.2f}" for s, ratio in found))
    return lines


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--rows", type=int, default=1_000_000)
    asked.add_argument("--key", choices=("number", "text"), default="number")
    given = asked.parse_args()
    print("\n".join(main(given.rows, given.key)))
