"""A day of writing: many small ingests, compaction and garbage collection every so often.

Each ingest writes few rows into every leaf. What is counted after each step: files in a leaf,
bytes of data files that lie there, and bytes written so far. The log is not counted.

- Write amplification: bytes written by ingest and compaction, of those written by ingest.
- Space amplification: the most bytes that ever lay there, of those of a copy that is compacted into
  one file a leaf at the end.

    python -m bench.a_day --ingests 1000 --leaves 16 --picture docs/pictures/a-day.svg
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time
from typing import Any

import pyarrow as pa

import sleeper
from bench.line_chart import Line, line_chart
from bench.random_rows import SCHEMA, rows, split_points

LINES = 10


@dataclass(frozen=True, slots=True)
class Step:
    """The table after an ingest, or after a compaction and what was collected then."""

    ingests: int
    files_mean: float
    files_max: int
    stored_bytes: int
    written_bytes: int


@dataclass(slots=True)
class Costs:
    """What calls of one kind took: seconds, elapsed and of CPU."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def timed(self, call: Callable[[], Any]) -> Any:
        wall, cpu = perf_counter(), process_time()
        result = call()
        self.wall.append(perf_counter() - wall)
        self.cpu.append(process_time() - cpu)
        return result


class Files:
    """The data files of a table that were seen being written and deleted."""

    def __init__(self, table: sleeper.Table) -> None:
        self.root = Path(table._context.objects.url(table.table_id))
        self.sizes: dict[str, int] = {}
        self.written_bytes = self.stored_bytes = self.most_bytes = 0

    def add(self, names: Sequence[str]) -> int:
        """Count new data files, and return their bytes."""
        new = {name: (self.root / name).stat().st_size for name in names}
        size = sum(new.values())
        self.sizes |= new
        self.written_bytes += size
        self.stored_bytes += size
        self.most_bytes = max(self.most_bytes, self.stored_bytes)
        return size

    def remove(self, names: Sequence[str]) -> None:
        self.stored_bytes -= sum(self.sizes.pop(name) for name in names)

    def check(self) -> None:
        """What was counted is what lies there."""
        found = sum(path.stat().st_size for path in (self.root / "data").rglob("*.*"))
        assert found == self.stored_bytes, (found, self.stored_bytes)


def main() -> None:
    arguments = parsed()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-a-day-") as folder:
        instance = Path(folder) / "instance"
        table = sleeper.connect(instance, create=True).create_table(
            "bench",
            SCHEMA,
            row_keys=["key"],
            sort_keys=["ts"],
            split_points=split_points(arguments.leaves),
            properties={"sleeper.table.gc.delay.minutes": str(arguments.delay)},
        )
        ingest, upkeep, files = Costs(), Costs(), Files(table)
        steps, ingested = live(table, files, ingest, upkeep, arguments)
        files.check()
        compacted = compacted_bytes(instance, Path(folder) / "copy")
    for line in report(steps, arguments):
        print(line)
    print(
        f"write amplification {files.written_bytes / ingested:.2f}, "
        f"space amplification {files.most_bytes / compacted:.2f}\n"
        f"an ingest: {median(ingest.wall) * 1000:.0f} ms elapsed (p50), "
        f"{sorted(ingest.wall)[len(ingest.wall) * 99 // 100] * 1000:.0f} (p99), "
        f"{fmean(ingest.cpu) * 1000:.0f} ms CPU (mean)\n"
        f"compaction and collection, for each ingest: "
        f"{sum(upkeep.wall) * 1000 / arguments.ingests:.0f} ms elapsed, "
        f"{sum(upkeep.cpu) * 1000 / arguments.ingests:.0f} ms CPU\n"
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
    )
    if arguments.picture:
        arguments.picture.write_text(picture(steps, arguments))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ingests", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=2_000, help="in each ingest")
    parser.add_argument("--leaves", type=int, default=16)
    parser.add_argument("--every", type=int, default=25, help="ingests between compactions")
    parser.add_argument("--delay", type=int, default=1, help="minutes that garbage waits")
    parser.add_argument("--folder", default=None, help="for the instance")
    parser.add_argument("--picture", type=Path, default=None, help="an SVG file to make")
    return parser.parse_args()


