"""Reading ranges from a file whose end is damaged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import DataDamaged

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
ROWS = [{"key": f"k{number:05}", "n": number} for number in range(5_000)]


class TestRangesOfADamagedFile:
    """Footer and page indexes are checked against the file's seal before a range is read."""

    @pytest.mark.parametrize("from_end", range(20, 1_000, 59))
    def test_damage_behind_the_rows_is_told_and_names_the_file(self, tmp_path, from_end):
        """A flipped bit in footer or index would else hide rows, or make up others."""
        table = sleeper.connect(tmp_path, create=True).create_table("t", SCHEMA, row_keys=["key"])
        table.ingest(ROWS)
        (file,) = Path(tmp_path).glob("*/data/*/*.parquet")
        body = bytearray(file.read_bytes())
        body[-from_end] ^= 0x10
        file.write_bytes(body)
        fresh = sleeper.connect(tmp_path).table("t")

        with pytest.raises(DataDamaged, match=file.name):
            fresh.query(range={"key": ("k00100", "k00200")}).to_arrow()
