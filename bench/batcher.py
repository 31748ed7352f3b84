"""How long the ingest batcher plans many files: `python -m bench.batcher --files 100000`."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sleeper.model.jobs.submitted_files import SubmittedFile
from sleeper.model.known_properties.typed import TableProperties
from sleeper.workers.kinds.batcher import batch_limits, plan_batches

NOW = datetime(2026, 6, 1, tzinfo=UTC)
GIB = 1 << 30
SIZES: dict[str, Callable[[random.Random], int]] = {
    "small, 100 in a job": lambda chance: chance.randrange(1 << 20),
    "of any size up to a job's": lambda chance: chance.randrange(5 * GIB),
    "no two fit together": lambda chance: chance.randrange(5 * GIB // 2 + 1, 5 * GIB),
    "a few large ones": lambda chance: int(5 * GIB * chance.random() ** 4),
}


def main(count: int) -> None:
    """Print the seconds of a plan for files of several kinds of sizes."""
    limits = batch_limits(TableProperties())
    print(f"{count:,} files")
    for name, size in SIZES.items():
        chance = random.Random(7)
        files = [
            SubmittedFile(
                table_id="t",
                path=f"bucket/{at}.parquet",
                size_bytes=size(chance),
                received=NOW - timedelta(hours=1),
                expires=NOW + timedelta(days=7),
            )
            for at in range(count)
        ]
        wall, busy = time.perf_counter(), time.process_time()
        batches = plan_batches(files, limits, NOW)
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        print(f"{name:28} {len(batches):7,} jobs {wall:6.3f} s, {busy:6.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    main(parser.parse_args().files)
