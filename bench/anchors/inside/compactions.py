"""Makes the input of a compaction, and compacts it.

python -m bench.anchors.inside.compactions inputs INSTANCE FILES ROWS KIND
python -m bench.anchors.inside.compactions compact INSTANCE

Times are longs, as upstream has no timestamps. KIND: `plain`; `sums` (every file has the same
keys, and the table sums them); `age_off` (half of the rows are too old).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import sleeper
from bench.random_rows import SCHEMA as TIMED
from bench.random_rows import rows

SCHEMA = TIMED.set(TIMED.get_field_index("ts"), pa.field("ts", pa.int64(), nullable=False))
MIDDLE_MS = 1_650_000_000_000  # of the times that rows have
SUMS = "max(value),sum(n)"


def inputs(folder: Path, files: int, row_count: int, kind: str) -> None:
    """A table of one leaf with so many files; prints their paths, and what they are made for."""
    age_ms = int(time.time() * 1000) - MIDDLE_MS
    properties = {"sleeper.table.compaction.files.batch.size": str(files)}
    table = sleeper.connect(folder, create=True).create_table(
        "t", SCHEMA, row_keys=["key"], sort_keys=["ts"], properties=properties
    )
    for seed in range(files):
        batches = batches_of(row_count, seed, same_keys=kind == "sums")
        table.ingest(pa.RecordBatchReader.from_batches(SCHEMA, batches))
    if kind == "sums":
        table.set_properties({"sleeper.table.aggregations": SUMS})
    if kind == "age_off":
        table.set_properties({"sleeper.table.filters": f"ageOff(ts,{age_ms})"})
    upstream = {"sums": {"SUM": SUMS}, "age_off": {"AGE_OFF": f"ageOff(ts,{age_ms})"}}
    paths = sorted(str(path) for path in folder.rglob("*.parquet") if "data" in path.parts)
    assert len(paths) == files, paths
    print(json.dumps({"paths": paths, "environment": upstream.get(kind, {})}))


def batches_of(count: int, seed: int, *, same_keys: bool) -> Iterator[pa.RecordBatch]:
    """Random rows; where files share their keys, they share their times too."""
    for own, keys in zip(rows(count, seed), rows(count, 99 if same_keys else seed), strict=True):
        times = np.floor_divide(keys["ts"].cast(pa.int64()).to_numpy(), 1000)
        columns = [keys["key"], pa.array(times), own["value"], own["n"]]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def compact(folder: Path) -> None:
    """Compact all files into one; prints the rows read and written, and the new file's size."""
    before = set(folder.rglob("*.parquet"))
    done = sleeper.connect(folder).table("t").compact(all_files=True)
    assert not done.failed, done.failed
    (job,) = done.jobs
    (path,) = set(folder.rglob("*.parquet")) - before
    said = {"read": job.rows_read, "written": job.rows_written, "mb": path.stat().st_size / 1e6}
    print(json.dumps(said))


if __name__ == "__main__":
    if sys.argv[1] == "inputs":
        inputs(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        compact(Path(sys.argv[2]))
