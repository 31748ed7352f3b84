"""What the driver of a large bulk import does by itself: seconds, requests and memory by step.

No Spark runs, and no row is moved: what tasks would send back is made here, outside the time that
is measured. Each request to object storage takes 20 ms. The steps are those of
`tables/bulk_import.py` and `spark/bulk_import.py`, by their own functions.

    PYTHONPATH=src python -m bench.import_driver --files 1000000 --leaves 100000
"""

from __future__ import annotations

import argparse
import pickle
import resource
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from sleeper.engine.inputs.input_files import InputFiles, RowGroup, find_files
from sleeper.engine.inputs.key_sample import sample_files, samples_by_leaf
from sleeper.model import paths
from sleeper.model.files import FileReference, key_to_text
from sleeper.spark.block_shuffle.map_tasks import plan_map_tasks, task_rows
from sleeper.spark.block_shuffle.packed_buckets import BucketLeaves, pack_ranges
from sleeper.spark.block_shuffle.reduce_tasks import WrittenBucket, references_of
from sleeper.spark.bulk_import import check_files, known_input
from sleeper.spark.footers import joined_row_groups, read_part
from sleeper.spark.import_plan import explained, plan_import
from sleeper.state.new_files import add_files
from sleeper.state.plans.bulk_imports import plan_buckets
from sleeper.state.table_state import CommittedJob
from sleeper.tables.bulk_import import _extend, _target, sampled_rows

