"""A table of very many leaves: CPU of making it, opening it, asking it, writing to it, planning.

python -m bench.anchors.inside.leaves make|open|write FOLDER LEAVES
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import pyarrow as pa

import sleeper

SCHEMA = pa.schema([pa.field("key", pa.string(), nullable=False), ("n", pa.int64())])
WRITTEN = 10
RANGE = 20
REPEATS = 200


def key(leaf: int, number: int = 0) -> str:
    """A key in a leaf."""
    return f"{leaf:08d}-{number:04d}"


def rows() -> pa.Table:
    """Rows for a few leaves, a hundred in each."""
    keys = [key(leaf, number) for leaf in range(1, WRITTEN + 1) for number in range(100)]
    return pa.table({"key": keys, "n": range(len(keys))}, schema=SCHEMA)


def cpu(work: Callable[[], object], times: int = 1) -> float:
    """CPU seconds of doing something, each time."""
    begun = process_time()
    for _ in range(times):
        work()
    return (process_time() - begun) / times


def import_all() -> None:
    """Use a small table, so that no module is loaded while something is measured."""
    with TemporaryDirectory() as folder:
        instance = sleeper.connect(folder, create=True)
        instance.create_table("t", SCHEMA, row_keys=["key"]).ingest(rows())
        table = sleeper.connect(folder).table("t")
        table.query(key=key(1)).to_arrow()
        table.query(range={"key": (key(1), key(3))}).to_arrow()
        table.plan_compaction()


def make(folder: Path, leaves: int) -> dict[str, float]:
    instance = sleeper.connect(folder, create=True)
    points = [f"{leaf:08d}" for leaf in range(1, leaves)]
    created = cpu(lambda: instance.create_table("t", SCHEMA, row_keys=["key"], split_points=points))
    instance.table("t").ingest(rows())
    return {"create_s": created}


def opened(folder: Path, _: int) -> dict[str, float]:
    """In a new process: open and first key, then keys and ranges of an open table."""
    begun = process_time()
    table = sleeper.connect(folder).table("t")
    assert table.query(key=key(5)).to_arrow().num_rows == 1
    first = process_time() - begun
    for number in range(5):
        table.query(key=key(3, number)).to_arrow()
    span = {"key": (f"{1:08d}", f"{1 + RANGE:08d}")}
    assert table.query(range=span).to_arrow().num_rows == WRITTEN * 100
    return {
        "open_s": first,
        "key_ms": 1000 * cpu(lambda: table.query(key=key(4, 7)).to_arrow(), REPEATS),
        "range_ms": 1000 * cpu(lambda: table.query(range=span).to_arrow(), REPEATS // 10),
    }


def write(folder: Path, _: int) -> dict[str, float]:
    """In a new process: ingest into few leaves, again, and plan a compaction of all leaves."""
    table = sleeper.connect(folder).table("t")
    first = cpu(lambda: table.ingest(rows()))
    again = cpu(lambda: table.ingest(rows()), 3)
    planned = cpu(table.plan_compaction)
    return {"first_s": first, "again_s": again, "plan_s": planned}


TASKS = {"make": make, "open": opened, "write": write}

if __name__ == "__main__":
    import_all()
    print(json.dumps(TASKS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))))
