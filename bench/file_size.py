"""How large data files are beside plain Parquet of the same rows, and what makes the difference.

Rows are narrow, like those of an order line: numbers, prices, codes of few values, a short text.
Plain Parquet is pyarrow's own, zstd, with dictionaries and one row group for a million rows.

    python -m bench.file_size --rows 400000
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sleeper

PREFIX = "sleeper.table.parquet."
DICTIONARIES = {
    f"{PREFIX}dictionary.encoding.{kind}.fields": "true" for kind in ("rowkey", "sortkey", "value")
}
VARIANTS = {
    "data files as they are": {},
    "without Bloom filters": {f"{PREFIX}bloom.filter": "false"},
    "with dictionaries for values": {f"{PREFIX}dictionary.encoding.value.fields": "true"},
    "with dictionaries for all": DICTIONARIES,
    "values, and row groups of 1,000,000 rows": {
        f"{PREFIX}dictionary.encoding.value.fields": "true",
        f"{PREFIX}rowgroup.rows.max": "1000000",
        f"{PREFIX}rowgroup.size": "1G",
    },
}


def main(row_count: int) -> list[str]:
    """Measure, and return the lines of the report."""
    rows = order_lines(row_count)
    with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
        plain = Path(folder) / "plain.parquet"
        pq.write_table(rows, plain, compression="zstd", row_group_size=1_000_000)
        floor = plain.stat().st_size
        lines = [f"{'':42} {'bytes':>12} {'a row':>6} {'/ plain':>8}"]
        lines.append(_line("plain Parquet", floor, row_count, floor))
        instance = sleeper.connect(Path(folder) / "instance", create=True)
        for place, (name, properties) in enumerate(VARIANTS.items()):
            table = instance.create_table(
                f"t{place}",
                rows.schema,
                row_keys=["order"],
                sort_keys=["line"],
                properties=properties,
            )
            table.ingest(rows)
            files = (Path(folder) / "instance" / table.table_id).rglob("*.parquet")
            size = sum(file.stat().st_size for file in files if "data" in file.parts)
            lines.append(_line(name, size, row_count, floor))
    return lines


def order_lines(row_count: int) -> pa.Table:
    """Return rows in key order, so that both ways write the same order."""
    draw = np.random.default_rng(1)
    words = np.array(["the", "of", "foxes", "deposits", "carefully", "ironic", "final", "bold"])
    texts = words[draw.integers(0, len(words), (row_count, 5))]
    columns = {
        "order": np.sort(draw.integers(0, 4 * row_count, row_count)),
        "line": np.arange(row_count),
        "part": draw.integers(0, 200_000, row_count),
        "quantity": draw.integers(1, 51, row_count),
        "price": np.round(draw.random(row_count) * 100_000, 2),
        "flag": np.array(["A", "N", "R"])[draw.integers(0, 3, row_count)],
        "mode": np.array(["AIR", "MAIL", "RAIL", "SHIP"])[draw.integers(0, 4, row_count)],
        "comment": [" ".join(line) for line in texts],
    }
    table = pa.table(columns)
    return table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))


def _line(name: str, size: int, row_count: int, floor: int) -> str:
    return f"{name:42} {size:12,} {size / row_count:6.1f} {size / floor:8.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    print("\n".join(main(parser.parse_args().rows)))
