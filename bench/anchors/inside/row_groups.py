"""Makes a table whose only file has 128 row groups.

python -m bench.anchors.inside.row_groups FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

import sleeper
from bench.random_rows import SCHEMA, rows

GROUPS, ROWS = 128, 1_000

if __name__ == "__main__":
    instance = sleeper.connect(Path(sys.argv[1]) / "instance", create=True)
    instance.create_table(
        "t",
        SCHEMA,
        row_keys=["key"],
        sort_keys=["ts"],
        properties={"sleeper.table.parquet.rowgroup.rows.max": str(ROWS)},
    ).ingest(pa.Table.from_batches(rows(GROUPS * ROWS, seed=1), SCHEMA))
