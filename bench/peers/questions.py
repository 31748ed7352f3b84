"""The rows that every system is given, and what it is asked about them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.random_rows import SCHEMA, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked.

    Attributes:
        hits: Keys that are there.
        many: More of them, for one call.
        small: Pairs of keys with about 1,000 rows between them.
        large: Pairs with a tenth of all rows, at most 100,000.
        row_count: All rows.
        total: The sum of n.
    """

    hits: list[str]
    many: list[str]
    small: list[tuple[str, str]]
    large: list[tuple[str, str]]
    row_count: int
    total: int

    @property
    def misses(self) -> list[str]:
        """Keys that are not there, near to those that are."""
        return [key[:-1] + "~" for key in self.hits]

    def as_json(self) -> dict[str, object]:
        """The fields, for another process."""
        return asdict(self)


def write_inputs(folder: Path, row_count: int, file_count: int) -> Questions:
    """Write the input files, in random order, and draw the questions."""
    folder.mkdir(parents=True)
    keys, total = [], 0
    for part in range(file_count):
        table = pa.Table.from_batches(rows(row_count // file_count, seed=part), SCHEMA)
        pq.write_table(table, folder / f"{part:03}.parquet")
        keys.append(table["key"].combine_chunks())
        total += pc.sum(table["n"]).as_py()
    ordered = pa.chunked_array(keys).combine_chunks()
    ordered = ordered.take(pc.array_sort_indices(ordered))
    count = len(ordered)
    draw = np.random.default_rng(99)
    asked = ordered.take(pa.array(draw.permutation(count)[:11_000])).to_pylist()
    return Questions(
        hits=asked[:500],
        many=sorted(asked[-10_000:]),
        small=_ranges(ordered, draw, min(1_000, count // 100)),
        large=_ranges(ordered, draw, min(100_000, count // 10)),
        row_count=count,
        total=total,
    )


def _ranges(keys: pa.Array, draw: np.random.Generator, width: int) -> list[tuple[str, str]]:
    starts = draw.integers(0, len(keys) - width, 10)
    return [(keys[start].as_py(), keys[start + width].as_py()) for start in starts.tolist()]
