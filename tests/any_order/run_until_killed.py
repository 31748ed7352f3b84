"""A program: fork processes that work on an instance until they are killed.

    python run_until_killed.py PIPE...

It imports Sleeper and what it works with once, and uses nothing of it, so that a fork costs
milliseconds and the child starts as clean as a new process. On its standard input it takes

    ingest SLOT FOLDER TABLE SERIES FIRST    fork a writer; answers with its process id
    care SLOT FOLDER TABLE SEED VERB         fork a keeper; answers with its process id
    commit SLOT URL TABLE SERIES FIRST COUNT    fork a committer; answers with its process id
    wait PID                                 wait until it is dead; answers with the signal

A writer ingests job after job, `SERIES-FIRST` and on, and writes each job's id to the pipe of
its slot once the job is acknowledged. A keeper takes files back from all compaction jobs, as if
their leases had ended, and then takes care of the table: first by the verb that it is given, then
in any order of verbs. It writes the name of each that is done, with an exclamation mark where there
was something to do. A committer commits COUNT jobs without rows, each with one reference, and writes
`NUMBER:JOB` once a commit is acknowledged; it has lost every race for a number where that is negative.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import datafusion  # noqa: F401 - see above
import polars as pl  # noqa: F401 - see above
import pyarrow as pa

import sleeper
from sleeper.errors import CommitContended, CommitUnknown, JobAlreadyCommitted
from sleeper.model.files import FileReference
from sleeper.state.state_store import StateStore
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.claims import release_jobs

SCHEMA = pa.schema(
    [
        pa.field("job", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
    ]
)


KEEP_UNTIL = datetime(8000, 1, 1, tzinfo=UTC)


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


def commit_in_a_row(
    pipe: int, url: str, table_name: str, series: str, first: int, jobs: int
) -> None:
    """Commit jobs, which need no files for that, and tell of each one that was acknowledged."""
    store = sleeper.connect(url).table(table_name)._current().store
    leaf = store.state().leaf_partitions()[0].partition_id
    for number in range(first, first + jobs):
        job_id = f"{series}-{number:04}"
        job = CommittedJob(job_id=job_id, keep_until=KEEP_UNTIL, rows_read=1, rows_written=1)
        name = f"data/partition_{leaf}/{job_id}.parquet"
        ref = FileReference(filename=name, partition_id=leaf, row_count=1)
        os.write(
            pipe,
            f"{_committed(store, AddFiles(references=(ref,), job=job), pipe)}:{job_id}\n".encode(),
        )


def _committed(store: StateStore, transaction: AddFiles, pipe: int) -> int:
    """Commit until it is known that it is, as a worker does; return the transaction's number."""
    while True:
        try:
            return store.commit(transaction).number
        except JobAlreadyCommitted as done:
            return done.number
        except CommitContended:
            os.write(pipe, b"-1:contended\n")
        except CommitUnknown:
            os.write(pipe, b"-1:unknown\n")


def care_for_ever(pipe: int, folder: str, table_name: str, seed: int, first: str) -> None:
    """Call verbs in any order and tell of each one that has ended."""
    draw = random.Random(seed)
    table = sleeper.connect(folder).table(table_name)
    store = table._current().store

    def release() -> bool:
        return bool(release_jobs(None, timedelta(), store=store).claims)

    release()
    verbs: dict[str, Callable[[], bool]] = {
        "compact": lambda: bool(table.compact().jobs),
        "compact-all": lambda: bool(table.compact(all_files=True).jobs),
        "release": release,
        "split": lambda: any(not each.reason for each in table.split_partitions()),
        "merge": lambda: any(not each.reason for each in table.merge_partitions()),
        "gc": lambda: bool(table.collect_garbage(force=True).deleted),
        "sweep": lambda: bool(table.sweep_orphans().orphans),
    }
    name = first
    while True:
        did = verbs[name]()
        os.write(pipe, f"{name}{'!' if did else ''}\n".encode())
        name = draw.choice(sorted(verbs))


def fork(work: Callable[..., None], *arguments: object) -> int:
    """Fork a process that does some work and return its id. It ends with 0 if that succeeds."""
    process_id = os.fork()
    if process_id:
        return process_id
    code = 1
    try:
        work(*arguments)
        code = 0
    except BaseException as error:  # noqa: BLE001 - a fork must not go on as its parent would
        sys.stderr.write(f"{work.__name__} ended by itself: {error!r}\n")
        traceback.print_exc()
    finally:
        os._exit(code)


def main(pipes: list[int]) -> None:
    """Take commands until the input ends."""
    for line in sys.stdin:
        match line.split():
            case ["ingest", slot, folder, table_name, series, first]:
                pipe = pipes[int(slot)]
                answer = fork(ingest_for_ever, pipe, folder, table_name, series, int(first))
            case ["care", slot, folder, table_name, seed, verb]:
                answer = fork(care_for_ever, pipes[int(slot)], folder, table_name, int(seed), verb)
            case ["commit", slot, url, table_name, series, first, jobs]:
                pipe = pipes[int(slot)]
                arguments = (pipe, url, table_name, series, int(first), int(jobs))
                answer = fork(commit_in_a_row, *arguments)
            case ["wait", process_id]:
                _, status = os.waitpid(int(process_id), 0)
                answer = os.WTERMSIG(status) or -os.WEXITSTATUS(status)
            case other:
                raise ValueError(f"no such command: {other}")
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
