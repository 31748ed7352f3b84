"""What it costs to publish a table of many files: the first version, and one commit more.

The files are in the state alone, so this measures what a real table of as many files costs: to
publish reads no data file. Each format is measured in a fresh process; `again` is another process,
which knows nothing of what was published.

    PYTHONPATH=src python -m bench.publish --references 1000000
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any
from uuid import UUID

import pyarrow as pa

import sleeper
from sleeper.state.file_references import FileReferences
from sleeper.state.reference_rows import SCHEMA

LEAVES = 1_000
FORMATS = ("delta", "iceberg")
LIMITS = {"first, CPU": 10.0, "one more, CPU": 1.0, "to publish, MB": 1_000.0}
"""Seconds of CPU, and megabytes, at a million references."""


def make(url: str, reference_count: int) -> None:
    """Make a table whose state has so many references."""
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    leaves = min(LEAVES, reference_count)
    points = [f"user{leaf:06}" for leaf in range(1, leaves)]
    with sleeper.connect(url, create=True) as instance:
        table = instance.create_table("t", schema, row_keys=["key"], split_points=points)
        state = table.state()
        files = FileReferences.from_arrow(
            references([leaf.partition_id for leaf in state.leaf_partitions()], reference_count)
        )
        table._current().store.begin_with(replace(state, files=files))


def references(leaf_ids: list[str], count: int) -> pa.Table:
    """Return references with names, keys and sizes as ingest gives them, in the state's order."""
    bits = random.Random(1)
    each = count // len(leaf_ids)
    places = {leaf_id: place for place, leaf_id in enumerate(leaf_ids)}
    rows = [
        (leaf_id, f"data/partition_{leaf_id}/{_uuid(bits)}.parquet", f"user{places[leaf_id]:06}")
        for leaf_id in sorted(leaf_ids)
        for _ in range(each)
    ]
    rows.sort(key=lambda row: row[:2])
    total = len(rows)
    columns = {
        "filename": pa.array([name for _, name, _ in rows], pa.large_string()),
        "partition_id": pa.array([leaf_id for leaf_id, _, _ in rows]).dictionary_encode(),
        "row_count": pa.array([bits.randrange(1_000_000) for _ in rows], pa.int64()),
        "row_count_estimated": pa.repeat(pa.scalar(value=False), total),
        "whole_file": pa.repeat(pa.scalar(value=True), total),
        "updated": pa.repeat(pa.scalar(1_780_000_000_000_000, pa.int64()), total),
        "size_bytes": pa.array([bits.randrange(10**8) for _ in rows], pa.int64()),
        "schema_id": pa.repeat(pa.scalar(1, pa.int32()), total),
        "sequence": pa.array([bits.randrange(1, 3) for _ in rows], pa.int64()),
        "keys": pa.array([f'["{key}a"]\n["{key}z"]' for _, _, key in rows], pa.large_string()),
    }
    return pa.table(
        [
            columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(total, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def measure(url: str, name: str, *, is_again: bool) -> dict[str, float]:
    """Publish a table, add a row, and publish it again; return seconds, and megabytes."""
    with sleeper.connect(url) as instance:
        table = instance.table("t")
        table.refresh()
        opened_mb = _peak_mb()
        found: dict[str, float] = {}
        if not is_again:
            found |= _timed("first", lambda: table.publish(name))
        table.ingest([{"key": "user000500b", "n": 1}])
        title = "one more, new process" if is_again else "one more"
        found |= _timed(title, lambda: table.publish(name))
    return {**found, "to open, MB": opened_mb, "to publish, MB": _peak_mb()}


def _timed(title: str, call: Callable[[], Any]) -> dict[str, float]:
    began, cpu = perf_counter(), process_time()
    assert call().is_new
    return {title: perf_counter() - began, f"{title}, CPU": process_time() - cpu}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000


def _uuid(bits: random.Random) -> UUID:
    return UUID(int=bits.getrandbits(128))


def main(arguments: list[str]) -> int:
    """Measure each format; return 1 if a limit was passed at a million references."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--references", type=int, default=1_000_000)
    parser.add_argument("--measure", nargs=3, metavar=("URL", "FORMAT", "AGAIN"))
    asked = parser.parse_args(arguments)
    if asked.measure:
        url, name, again = asked.measure
        print(json.dumps(measure(url, name, is_again=again == "again")))
        return 0
    failed = False
    for name in FORMATS:
        with tempfile.TemporaryDirectory(prefix="bench-publish-") as folder:
            url = f"{folder}/instance"
            make(url, asked.references)
            for again in ("", "again"):
                command = [sys.executable, "-m", "bench.publish", "--measure", url, name, again]
                run = subprocess.run(command, check=True, capture_output=True, text=True)
                for title, figure in json.loads(run.stdout.splitlines()[-1]).items():
                    unit = "MB" if title.endswith("MB") else "s"
                    limit = LIMITS.get(title)
                    over = limit is not None and asked.references <= 1_000_000 and figure > limit
                    failed |= over
                    told = "" if limit is None else f"   (at most {limit:g} {unit})"
                    print(f"{name:8} {title:28} {figure:8.2f} {unit}{told}{' FAILED' * over}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
