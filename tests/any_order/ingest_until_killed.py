"""A program: fork processes that ingest into an instance until they are killed.

    python ingest_until_killed.py PIPE...

It imports Sleeper once and uses nothing of it, so that a fork costs milliseconds and the child
starts as clean as a new process. On its standard input it takes

    start SLOT FOLDER TABLE SERIES FIRST    fork a writer; answers with its process id
    wait PID                                wait until it is dead; answers with the signal

A writer ingests job after job, `SERIES-FIRST` and on, and writes each job's id to the pipe of
its slot once the job is acknowledged.
"""

from __future__ import annotations

import os
import sys

import pyarrow as pa

import sleeper

SCHEMA = pa.schema(
    [
        pa.field("job", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
    ]
)


def rows_of(job_id: str) -> pa.Table:
    """Return the ten rows of one job, in no order."""
    numbers = [(7 * n) % 10 for n in range(10)]
    text = [f"{job_id}/{n}" for n in numbers]
    return pa.table({"job": [job_id] * 10, "n": numbers, "text": text}, schema=SCHEMA)


def ingest_for_ever(pipe: int, folder: str, table_name: str, series: str, first: int) -> None:
    """Ingest jobs and tell of each one that was acknowledged."""
    table = sleeper.connect(folder).table(table_name)
    number = first
    while True:
        job_id = f"{series}-{number:04}"
        table.ingest(rows_of(job_id), job_id=job_id)
        os.write(pipe, f"{job_id}\n".encode())  # short, so it is written whole or not at all
        number += 1


def fork_writer(pipe: int, folder: str, table_name: str, series: str, first: int) -> int:
    """Fork a writer and return its process id."""
    process_id = os.fork()
    if process_id:
        return process_id
    try:
        ingest_for_ever(pipe, folder, table_name, series, first)
    except BaseException as error:  # noqa: BLE001 - a fork must not go on as its parent would
        sys.stderr.write(f"a writer ended by itself: {error!r}\n")
    finally:
        os._exit(1)


def main(pipes: list[int]) -> None:
    """Take commands until the input ends."""
    for line in sys.stdin:
        match line.split():
            case ["start", slot, folder, table_name, series, first]:
                answer = fork_writer(pipes[int(slot)], folder, table_name, series, int(first))
            case ["wait", process_id]:
                _, status = os.waitpid(int(process_id), 0)
                answer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            case other:
                raise ValueError(f"no such command: {other}")
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
