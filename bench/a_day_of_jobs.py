"""A day of jobs: small files come to the batcher all day, and `sleeper serve` does all the rest.

Files are submitted at a steady rate, a day in some minutes. `sleeper serve` is a process of its own
with all that it has: the batcher, workers of ingests and compactions, splits, garbage collection,
metrics. What cannot be made faster stays as it is: the batcher makes jobs once a minute.

Meanwhile this process looks at the table, every second, as a reader does:

- Files in a leaf; so many files are looked at for a key, as all of them have keys from all of it.
- Latency: from the submission of a file to when its rows can be read, of each file.
- Write amplification: bytes of all data files ever seen in the table's folder, of
  those of the input, and of those that ingests wrote. Garbage counts.

In the end every row must be there exactly once.

    python -m bench.a_day_of_jobs --files 1000 --minutes 6 --picture docs/pictures/a-day-of-jobs.svg
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from bench.line_chart import Line, line_chart
from bench.observer import Look, Observer
from bench.random_rows import SCHEMA, rows, split_points

DAY_S = 24 * 60 * 60.0
LINES = 12
LOOK_S = 1.0
PATIENCE_S = 900.0
PROPERTIES = {
    "sleeper.table.ingest.batcher.ingest.queue": "standard_ingest",
    "sleeper.table.ingest.batcher.job.min.size": "0",
    "sleeper.table.gc.delay.minutes": "1",
}
EVERY_S = 5
"""Seconds between two rounds of maintenance: 60 by default, but the day is short."""


def main() -> None:
    arguments = parsed()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-a-day-of-jobs-") as name:
        folder = Path(name)
        inputs = [write(folder / f"{n}.parquet", n, arguments.rows) for n in range(arguments.files)]
        instance = made(folder / "instance", arguments.leaves, arguments.job_files)
        with served(instance, folder / "serve.log") as port:
            first = pq.read_table(inputs[0], columns=["key"])["key"][0].as_py()
            observer = Observer(instance, port, first)
            submitted = submit_all(instance, inputs, arguments.minutes * 60, observer)
            wait_for_all(instance, observer, arguments.files)
        jobs = {file.path: file.job_id for file in instance.jobs.submitted_files()}
        check_rows(observer.table, inputs)
        late = sorted(
            observer.seen_at(transaction_of(instance, jobs[path])) - at
            for path, at in submitted.items()
        )
        lines = [
            *report(observer, arguments),
            *totals(observer, inputs, late, len({*jobs.values()})),
        ]
        print(*lines, sep="\n")
    if arguments.picture:
        arguments.picture.write_text(picture(observer.looks, arguments))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=1_500, help="in each file")
    parser.add_argument("--leaves", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=6, help="that the day takes")
    parser.add_argument("--job-files", type=int, default=4, help="files in a job, at most")
    parser.add_argument("--folder", default=None, help="for the instance")
    parser.add_argument("--picture", type=Path, default=None, help="an SVG file to make")
    return parser.parse_args()


def write(path: Path, number: int, count: int) -> Path:
    """Write an input file of random rows."""
    pq.write_table(pa.Table.from_batches(rows(count, seed=number)), path)
    return path


def made(folder: Path, leaves: int, job_files: int) -> sleeper.Instance:
    """Make the instance and its table."""
    instance = sleeper.connect(folder, create=True)
    instance.create_table(
        "bench",
        SCHEMA,
        row_keys=["key"],
        sort_keys=["ts"],
        split_points=split_points(leaves),
        properties=PROPERTIES | {"sleeper.table.ingest.batcher.job.max.files": str(job_files)},
    )
    return instance


@contextmanager
def served(instance: sleeper.Instance, log: Path) -> Iterator[int]:
    """Run `sleeper serve` while the block runs; yield the port of its metrics."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "sleeper", "serve", "--every", str(EVERY_S)]
    command += ["--metrics", f"127.0.0.1:{port}", "--instance", instance.url]
    with log.open("w") as lines:
        process = subprocess.Popen(command, stderr=lines)
    try:
        wait_until(lambda: answers(port), "sleeper serve does not answer")
        yield port
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    trouble = [line for line in log.read_text().splitlines() if " ERROR " in line]
    assert not trouble, trouble


def answers(port: int) -> bool:
    """Return whether somebody listens at a port."""
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def submit_all(
    instance: sleeper.Instance, inputs: Sequence[Path], within_s: float, observer: Observer
) -> dict[str, float]:
    """Submit files at a steady rate and look meanwhile; return when each was submitted."""
    begun, submitted, next_look_s = monotonic(), {}, 0.0
    for number, path in enumerate(inputs):
        due_s = number * within_s / len(inputs)
        while (left_s := due_s - (monotonic() - begun)) > 0:
            if monotonic() - begun >= next_look_s:
                observer.look()
                next_look_s = monotonic() - begun + LOOK_S
            else:
                threading.Event().wait(min(left_s, LOOK_S))
        submitted[str(path)] = observer.seconds()
        instance.jobs.submit_files("bench", path)
    return submitted


