"""The floor: pyarrow decodes, sorts and writes once; questions find all rows in memory, sorted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.peers.system import System


class Floor(System):
    """The least work that the same answers need; nothing is durable, versioned or shared."""

    def append(self, path: Path) -> None:
        rows = pq.read_table(path).sort_by("key")
        pq.write_table(rows, self.folder / path.name, compression="zstd", compression_level=3)

    def maintain(self) -> None:
        parts = sorted(self.folder.glob("*.parquet"))
        rows = pa.concat_tables([pq.read_table(part) for part in parts]).sort_by("key")
        pq.write_table(rows, self.folder / "sorted", compression="zstd", compression_level=3)
        for part in parts:
            part.unlink()

    def open(self) -> None:
        self.rows = pq.read_table(self.folder / "sorted").combine_chunks()
        self.keys = self.rows["key"].chunk(0)

    def one(self, key: str) -> pa.Table:
        start = self._place(key)
        found = start < len(self.keys) and self.keys[start].as_py() == key
        return self.rows.slice(start, int(found))

    def many(self, keys: Sequence[str]) -> pa.Table:
        return self.rows.filter(pc.is_in(self.rows["key"], pa.array(keys)))

    def between(self, low: str, high: str) -> pa.Table:
        start = self._place(low)
        return self.rows.slice(start, self._place(high) - start)

    def count_and_sum(self) -> tuple[int, int]:
        return self.rows.num_rows, pc.sum(self.rows["n"]).as_py()

    def _place(self, key: str) -> int:
        return bisect_left(range(len(self.keys)), key, key=lambda place: self.keys[place].as_py())


PEER = Floor
