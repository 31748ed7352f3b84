"""An import on four executors of a standalone cluster is killed in each of its phases, and run again.

    SLEEPER_LINEITEM=lineitem.parquet python -m pytest -rP tests/spark/cluster/test_killed_imports.py

imports a file of any size, such as lineitem of TPC-H (PyPI's `tpchgen-cli` makes one), in place of
the rows made here.
"""

from __future__ import annotations

import os
import time
from collections import Counter
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


def lineitem(folder: Path) -> pa.Table:
    """Write files of rows in no order; return the rows."""
    if given := os.environ.get("SLEEPER_LINEITEM"):
        rows = pq.read_table(given)
    else:
        ids = np.random.default_rng(5).permutation(24_000)
        columns = {KEYS[0]: ids // 4, KEYS[1]: ids % 4, "l_comment": [f"row {n}" for n in ids]}
        rows = pa.table(columns)
    folder.mkdir()
    each = -(-rows.num_rows // 8)
    for number in range(8):
        part = rows.slice(number * each, each)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=max(1, each // 2))
    return rows


def digest(rows: pa.Table) -> tuple[int, int]:
    """Return the number of rows, and a hash of them that does not depend on their order."""
    hashes = pl.DataFrame(rows.select(sorted(rows.column_names))).hash_rows(seed=7)
    return rows.num_rows, int(hashes.sum() or 0)


class Import:
    """One import, which is run again with its job id until it has ended well."""

    def __init__(self, folder: Path, rows: pa.Table, number: int) -> None:
        self.folder = folder
        self.inputs = f"faulty://{folder.parent / 'in'}"
        self.instance = sleeper.connect(folder / "instance", create=True)
        keys = np.sort(rows[KEYS[0]].to_numpy())
        points = sorted({int(keys[len(keys) * n // LEAVES]) for n in range(1, LEAVES)})
        self.table = self.instance.create_table(
            "lineitem",
            rows.schema,
            row_keys=KEYS[:1],
            sort_keys=KEYS[1:],
            split_points=points,
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

    def check(self, rows: pa.Table) -> None:
        """Each row is there once, and the job was committed once."""
        table = sleeper.connect(self.folder / "instance").table("lineitem")
        assert digest(table.query().to_arrow()) == digest(rows.cast(table.arrow_schema))
        log = [each for each in table.references() if each.row_count]
        assert sum(each.row_count for each in log) == rows.num_rows


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
        print(f"{rows.num_rows:,} rows, {told.total()} kills, {cluster.killed} daemons: {told}")  # noqa: T201
    assert told.total() >= 4