def wait_for_all(instance: sleeper.Instance, observer: Observer, files: int) -> None:
    """Look until the last file is in the table, and garbage of the last compaction is gone."""

    def finished() -> bool:
        seen = observer.look()
        known = list(instance.jobs.submitted_files())
        return len(known) == files and not seen.waiting and not seen.queued

    wait_until(finished, "files are left over")


def wait_until(happened: Any, what: str) -> None:
    """Wait until something happened.

    Raises:
        TimeoutError: it did not.
    """
    last = monotonic() + PATIENCE_S
    while not happened():
        if monotonic() > last:
            raise TimeoutError(what)
        threading.Event().wait(LOOK_S)


def transaction_of(instance: sleeper.Instance, job_id: str | None) -> int:
    """Return the transaction of a job."""
    assert job_id is not None
    transaction = instance.jobs.job(job_id).transaction
    assert transaction is not None, job_id
    return transaction


def check_rows(table: sleeper.Table, inputs: Sequence[Path]) -> None:
    """Compare all rows of the table with those of the input.

    Raises:
        AssertionError: a row is missing, or there twice.
    """
    order = [("key", "ascending"), ("ts", "ascending"), ("n", "ascending")]
    wanted = pa.concat_tables(map(pq.read_table, inputs)).sort_by(order).combine_chunks()
    found = table.query().to_arrow().select(wanted.schema.names).sort_by(order).combine_chunks()
    assert found.num_rows == wanted.num_rows, (found.num_rows, wanted.num_rows)
    assert found.cast(wanted.schema).equals(wanted), "other rows than those that were submitted"


def report(observer: Observer, arguments: argparse.Namespace) -> list[str]:
    """Return two hours of the day in each line; the last has what came after it."""
    factor = DAY_S / (arguments.minutes * 60)
    lines = [
        (
            f"{arguments.files:,} files of {arguments.rows:,} rows, {arguments.leaves} leaves; "
            f"a day in {arguments.minutes:g} minutes: {factor:g} times as fast"
        ),
        f"{'':5}{'files in a leaf':^24}{'at most':^16}{'MB':^16}{'look-up':>9}",
        (
            f"{'hour':>5}{'mean':>8}{'most':>8}{'last':>8}{'files':>8}{'jobs':>8}"
            f"{'stored':>8}{'written':>8}{'ms':>9}"
        ),
    ]
    for part in range(LINES + 1):
        low, high = (end * DAY_S / LINES / factor for end in (part, part + 1))
        here = [
            look
            for look in observer.looks
            if low <= look.at_s and (look.at_s < high or part == LINES)
        ]
        if here:
            last = here[-1]
            lines.append(
                f"{last.at_s * factor / 3600:>5.0f}"
                f"{fmean(look.files_mean for look in here):>8.1f}"
                f"{max(look.files_max for look in here):>8}{last.files_mean:>8.1f}"
                f"{max(look.waiting for look in here):>8}{max(look.queued for look in here):>8}"
                f"{last.stored_bytes / 1e6:>8.1f}{last.written_bytes / 1e6:>8.1f}"
                f"{fmean(look.lookup_s for look in here) * 1000:>9.1f}"
            )
    return lines


def totals(
    observer: Observer, inputs: Sequence[Path], late: Sequence[float], jobs: int
) -> list[str]:
    """Return lines of the whole day."""
    looks = observer.looks
    input_bytes = sum(path.stat().st_size for path in inputs)
    by_ingest = sum(observer.sizes[name] for names in observer.ingested for name in set(names))
    written = looks[-1].written_bytes
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [
        (
            f"{len(inputs):,} files in {jobs:,} jobs; from submission to readable: "
            f"{late[len(late) // 2]:.1f} s (p50), {late[len(late) * 99 // 100]:.1f} (p99), "
            f"{late[-1]:.1f} (most)"
        ),
        (
            f"bytes written: {written / input_bytes:.2f} times the input, "
            f"{written / by_ingest:.2f} times what ingests wrote"
        ),
        f"files looked at for a key: {fmean(look.files_mean for look in looks):.1f} (mean)",
        (
            f"CPU of serve and its processes: {(cpu.ru_utime + cpu.ru_stime):.0f} s, "
            f"{(cpu.ru_utime + cpu.ru_stime) * 1000 / len(inputs):.0f} ms a file"
        ),
        "each row is there exactly once",
    ]


def picture(looks: Sequence[Look], arguments: argparse.Namespace) -> str:
    """Draw files in a leaf over the day."""
    hours = 24 / (arguments.minutes * 60)
    most = max(look.files_max for look in looks)
    return line_chart(
        title=f"Files in a leaf: {arguments.files:,} files through the batcher in a day",
        x_label="hours of the day",
        y_label="files",
        y_max=most * 1.25,
        lines=[
            Line(
                "without compaction",
                [(look.at_s * hours, look.ingests) for look in looks],
                colour="#9a6dd7",
                dashed=True,
            ),
            Line(
                "the leaf with most",
                [(look.at_s * hours, look.files_max) for look in looks],
                colour="#d9730d",
            ),
            Line(
                "mean of all leaves",
                [(look.at_s * hours, look.files_mean) for look in looks],
                colour="#2f81f7",
            ),
        ],
    )


if __name__ == "__main__":
    main()
