"""SQLite: a table ordered by its key, one transaction a file. It gives Python values."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.system import System
from bench.peers.systems.sql_answers import BETWEEN, COUNT_AND_SUM, ONE


class SQLiteFile(System):
    """A file with a write-ahead log, WITHOUT ROWID; upkeep is VACUUM."""

    def begin(self) -> None:
        self.open()
        self.db.execute("pragma journal_mode=wal")
        self.db.execute(
            "create table t (key text primary key, ts integer, value text, n integer) without rowid"
        )

    def append(self, path: Path) -> None:
        rows = pq.read_table(path).sort_by("key")
        columns = [rows["key"], rows["ts"].cast(pa.int64()), rows["value"], rows["n"]]
        values = zip(*(column.to_pylist() for column in columns), strict=True)
        with self.db:
            self.db.executemany("insert into t values (?, ?, ?, ?)", values)

    def maintain(self) -> None:
        self.open()
        self.db.execute("vacuum")
        self.db.execute("pragma wal_checkpoint(truncate)")

    def open(self) -> None:
        self.db = sqlite3.connect(self.folder / "t.db")
        self.db.execute("pragma synchronous=normal")
        self.db.execute("pragma cache_size=-262144")

    def one(self, key: str) -> list[Any]:
        return self.db.execute(ONE.format(key)).fetchall()

    def many(self, keys: Sequence[str]) -> list[Any]:
        self.db.execute("create temp table if not exists asked (key text primary key)")
        self.db.execute("delete from asked")
        self.db.executemany("insert into asked values (?)", ((key,) for key in keys))
        return self.db.execute("select t.* from asked join t using (key)").fetchall()

    def between(self, low: str, high: str) -> list[Any]:
        return self.db.execute(BETWEEN.format(low, high)).fetchall()

    def count_and_sum(self) -> tuple[int, int]:
        rows, total = self.db.execute(COUNT_AND_SUM).fetchone()
        return rows, total


PEER = SQLiteFile
