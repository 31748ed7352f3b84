"""Ingest jobs of 1,000 rows through queue and worker, beside the same ingests called directly.

First in one process: what a job costs in CPU more than the ingest that it is. Then with 1, 2 and
4 worker processes that have each run a job before: jobs a second, how long a job took from its
submission to its end, and the CPU time of the workers. Medians of several runs, in turns.

    python -m bench.jobs --jobs 200 --runs 3
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from bench.committer import cpu_seconds
from sleeper.instance.instance import Instance
from sleeper.model.jobs.statuses import JobStatus
from sleeper.workers.open_worker import open_worker
from sleeper.workers.stop_signal import StopSignal
from sleeper.workers.worker import WorkerSettings

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])
ROWS = 1_000


def main(jobs: int = 200, runs: int = 3) -> list[str]:
    """Measure, and return the lines of the report."""
    heads = ("jobs/s", "p50 s", "p99 s", "CPU ms a job", "least", "most", "load")
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as name:
        folder = Path(name)
        files = [write(folder / f"{number}.parquet", number) for number in range(jobs)]
        lines = one_process(folder, files)
        lines.append("workers" + "".join(f"{head:>13}" for head in heads))
        counts = (1, 2, 4)
        found = [
            [many_processes(folder / f"{run}", files, each) for each in counts]
            for run in range(runs)
        ]
    for workers, each in zip(counts, zip(*found, strict=True), strict=True):
        middle = (median(figures) for figures in zip(*each, strict=True))
        lines.append(f"{workers:>7}" + "".join(f"{value:>13.2f}" for value in middle))
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
    spent = {"direct": 0.0, "by job": 0.0}
    for path in files:
        begin = process_time()
        table.ingest(path, path.stem)
        spent["direct"] += process_time() - begin
        worker = open_worker(
            queued,
            "ingest",
            WorkerSettings(wait_s=0, jobs_max=1),
            StopSignal(),
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


def many_processes(folder: Path, files: list[Path], workers: int) -> tuple[float, ...]:
    """Run worker processes on jobs that are submitted one after the other."""
    instance = made(folder, f"workers-{workers}")
    command = [sys.executable, "-m", "sleeper", "worker", "ingest", "--instance", instance.url]
    started = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(workers)]
    try:
        warm(instance, files[0], workers)
        spent_s = sum(cpu_seconds(process.pid) for process in started)
        begin = perf_counter()
        for path in files:
            instance.jobs.submit_ingest("t", path, path.stem)
        statuses = [ended(instance, path.stem) for path in files]
        took = perf_counter() - begin
        spent_s = sum(cpu_seconds(process.pid) for process in started) - spent_s
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
    waits = sorted(
        (status.finished - status.accepted).total_seconds()
        for status in statuses
        if status.finished and status.accepted
    )
    runs = [run.task_id for status in statuses for run in status.runs]
    done = Counter(task_id for task_id in runs if task_id is not None)
    least = min(done.values()) if len(done) == workers else 0
    p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    cpu_ms = 1000 * spent_s / len(files)
    return len(files) / took, p50, p99, cpu_ms, least, max(done.values()), os.getloadavg()[0]


def ended(instance: Instance, job_id: str) -> JobStatus:
    """Wait until a job has ended."""
    return instance.jobs.wait(job_id, rest=lambda: not threading.Event().wait(0.02))


def warm(instance: Instance, path: Path, workers: int) -> None:
    """Give the workers jobs until each has run one: what is loaded once in a process is loaded."""
    ready: set[str] = set()
    for batch in count():
        if len(ready) >= workers:
            break
        ids = [f"warm-{batch}-{each}" for each in range(2 * workers)]
        for job_id in ids:
            instance.jobs.submit_ingest("t", path, job_id)
        runs = [run for job_id in ids for run in ended(instance, job_id).runs]
        ready |= {run.task_id for run in runs if run.task_id is not None}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    print(*main(chosen.jobs, chosen.runs), sep="\n")
