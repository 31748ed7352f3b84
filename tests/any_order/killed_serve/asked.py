"""Jobs of every kind that one instance is asked to do, and which rows belong to which.

Each job of writing has a number, and brings rows into three places of the key space, so that a
result with a part of a job is seen as such.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Protocol

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from sleeper.model.jobs.kinds import QueueName
from sleeper.tables.table import Table
from sleeper.workers.kinds.batcher import run_batcher

SCHEMA = pa.schema([("id", pa.int64()), ("job", pa.int64())])
PLACES = 3
ROWS = 50  # in each place
SLOTS = 1 << 14
SPACE = SLOTS * ROWS
KEYS = PLACES * SPACE
_STEP = 7919  # odd, so that each number has a slot of its own
KINDS = {"ingest": 1.0, "bulk-import": 1.0, "batcher": 0.15, "query": 0.3, "export": 0.2}
"""Of each kind, how likely a job is asked for where few of them wait."""

READS = ("query", "export")

INSTANCE = {
    "sleeper.ingest.job.queue.wait.time": 1,
    "sleeper.ingest.queue.visibility.timeout.seconds": 3,
    "sleeper.ingest.batcher.submitter.timeout.seconds": 3,
    "sleeper.query.queue.visibility.timeout.seconds": 3,
    "sleeper.bulk.export.queue.visibility.timeout.seconds": 3,
    "sleeper.bulk.export.job.failed.visibility.timeout.seconds": 0,
    "sleeper.statestore.committer.queue.visibility.timeout.seconds": 3,
    "sleeper.jobs.receives.max": 1000,
    "sleeper.jobs.retry.first.seconds": 0,
}
TABLE = {
    "sleeper.table.partition.splitting.threshold": 2_000,
    "sleeper.table.compaction.files.batch.size": 4,
    "sleeper.table.compaction.job.lease.minutes": 1,
    "sleeper.table.gc.delay.minutes": 1,
    "sleeper.table.ingest.batcher.job.min.size": 1,
    "sleeper.table.ingest.batcher.job.max.files": 3,
}
TABLES = {
    "direct": {"sleeper.table.ingest.batcher.ingest.queue": "bulk_import"},
    "posted": {
        "sleeper.table.ingest.batcher.ingest.queue": "standard_ingest",
        "sleeper.table.statestore.commit.async.enabled": "true",
    },
}
"""Workers commit to the first by themselves, to the second through the committer."""


def ids_of(numbers: Iterable[int], low: int = 0, high: int = KEYS) -> np.ndarray:
    """Return the keys from `low` to `high` of all rows of some jobs, in order."""
    slots = np.fromiter(numbers, np.int64) * _STEP % SLOTS
    places = np.arange(PLACES)[:, None, None] * SPACE
    ids = (places + slots[None, :, None] * ROWS + np.arange(ROWS)).ravel()
    return np.sort(ids[(ids >= low) & (ids < high)])


@dataclass(frozen=True)
class Written:
    """A job of writing. Files for the batcher have no job yet."""

    kind: str
    number: int
    path: str
    job_id: str | None


@dataclass(frozen=True)
class Read:
    """A query or an export, and the newest entry of the table's log when it was asked for."""

    kind: str
    job_id: str
    floor: int
    low: int = 0
    high: int = KEYS


@dataclass
class AskedTable:
    """What was asked of one table."""

    table: Table
    written: list[Written] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)


class Results(Protocol):
    """What queries and exports wrote into an instance.

    Attributes:
        url: The instance.
        properties: What such an instance needs.
    """

    url: str
    properties: dict[str, str]

    def count(self) -> int:
        """Return how many files there are."""
        ...

    def read(self, location: str) -> pa.Table:
        """Read the file of a query, or the files of an export."""
        ...


class ResultsInFolder:
    """Those of an instance in a folder."""

    def __init__(self, folder: Path) -> None:
        self.url, self._folder = str(folder), folder
        self.properties = {"sleeper.id": "kills"}

    def count(self) -> int:
        """Return how many files there are."""
        patterns = ("query_results/*", "bulk_export/*/*")
        return sum(1 for pattern in patterns for _ in self._folder.glob(pattern))

    def read(self, location: str) -> pa.Table:
        """Read the file of a query, or the files of an export."""
        path = Path(location)
        paths = sorted(path.glob("part-*.parquet")) if path.is_dir() else [path]
        return pa.concat_tables(pq.read_table(each) for each in paths)


