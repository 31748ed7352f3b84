"""DataFusion over Parquet: files are copied in, then sorted by COPY."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import datafusion
import pyarrow as pa

from bench.peers.system import System
from bench.peers.systems.sql_answers import BETWEEN, COUNT_AND_SUM, ONE

READING = {
    "datafusion.execution.parquet.pushdown_filters": "true",
    "datafusion.execution.parquet.reorder_filters": "true",
}
WRITING = (
    "'format.bloom_filter_enabled::key' 'true', 'format.compression' 'zstd(3)', "
    "'format.max_row_group_size' '65536', 'format.data_page_row_count_limit' '1000', "
    "'format.write_batch_size' '1000', 'format.dictionary_enabled' 'false'"
)


class DataFusionParquet(System):
    """A folder of files, and no catalog."""

    def begin(self) -> None:
        (self.folder / "t").mkdir()

    def append(self, path: Path) -> None:
        shutil.copy(path, self.folder / "t")

    def maintain(self) -> None:
        self.open()
        self.db.sql(
            f"copy (select * from t order by key) to '{self.folder}/new/' "
            f"stored as parquet options ({WRITING})"
        ).collect()
        shutil.rmtree(self.folder / "t")
        (self.folder / "new").rename(self.folder / "t")

    def open(self) -> None:
        config = datafusion.SessionConfig().with_target_partitions(2)
        for name, value in READING.items():
            config = config.set(name, value)
        self.db = datafusion.SessionContext(config)
        self.db.register_parquet("t", str(self.folder / "t"))

    def one(self, key: str) -> pa.Table:
        return self._arrow(ONE.format(key))

    def many(self, keys: Sequence[str]) -> pa.Table:
        self.db.deregister_table("asked")
        self.db.from_arrow(pa.table({"key": keys}), name="asked")
        return self._arrow("select t.* from t left semi join asked on t.key = asked.key")

    def between(self, low: str, high: str) -> pa.Table:
        return self._arrow(BETWEEN.format(low, high))

    def count_and_sum(self) -> tuple[int, int]:
        answer = self._arrow(COUNT_AND_SUM)
        return answer[0][0].as_py(), answer[1][0].as_py()

    def _arrow(self, question: str) -> pa.Table:
        return self.db.sql(question).to_arrow_table()


PEER = DataFusionParquet
