"""Processes that append to one table at once, each some batches of 1,000 rows; nothing is retried.

python -m bench.anchors.inside.writers SYSTEM FOLDER WRITERS APPENDS
"""

from __future__ import annotations

import json
import sys
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.system import System
from bench.peers.systems import system_class
from bench.random_rows import SCHEMA, rows

ROWS = 1_000


def main(name: str, folder: Path, writers: int, appends: int) -> None:
    folder.mkdir(parents=True)
    system: System = system_class(name)(folder)
    system.begin()
    system.append(file_of(folder, writers * appends))
    context = get_context("spawn")
    ready, done, go = context.Queue(), context.Queue(), context.Event()
    processes = [
        context.Process(target=write, args=(name, folder, n, appends, ready, go, done))
        for n in range(writers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.get(timeout=120)
    begun = perf_counter()
    go.set()
    answers = [done.get(timeout=300) for _ in processes]
    wall = perf_counter() - begun
    for process in processes:
        process.join()
    acknowledged = sum(answer[0] for answer in answers)
    system.open()
    found = system.count_and_sum()[0]
    assert found >= (1 + acknowledged) * ROWS, f"lost: {found} rows of {acknowledged} appends"
    cpu = sum(answer[1] for answer in answers)
    told = {
        "acknowledged": acknowledged,
        "each_second": acknowledged / wall,
        "cpu_ms": 1000 * cpu / (writers * appends),
    }
    print(json.dumps(told))


def write(
    name: str, folder: Path, number: int, appends: int, ready: Any, go: Any, done: Any
) -> None:
    """One process: append each batch once."""
    system: System = system_class(name)(folder)
    paths = [file_of(folder, number * appends + n) for n in range(appends)]
    system.open()
    ready.put(number)
    go.wait()
    cpu, acknowledged = process_time(), 0
    for path in paths:
        try:
            system.append(path)
            acknowledged += 1
        except Exception as error:  # noqa: BLE001 - each system has its own; all are counted
            print(f"{name} {number}: {error!r}"[:200], file=sys.stderr)
            system.open()  # a refused handle stays behind
    done.put((acknowledged, process_time() - cpu))


def file_of(folder: Path, seed: int) -> Path:
    """Write one batch to a file."""
    path = folder / f"{seed}.parquet"
    pq.write_table(pa.Table.from_batches(rows(ROWS, seed), SCHEMA), path)
    return path


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
