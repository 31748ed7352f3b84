"""Exact keys through the whole public call, beside tuned DataFusion and DuckDB on the same files.

A table of 64 leaves with five files in each. One key: the peers are told which five files may
hold it, and have them open. Ten thousand keys in one call: DataFusion is asked leaf by leaf in
lists of twenty, the longest that it prunes by; DuckDB joins the keys with the files.

    python -m bench.lookup --rows 10000000 --leaves 64
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import datafusion
import duckdb
import pyarrow as pa

import sleeper
from bench.random_rows import SCHEMA, rows, split_points

FILES_PER_LEAF = 5
LOOK_UPS = 400
MANY_KEYS = 10_000


def main(row_count: int = 10_000_000, leaves: int = 64) -> list[str]:
    """Measure, and return the lines of the report."""
    folder = Path(tempfile.mkdtemp(prefix="sleeper-bench-"))
    try:
        table, keys = make_table(folder, row_count, leaves)
        return [*one_key(table, keys), "", *many_keys(table, keys)]
    finally:
        shutil.rmtree(folder)


def make_table(folder: Path, row_count: int, leaves: int) -> tuple[sleeper.Table, list[str]]:
    """Ingest five times, and return the table with keys that are in it."""
    instance = sleeper.connect(folder / "instance", create=True)
    table = instance.create_table(
        "bench", SCHEMA, row_keys=["key"], sort_keys=["ts"], split_points=split_points(leaves)
    )
    keys: list[str] = []
    for part in range(FILES_PER_LEAF):
        share = row_count // FILES_PER_LEAF
        table.ingest(pa.RecordBatchReader.from_batches(SCHEMA, rows(share, seed=part)))
        keys += next(rows(share, seed=part))["key"].to_pylist()[:5_000]
    random.Random(1).shuffle(keys)
    return table, keys


def one_key(table: sleeper.Table, keys: Sequence[str]) -> list[str]:
    """One key after the other, hits and misses; each runs in turn with its peers."""
    hits = keys[:LOOK_UPS]
    misses = [key[:-1] + "~" for key in hits]
    engines = {
        "sleeper": lambda key: table.query(key=key).to_arrow(),
        "DataFusion, tuned": _datafusion_one(table),
        "DuckDB": _duckdb_one(table),
    }
    lines = [f"{'one key, warm':24} {'p50 ms':>8} {'p99 ms':>8} {'CPU ms':>8}  rows"]
    reference = 0.0
    for kind, asked in (("hit", hits), ("miss", misses)):
        for name, look_up in engines.items():
            few = asked[:60] if name == "DuckDB" else asked
            p50, p99, cpu, found = _timed(look_up, few)
            assert found == (len(few) if kind == "hit" else 0), (name, kind, found)
            if name == "sleeper":
                reference = p50
            ratio = "" if name == "sleeper" else f"   ours / this {reference / p50:.2f}"
            lines.append(
                f"{kind + ', ' + name:24} {p50:8.2f} {p99:8.2f} {cpu:8.2f}  {found}{ratio}"
            )
    return lines


def many_keys(table: sleeper.Table, keys: Sequence[str]) -> list[str]:
    """Ten thousand keys in one call, three times each; the median."""
    asked = sorted(keys[:MANY_KEYS])
    engines = {
        "sleeper": lambda: table.query(keys=asked).to_arrow().num_rows,
        "DataFusion, tuned": lambda: _datafusion_many(table, asked),
        "DuckDB": lambda: _duckdb_many(table, asked),
    }
    lines = [f"{f'{len(asked):,} keys, one call':24} {'wall s':>8} {'CPU s':>8}  rows"]
    for name, look_up in engines.items():
        look_up()
        runs = []
        for _ in range(3):
            started, cpu = perf_counter(), process_time()
            found = look_up()
            runs.append((perf_counter() - started, process_time() - cpu))
        wall, cpu = sorted(runs)[1]
        lines.append(f"{name:24} {wall:8.2f} {cpu:8.2f}  {found}")
    return lines


def _timed(look_up: Callable[[str], pa.Table], keys: Sequence[str]) -> tuple[Any, ...]:
    for key in keys:
        look_up(key)
    took, found = [], 0
    cpu = process_time()
    for key in keys:
        started = perf_counter()
        answer = look_up(key)
        took.append((perf_counter() - started) * 1000)
        found += answer.num_rows
    cpu_ms = (process_time() - cpu) * 1000 / len(keys)
    took.sort()
    return median(took), took[len(took) * 99 // 100], cpu_ms, found


def _files_of_leaves(table: sleeper.Table) -> list[tuple[str, str | None, list[str]]]:
    state = table.state()
    root = f"{table._context.objects.url(table.table_id)}/"
    return [
        (
            leaf.region.ranges[0].min,
            leaf.region.ranges[0].max,
            [root + ref.filename for ref in state.files.references_on(leaf.partition_id)],
        )
        for leaf in state.tree.leaves()
    ]


def _context() -> datafusion.SessionContext:
    config = (
        datafusion.SessionConfig()
        .with_target_partitions(1)
        .set("datafusion.execution.parquet.pushdown_filters", "true")
        .set("datafusion.execution.parquet.max_predicate_cache_size", "0")
        .set("datafusion.execution.parquet.bloom_filter_on_read", "false")
        .set("datafusion.execution.collect_statistics", "true")
    )
    return datafusion.SessionContext(config)


def _registered(context: datafusion.SessionContext, table: sleeper.Table) -> list[Any]:
    leaves = []
    for place, (low, high, paths) in enumerate(_files_of_leaves(table)):
        names = []
        for number, path in enumerate(paths):
            names.append(f"t{place}_{number}")
            context.register_parquet(names[-1], path)
        leaves.append((low, high, names))
    return leaves


def _of(leaves: list[Any], key: str) -> list[str]:
    return next(names for low, high, names in leaves if low <= key and (not high or key < high))


def _datafusion_one(table: sleeper.Table) -> Callable[[str], pa.Table]:
    context = _context()
    leaves = _registered(context, table)

    def look_up(key: str) -> pa.Table:
        parts = [f"select * from {name} where key = '{key}'" for name in _of(leaves, key)]
        return context.sql(" union all ".join(parts)).to_arrow_table()

    return look_up


def _duckdb_one(table: sleeper.Table) -> Callable[[str], pa.Table]:
    connection = duckdb.connect(config={"threads": 1})
    leaves = _files_of_leaves(table)

    def look_up(key: str) -> pa.Table:
        query = f"select * from read_parquet({_of(leaves, key)}) where key = '{key}'"
        return connection.sql(query).to_arrow_table()

    return look_up


def _datafusion_many(table: sleeper.Table, keys: Sequence[str]) -> int:
    context = _context()
    found = 0
    for low, high, names in _registered(context, table):
        mine = [key for key in keys if low <= key and (not high or key < high)]
        for start in range(0, len(mine), 20):
            listed = ",".join(f"'{key}'" for key in mine[start : start + 20])
            parts = [f"select * from {name} where key in ({listed})" for name in names]
            found += context.sql(" union all ".join(parts)).to_arrow_table().num_rows
    return found


def _duckdb_many(table: sleeper.Table, keys: Sequence[str]) -> int:
    connection = duckdb.connect(config={"threads": 1})
    asked = pa.table({"key": keys})  # noqa: F841 - DuckDB finds it by its name
    paths = [path for _, _, paths in _files_of_leaves(table) for path in paths]
    query = f"select * from read_parquet({paths}) semi join asked using (key)"
    return int(connection.sql(query).to_arrow_table().num_rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--leaves", type=int, default=64)
    chosen = parser.parse_args()
    print("\n".join(main(chosen.rows, chosen.leaves)))
