"""Appends small batches to a table; prints CPU and fsyncs of each.

python -m bench.anchors.inside.appends SYSTEM FOLDER ROWS LEAVES
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter, process_time

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.system import System
from bench.peers.systems import system_class
from bench.random_rows import SCHEMA, rows, split_points

APPENDS = 12


class Syncs:
    """Counts what Python asks of the kernel; other code's syncs are not seen."""

    def __init__(self) -> None:
        self.count = 0
        self._fsync = os.fsync
        os.fsync = self._counted

    def _counted(self, descriptor: int) -> None:
        self.count += 1
        self._fsync(descriptor)


def main(name: str, folder: Path, row_count: int, leaves: int) -> None:
    folder.mkdir(parents=True)
    syncs = Syncs()
    paths = []
    for seed in range(APPENDS + 2):
        paths.append(folder / f"{seed}.parquet")
        pq.write_table(pa.Table.from_batches(rows(row_count, seed), SCHEMA), paths[-1])
    system = opened(name, folder, leaves)
    for path in paths[:2]:
        system.append(path)
    syncs.count = 0
    cpu, begun = process_time(), perf_counter()
    for path in paths[2:]:
        system.append(path)
    told = {
        "cpu_ms": (process_time() - cpu) * 1000 / APPENDS,
        "wall_ms": (perf_counter() - begun) * 1000 / APPENDS,
        "syncs": syncs.count / APPENDS,
    }
    print(json.dumps(told))


def opened(name: str, folder: Path, leaves: int) -> System:
    """A system with an empty table."""
    if name == "sleeper":
        import sleeper  # noqa: PLC0415 - a peer's process does not import it

        sleeper.connect(folder / "instance", create=True).create_table(
            "t", SCHEMA, row_keys=["key"], sort_keys=["ts"], split_points=split_points(leaves)
        )
    system = system_class(name)(folder)
    if name == "sleeper":
        system.open()
    else:
        system.begin()
    return system


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
