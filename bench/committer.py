"""Commits a second through the committer, for 64 submitters with 16 free writers beside them.

Each submitter asks for one commit after the other: it sends a request, and waits until the table's
log has it. Free writers commit directly to the same table meanwhile: each four times a second, or
as fast as it can. Beside it: one process that commits groups of the same size directly, without
queue and tracker. CPU time is that of the committer.

    python -m bench.committer --seconds 5 --runs 3
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep

import pyarrow as pa

import sleeper
from sleeper.model.files import FileReference
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import AddFiles

SCHEMA = pa.schema([("key", pa.string())])
SUBMITTERS, WRITERS, SUBMITTING_PROCESSES = 64, 16, 4
PAUSES_S = {"": 0.0, "4 a second": 0.25, "in a loop": 0.0}
HERE = Path(__file__).parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def main(seconds: float = 5.0, runs: int = 3) -> list[str]:
    """Measure, and return the lines of the report."""
    heads = ("commits/s", "p50 ms", "p99 ms", "max ms", "CPU ms each", "peak MB", "load")
    lines = ["files       free writers  " + "".join(f"{head:>12}" for head in heads)]
    for files in (1, 16):
        found = [directly(files, seconds) for _ in range(runs)]
        lines.append(line(files, "directly", found))
        for about, pause_s in PAUSES_S.items():
            writers = WRITERS if about else 0
            both = [race(files, writers, pause_s, seconds) for _ in range(runs)]
            name = f"{writers} {about}".strip()
            lines.append(line(files, name, [through for through, _ in both]))
            if writers:
                lines.append(line(1, "these", [free for _, free in both]))
    return lines


def line(files: int, about: str, found: list[tuple[float, ...]]) -> str:
    """Return the medians of several runs, and the largest wait of all."""
    middle = [median(each) for each in zip(*found, strict=True)]
    middle[3] = max(each[3] for each in found)
    figures = (f"{value:>12.{0 if at in (0, 5) else 2}f}" for at, value in enumerate(middle))
    return f"{files:>5}  {about:>17}  " + "".join(figures) + f"{os.getloadavg()[0]:>12.1f}"


def transactions(root: str, who: str, files: int) -> Iterator[AddFiles]:
    """Yield transactions as ingest jobs have them, of so many files."""
    number = 0
    while True:
        now = datetime.now(UTC)
        job = CommittedJob(
            job_id=f"{who}-{number}",
            keep_until=now + timedelta(days=1),
            rows_read=1,
            rows_written=1,
        )
        names = (f"data/partition_{root}/{who}-{number}-{each}.parquet" for each in range(files))
        references = tuple(
            FileReference(
                filename=name,
                partition_id=root,
                row_count=1_000,
                size_bytes=50_000,
                first_key='["a"]',
                last_key='["z"]',
            )
            for name in names
        )
        yield AddFiles(references=references, job=job, written_since=now)
        number += 1


def made(folder: str) -> None:
    """Make the instance and its table, with a log whose next entry but one brings a snapshot.

    For a snapshot pyarrow loads pandas, if it is installed: half a second, once in a process.
    """
    with sleeper.connect(folder, create=True) as instance:
        table = instance.create_table("bench", SCHEMA, row_keys=["key"])
        store = table._current().store
        wanted = transactions(store.refresh().tree.root_id, "before", 1)
        while store.state().number < 98:
            store.commit(next(wanted))


def warmed(folder: str) -> None:
    """Wait until a committer that was just started has answered a request."""
    with sleeper.connect(folder) as instance:
        table = instance.table("bench")
        for transaction in islice(transactions(table.state().tree.root_id, "first", 1), 4):
            assert transaction.job is not None
            job_id = transaction.job.job_id
            instance.jobs.send_commit(table, transaction, task_id="bench", run_id=job_id)
            while table.state().jobs.find(job_id) is None:
                sleep(0.01)


def directly(files: int, seconds: float) -> tuple[float, ...]:
    """Commit groups of as many transactions as there are submitters, by one process."""
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        made(folder)
        (process,) = [started("--group", folder, str(files), seconds=seconds)]
        begin(process)
        words = process.communicate()[0].split()
    count, cpu_s, peak_mb, *took = map(float, words)
    return (count / seconds, *waits(took), 1000 * cpu_s / count, peak_mb)


def race(
    files: int, writers: int, pause_s: float, seconds: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Let submitters and free writers commit beside each other; return figures of both."""
    each = str(SUBMITTERS // SUBMITTING_PROCESSES)
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        made(folder)
        worker = [sys.executable, "-m", "sleeper", "worker", "commit", "--instance", folder]
        committer = subprocess.Popen(worker, stderr=subprocess.DEVNULL, cwd=HERE)
        submitting = [
            started("--submit", folder, f"{files},{each},{number}", seconds=seconds)
            for number in range(SUBMITTING_PROCESSES)
        ]
        free = []
        if writers:
            free = [started("--write", folder, f"{writers},{pause_s}", seconds=seconds)]
        try:
            warmed(folder)
            spent_s = cpu_seconds(committer.pid)
            begin(*submitting, *free)
            through = [float(ms) for one in submitting for ms in one.communicate()[0].split()]
            alone = [float(ms) for one in free for ms in one.communicate()[0].split()]
            spent_s = cpu_seconds(committer.pid) - spent_s
            peak_mb = peak_megabytes(committer.pid)
        finally:
            committer.terminate()
            committer.wait()
    done = len(through) / seconds, *waits(through), 1000 * spent_s / len(through), peak_mb
    return done, (len(alone) / seconds, *waits(alone or [0.0]), 0.0, 0.0)


def started(role: str, folder: str, about: str, *, seconds: float) -> subprocess.Popen[str]:
    """Start a process of this module that waits to begin."""
    command = [sys.executable, "-m", "bench.committer", role, folder, about]
    return subprocess.Popen(
        [*command, "--seconds", str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE,
    )


def begin(*processes: subprocess.Popen[str]) -> None:
    """Wait until all processes are ready, then let them begin."""
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def ready() -> None:
    """Say that this process may begin, and wait to be told so."""
    pa.scalar(1)  # loads pandas, if it is installed
    print("ready", flush=True)
    sys.stdin.readline()


def waits(took: list[float]) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the largest."""
    took.sort()
    return took[len(took) // 2], took[len(took) * 99 // 100], took[-1]


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has spent."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def peak_megabytes(pid: int) -> float:
    """Return the largest resident size of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def group(folder: str, about: str, seconds: float) -> None:
    """Commit groups directly; print how many transactions, CPU, memory and the time of each."""
    store = sleeper.connect(folder).table("bench")._current().store
    wanted = transactions(store.refresh().tree.root_id, "group", int(about))
    ready()
    end, used, took = perf_counter() + seconds, process_time(), []
    while (start := perf_counter()) < end:
        done = store.commit_group([next(wanted) for _ in range(SUBMITTERS)])
        assert not any(done.refusals)
        took.append((perf_counter() - start) * 1000)
    used = process_time() - used
    print(SUBMITTERS * len(took), used, peak_megabytes(os.getpid()))
    print(" ".join(f"{ms:.3f}" for ms in took))


def write(folder: str, about: str, seconds: float) -> None:
    """Let forked processes commit directly, and print how long each commit took in ms."""
    count, pause_s = about.split(",")
    pa.scalar(1)  # loads pandas before the fork, if it is installed
    forked = multiprocessing.get_context("fork")
    begin, results = forked.Barrier(int(count) + 1), forked.SimpleQueue()

    def write_alone(name: str) -> None:
        store = sleeper.connect(folder).table("bench")._current().store
        wanted = transactions(store.refresh().tree.root_id, name, 1)
        begin.wait()
        begin.wait()
        end, took = perf_counter() + seconds, []
        while (start := perf_counter()) < end:
            store.commit(next(wanted))
            took.append((perf_counter() - start) * 1000)
            sleep(float(pause_s))
        results.put(took)

    for number in range(int(count)):
        forked.Process(target=write_alone, args=(f"free{number}",), daemon=True).start()
    begin.wait()
    ready()
    begin.wait()
    for _ in range(int(count)):
        print(" ".join(f"{ms:.3f}" for ms in results.get()))


def submit(folder: str, about: str, seconds: float) -> None:
    """Ask for commits from several threads, and print how long each waited in ms."""
    files, count, process = map(int, about.split(","))
    instance = sleeper.connect(folder)
    table = instance.table("bench")
    store = table._current().store
    root = store.refresh().tree.root_id
    seen = threading.Condition()
    took: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        number = 0
        while not ended.wait(0.004):
            state = store.refresh()
            if state.number != number:
                with seen:
                    number = state.number
                    seen.notify_all()

    def ask(thread: int) -> None:
        wanted = transactions(root, f"asked{process}-{thread}", files)
        while (start := perf_counter()) < end:
            asked = next(wanted)
            assert asked.job is not None
            job_id = asked.job.job_id
            instance.jobs.send_commit(table, asked, task_id="bench", run_id=job_id)
            with seen:
                while store.state().jobs.find(job_id) is None:
                    seen.wait(1.0)
            took.append((perf_counter() - start) * 1000)

    instance.jobs.queue_depths()  # opens the file
    ready()
    end = perf_counter() + seconds
    threads = [threading.Thread(target=ask, args=(each,)) for each in range(count)]
    watcher = threading.Thread(target=watch)
    watcher.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    print(" ".join(f"{ms:.3f}" for ms in took))


ROLES = {"group": group, "write": write, "submit": submit}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=3)
    for role in ROLES:
        parser.add_argument(f"--{role}", nargs=2, metavar=("FOLDER", "ABOUT"))
    chosen = parser.parse_args()
    for role, play in ROLES.items():
        if getattr(chosen, role):
            folder, about = getattr(chosen, role)
            play(folder, about, chosen.seconds)
            sys.exit()
    print("\n".join(main(chosen.seconds, chosen.runs)))
