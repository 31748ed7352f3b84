"""Lance: upkeep compacts fragments, makes a B-tree index on the key and drops old versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.peers.system import System


class Lance(System):
    """A Lance dataset in a folder."""

    def append(self, path: Path) -> None:
        lance.write_dataset(pq.read_table(path), self._uri, mode="append")

    def maintain(self) -> None:
        self.open()
        self.rows.optimize.compact_files(target_rows_per_fragment=1_000_000)
        self.rows.create_scalar_index("key", "BTREE")
        self.rows.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    def open(self) -> None:
        self.rows = lance.dataset(self._uri)

    def one(self, key: str) -> pa.Table:
        return self.rows.to_table(filter=f"key = '{key}'")

    def many(self, keys: Sequence[str]) -> pa.Table:
        return self.rows.to_table(filter=f"key in ({','.join(map(repr, keys))})")

    def between(self, low: str, high: str) -> pa.Table:
        return self.rows.to_table(filter=f"key >= '{low}' and key < '{high}'").sort_by("key")

    def count_and_sum(self) -> tuple[int, int]:
        rows = total = 0
        for batch in self.rows.to_batches(columns=["n"]):
            rows, total = rows + batch.num_rows, total + pc.sum(batch["n"]).as_py()
        return rows, total

    @property
    def _uri(self) -> str:
        return str(self.folder / "t.lance")


PEER = Lance
