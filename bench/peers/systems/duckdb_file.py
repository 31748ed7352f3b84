"""DuckDB's own file: rows are appended, then sorted into a new file with an index on the key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.peers.system import System
from bench.peers.systems.sql_answers import BETWEEN, COUNT_AND_SUM, ONE


class DuckDBFile(System):
    """One file, opened by one process."""

    def begin(self) -> None:
        self.db = duckdb.connect(self.folder / "raw.duckdb")
        self.db.execute(
            "create table t (key varchar not null, ts timestamptz, value varchar, n bigint)"
        )

    def append(self, path: Path) -> None:
        self.db.execute(f"insert into t select * from read_parquet('{path}')")
        self.db.execute("checkpoint")

    def maintain(self) -> None:
        db = duckdb.connect(self.folder / "sorted.duckdb")
        db.execute(f"attach '{self.folder / 'raw.duckdb'}' as raw (read_only)")
        db.execute("create table t as select * from raw.t order by key")
        db.execute("create index by_key on t (key)")
        db.execute("checkpoint")
        db.close()

    def open(self) -> None:
        names = (self.folder / name for name in ("sorted.duckdb", "raw.duckdb"))
        kept = next(path for path in names if path.exists())
        self.db = duckdb.connect(kept, read_only=True)
        self.db.execute("set TimeZone='UTC'")

    def one(self, key: str) -> pa.Table:
        return self._arrow(ONE.format(key))

    def many(self, keys: Sequence[str]) -> pa.Table:
        self.db.register("asked", pa.table({"key": keys}))
        return self._arrow("select t.* from t semi join asked using (key)")

    def between(self, low: str, high: str) -> pa.Table:
        return self._arrow(BETWEEN.format(low, high))

    def count_and_sum(self) -> tuple[int, int]:
        rows, total = self.db.execute(COUNT_AND_SUM).fetchone()
        return rows, int(total)

    def _arrow(self, question: str) -> pa.Table:
        return self.db.execute(question).to_arrow_table()


PEER = DuckDBFile
