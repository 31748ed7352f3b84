"""What a small read costs by each reader of data files that could do it, in one run.

Tables of one leaf, of several files whose rows interleave, in a folder and in a bucket whose server
answers after 20 ms. Ranges of some rows, `head(5)` and `query(limit=20)` are asked by turns with
all readers, without the one of few rows (`engine/reading/few_rows.py`), without that of first rows
(`border_after`), and without both; or, with `--limits`, with other limits of few rows. Each
question asks for other rows, by a handle that has the page indexes, and by a new one. Medians of 9:
CPU of all threads, and wall.

    python -m bench.readers --rows 200000 --rows 5000000
    python -m bench.readers --rows 200000 --limits --folder-only
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import sleeper
from bench.folder_bucket import folder_bucket
from sleeper.engine.reading import few_rows, read_leaves

RUNS = 9
DELAY_S = 0.020
FILES = (1, 3, 12)
SPANS = (10, 100, 1_000, 5_000, 20_000)
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("x", pa.float64()),
    ]
)
READERS = ("all", "no few", "no first", "neither")
LIMITS = ("8192", "16384", "32768", "65536")


def main() -> None:
    """Make tables, and print a line for each of them and each question."""
    arguments = parsed()
    if arguments.url:
        readers = LIMITS if arguments.limits else READERS
        ask_all(arguments.url, arguments.rows[0], arguments.files, readers)
        return
    with tempfile.TemporaryDirectory(prefix="bench-readers-") as scratch:
        for rows in arguments.rows:
            for files in FILES:
                make(Path(scratch) / f"{rows}-{files}", rows, files)
        with folder_bucket(Path(scratch), DELAY_S) as bucket:
            for place in ("folder", "bucket")[: 1 if arguments.folder_only else 2]:
                for rows in arguments.rows:
                    for files in FILES:
                        name = f"{rows}-{files}"
                        url = f"{scratch}/{name}" if place == "folder" else f"s3://b/{name}"
                        print(f"\n{place}, {rows:,} rows, {files} files", flush=True)
                        ask = ["--url", url, "--rows", str(rows), "--files", str(files)]
                        ask_in_a_process(ask + ["--limits"] * arguments.limits, bucket.endpoint)


def make(folder: Path, rows: int, files: int) -> None:
    """Ingest files whose rows interleave."""
    table = sleeper.connect(folder, create=True).create_table("t", SCHEMA, row_keys=["key"])
    for number in range(files):
        places = np.arange(number, rows, files)
        columns = {
            "key": pa.array([f"user-{place:010}" for place in places.tolist()]),
            "n": pa.array(places * 7919 % 65537),
            "kind": pa.array([f"kind-{place % 50}" for place in places.tolist()]),
            "x": pa.array(places / 8),
        }
        table.ingest(pa.table(columns, schema=SCHEMA))


def ask_in_a_process(arguments: list[str], endpoint: str) -> None:
    """Ask in a process of its own, which the server does not slow down."""
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-m", "bench.readers", *arguments]
    subprocess.run(command, env={**os.environ, **settings}, check=True)


def ask_all(url: str, rows: int, files: int, readers: Sequence[str]) -> None:
    """Ask each question by each reader, by turns; print medians."""
    instance = sleeper.connect(url)
    chosen = np.random.default_rng(files)

    def spans(span: int) -> Callable[[sleeper.Table], int]:
        def ask(table: sleeper.Table) -> int:
            first = int(chosen.integers(0, rows - span))
            ends = (f"user-{first:010}", f"user-{first + span:010}")
            return table.query(range={"key": ends}).to_arrow().num_rows

        return ask

    questions: dict[str, Callable[[sleeper.Table], int]] = {
        **{f"range of {span}": spans(span) for span in SPANS},
        "head(5)": lambda table: table.head(5).to_arrow().num_rows,
        "query(limit=20)": lambda table: table.query(limit=20).to_arrow().num_rows,
    }
    print(f"{'CPU ms / wall ms':<34}" + "".join(f"{name:>18}" for name in readers))
    for has_indexes in (True, False):
        tables = {reader: instance.table("t") for reader in readers}
        for name, ask in questions.items():
            took: dict[str, list[tuple[float, float]]] = {reader: [] for reader in readers}
            for run in range(RUNS + 1):
                for place in range(len(readers)):
                    reader = readers[(place + run) % len(readers)]
                    table = tables[reader] if has_indexes else instance.table("t")
                    with without(reader):
                        cpu, wall = process_time(), perf_counter()
                        assert ask(table) > 0
                        figures = (process_time() - cpu, perf_counter() - wall)
                    if run:
                        took[reader].append(figures)
            cells = ""
            for reader in readers:
                cpu, wall = (1_000 * median(column) for column in zip(*took[reader], strict=True))
                cells += f"{cpu:>9.1f} /{wall:>7.1f}"
            print(f"{name + ('' if has_indexes else ', new handle'):<34}{cells}", flush=True)


@contextmanager
def without(reader: str) -> Iterator[None]:
    """Leave readers out for a while, or give that of few rows another limit."""
    with ExitStack() as left_out:
        if reader in LIMITS:
            left_out.enter_context(patch.object(few_rows, "FEW_ROWS", int(reader)))
        if reader in ("no few", "neither"):
            left_out.enter_context(patch.object(few_rows, "read_few_rows", lambda *_: None))
        if reader in ("no first", "neither"):
            left_out.enter_context(patch.object(read_leaves, "_first_rows_first", _in_order))
        yield


def _in_order(reading, regions_by_file, columns, _):  # noqa: ANN001, ANN202 - as what it replaces
    return read_leaves._rows_in_order(reading, regions_by_file, columns)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--folder-only", action="store_true")
    parser.add_argument("--url")
    parser.add_argument("--files", type=int, default=1)
    found = parser.parse_args()
    found.rows = found.rows or [200_000, 5_000_000]
    return found


if __name__ == "__main__":
    main()
