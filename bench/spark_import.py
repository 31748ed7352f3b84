"""What a bulk import on Spark costs, beside plain Spark writing the same rows sorted.

The floor is what a Spark user would write: `repartitionByRange(leaves).sortWithinPartitions`,
then Parquet with the same codec and level, without sketches, filters, seals or a table. Each run
is a fresh process with a session of its own (`local[2]`, our settings; the JVM's own compilers for
the floor and for DataFrames, which come with a user's session), whose Python workers have been
started; CPU and memory are those of the whole process tree (JVM and Python), memory as
proportional set size, looked at three times a second. What looking costs is not counted.

    PYTHONPATH=src python -m bench.spark_import --rows 10000000 --leaves 64
    PYTHONPATH=src python -m bench.spark_import --rows 40000000 --leaves 64 --variants floor skewed
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, thread_time

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import sleeper
from bench.random_rows import SCHEMA, rows, split_points
from sleeper.spark.session import local_session

ROWS_PER_FILE = 1_250_000
VARIANTS = ("floor", "files", "frame", "skewed", "presplit", "local")
WELL_COMPILED = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=4"}  # Java's default
ABOUT = {
    "floor": "plain Spark: range partitions, sorted, zstd level 3",
    "files": "bulk import of files into leaves that are there",
    "frame": "the same of spark.read.parquet(...)",
    "skewed": "files of which half the rows fall into one leaf",
    "presplit": "extending a tree of one leaf by a sample, no rows",
    "local": "the same files by the local engine",
}


def main() -> None:
    arguments = parsed()
    if arguments.run:
        run(arguments)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-spark-") as folder:
        make_inputs(Path(folder), arguments.rows, arguments.variants)
        print(f"{arguments.rows:,} rows, {arguments.leaves} leaves")
        heads = ("CPU s", "JVM s", "wall s", "peak MB", "of JVM", "load")
        print(f"{'variant':10}" + "".join(map("{:>9}".format, heads)))
        cpu: dict[str, list[float]] = {variant: [] for variant in arguments.variants}
        for _ in range(arguments.runs):
            for variant in arguments.variants:
                cpu[variant].append(measured(variant, arguments, Path(folder)))
        floor = median(cpu["floor"]) if "floor" in cpu else None
        for variant, values in cpu.items():
            ratio = f"  / floor {median(values) / floor:.2f}" if floor else ""
            print(f"median CPU s: {variant} {median(values):.1f}{ratio}  ({ABOUT[variant]})")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--leaves", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["floor", "files"])
    parser.add_argument("--folder", default=None, help="for inputs, shuffles and outputs")
    parser.add_argument("--run", choices=VARIANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(variant: str, arguments: argparse.Namespace, folder: Path) -> float:
    """Run one variant in a process of its own; print what it cost, return its CPU seconds."""
    command = [sys.executable, "-m", "bench.spark_import", "--run", variant]
    command += [f"--rows={arguments.rows}", f"--leaves={arguments.leaves}", f"--folder={folder}"]
    paths = os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")])
    root = Path(__file__).parent.parent
    places = os.pathsep.join(
        str((root / path).resolve()) for path in paths.split(os.pathsep) if path
    )
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": places},
    )
    if done.returncode:
        raise SystemExit(f"{variant} failed\n{done.stderr[-3000:]}")
    line = done.stdout.strip().splitlines()[-1]
    print(line, flush=True)
    return float(line.split()[1])


def run(arguments: argparse.Namespace) -> None:
    variant, folder = arguments.run, Path(arguments.folder)
    inputs = str(folder / ("skewed" if variant == "skewed" else "even"))
    output = Path(tempfile.mkdtemp(dir=folder))
    session = None
    if variant not in ("local", "presplit"):
        session = local_session(
            environment=os.environ,
            python=sys.executable,
            cores=2,
            memory="3g",
            temp_folder=str(folder),
            conf=WELL_COMPILED if variant in ("floor", "frame") else {},
        )
        session.range(0, 4, 1, 2).mapInArrow(warmed, "id long").collect()
    table = new_table(output, 1 if variant == "presplit" else arguments.leaves, arguments.leaves)
    watch = Watch()
    if variant == "floor":
        frame = session.read.parquet(inputs).repartitionByRange(arguments.leaves, "key")
        writer = frame.sortWithinPartitions("key", "ts").write
        options = {"compression": "zstd", "parquet.compression.codec.zstd.level": "3"}
        writer.options(**options).parquet(str(output / "floor"))
    elif variant == "presplit":
        presplit(table, inputs)
    else:
        data = session.read.parquet(inputs) if variant == "frame" else inputs
        engine = {"local": "local", "frame": "auto"}.get(variant, "spark")
        result = table.bulk_import(data, engine=engine, spark=session)
        assert result.rows_written == arguments.rows
    print(f"{variant:10}{watch.ended()}", flush=True)
    if variant == "presplit":
        sizes = np.array(leaf_sizes(table, inputs), float)
        shares = sizes / sizes.mean()
        print(f"leaf sizes / mean {shares.min():.2f} to {shares.max():.2f}", file=sys.stderr)
    if session is not None:
        session.stop()
    subprocess.run(["rm", "-rf", str(output)])


def warmed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a worker of a running cluster has done before: import the libraries."""
    import polars as pl  # noqa: F401, PLC0415

    import sleeper.spark.bulk_import  # noqa: F401, PLC0415

    yield from batches


