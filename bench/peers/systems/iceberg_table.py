"""pyiceberg with a SQLite catalog. It has no compaction: upkeep overwrites with sorted rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, In, LessThan

from bench.peers.system import System
from bench.random_rows import SCHEMA

WRITING = {
    "write.target-file-size-bytes": str(64 << 20),
    "write.parquet.row-group-limit": "65536",
}


class Iceberg(System):
    """An Iceberg table in a folder."""

    def begin(self) -> None:
        self._catalog().create_namespace("d")
        self.table = self._catalog().create_table("d.t", SCHEMA, properties=WRITING)

    def append(self, path: Path) -> None:
        self.table.append(pq.read_table(path, schema=SCHEMA))

    def maintain(self) -> None:
        self.open()
        self.table.overwrite(self.table.scan().to_arrow().cast(SCHEMA).sort_by("key"))

    def open(self) -> None:
        self.table = self._catalog().load_table("d.t")

    def one(self, key: str) -> pa.Table:
        return self.table.scan(row_filter=EqualTo("key", key)).to_arrow()

    def many(self, keys: Sequence[str]) -> pa.Table:
        return self.table.scan(row_filter=In("key", keys)).to_arrow()

    def between(self, low: str, high: str) -> pa.Table:
        inside = And(GreaterThanOrEqual("key", low), LessThan("key", high))
        return self.table.scan(row_filter=inside).to_arrow().sort_by("key")

    def count_and_sum(self) -> tuple[int, int]:
        numbers = self.table.scan(selected_fields=("n",)).to_arrow()["n"]
        return len(numbers), pc.sum(numbers).as_py()

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog(
            "c", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"file://{self.folder}/data"
        )


PEER = Iceberg
