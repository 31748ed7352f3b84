"""What compaction costs: the sorted files of one leaf become one; beside the floor.

The floor merges and writes the very same files inside DataFusion, on all cores, so that no row
passes through Python: a plan that never sorts, and the same codecs, encodings, pages, row groups
and page index. It checks no page that it reads, writes no checksums, makes no filters and no
sketch, seals and commits nothing, and reads the files by their paths. Each run is a fresh process;
CPU is user and system time of the whole process, memory its peak of resident pages. Look-ups by key
are timed before and after.

With `--appends` a table of the defaults gets so many small ingests instead; printed are the CPU of
an ingest, of a range of 500 rows for each file of a leaf, and of the compaction for each row.

    python -m bench.compaction --files 11 --rows 500000
    python -m bench.compaction --appends 500 --rows 1000 --leaves 8
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import sleeper
from bench.instance_copy import copy_instance
from bench.random_rows import SCHEMA, rows, split_points
from sleeper.engine.arrow_schema import from_arrow
from sleeper.engine.writing.column_layout import file_layouts
from sleeper.engine.writing.write_settings import WriteSettings

VARIANTS = ("floor", "ours")
LOOK_UPS = 400


def main() -> None:
    arguments = parsed()
    if arguments.run:
        RUNS[arguments.run](Path(arguments.instance), arguments)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-compaction-") as scratch:
        if arguments.appends:
            print(SMALL_HEAD)
            for number in range(arguments.runs):
                started("appends", Path(scratch) / str(number), arguments)
            return
        name = f"in-{arguments.files}x{arguments.rows}-{arguments.group_rows}"
        inputs = Path(arguments.folder or scratch) / name
        if not inputs.exists():
            started("inputs", inputs, arguments)
        copy = Path(scratch) / "copy"
        print(
            f"{arguments.files} files of {arguments.rows:,} rows, "
            f"row groups of {arguments.group_rows:,} at most"
        )
        print(f"{'variant':10}{'CPU s':>8}{'wall s':>8}{'RSS MB':>8}{'load':>6}")
        cpu: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for _ in range(arguments.runs):
            for variant in VARIANTS:
                copy_instance(inputs, copy)
                cpu[variant].append(measured(variant, copy, arguments))
        floor, ours = (median(cpu[variant]) for variant in VARIANTS)
        print(f"median CPU s: floor {floor:.2f}, ours {ours:.2f}; ours / floor {ours / floor:.2f}")
        print(f"{'one key, warm':24} {'p50 ms':>8} {'p99 ms':>8}", flush=True)
        started("look-ups", inputs, arguments)
        started("look-ups", copy, arguments)  # the last run was ours
        if arguments.check:
            started("check", copy, arguments)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=11)
    parser.add_argument("--rows", type=int, default=500_000, help="in each file")
    parser.add_argument("--appends", type=int, default=0, help="small ingests instead of files")
    parser.add_argument("--leaves", type=int, default=8, help="for --appends")
    parser.add_argument("--group-rows", type=int, default=32_768, help="in a row group, at most")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where inputs are kept for the next time")
    parser.add_argument("--check", action="store_true", help="read what ours wrote, check it")
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--instance", help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(variant: str, instance: Path, arguments: argparse.Namespace) -> float:
    """Run one variant in a process of its own; print what it cost and return its CPU seconds."""
    load, begun = os.getloadavg()[0], perf_counter()
    usage = started(variant, instance, arguments)
    cpu, wall = usage.ru_utime + usage.ru_stime, perf_counter() - begun
    print(f"{variant:10}{cpu:8.2f}{wall:8.2f}{usage.ru_maxrss / 1024:8.0f}{load:6.1f}", flush=True)
    return cpu


def started(name: str, instance: Path, arguments: argparse.Namespace) -> Any:
    """Do something with an instance in a process of its own, and return what that used."""
    command = [sys.executable, "-m", "bench.compaction", "--run", name]
    command += ["--instance", str(instance)]
    for option in ("files", "rows", "group_rows", "appends", "leaves"):
        command += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} failed")
    return usage


def run_inputs(instance: Path, asked: argparse.Namespace) -> None:
    """Ingest as often as there are files. One job may take them all."""
    table = sleeper.connect(instance, create=True).create_table(
        "bench",
        SCHEMA,
        row_keys=["key"],
        sort_keys=["ts"],
        properties={
            "sleeper.table.compaction.files.batch.size": str(asked.files),
            "sleeper.table.parquet.rowgroup.rows.max": str(asked.group_rows),
        },
    )
    for seed in range(asked.files):
        table.ingest(pa.RecordBatchReader.from_batches(SCHEMA, rows(asked.rows, seed)))


SMALL_HEAD = (
    f"{'append ms':>10}{'range ms a file':>16}{'jobs':>6}{'compaction s':>13}{'us a row':>9}"
)
RANGE_ROWS = 500
RANGES = 11


def run_appends(instance: Path, asked: argparse.Namespace) -> None:
    """Ingest small batches, ask for ranges of them, and compact them; print what each cost."""
    table = sleeper.connect(instance, create=True).create_table(
        "bench",
        SCHEMA,
        row_keys=["key"],
        sort_keys=["ts"],
        split_points=split_points(asked.leaves),
    )
    batches = [
        pa.Table.from_batches(rows(asked.rows, seed), SCHEMA) for seed in range(asked.appends)
    ]
    appends = [cpu_of(lambda batch=batch: table.ingest(batch)) for batch in batches]
    keys = sorted(pa.concat_tables(batches)["key"].to_pylist())
    starts = range(0, len(keys) - RANGE_ROWS, max(1, len(keys) // RANGES))
    ends = [{"key": (keys[start], keys[start + RANGE_ROWS])} for start in starts]
    for each in ends:  # the second time counts
        table.query(range=each).to_arrow()
    ranges = [cpu_of(lambda each=each: table.query(range=each).to_arrow()) for each in ends]
    done = []
    compaction = cpu_of(lambda: done.append(table.compact()))
    compacted = sum(job.rows_read for job in done[0].jobs)
    print(
        f"{median(appends) * 1e3:10.2f}{median(ranges) * 1e3 / asked.appends:16.3f}"
        f"{len(done[0].jobs):6}{compaction:13.2f}{compaction * 1e6 / compacted:9.2f}",
        flush=True,
    )
    assert table.count() == len(keys)


def cpu_of(work: Callable[[], object]) -> float:
    begun = process_time()
    work()
    return process_time() - begun


def run_ours(instance: Path, asked: argparse.Namespace) -> None:
    done = sleeper.connect(instance).table("bench").compact(all_files=True)
    assert [job.rows_written for job in done.jobs] == [asked.files * asked.rows], done


def run_floor(instance: Path, asked: argparse.Namespace) -> None:
    context = datafusion.SessionContext(
        datafusion.SessionConfig()
        .with_target_partitions(1)
        .with_repartition_file_scans(False)
        .set("datafusion.optimizer.prefer_existing_sort", "true")
        .set("datafusion.execution.parquet.schema_force_view_types", "false"),
        datafusion.RuntimeEnvBuilder().with_disk_manager_disabled(),  # it merges, and never sorts
    )
    order = [datafusion.col(name).sort(nulls_first=False) for name in ("key", "ts")]
    for number, path in enumerate(data_files(instance)):
        context.register_parquet(f"t{number}", path, file_sort_order=[order])
    union = " union all ".join(f"select * from t{number}" for number in range(asked.files))
    rows = f"select * from ({union}) order by key asc nulls last, ts asc nulls last"
    options = ", ".join(f"'{name}' '{value}'" for name, value in floor_options(instance, asked))
    target = (instance / "merged.parquet").as_uri()
    copied = context.sql(f"copy ({rows}) to '{target}' stored as parquet options ({options})")
    ((written,),) = (batch.column(0).to_pylist() for batch in copied.collect())
    assert written == asked.files * asked.rows, written


def floor_options(instance: Path, asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """What DataFusion's writer is told, so that its file has the layout of data files."""
    settings = WriteSettings()
    first = pq.ParquetFile(next(iter(data_files(instance)))).read_row_group(0).cast(SCHEMA)
    schema = from_arrow(SCHEMA, row_keys=["key"], sort_keys=["ts"])
    layouts = file_layouts(first, schema, SCHEMA, settings)
    yield "format.max_row_group_size", str(asked.group_rows)
    yield "format.data_page_row_count_limit", str(settings.page_rows)
    yield "format.data_pagesize_limit", str(settings.page_bytes)
    yield "format.write_batch_size", str(settings.page_rows)
    yield "format.writer_version", settings.page_version
    yield "format.dictionary_enabled", "false"
    yield "format.statistics_enabled", "page"
    for name, column in layouts.items():
        codec = {"lz4": "lz4_raw", "zstd": f"zstd({column.level})"}[column.codec]
        yield f"format.compression::{name}", codec
        yield f"format.dictionary_enabled::{name}", str(column.dictionary).lower()
        yield f"format.encoding::{name}", (column.encoding or "plain").lower()


