"""Large tables: very many leaves, and very many references."""

from __future__ import annotations

import json
import shutil

from bench.anchors.figures import NOW
from bench.anchors.processes import inside, run
from bench.anchors.run import Run

LEAVES = {
    "leaves_create": ("make", "create_s"),
    "leaves_open": ("open", "open_s"),
    "leaves_key": ("open", "key_ms"),
    "leaves_range": ("open", "range_ms"),
    "leaves_first": ("write", "first_s"),
    "leaves_again": ("write", "again_s"),
    "leaves_plan": ("write", "plan_s"),
}


def leaves(asked: Run) -> None:
    """Make a table of so many leaves, open it in a new process, and write in another."""

    def one_run(name: str, _: int) -> None:
        folder = asked.folder / "leaves"
        shutil.rmtree(folder, ignore_errors=True)
        used = {
            task: inside(asked.python(name), "leaves", task, folder, asked.sizes["leaves"])
            for task in ("make", "open", "write")
        }
        for row, (task, figure) in LEAVES.items():
            asked.add(row, name, used[task].said[figure], used[task].peak_mb)
        shutil.rmtree(folder)

    asked.each(asked.ours, one_run)


def references(asked: Run) -> None:
    """bench.state, each checkout its own: open a snapshot of so many references."""
    path = asked.folder / "references.parquet"
    count = str(asked.sizes["references"])
    task = ["-m", "bench.state", "--path", str(path), "--references", count, "--task"]
    run([asked.python(NOW), *task, "make"], root=asked.checkout(NOW).root)

    def one_run(name: str, _: int) -> None:
        used = run([asked.python(name), *task, "index"], root=asked.checkout(name).root)
        said = json.loads(used.text.strip().splitlines()[-1])
        peak_mb = said["peak memory when open"]
        asked.add("references_open", name, said["open a snapshot, CPU"], peak_mb)
        asked.add("references_memory", name, peak_mb)

    asked.each(asked.ours, one_run)
    path.unlink()
