"""The instance and the tables whose requests are counted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from typing import Final

import pyarrow as pa

import sleeper
from sleeper.state.log_store import TransactionLogStateStore
from sleeper.state.table_state import CommittedJob
from sleeper.state.transactions.files import AddFiles
from sleeper.tables.table import Table
from tests.requests.counting_s3 import CountingS3

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
ROWS: Final = 20_000
LEAVES: Final = 64
FILES: Final = 20
LARGE: Final = 400_000
COPIED: Final = 10
"""After so many of the last entries of a log its state is copied, as usual."""


class World:
    """An instance in a bucket of a counting server, whose commits are as on Amazon's S3.

    Args:
        server: The server.
        is_amazon: Whether its commits are so; without it all properties have their defaults.

    Attributes:
        server: The server.
        url: The instance's.
    """

    def __init__(self, server: CountingS3, *, is_amazon: bool = True) -> None:
        self.server = server
        self.url = "s3://counted/instance" if is_amazon else "s3://counted/elsewhere"
        # Log entries are not read back, as on Amazon's S3.
        properties = {"sleeper.statestore.commit.read.back": "never"} if is_amazon else {}
        self.instance = sleeper.create_instance(self.url, properties)
        self._made: dict[str, Table] = {}

    @cached_property
    def elsewhere(self) -> World:
        """An instance on the same server, as it is on one that is not Amazon's."""
        return World(self.server, is_amazon=False)

    def table(self, kind: str) -> Table:
        """Return a new handle of a table, which is made at the first call.

        Args:
            kind: `one leaf`, `large file`, `leaf to write`, `rows to delete`, `64 leaves`, `16 leaves`, `128 row groups`,
                `20 files`, or `log of N`.
        """
        self.make(kind)
        return self.instance.table(kind)

    def make(self, kind: str) -> None:
        """Make a table, if it is not made."""
        if kind not in self._made:
            self._made[kind] = _MAKERS[kind.partition(" of ")[0]](self.instance, kind)

    def opened(self, kind: str) -> Table:
        """Return a handle of a table that has found a key, and may commit without other looks."""
        table = self.table(kind)
        table.query(key=key(7)).to_pylist()
        self.instance._context.storage_time()
        return table


def key(number: int) -> str:
    """Return the key of a row."""
    return f"{number:08d}"


def rows(numbers: range) -> pa.Table:
    """Return rows with the keys of some numbers, and values that no codec makes small."""
    values = [n * 0x9E3779B97F4A7C15 % 2**63 for n in numbers]
    return pa.table({"key": [key(n) for n in numbers], "value": values}, schema=SCHEMA)


def _one_leaf(instance: sleeper.Instance, name: str) -> Table:
    table = instance.create_table(name, SCHEMA, row_keys=["key"])
    table.ingest(rows(range(ROWS)))
    return table


def _large_file(instance: sleeper.Instance, name: str) -> Table:
    table = instance.create_table(name, SCHEMA, row_keys=["key"])
    table.ingest(rows(range(LARGE)))
    return table


def _leaves(instance: sleeper.Instance, name: str) -> Table:
    points = [key(ROWS * n // LEAVES) for n in range(1, LEAVES)]
    table = instance.create_table(name, SCHEMA, row_keys=["key"], split_points=points)
    table.ingest(rows(range(ROWS)))
    return table


def _row_groups(instance: sleeper.Instance, name: str) -> Table:
    groups = {"sleeper.table.parquet.rowgroup.rows.max": str(ROWS // 128 + 1)}
    table = instance.create_table(name, SCHEMA, row_keys=["key"], properties=groups)
    table.ingest(rows(range(ROWS)))
    return table


def _files(instance: sleeper.Instance, name: str) -> Table:
    """Make a table of 20 files in one leaf, all of whose keys lie between each other."""
    table = instance.create_table(name, SCHEMA, row_keys=["key"])
    for first in range(FILES):
        table.ingest(rows(range(first, ROWS, FILES)))
    return table


def _leaves_with_files(instance: sleeper.Instance, name: str) -> Table:
    """Make a table of leaves that have a file each."""
    leaves = int(name.partition(" ")[0])
    points = [key(ROWS * n // leaves) for n in range(1, leaves)]
    table = instance.create_table(name, SCHEMA, row_keys=["key"], split_points=points)
    table.ingest(rows(range(ROWS)))
    table.compact(all_files=True)
    return table


def _log(instance: sleeper.Instance, name: str) -> Table:
    """Make a table whose log has so many entries; all but two add no file."""
    table = instance.create_table(name, SCHEMA, row_keys=["key"])
    table.ingest(rows(range(1_000)))
    store = table._current().store
    keep_until = store.time() + timedelta(days=1)
    jobs = [
        CommittedJob(job_id=f"job {number}", keep_until=keep_until, rows_read=0, rows_written=0)
        for number in range(int(name.rpartition(" ")[2]) - 2)
    ]
    # copies of former states are left out, as after one of a later state: each replaces the last
    assert isinstance(store, TransactionLogStateStore)
    store._copies._copied = store.state().number + len(jobs) - COPIED
    for job in jobs:
        store.commit(AddFiles(job=job))
    return table


_MAKERS: Final[dict[str, Callable[[sleeper.Instance, str], Table]]] = {
    "one leaf": _one_leaf,
    "large file": _large_file,
    "leaf to write": _one_leaf,
    "rows to delete": _one_leaf,
    f"{LEAVES} leaves": _leaves,
    "128 row groups": _row_groups,
    f"{FILES} files": _files,
    "16 leaves": _leaves_with_files,
    "log": _log,
}


def use(server: CountingS3, setenv: Callable[[str, str], None]) -> None:
    """Let this process use a server as its object store."""
    setenv("AWS_ENDPOINT_URL", server.endpoint)
    setenv("AWS_REGION", "us-east-1")
    setenv("AWS_ACCESS_KEY_ID", "test")
    setenv("AWS_SECRET_ACCESS_KEY", "test")
    setenv("NO_PROXY", "127.0.0.1")