def new_table(folder: Path, leaves: int, min_leaves: int) -> sleeper.Table:
    instance = sleeper.connect(folder / "instance", create=True)
    return instance.create_table(
        "rows",
        SCHEMA,
        row_keys=["key"],
        sort_keys=["ts"],
        split_points=split_points(leaves),
        properties={"sleeper.table.bulk.import.min.leaf.partitions": str(min_leaves)},
    )


def presplit(table: sleeper.Table, inputs: str) -> None:
    """Extend the tree as a bulk import does before it moves rows."""
    from functools import partial  # noqa: PLC0415

    from sleeper.engine.inputs.key_sample import sample_files  # noqa: PLC0415
    from sleeper.engine.inputs.sources import open_source  # noqa: PLC0415
    from sleeper.tables.bulk_import import _extend  # noqa: PLC0415

    source = open_source(inputs, table.arrow_schema)
    opened = table._current()
    wanted = opened.properties.bulk_import.min_leaf_partitions
    sample = partial(
        sample_files, source, table.schema, table.arrow_schema, rows_wanted=800 * wanted
    )
    _extend(opened, sample, wanted)


def leaf_sizes(table: sleeper.Table, inputs: str) -> list[int]:
    """Rows that every leaf would get."""
    points = pa.array(table.split_points(), pa.string())
    counts = np.zeros(len(points) + 1, np.int64)
    for path in sorted(Path(inputs).iterdir()):
        keys = pq.read_table(path, columns=["key"]).column(0)
        ordered = keys.take(pc.array_sort_indices(keys)).combine_chunks()
        places = np.searchsorted(ordered.to_numpy(zero_copy_only=False), points.to_pylist())
        counts += np.diff([0, *places, len(ordered)])
    return counts.tolist()


def make_inputs(folder: Path, row_count: int, variants: list[str]) -> None:
    """Write rows to files, and, where asked for, the same with half of the keys alike."""
    for kind in ("even", "skewed") if "skewed" in variants else ("even",):
        (folder / kind).mkdir()
        for number in range(-(-row_count // ROWS_PER_FILE)):
            count = min(ROWS_PER_FILE, row_count - number * ROWS_PER_FILE)
            path = folder / kind / f"{number:03}.parquet"
            with pq.ParquetWriter(
                path, SCHEMA, compression="zstd", compression_level=1, use_dictionary=False
            ) as writer:
                for batch in rows(count, number):
                    writer.write_batch(skewed(batch) if kind == "skewed" else batch)


def skewed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every second key begins with the letters of one leaf."""
    inside = pc.binary_join_element_wise("00", pc.utf8_slice_codeunits(batch["key"], 2), "")
    second = pa.array(np.arange(batch.num_rows) % 2 == 0)
    return batch.set_column(0, SCHEMA.field(0), pc.if_else(second, inside, batch["key"]))


class Watch:
    """CPU seconds and peak memory of this process and all below it, from now on."""

    def __init__(self) -> None:
        self._started, self._cpu = perf_counter(), tree_cpu()
        self._load = os.getloadavg()[0]
        self._peak = self._jvm_at_peak = 0
        self._own_cpu = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def ended(self) -> str:
        """What it came to: CPU, that of the JVM, wall, memory, the JVM's part, load before."""
        cpu, jvm = (now - before for now, before in zip(tree_cpu(), self._cpu, strict=True))
        wall = perf_counter() - self._started
        self._done.set()
        self._thread.join()
        cpu -= self._own_cpu
        peaks = f"{self._peak / 1e6:9.0f}{self._jvm_at_peak / 1e6:9.0f}"
        return f"{cpu:9.1f}{jvm:9.1f}{wall:9.1f}{peaks}{self._load:9.1f}"

    def _look(self) -> None:
        while not self._done.is_set():
            size = jvm = 0
            for process in tree():
                try:
                    pss, name = process.memory_full_info().pss, process.name()
                except psutil.Error:
                    continue
                size += pss
                jvm += pss if name == "java" else 0
            if size > self._peak:
                self._peak, self._jvm_at_peak = size, jvm
            self._own_cpu = thread_time()
            sleep(0.3)


def tree() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def tree_cpu() -> tuple[float, float]:
    """CPU seconds of the tree, ended children included, and of its JVMs alone."""
    total = jvm = 0.0
    for process in tree():
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
        jvm += times.user + times.system if name == "java" else 0
    return total, jvm


if __name__ == "__main__":
    main()