REQUEST_S = 0.02
GROUP_BYTES, GROUP_ROWS = 100_000_000, 666_000
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])
ROWS_IN_FILE = 20_000
DISTINCT_FILES = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--leaves", type=int, default=100_000)
    parser.add_argument("--folder", default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-driver-") as folder:
        run(arguments, Path(folder))


def run(arguments: argparse.Namespace, folder: Path) -> None:
    storage = SlowStorage(arguments.files, sample_files_in(folder))
    steps = Steps(storage)
    instance = sleeper.connect(folder / "instance", create=True)
    table = instance.create_table(
        "rows",
        SCHEMA,
        row_keys=["id"],
        properties={
            "sleeper.table.bulk.import.min.leaf.partitions": str(arguments.leaves),
            "sleeper.table.partition.splitting.min.rows": "1",
        },
    )
    opened = table._current()
    print(f"{arguments.files:,} files, {arguments.leaves:,} leaves")
    with steps.step("list the input"):
        source = InputFiles(find_files(["s3://input/rows"], storage), opened.arrow_schema, storage)
    with steps.step("take row groups"):
        source.accept(joined_row_groups(steps.outside(packed_footers(source.files))))
    groups = source.row_groups()
    with steps.step("sample keys"):
        sample = sample_files(
            source,
            opened.schema,
            opened.arrow_schema,
            rows_wanted=sampled_rows(arguments.leaves),
            remote=storage,
        )
    with steps.step("extend the tree"):
        _extend(opened, lambda: sample, arguments.leaves)
    with steps.step("plan buckets"):
        samples = samples_by_leaf(sample, opened.store.state().tree, opened.schema)
        target = replace(_target(opened, opened.context.clock.now()), files=storage)
        known = known_input(groups, target, samples, cores=400)
        plan = plan_import(known)
        buckets = plan_buckets(target.leaves, samples, plan.bucket_rows)
    with steps.step("pack tasks"):
        tasks = task_rows(plan_map_tasks(groups, plan.map_task_bytes))
        closures = [
            len(pickle.dumps(pack_ranges(buckets, pa.int64()))),
            len(pickle.dumps(BucketLeaves.of(buckets))),
        ]
    with steps.step("take results"):
        packed = packed_results(buckets, opened.schema)
        written = [pickle.loads(each) for each in steps.outside(packed)]
    with steps.step("look for files"):
        check_files(written, target)
    references = references_of(written)
    with steps.step("commit"):
        guard, now = opened.sweep_guard(), opened.store.time()
        job = CommittedJob(job_id="job", keep_until=now, rows_read=1, rows_written=1)
        add_files(references, job, store=opened.store, guard=guard, now=now, discard=lambda: None)
    steps.report()
    print(f"{len(references):,} references, closures of {closures} bytes, tasks {tasks.nbytes:,}")
    print(explained(known, plan))


def sample_files_in(folder: Path) -> list[Path]:
    """Files of rows in no order, which stand for all input files."""
    paths_made = []
    for number in range(DISTINCT_FILES):
        ids = np.random.default_rng(number).integers(0, 1 << 40, ROWS_IN_FILE)
        rows = pa.table({"id": ids, "amount": ids, "note": pa.array(ids).cast(pa.string())})
        paths_made.append(folder / f"sample-{number}.parquet")
        pq.write_table(rows.cast(SCHEMA), paths_made[-1])
    return paths_made


def packed_footers(files: Iterable[str]) -> Iterator[bytes]:
    """What tasks that read footers send: a row group for each file, of all keys."""
    names = iter(files)
    while part := [*islice(names, 500)]:
        yield read_part(
            lambda path: [RowGroup(path, 0, GROUP_ROWS, GROUP_BYTES, 5, (1 << 40) - 5)], part
        )


def packed_results(buckets: Any, schema: Any) -> Iterator[bytes]:
    """What reduce tasks send: a file for each leaf of their buckets."""
    numbers = count()
    for leaves in buckets.leaves:
        references = []
        for leaf in leaves:
            low = max(0, leaf.region.ranges[0].min)
            references.append(
                FileReference(
                    filename=paths.data_file(leaf.partition_id, f"{next(numbers):032x}"),
                    partition_id=leaf.partition_id,
                    row_count=1_000_000,
                    size_bytes=100_000_000,
                    first_key=key_to_text((low,), schema),
                    last_key=key_to_text((low + 1,), schema),
                )
            )
        yield pickle.dumps(
            WrittenBucket(
                references=tuple(references), rows_in=1, rows_written=1, host=f"h{len(leaves)}"
            )
        )


@dataclass
class SlowStorage:
    """Input files and written files in object storage of 20 ms a request."""

    files: int
    samples: list[Path]
    requests: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def find(self, _url: str) -> list[str]:
        for _ in range(-(-self.files // 1000)):
            self.request()
        return [f"s3://input/rows/year=2026/part-{n:08}-c000.parquet" for n in range(self.files)]

    @contextmanager
    def open(self, url: str) -> Iterator[Any]:
        self.request()  # its size
        self.request()  # its footer
        self.request()  # its first column
        with self.samples[crc32(url.encode()) % len(self.samples)].open("rb") as file:
            yield file

    def size(self, _key: str) -> int:
        self.request()
        return 1

    def request(self) -> None:
        with self._lock:
            self.requests += 1
        sleep(REQUEST_S)


class Steps:
    """Seconds, CPU, requests and memory of each step."""

    def __init__(self, storage: SlowStorage) -> None:
        self._storage = storage
        self._rows: list[tuple[str, float, float, int, int]] = []
        self._left_out = self._left_out_cpu = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started, cpu, requests = perf_counter(), process_time(), self._storage.requests
        self._left_out = self._left_out_cpu = 0.0
        yield
        took = perf_counter() - started - self._left_out
        used = process_time() - cpu - self._left_out_cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self._rows.append((name, took, used, self._storage.requests - requests, peak))
        print(
            f"{name:18}{took:9.1f} s{used:9.1f} s CPU{self._rows[-1][3]:9,} requests{peak:9,} MB",
            flush=True,
        )

    def outside(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yield values whose making is not part of the step."""
        rest = iter(values)
        while True:
            started, cpu = perf_counter(), process_time()
            got = list(islice(rest, 1))
            self._left_out += perf_counter() - started
            self._left_out_cpu += process_time() - cpu
            if not got:
                return
            yield from chain(got)

    def report(self) -> None:
        took, used = (sum(row[place] for row in self._rows) for place in (1, 2))
        requests = sum(row[3] for row in self._rows)
        peak = self._rows[-1][4]
        print(f"{'all':18}{took:9.1f} s{used:9.1f} s CPU{requests:9,} requests{peak:9,} MB")


if __name__ == "__main__":
    main()
