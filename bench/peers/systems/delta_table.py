"""delta-rs: upkeep is a z-order by the key and a vacuum; read by its QueryBuilder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake

from bench.peers.system import System
from bench.peers.systems.sql_answers import BETWEEN, COUNT_AND_SUM, ONE


class Delta(System):
    """A Delta table in a folder."""

    def append(self, path: Path) -> None:
        write_deltalake(self._uri, pq.read_table(path), mode="append")

    def maintain(self) -> None:
        table = DeltaTable(self._uri)
        writer = WriterProperties(max_row_group_size=65_536, compression="ZSTD")
        table.optimize.z_order(["key"], target_size=64 << 20, writer_properties=writer)
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        table.create_checkpoint()

    def open(self) -> None:
        self.db = QueryBuilder().register("t", DeltaTable(self._uri))

    def one(self, key: str) -> pa.Table:
        return self._arrow(ONE.format(key))

    def many(self, keys: Sequence[str]) -> pa.Table:
        return self._arrow(f"select * from t where key in ({','.join(map(repr, keys))})")

    def between(self, low: str, high: str) -> pa.Table:
        return self._arrow(BETWEEN.format(low, high))

    def count_and_sum(self) -> tuple[int, int]:
        answer = self._arrow(COUNT_AND_SUM)
        return answer[0][0].as_py(), answer[1][0].as_py()

    @property
    def _uri(self) -> str:
        return str(self.folder / "t")

    def _arrow(self, question: str) -> pa.Table:
        return pa.table(self.db.execute(question).read_all())


PEER = Delta