def run_look_ups(instance: Path, asked: argparse.Namespace) -> None:
    """Ask for keys of all files, one after the other; the second time counts."""
    table = sleeper.connect(instance).table("bench")
    each = max(1, LOOK_UPS // asked.files)
    keys = [key for seed in range(asked.files) for key in some_keys(asked.rows, seed, each)]
    took = []
    for _ in range(2):
        took = []
        for key in keys:
            begun = perf_counter()
            answer = table.query(key=key).to_arrow()
            took.append((perf_counter() - begun) * 1000)
            assert answer.num_rows == 1, key
    took.sort()
    count = len(data_files(instance))
    name = f"hit, {count} files" if count > 1 else "hit, 1 file"
    print(f"{name:24} {median(took):8.2f} {took[len(took) * 99 // 100]:8.2f}", flush=True)


def some_keys(row_count: int, seed: int, count: int) -> list[str]:
    keys = next(rows(row_count, seed))["key"]
    return list(keys[:: max(1, len(keys) // count)][:count].to_pylist())


def data_files(instance: Path) -> list[str]:
    """The files that the table's only leaf has now."""
    table = sleeper.connect(instance).table("bench")
    state = table.state()
    leaf = next(iter(state.tree.leaves()))
    root = table._context.objects.url(table.table_id)
    return [f"{root}/{ref.filename}" for ref in state.files.references_on(leaf.partition_id)]


def run_check(instance: Path, asked: argparse.Namespace) -> None:
    """Every row is there, in order, as its checksums say."""
    (path,) = data_files(instance)
    found, before = 0, ("", 0)
    for batch in pq.ParquetFile(path, page_checksum_verification=True).iter_batches():
        keys, times = batch["key"], batch["ts"].cast(pa.int64())
        later = pc.less(keys[:-1], keys[1:])
        same = pc.and_(pc.equal(keys[:-1], keys[1:]), pc.less_equal(times[:-1], times[1:]))
        assert pc.all(pc.or_(later, same)).as_py()
        assert before <= (keys[0].as_py(), times[0].as_py())
        found, before = found + len(keys), (keys[-1].as_py(), times[-1].as_py())
    assert found == asked.files * asked.rows, found
    print(f"checked {found:,} rows")


RUNS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "floor": run_floor,
    "ours": run_ours,
    "inputs": run_inputs,
    "appends": run_appends,
    "look-ups": run_look_ups,
    "check": run_check,
}


if __name__ == "__main__":
    main()