def live(
    table: sleeper.Table,
    files: Files,
    ingest: Costs,
    upkeep: Costs,
    arguments: argparse.Namespace,
) -> tuple[list[Step], int]:
    """Write as long as the day lasts; return its steps, and how many bytes ingest wrote."""
    steps, ingested = [], 0
    for number in range(1, arguments.ingests + 1):
        batch = pa.Table.from_batches(rows(arguments.rows, seed=number))
        added = ingest.timed(lambda batch=batch: table.ingest(batch))
        ingested += files.add([reference.filename for reference in added.files])
        steps.append(step(table, number, files))
        if number % arguments.every == 0:
            done = upkeep.timed(table.compact)
            assert not done.failed, done.failed
            files.add([job.job.output for job in done.jobs])
            collected = upkeep.timed(table.collect_garbage)
            files.remove(collected.deleted)
            steps.append(step(table, number, files))
    return steps, ingested


def step(table: sleeper.Table, number: int, files: Files) -> Step:
    state = table.state()
    counts = [len(state.files.filenames_on(leaf.partition_id)) for leaf in state.tree.leaves()]
    return Step(number, fmean(counts), max(counts), files.stored_bytes, files.written_bytes)


def compacted_bytes(instance: Path, copy: Path) -> int:
    """The bytes of a copy in which every leaf has one file."""
    shutil.copytree(instance, copy)
    table = sleeper.connect(copy).table("bench")
    while any(len(leaf) > 1 for leaf in live_files(table)):
        assert not table.compact(all_files=True).failed
    root = Path(table._context.objects.url(table.table_id))
    return sum((root / name).stat().st_size for leaf in live_files(table) for name in leaf)


def live_files(table: sleeper.Table) -> list[list[str]]:
    state = table.state()
    return [state.files.filenames_on(leaf.partition_id) for leaf in state.tree.leaves()]


def report(steps: Sequence[Step], arguments: argparse.Namespace) -> list[str]:
    """A tenth of the day in each line: over all of it, and how it ended."""
    lines = [
        f"{arguments.ingests:,} ingests of {arguments.rows:,} rows, {arguments.leaves} leaves",
        f"{'':8}{'files in a leaf':^24}{'MB':^18}",
        f"{'ingests':>8}{'mean':>8}{'most':>8}{'last':>8}{'stored':>9}{'written':>9}",
    ]
    for part in range(LINES):
        low, high = (arguments.ingests * end // LINES for end in (part, part + 1))
        here = [step for step in steps if low < step.ingests <= high]
        if here:
            last = here[-1]
            lines.append(
                f"{last.ingests:>8}{fmean(step.files_mean for step in here):>8.1f}"
                f"{max(step.files_max for step in here):>8}{last.files_mean:>8.1f}"
                f"{last.stored_bytes / 1e6:>9.1f}{last.written_bytes / 1e6:>9.1f}"
            )
    return lines


def picture(steps: Sequence[Step], arguments: argparse.Namespace) -> str:
    most = max(step.files_max for step in steps)
    return line_chart(
        title=f"Files in a leaf: {arguments.ingests:,} ingests, compaction every {arguments.every}",
        x_label="ingests",
        y_label="files",
        y_max=most * 1.25,
        lines=[
            Line(
                "without compaction",
                [(0, 0), (arguments.ingests, arguments.ingests)],
                colour="#9a6dd7",
                dashed=True,
            ),
            Line(
                "the leaf with most",
                [(step.ingests, step.files_max) for step in steps],
                colour="#d9730d",
            ),
            Line(
                "mean of all leaves",
                [(step.ingests, step.files_mean) for step in steps],
                colour="#2f81f7",
            ),
        ],
    )


if __name__ == "__main__":
    main()
