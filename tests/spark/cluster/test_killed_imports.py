"""An import on four executors of a standalone cluster is killed in each of its phases, and run again.

    SLEEPER_LINEITEM=lineitem.parquet python -m pytest -rP tests/spark/cluster/test_killed_imports.py

imports a file of any size, such as lineitem of TPC-H (PyPI's `tpchgen-cli` makes one), in place of
the rows made here. No more of it than a row group is in memory, but its first row key.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from tests.soak import tries
from tests.spark.cluster.faulty_files import Fault
from tests.spark.cluster.standalone import standalone_cluster
from tests.spark.cluster.test_drivers import LOG, a_driver

DATA = ".parquet"
KEYS = ["l_orderkey", "l_linenumber"]
LEAVES = 12

AT = {
    "map": {"call": "read", "key": "/2.parquet"},
    "shuffle": {"call": "open", "key": DATA},
    "write": {"call": "write", "key": DATA, "after": True},
    "written": {"call": "close", "key": DATA, "after": True},
}
VICTIMS = ("kill process", "kill any executor", "kill worker", "kill driver")
BEFORE_COMMIT = Fault("create", "kill process", LOG, tasks_only=False)
AFTER_COMMIT = Fault("create", "kill process", LOG, after=True, tasks_only=False)


def kills() -> list[list[Fault]]:
    """Twenty kills in four imports: each victim in each phase, and the driver around each commit."""
    phases = [*AT.items()]
    plans = []
    for first in range(4):
        # Another victim in each phase; the driver's death ends a run, so it is the last of it.
        plan = [
            Fault(**at, does=VICTIMS[(first + place) % 4]) for place, (_, at) in enumerate(phases)
        ]
        plans.append([*plan, BEFORE_COMMIT if first % 2 else AFTER_COMMIT])
    return plans


@dataclass(frozen=True)
class Rows:
    """What is imported.

    Attributes:
        schema: Its columns.
        split_points: Values of the first row key.
        digest: Of its rows.
    """

    schema: pa.Schema
    split_points: list[int]
    digest: tuple[int, int]


def lineitem(folder: Path) -> Rows:
    """Write files of rows, each with keys from the first to the last."""
    if given := os.environ.get("SLEEPER_LINEITEM"):
        file = pq.ParquetFile(given)
        parts = [lambda n=n: file.read_row_group(n) for n in range(file.num_row_groups)]
    else:
        ids = np.random.default_rng(5).permutation(24_000)
        columns = {KEYS[0]: ids // 4, KEYS[1]: ids % 4, "l_comment": [f"row {n}" for n in ids]}
        rows = pa.table(columns)
        parts = [lambda n=n: rows.slice(n * 1_500, 1_500) for n in range(16)]
    folder.mkdir()
    schema = parts[0]().schema
    for number in range(8):
        with pq.ParquetWriter(folder / f"{number}.parquet", schema) as writer:
            for part in parts[number::8]:
                writer.write_table(part())
    keys = np.sort(np.concatenate([part()[KEYS[0]].to_numpy() for part in parts]))
    points = {int(keys[len(keys) * n // LEAVES]) for n in range(1, LEAVES)}
    return Rows(schema, sorted(points), digest(part() for part in parts))


def digest(parts: Iterable[pa.Table | pa.RecordBatch]) -> tuple[int, int]:
    """Return the number of rows, and a hash of them that does not depend on their order."""
    count, found = 0, 0
    for part in parts:
        hashes = pl.DataFrame(part.select(sorted(part.schema.names))).hash_rows(seed=7)
        count, found = count + part.num_rows, found + int(hashes.cast(pl.Decimal(38, 0)).sum())
    return count, found % 2**64


class Import:
    """One import, which is run again with its job id until it has ended well."""

    def __init__(self, folder: Path, rows: Rows, number: int) -> None:
        self.folder = folder
        self.inputs = f"faulty://{folder.parent / 'in'}"
        self.instance = sleeper.connect(folder / "instance", create=True)
        self.table = self.instance.create_table(
            "lineitem",
            rows.schema,
            row_keys=KEYS[:1],
            sort_keys=KEYS[1:],
            split_points=rows.split_points,
            properties={"sleeper.table.bulk.import.min.leaf.partitions": "1"},
        )
        self.number = number
        self.drivers = 0

    def run(self, plan: list[Fault], master: str) -> None:
        """Import until an import has ended; drivers that die are started again."""
        ended = False
        while not ended:
            self.drivers += 1
            assert self.drivers <= 8, "drivers die again and again"
            home = self.folder / f"driver-{self.drivers}"
            home.mkdir()
            with a_driver(home, master) as driver:
                driver.start(self, f"job-{self.number}", *plan, marks="marks")
                line = driver.process.stdout.readline()
                ended = bool(line)

    def happened(self, plan: list[Fault]) -> list[str]:
        """The kills that took place."""
        return [
            f"{fault.does} at {fault.call}{' after' if fault.after else ''}"
            for number, fault in enumerate(plan)
            if [*(self.folder / "marks").glob(f"fault-{number}-*")]
        ]

    def check(self, rows: Rows) -> None:
        """Each row is there once, and the job was committed once."""
        table = sleeper.connect(self.folder / "instance").table("lineitem")
        assert (
            digest(batch.cast(rows.schema) for batch in table.query(ordered=False)) == rows.digest
        )
        log = [each for each in table.references() if each.row_count]
        assert sum(each.row_count for each in log) == rows.digest[0]


@pytest.mark.soak
def test_an_import_that_is_killed_in_every_phase_adds_each_row_once(tmp_path):
    """
    Given four executors, when Python workers, executors, worker daemons and drivers are killed while
    rows are read, shuffled, written, and before and after the commit, and drivers that died are
    started again with the same job id, then the table has each row once, by hash.
    """
    rows = lineitem(tmp_path / "in")
    told = Counter[str]()
    with standalone_cluster(tmp_path / "cluster", workers=2, cores=2) as cluster:
        for number, plan in enumerate(kills()[: tries(1, soak=4)]):
            start = time.monotonic()
            (tmp_path / f"{number}").mkdir()
            one = Import(tmp_path / f"{number}", rows, number)
            one.run(plan, cluster.url)
            one.check(rows)
            told.update(one.happened(plan))
            took = time.monotonic() - start
            print(f"import {number}: {one.drivers} drivers, {took:.0f} s")  # noqa: T201
        print(f"{rows.digest[0]:,} rows, {told.total()} kills, {cluster.killed} daemons: {told}")  # noqa: T201
    assert told.total() >= 4
