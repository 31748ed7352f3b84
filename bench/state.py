"""What a table's file index costs, beside the simplest thing that could work.

Each size is measured in fresh processes: one makes a snapshot, one opens it as a `FileReferences`,
one as plain dataclasses in dictionaries, changed in place. The second is the floor for look-ups
and changes (it keeps no older version, so no reader can be pinned to one), and what the first
has to beat on opening and memory.

    PYTHONPATH=src python -m bench.state --references 1000000
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.model.files import FileReference
from sleeper.state.file_references import FileReferences

SIZES = (100_000, 1_000_000)
RUNS = 3
REFERENCES_PER_PARTITION = 50
LOOK_UPS = 1_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

# Name, unit, and the most it may be at 1,000,000 references.
MEASURES = (
    ("open a snapshot, CPU", "s", 2.0),
    ("open a snapshot, elapsed", "s", 2.0),
    ("peak memory when open", "MB", 400.0),
    ("files of a partition, median", "ms", 1.0),
    ("first look-up by filename", "s", 1.0),
    ("look-up by filename, median", "ms", None),
    ("change, median CPU", "ms", 2.0),
    ("change, CPU over all, folds included", "ms", 2.0),
    ("change, slowest (a fold), CPU", "s", 1.0),
    ("fold, CPU", "s", 1.0),
    ("totals of all partitions, first", "s", None),
    ("totals of all partitions, again", "s", None),
    ("write a snapshot, CPU", "s", None),
    ("peak memory at the end", "MB", None),
)


class Subject(Protocol):
    """What is measured: the index, or the floor."""

    def references_on(self, partition_id: str) -> Sequence[FileReference]: ...
    def references_to(self, filename: str) -> Sequence[FileReference]: ...
    def compact(self, inputs: Sequence[FileReference], output: FileReference) -> None: ...
    def fold(self) -> None: ...
    def totals(self) -> object: ...
    def snapshot(self) -> pa.Table: ...


class Index:
    """The file index, and the newest version of it."""

    def __init__(self, table: pa.Table) -> None:
        self.files = FileReferences.from_arrow(table)

    def references_on(self, partition_id: str) -> Sequence[FileReference]:
        return self.files.references_on(partition_id)

    def references_to(self, filename: str) -> Sequence[FileReference]:
        return self.files.references_to(filename)

    def compact(self, inputs: Sequence[FileReference], output: FileReference) -> None:
        removed = [(each.filename, each.partition_id) for each in inputs]
        self.files = self.files.changed(removed=removed, added=[output], at=NOW)

    def fold(self) -> None:
        self.files = self.files.folded()

    def totals(self) -> object:
        return self.files.totals()

    def snapshot(self) -> pa.Table:
        return self.files.to_arrow()


class Plain:
    """Dataclasses in two dictionaries, changed in place."""

    def __init__(self, table: pa.Table) -> None:
        self.on: dict[str, dict[str, FileReference]] = {}
        self.to: dict[str, dict[str, FileReference]] = {}
        self.since: dict[str, datetime] = {}
        since_epoch = table["updated"].cast(pa.int64()).to_pylist()
        partition_ids = table["partition_id"].cast(pa.string()).to_pylist()
        names = ["filename", "row_count", "row_count_estimated", "whole_file", "job_id"]
        columns = [table[name].to_pylist() for name in names]
        for partition_id, time, *row in zip(partition_ids, since_epoch, *columns, strict=True):
            each = FileReference(
                partition_id=partition_id,
                updated=EPOCH + timedelta(microseconds=time),
                **dict(zip(names, row, strict=True)),
            )
            self.on.setdefault(each.partition_id, {})[each.filename] = each
            self.to.setdefault(each.filename, {})[each.partition_id] = each

    def references_on(self, partition_id: str) -> Sequence[FileReference]:
        return list(self.on[partition_id].values())

    def references_to(self, filename: str) -> Sequence[FileReference]:
        return list(self.to[filename].values())

    def compact(self, inputs: Sequence[FileReference], output: FileReference) -> None:
        for each in inputs:
            del self.on[each.partition_id][each.filename]
            del self.to[each.filename][each.partition_id]
            if not self.to[each.filename]:
                del self.to[each.filename]
                self.since[each.filename] = NOW
        self.on[output.partition_id][output.filename] = output
        self.to[output.filename] = {output.partition_id: output}

    def fold(self) -> None:
        """There is nothing to fold."""

    def totals(self) -> object:
        return {
            partition_id: (len(held), sum(each.row_count for each in held.values()))
            for partition_id, held in self.on.items()
        }

    def snapshot(self) -> pa.Table:
        names = ("filename", "partition_id", "row_count", "row_count_estimated", "whole_file")
        held = [each for files in self.on.values() for each in files.values()]
        return pa.table({name: [getattr(each, name) for each in held] for name in names})


SUBJECTS: dict[str, Callable[[pa.Table], Subject]] = {"index": Index, "plain": Plain}


def main(sizes: Iterable[int] = SIZES) -> list[str]:
    """Measure each size and return the lines of a table."""
    lines = []
    for reference_count in sizes:
        lines += [f"file index, {reference_count:,} references", ""]
        lines += [
            f"{'':38} {'index':>10} {'plain':>10} {'ratio':>8} {'aim at 1 M':>12}",
            *_compared(reference_count),
            "",
        ]
    print("\n".join(lines))
    return lines


def _compared(reference_count: int) -> Iterable[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "files.parquet")
        _in_fresh_process("make", path, reference_count)
        index, plain = (
            _medians([_in_fresh_process(name, path, reference_count) for _ in range(RUNS)])
            for name in SUBJECTS
        )
    for name, unit, aim in MEASURES:
        ours, theirs = index[name], plain[name]
        ratio = f"{ours / theirs:8.2f}" if theirs >= 5e-4 else f"{'-':>8}"
        wanted = "" if aim is None else f"{aim:g} {unit}"
        yield f"{name:38} {ours:7.3f} {unit:>2} {theirs:7.3f} {unit:>2} {ratio} {wanted:>12}"


def _in_fresh_process(task: str, path: str, reference_count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.state", "--task", task, "--path", path]
    command += ["--references", str(reference_count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout or "{}")
    return measured


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


def make_snapshot(path: str, reference_count: int) -> None:
    """Write a snapshot of 50 references a partition, with names as ingest gives them."""
    bits = random.Random(1)
    partitions = sorted(_uuid(bits) for _ in range(reference_count // REFERENCES_PER_PARTITION))
    held = [
        FileReference(
            filename=f"data/partition_{partition}/{_uuid(bits)}.parquet",
            partition_id=partition,
            row_count=bits.randrange(1_000_000),
            job_id=_uuid(bits) if bits.random() < 0.05 else None,
        )
        for partition in partitions
        for _ in range(REFERENCES_PER_PARTITION)
    ]
    table = FileReferences.empty().changed(added=held, at=NOW).to_arrow()
    pq.write_table(table, path, compression="zstd")


def measure(subject: Callable[[pa.Table], Subject], path: str) -> dict[str, float]:
    """Open a snapshot, look up, change, fold, add up and write again; return each cost."""
    cpu, elapsed = process_time(), perf_counter()
    source = pa.BufferReader(Path(path).read_bytes())
    # One chunk for each row group: `read_table` would cut it up, to be joined again.
    files = subject(pq.ParquetFile(source, pre_buffer=False).read())
    figures = {
        "open a snapshot, CPU": process_time() - cpu,
        "open a snapshot, elapsed": perf_counter() - elapsed,
        "peak memory when open": _peak_mb(),
    }
    bits = random.Random(2)
    ids = pq.read_table(path, columns=["partition_id"])["partition_id"].unique().to_pylist()
    chosen = [bits.choice(ids) for _ in range(LOOK_UPS)]
    on_partition = [_timed(perf_counter, files.references_on, each) for each in chosen]
    names = [files.references_on(each)[0].filename for each in chosen]
    figures["files of a partition, median"] = median(on_partition) * 1e3
    figures["first look-up by filename"] = _timed(process_time, files.references_to, names[0])
    to_file = [_timed(perf_counter, files.references_to, each) for each in names]
    figures["look-up by filename, median"] = median(to_file) * 1e3
    figures |= _changes(files, bits, ids)
    figures["fold, CPU"] = _timed(process_time, files.fold)
    figures["totals of all partitions, first"] = _timed(process_time, files.totals)
    figures["totals of all partitions, again"] = _timed(process_time, files.totals)
    figures["write a snapshot, CPU"] = _timed(process_time, _write, files)
    figures["peak memory at the end"] = _peak_mb()
    return figures


def _changes(files: Subject, bits: random.Random, ids: list[str]) -> dict[str, float]:
    """Compact ten files of one partition into one, often enough for at least one fold."""
    costs = []
    for partition_id in bits.sample(ids, min(len(ids), 4_000)):
        inputs = files.references_on(partition_id)[:10]
        name = f"data/partition_{partition_id}/{_uuid(bits)}.parquet"
        rows = sum(each.row_count for each in inputs)
        output = FileReference(filename=name, partition_id=partition_id, row_count=rows)
        costs.append(_timed(process_time, files.compact, inputs, output))
    return {
        "change, median CPU": median(costs) * 1e3,
        "change, CPU over all, folds included": sum(costs) / len(costs) * 1e3,
        "change, slowest (a fold), CPU": max(costs),
    }


def _write(files: Subject) -> None:
    pq.write_table(files.snapshot(), pa.BufferOutputStream(), compression="zstd")


def _timed(clock: Callable[[], float], call: Callable[..., Any], *arguments: object) -> float:
    start = clock()
    call(*arguments)
    return clock() - start


def _peak_mb() -> float:
    """Return this process's largest resident size so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # The usage of resources is no good on Linux: it starts at the parent's.
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (2**20 if sys.platform == "darwin" else 1024)


def _uuid(bits: random.Random) -> str:
    return str(UUID(int=bits.getrandbits(128), version=4))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--references", type=int, action="append", help="repeat for more sizes")
    parser.add_argument("--task", choices=("make", *SUBJECTS), help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    asked = _arguments()
    if asked.task == "make":
        make_snapshot(asked.path, asked.references[0])
    elif asked.task:
        print(json.dumps(measure(SUBJECTS[asked.task], asked.path)))
    else:
        main(asked.references or SIZES)
