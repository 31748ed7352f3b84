"""Fills and frees the disk of an instance under a serve with jobs of several kinds: python full_disk.py ROUNDS.

Run where $FOLDER is a small file system of its own. It prints a document with what became of the
jobs. Input files are on another disk.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from sleeper.errors import StorageFull
from tests.any_order.killed_serve.served import Served
from tests.patience import becomes_true

ROWS = 60
JOBS_IN_A_ROUND = 10
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
PROPERTIES = {
    **dict.fromkeys(
        (
            "sleeper.ingest.queue.visibility.timeout.seconds",
            "sleeper.query.queue.visibility.timeout.seconds",
            "sleeper.bulk.export.queue.visibility.timeout.seconds",
        ),
        3,
    ),
    "sleeper.bulk.export.job.failed.visibility.timeout.seconds": 0,
    "sleeper.ingest.job.queue.wait.time": 1,
    "sleeper.jobs.receives.max": 1_000,
    "sleeper.jobs.retry.first.seconds": 0,
}
TABLE = {
    "sleeper.table.compaction.files.batch.size": 4,
    "sleeper.table.gc.delay.minutes": 1,
    "sleeper.table.partition.splitting.threshold": 1_000,
}


def fill(path: Path) -> None:
    """Write a file until not one byte is left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 18, 4_096, 512, 1):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break


def main(rounds: int) -> None:
    """Ask for jobs while the disk is full and while it is not, and wait until all have ended."""
    folder, draw = Path(os.environ["FOLDER"]), random.Random(rounds)
    filler, inputs = folder / "filler", Path(tempfile.mkdtemp())
    instance = sleeper.create_instance(folder / "i", PROPERTIES)
    table = instance.create_table("t", SCHEMA, row_keys=["id"], properties=TABLE)
    asked: dict[str, list[str]] = {"ingest": [], "query": [], "export": []}
    jobs, refused, served = instance.jobs, 0, Served(instance.url, inputs / "serve.log")
    try:
        for number in range(rounds * JOBS_IN_A_ROUND):
            if number % JOBS_IN_A_ROUND == 0:
                filler.unlink(missing_ok=True)
            if number % JOBS_IN_A_ROUND == JOBS_IN_A_ROUND // 2:
                fill(filler)
            path = inputs / f"{number}.parquet"
            ids = [f"{place * 7919 % 9973:04}-{number}" for place in range(ROWS)]
            pq.write_table(pa.table({"id": ids, "n": [*range(ROWS)]}, schema=SCHEMA), path)
            submits = {
                "ingest": (1.0, partial(jobs.submit_ingest, "t", path, f"j{number}")),
                "query": (0.3, partial(jobs.submit_query, "t")),
                "export": (0.2, partial(jobs.submit_export, "t")),
            }
            for kind, (likely, submit) in submits.items():
                if draw.random() < likely:
                    try:
                        asked[kind].append(submit())
                    except StorageFull:
                        refused += 1
            time.sleep(0.3)
        filler.unlink(missing_ok=True)
        assert becomes_true(
            lambda: all(
                jobs.job(job_id, kind=kind).state.value == "FINISHED"
                for kind, ids in asked.items()
                for job_id in ids
            )
        )
        depths = jobs.queue_depths().values()
        code = served.ask_to_end()
    finally:
        served.clean_up()
    seen = Counter(table.query().to_arrow()["id"].to_pylist())
    found = {
        "asked": {kind: len(ids) for kind, ids in asked.items()},
        "refused": refused,
        "lost": ROWS * len(asked["ingest"]) - len(seen),
        "doubled": seen.total() - len(seen),
        "left": sum(depth.ready + depth.hidden + depth.dead for depth in depths),
        "findings": [str(each) for one in instance.verify().tables for each in one.findings],
        "code": code,
        "failures": (inputs / "serve.log").read_text().count("Traceback"),
    }
    print(json.dumps(found))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(int(sys.argv[1]))
