"""polars over Parquet: files are copied in, then sorted into files of 625,000 rows."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from bench.peers.system import System

FILE_ROWS = 625_000


class PolarsParquet(System):
    """A folder of files, scanned lazily."""

    def begin(self) -> None:
        (self.folder / "t").mkdir()

    def append(self, path: Path) -> None:
        shutil.copy(path, self.folder / "t")

    def maintain(self) -> None:
        rows = pl.scan_parquet(self.folder / "t" / "*.parquet").sort("key").collect()
        new = self.folder / "new"
        new.mkdir()
        for start in range(0, len(rows), FILE_ROWS):
            piece = rows[start : start + FILE_ROWS]
            piece.write_parquet(new / f"{start:010}.parquet", row_group_size=65_536)
        shutil.rmtree(self.folder / "t")
        new.rename(self.folder / "t")

    def open(self) -> None:
        self.rows = pl.scan_parquet(self.folder / "t" / "*.parquet")

    def one(self, key: str) -> pa.Table:
        return self.rows.filter(pl.col("key") == key).collect().to_arrow()

    def many(self, keys: Sequence[str]) -> pa.Table:
        asked = pl.LazyFrame({"key": keys})
        return self.rows.join(asked, on="key", how="semi").collect().to_arrow()

    def between(self, low: str, high: str) -> pa.Table:
        key = pl.col("key")
        return self.rows.filter((key >= low) & (key < high)).collect().to_arrow()

    def count_and_sum(self) -> tuple[int, int]:
        rows, total = self.rows.select(pl.len(), pl.col("n").sum()).collect().row(0)
        return rows, total


PEER = PolarsParquet
