"""Ingest jobs of 1,000 rows through queue and worker, beside the same ingests called directly.

First in one process: what a job costs in CPU more than the ingest that it is. Then with 1 and 4
worker processes: jobs a second, and how long a job took from its submission to its end.

    python -m bench.jobs --jobs 200
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter, process_time

import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from sleeper.instance import Instance
from sleeper.services.job_workers import open_worker
from sleeper.services.worker import WorkerSettings

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])
ROWS = 1_000


def main(jobs: int = 200) -> list[str]:
    """Measure, and return the lines of the report."""
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as name:
        folder = Path(name)
        files = [write(folder / f"{number}.parquet", number) for number in range(jobs)]
        lines = one_process(folder, files)
        lines.append("workers      jobs/s      p50 s      p99 s")
        lines += [many_processes(folder, files, workers) for workers in (1, 4)]
    return lines


def write(path: Path, number: int) -> Path:
    """Write the file of a job."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    pq.write_table(pa.table({"id": ids, "value": [str(each) for each in ids]}, SCHEMA), path)
    return path


def made(folder: Path, name: str) -> Instance:
    """Make an instance with a table."""
    instance = sleeper.connect(folder / name, create=True)
    instance.create_table("t", SCHEMA, row_keys=["id"])
    return instance


def one_process(folder: Path, files: list[Path]) -> list[str]:
    """Ingest half of the files directly and half by jobs, in turns; return CPU for each."""
    direct, queued = made(folder, "direct"), made(folder, "queued")
    table = direct.table("t")
    table.ingest(files[0], "warm")
    for path in files:
        queued.jobs.submit_ingest("t", path, path.stem)
    woken = threading.Event()
    spent = {"direct": 0.0, "by job": 0.0}
    for path in files:
        begin = process_time()
        table.ingest(path, path.stem)
        spent["direct"] += process_time() - begin
        worker = open_worker(
            queued,
            "ingest",
            WorkerSettings(wait_s=0, jobs_max=1),
            host="here",
            pid=1,
            stopped=woken.is_set,
            rest=woken.wait,
        )
        begin = process_time()
        worker.run()
        spent["by job"] += process_time() - begin
    lines = [
        f"{about:<8} {1000 * seconds / len(files):6.2f} ms of CPU a job"
        for about, seconds in spent.items()
    ]
    more = spent["by job"] - spent["direct"]
    return [*lines, f"more     {1000 * more / len(files):6.2f} ms"]


def many_processes(folder: Path, files: list[Path], workers: int) -> str:
    """Run worker processes on jobs that are submitted one after the other."""
    instance = made(folder, f"workers-{workers}")
    command = [sys.executable, "-m", "sleeper", "worker", "ingest", "--instance", instance.url]
    started = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(workers)]
    try:
        warm = instance.jobs.submit_ingest("t", files[0], "warm")
        instance.jobs.wait(warm, rest=lambda: not threading.Event().wait(0.05))
        begin = perf_counter()
        for path in files:
            instance.jobs.submit_ingest("t", path, path.stem)
        for path in files:
            instance.jobs.wait(path.stem, rest=lambda: not threading.Event().wait(0.02))
        took = perf_counter() - begin
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
    waits = sorted(
        (status.finished - status.accepted).total_seconds()
        for path in files
        if (status := instance.jobs.job(path.stem)).finished and status.accepted
    )
    p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    return f"{workers:>7} {len(files) / took:>11.1f} {p50:>10.2f} {p99:>10.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    print(*main(parser.parse_args().jobs), sep="\n")
