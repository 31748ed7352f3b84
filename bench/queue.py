"""Messages a second into and out of the queue in SQLite, singly and in tens, by 1 and 4 processes.

Each process sends, receives and deletes in turn, for so many seconds: a message counts when it is
deleted, so it was three calls. CPU time is that of the processes. Then, what an idle poller costs,
and a message beside up to 50,000 others that wait.
Medians of several runs.

    python -m bench.queue --seconds 3 --runs 3
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep

from sleeper.model.jobs.kinds import QueueName
from sleeper.model.jobs.messages import NewMessage
from sleeper.storage.local.jobs.job_queue import SqliteQueue
from sleeper.storage.local.jobs.job_stores import SqliteJobStores

BODY = json.dumps({"id": str(uuid.uuid4()), "tableName": "flights", "files": ["/data/x" * 8] * 4})


def open_queue(folder: str) -> SqliteQueue:
    """Open the queue of a folder, with real time and ids."""
    path = Path(folder) / "jobs.sqlite"
    stores = SqliteJobStores(
        path, {}, now=lambda: datetime.now(UTC), sleep=sleep, new_id=lambda: str(uuid.uuid4())
    )
    return stores.queue(QueueName.INGEST)


def main(seconds: float = 3.0, runs: int = 3) -> list[str]:
    """Measure, and return the lines of the report."""
    heads = ("at once", "messages/s", "CPU us", "p50 ms", "p99 ms", "worst ms", "least", "most")
    lines = ["processes" + "".join(f"{head:>12}" for head in heads)]
    for processes in (1, 4):
        for at_once in (1, 10):
            found = [race(processes, at_once, seconds) for _ in range(runs)]
            middle = [median(each) for each in zip(*found, strict=True)]
            figures = (f"{value:>12.{int(at in (2, 3, 4))}f}" for at, value in enumerate(middle))
            lines.append(f"{processes:>9}{at_once:>12}" + "".join(figures))
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        lines.append(idle(folder))
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        lines += beside_others(folder)
    return [*lines, f"load {os.getloadavg()[0]:.1f}"]


def race(processes: int, at_once: int, seconds: float) -> tuple[float, ...]:
    """Let processes send, receive and delete beside each other, in a file of their own."""
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        open_queue(folder).depth()
        return raced(folder, processes, at_once, seconds)


def raced(folder: str, processes: int, at_once: int, seconds: float) -> tuple[float, ...]:
    """Let processes use one file, and return the figures."""
    command = [sys.executable, "-m", "bench.queue", "--process", folder, str(at_once)]
    started = [
        subprocess.Popen(
            [*command, "--seconds", str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        for _ in range(processes)
    ]
    for process in started:  # all are ready before the first begins
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].split() for process in started]
    counts = [int(words[0]) for words in said]
    used_us = 1e6 * sum(float(words[1]) for words in said) / sum(counts)
    took = sorted(float(ms) for words in said for ms in words[2:])
    waits = (took[len(took) // 2], took[len(took) * 99 // 100], took[-1])
    return (sum(counts) / seconds, used_us, *waits, min(counts), max(counts))


def work(folder: str, at_once: int, seconds: float) -> None:
    """Send, receive and delete, and print how many came and how long each call took."""
    queue = open_queue(folder)
    print("ready", flush=True)
    sys.stdin.readline()
    end, used = perf_counter() + seconds, process_time()
    took, count = [], 0
    while perf_counter() < end:
        times = [perf_counter()]
        queue.send([NewMessage(body=BODY)] * at_once)
        times.append(perf_counter())
        messages = queue.receive(at_once)
        times.append(perf_counter())
        count += sum(queue.delete([each.receipt for each in messages]))
        times.append(perf_counter())
        took += [(b - a) * 1000 for a, b in pairwise(times)]
    print(count, process_time() - used, " ".join(f"{ms:.3f}" for ms in took))


def beside_others(folder: str, sizes: Sequence[int] = (0, 1_000, 10_000, 50_000)) -> list[str]:
    """Send, receive and delete 1,000 messages, in tens, beside so many others that wait."""
    queue, ten = open_queue(folder), [NewMessage(body=BODY)] * 10
    held, lines = 0, []
    for size in sizes:
        while held < size:
            queue.send(ten)
            held += 10
        used = process_time()
        for _ in range(100):
            queue.send(ten)
            queue.delete([each.receipt for each in queue.receive(10)])
        us = 1e6 * (process_time() - used) / 1_000
        lines.append(f"beside {size:>6,} others: {us:.0f} CPU us a message")
    return lines


def idle(folder: str) -> str:
    """Let one process wait for messages as a worker does."""
    queue = open_queue(folder)
    queue.receive()
    started, used = perf_counter(), process_time()
    queue.receive(wait_s=20)
    share = (process_time() - used) / (perf_counter() - started)
    return f"idle: {100 * share:.3f} % of a core for each poller"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--process", nargs=2, metavar=("FOLDER", "AT_ONCE"))
    chosen = parser.parse_args()
    if chosen.process:
        work(chosen.process[0], int(chosen.process[1]), chosen.seconds)
    else:
        print("\n".join(main(chosen.seconds, chosen.runs)))
