"""Sleeper: eight leaves, by split points that are estimated from the first file."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import sleeper
from bench.peers.system import System
from bench.random_rows import SCHEMA, split_points

LEAVES = 8


class SleeperTable(System):
    """`Table.ingest`, `Table.compact`, `Table.query`."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        super().__init__(folder)
        self.url = url or folder / "instance"

    def begin(self) -> None:
        instance = sleeper.connect(self.url, create=True)
        instance.create_table("t", SCHEMA, row_keys=["key"], split_points=split_points(LEAVES))
        self.open()

    def open(self) -> None:
        self.table = sleeper.connect(self.url).table("t")

    def append(self, path: Path) -> None:
        self.table.ingest(path)

    def maintain(self) -> None:
        self.open()
        self.table.compact()

    def one(self, key: str) -> pa.Table:
        return self.table.query(key=key).to_arrow()

    def many(self, keys: Sequence[str]) -> pa.Table:
        return self.table.query(keys=keys).to_arrow()

    def between(self, low: str, high: str) -> pa.Table:
        return self.table.query(range={"key": (low, high)}).to_arrow()

    def count_and_sum(self) -> tuple[int, int]:
        rows = total = 0
        for batch in self.table.query(columns=["n"], **self._in_any_order):
            rows += batch.num_rows
            total += pc.sum(batch["n"]).as_py() or 0
        return rows, total

    def count(self) -> int:
        counted = getattr(self.table, "count", None)
        return counted() if counted else self.count_and_sum()[0]

    @property
    def _in_any_order(self) -> dict[str, Any]:
        """How a query says so, where this Sleeper knows: earlier ones are measured as well."""
        known = signature(self.table.query).parameters
        return {"ordered": False} if "ordered" in known else {}


PEER = SleeperTable
