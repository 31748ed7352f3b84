"""What ingest costs without its state: read, sort, cut at leaves, write; beside the floor.

The floor decodes and encodes the same rows once with pyarrow, with the same codec, pages and
checksums, into as many files, and sorts nothing. Each run is a fresh process; CPU is user and
system time of the whole process, memory its peak of resident pages. Rows are random: a key of
16 characters, a timestamp, a string of 50 characters, a long.

    PYTHONPATH=src python -m bench.ingest --rows 10000000 --leaves 64
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sleeper.engine.arrow_schema import conform, split_null_keys, to_arrow
from sleeper.engine.inputs.sources import open_source
from sleeper.engine.sorting.sort import SortSettings, sort_into_groups
from sleeper.engine.writing.column_layout import file_layouts, pyarrow_options
from sleeper.engine.writing.data_file import write_data_file
from sleeper.engine.writing.write_settings import WriteSettings
from sleeper.model.schema import Field, Primitive, Schema

SCHEMA = Schema(
    row_keys=(Field("key", Primitive.STRING),),
    sort_keys=(Field("at", Primitive.TIMESTAMP),),
    values=(Field("text", Primitive.STRING), Field("number", Primitive.LONG)),
)
ARROW = to_arrow(SCHEMA)
ALPHABET = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
ROWS_PER_FILE = 2_500_000
STEP = 500_000
VARIANTS = ("floor", "ours")


def main() -> None:
    arguments = parsed()
    if arguments.run:
        run(arguments)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-ingest-") as folder:
        arguments.inputs = str(make_inputs(Path(folder) / "in", arguments.rows))
        print(f"{'variant':10}{'CPU s':>8}{'wall s':>8}{'RSS MB':>8}{'load':>6}")
        cpu: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for _ in range(arguments.runs):
            for variant in VARIANTS:
                cpu[variant].append(measured(variant, arguments, Path(folder) / "out"))
        floor, ours = (median(cpu[variant]) for variant in VARIANTS)
        print(f"median CPU s: floor {floor:.2f}, ours {ours:.2f}; ours / floor {ours / floor:.2f}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--leaves", type=int, default=64, choices=(1, 2, 4, 8, 16, 32, 64))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memory", type=int, default=1024, help="MiB for the sort")
    parser.add_argument("--folder", default=None, help="for inputs, runs and outputs")
    parser.add_argument("--check", action="store_true", help="read what ours wrote, check it")
    parser.add_argument("--run", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--inputs", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(variant: str, arguments: argparse.Namespace, output: Path) -> float:
    """Run one variant in a process of its own; print what it cost and return its CPU seconds."""
    output.mkdir()
    command = [sys.executable, "-m", "bench.ingest", "--run", variant]
    command += [f"--{name}={getattr(arguments, name)}" for name in ("rows", "leaves", "memory")]
    command += ["--inputs", arguments.inputs, "--output", str(output)]
    load, started = os.getloadavg()[0], perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{variant} failed")
    cpu, wall = usage.ru_utime + usage.ru_stime, perf_counter() - started
    if arguments.check and variant == "ours":
        check(sorted(output.glob("*.parquet")), arguments.rows)
    shutil.rmtree(output)
    print(f"{variant:10}{cpu:8.2f}{wall:8.2f}{usage.ru_maxrss / 1024:8.0f}{load:6.1f}", flush=True)
    return cpu


def run(arguments: argparse.Namespace) -> None:
    inputs, output = Path(arguments.inputs), Path(arguments.output)
    if arguments.run == "floor":
        run_floor(inputs, output, arguments.rows // arguments.leaves)
    else:
        run_ours(inputs, output, arguments.leaves, arguments.memory << 20)


def run_floor(inputs: Path, folder: Path, rows_per_file: int) -> None:
    settings = WriteSettings()
    first = next(pq.ParquetFile(min(inputs.iterdir())).iter_batches(settings.row_group_rows))
    layouts = file_layouts(pa.Table.from_batches([first], ARROW), SCHEMA, ARROW, settings)
    options = {**pyarrow_options(layouts, settings), "write_page_index": True}
    writer, written, waiting, number = None, 0, [], 0
    for path in sorted(inputs.iterdir()):
        for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(131_072):
            writer = writer or pq.ParquetWriter(folder / f"{number}.parquet", ARROW, **options)
            waiting.append(batch)
            written += batch.num_rows
            if (
                sum(len(part) for part in waiting) >= settings.row_group_rows
                or written >= rows_per_file
            ):
                writer.write_table(pa.Table.from_batches(waiting, ARROW), settings.row_group_rows)
                waiting = []
            if written >= rows_per_file:
                writer.close()
                writer, written, number = None, 0, number + 1
    if writer is not None:
        writer.close()


def run_ours(inputs: Path, folder: Path, leaves: int, memory_bytes: int) -> None:
    groups = sort_into_groups(
        rows_of(inputs),
        ARROW,
        key_names=SCHEMA.key_names,
        bounds=split_points(leaves),
        settings=SortSettings(memory_bytes=memory_bytes, temp_folder=folder.parent),
    )
    for group, chunks in groups:
        with (folder / f"{group:03}.parquet").open("wb") as output:
            write_data_file(output, chunks, SCHEMA, ARROW, WriteSettings())


def rows_of(inputs: Path) -> Iterator[pa.Table]:
    source = open_source(inputs, ARROW)
    source.check(ignore_extra_columns=False)
    names = SCHEMA.key_names
    for batch in source.batches():
        rows = conform(
            batch, ARROW, key_names=names, ignore_extra_columns=False, origin=source.name
        )
        good, bad = split_null_keys(rows, names)
        assert not bad.num_rows
        yield good


def split_points(leaves: int) -> list[str]:
    return [chr(ALPHABET[place * 64 // leaves]) for place in range(1, leaves)]


def make_inputs(folder: Path, row_count: int) -> Path:
    folder.mkdir()
    generator = np.random.default_rng(1)
    for number, start in enumerate(range(0, row_count, ROWS_PER_FILE)):
        path = folder / f"{number:03}.parquet"
        with pq.ParquetWriter(path, ARROW, compression="zstd", use_dictionary=False) as writer:
            for low in range(start, min(start + ROWS_PER_FILE, row_count), STEP):
                writer.write_table(random_rows(generator, min(STEP, row_count - low)))
    return folder


def random_rows(generator: np.random.Generator, count: int) -> pa.Table:
    times = generator.integers(1_600_000_000_000_000, 1_700_000_000_000_000, count)
    columns = [
        random_strings(generator, count, 16),
        pa.array(times).cast(ARROW.field("at").type),
        random_strings(generator, count, 50),
        pa.array(generator.integers(0, 1 << 40, count)),
    ]
    return pa.Table.from_arrays(columns, schema=ARROW)


def random_strings(generator: np.random.Generator, count: int, width: int) -> pa.Array:
    letters = np.frombuffer(ALPHABET, np.uint8)
    text = letters[generator.integers(0, len(letters), count * width, dtype=np.uint8)]
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )


def check(paths: list[Path], row_count: int) -> None:
    """Every row is there, and keys ascend through all files."""
    found, before = 0, ""
    for path in paths:
        rows = pq.read_table(path, page_checksum_verification=True)
        keys = rows.column("key").combine_chunks()
        times = rows.column("at").combine_chunks()
        later = pc.less(keys[:-1], keys[1:])
        same = pc.and_(pc.equal(keys[:-1], keys[1:]), pc.less_equal(times[:-1], times[1:]))
        assert pc.all(pc.or_(later, same)).as_py(), path
        assert before <= keys[0].as_py(), path
        found, before = found + rows.num_rows, keys[-1].as_py()
    assert found == row_count, (found, row_count)


if __name__ == "__main__":
    main()
