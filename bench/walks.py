"""How long the walks through the code are: calls of the package's functions, and modules entered.

    python -m bench.walks

Each walk is made once before it is counted, so imports and first openings are not in the figures.
Ten rows, so that what is done once a row or once a page hardly counts. The Spark walk is what a
worker does with the blocks of one bucket; it is counted in this process, without Spark.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import sleeper
from sleeper.engine.writing.write_settings import write_settings
from sleeper.spark.block_shuffle.map_tasks import MapSettings, cut_rows
from sleeper.spark.block_shuffle.packed_buckets import BucketLeaves, pack_ranges
from sleeper.spark.block_shuffle.reduce_tasks import ReduceSettings, write_buckets
from sleeper.state.plans.bulk_imports import plan_even_buckets

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
ROWS = pa.table({"id": list("abcdevwxyz"), "n": list(range(10))}, schema=SCHEMA)


def walked(walk: Callable[[], object]) -> tuple[int, int, int]:
    """Return calls, distinct functions and modules of the package that a walk enters."""
    calls: list[tuple[str, str]] = []

    def note(frame: Any, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("sleeper"):
            calls.append((module, frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return len(calls), len(set(calls)), len({module for module, _ in calls})


def walks(table: sleeper.Table) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the walks of docs/design.md by name."""
    yield "a  ingest ten rows into two leaves", lambda: table.ingest(ROWS)
    yield "b  query one key", lambda: table.query(key="b").to_pylist()
    yield "b  query a range", lambda: table.query(range={"id": ("b", "d")}).to_pylist()
    yield "c  compact two leaves", lambda: table.compact(all_files=True)
    yield "d  cut rows into blocks, write a bucket of them", lambda: spark_block(table)


def spark_block(table: sleeper.Table) -> None:
    """Do what Spark's map task and then its reduce task do with ten rows of one bucket."""
    opened, context = table._current(), table._context
    leaves = [*opened.store.state().tree.leaves()]
    buckets = plan_even_buckets(leaves, 1)
    cut = cut_rows(
        MapSettings(
            schema=table.schema,
            inputs=context.inputs,
            buckets=pack_ranges(buckets, opened.arrow_schema.field(0).type),
            places=range(len(buckets) + 1),
            memory_bytes=1 << 24,
            new_id=context.new_id,
        ),
        "rows",
    )
    write = write_buckets(
        ReduceSettings(
            files=opened.files,
            schema=table.schema,
            leaves=BucketLeaves.of(buckets),
            write=write_settings(table.properties.parquet),
            processing=table.properties.processing(table.schema),
            memory_bytes=1 << 24,
            temp_folder=None,
            now_ms=0,
            notes_bucket=len(buckets),
            new_id=context.new_id,
        )
    )
    blocks = pa.Table.from_batches(cut(iter(ROWS.to_batches())))
    of_bucket = blocks.filter(pc.equal(blocks.column("bucket"), 0))
    assert [*write(iter(of_bucket.to_batches()))]


def main() -> None:
    """Print a line for each walk."""
    with tempfile.TemporaryDirectory() as folder, sleeper.connect(folder, create=True) as instance:
        table = instance.create_table("t", SCHEMA, row_keys=["id"], split_points=["m"])
        for name, walk in walks(table):
            for _ in range(2 if name.startswith("b") else 1):
                walk()
            if name.startswith("c"):
                table.ingest(ROWS)  # what the first walk has merged is not merged again
            calls, functions, modules = walked(walk)
            print(
                f"{name:<44}{calls:>7,} calls of {functions:>4} functions in {modules:>3} modules"
            )


if __name__ == "__main__":
    main()
