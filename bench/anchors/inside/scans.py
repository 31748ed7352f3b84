"""Scans a table again and again in one process, batch by batch; prints its peak MB as it grows.

python -m bench.anchors.inside.scans INSTANCE TABLE TIMES
"""

from __future__ import annotations

import json
import resource
import sys

import sleeper


def peak_mb() -> float:
    """Largest resident size of this process until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(instance: str, name: str, times: int) -> None:
    table = sleeper.connect(instance).table(name)
    peaks, rows = [], set()
    for _ in range(times):
        rows.add(sum(batch.num_rows for batch in table.query()))
        peaks.append(peak_mb())
    assert len(rows) == 1, rows
    print(json.dumps({"first_mb": peaks[0], "half_mb": peaks[times // 2], "last_mb": peaks[-1]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