class ResultsInBucket:
    """Those of an instance in a bucket, read by Amazon's own client."""

    def __init__(self, bucket: str) -> None:
        self.url, self._bucket = f"s3://{bucket}/kills", bucket
        self.properties = {"sleeper.id": bucket[:20], "sleeper.jobs.url": "sqs"}
        self._s3 = boto3.client("s3")

    def count(self) -> int:
        """Return how many files there are."""
        prefixes = ("kills/query_results/", "kills/bulk_export/")
        return sum(1 for prefix in prefixes for _ in self._keys(prefix))

    def read(self, location: str) -> pa.Table:
        """Read the file of a query, or the files of an export."""
        key = location.removeprefix(f"s3://{self._bucket}/")
        keys = [key] if key.endswith(".parquet") else sorted(self._keys(f"{key}/part-"))
        return pa.concat_tables(pq.read_table(BytesIO(self._body(each))) for each in keys)

    def _keys(self, prefix: str) -> Iterator[str]:
        pages = self._s3.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
            yield from (each["Key"] for each in page.get("Contents", ()))

    def _body(self, key: str) -> bytes:
        body: bytes = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return body


class Asked:
    """An instance with two tables, and all that it was asked to do.

    Args:
        folder: Where input files are made.
        results: Reads what queries and exports wrote; it knows where the instance is.
        draw: Decides what is asked.
    """

    def __init__(self, folder: Path, results: Results, draw: random.Random) -> None:
        sleeper.create_instance(results.url, {**INSTANCE, **results.properties}).close()
        self.instance = sleeper.connect(results.url)
        self.tables = {
            name: AskedTable(
                self.instance.create_table(
                    name, SCHEMA, row_keys=["id"], properties={**TABLE, **own}
                )
            )
            for name, own in TABLES.items()
        }
        self.nonsense: list[str] = []
        self.results = results
        self._inputs = folder / "inputs"
        self._inputs.mkdir()
        self._draw = draw

    def kinds(self) -> Counter[str]:
        """Return how many jobs of each kind were asked for."""
        jobs = [job.kind for each in self.tables.values() for job in (*each.written, *each.read)]
        return Counter([*jobs, *("nonsense" for _ in self.nonsense)])

    def progress(self) -> tuple[int, int]:
        """Return the last commits of jobs, added up, and how many results there are."""
        last = (each.table.state().jobs.last for each in self.tables.values())
        return sum(job.number for job in last if job), self.results.count()

    def ask(self, waiting_max: int) -> None:
        """Ask for jobs of kinds whose queues have fewer messages."""
        depths = self.instance.jobs.queue_depths()
        for kind, likely in KINDS.items():
            depth = depths[QueueName(kind)]
            if depth.ready + depth.hidden < waiting_max and self._draw.random() < likely:
                name = self._draw.choice([*TABLES])
                if kind in READS:
                    self._ask_to_read(kind, name)
                else:
                    self._ask_to_write(kind, name)
        if self._draw.random() < 0.02:
            self._ask_for_nonsense()

    def make_batches(self) -> None:
        """Make jobs of the batcher's files here too: a serve does so once a minute."""
        run_batcher(self.instance.jobs, datetime.now(UTC))

    def _ask_to_write(self, kind: str, name: str) -> None:
        jobs, written = self.instance.jobs, self.tables[name].written
        if kind == "batcher":
            files = [*self._new_files(name, self._draw.randint(1, 3))]
            jobs.submit_files(name, [path for _, path in files])
            written += (Written(kind, number, path, None) for number, path in files)
            return
        ((number, path),) = self._new_files(name, 1)
        submit = jobs.submit_ingest if kind == "ingest" else jobs.submit_bulk_import
        job_id = submit(name, path, f"{name}-{number}")
        written.append(Written(kind, number, path, job_id))
        if self._draw.random() < 0.1:  # sent again, by a client that had no answer
            submit(name, path, job_id)

    def _ask_to_read(self, kind: str, name: str) -> None:
        each = self.tables[name]
        floor = each.table.refresh()
        if kind == "export":
            each.read.append(Read(kind, self.instance.jobs.submit_export(name), floor))
            return
        low, high = sorted(self._draw.sample(range(KEYS), 2))
        query_id = self.instance.jobs.submit_query(name, range={"id": (low, high)})
        each.read.append(Read(kind, query_id, floor, low, high))

    def _ask_for_nonsense(self) -> None:
        job_id = f"nonsense-{len(self.nonsense)}"
        message = {"id": job_id, "tableName": "missing", "files": ["/nowhere.parquet"]}
        self.instance.jobs.send(QueueName.INGEST, json.dumps(message))
        self.nonsense.append(job_id)

    def _new_files(self, name: str, count: int) -> Iterator[tuple[int, str]]:
        first = len(self.tables[name].written)
        for number in range(first, first + count):
            ids = pa.array(ids_of([number]))
            rows = pa.table({"id": ids, "job": pa.repeat(number, len(ids))}, schema=SCHEMA)
            path = self._inputs / f"{name}-{number}.parquet"
            pq.write_table(rows, path)
            yield number, str(path)
