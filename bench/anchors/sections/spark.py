"""Bulk import on Spark beside plain Spark: bench.spark_import, each checkout its own."""

from __future__ import annotations

import shutil

from bench.anchors.figures import NOW
from bench.anchors.processes import run
from bench.anchors.run import Run

MAKE_INPUTS = """
import sys
from pathlib import Path
from bench.spark_import import make_inputs
make_inputs(Path(sys.argv[1]), int(sys.argv[2]), ["files"])
"""
LEAVES = 64
FLOOR = "plain Spark"


def measure(asked: Run) -> None:
    """Plain Spark, files and a DataFrame, once each a run; CPU and memory are the tree's."""
    folder, rows = asked.folder / "spark", asked.sizes["spark"]
    folder.mkdir()
    run([asked.python(NOW), "-c", MAKE_INPUTS, str(folder), str(rows)])

    def imported(name: str, variant: str) -> tuple[float, float]:
        checkout = asked.checkout(name)
        command = [checkout.python, "-m", "bench.spark_import", "--run", variant]
        command += [f"--rows={rows}", f"--leaves={LEAVES}", f"--folder={folder}"]
        used = run(command, root=checkout.root)
        figures = used.text.strip().splitlines()[-1].split()
        return float(figures[1]), float(figures[4])

    floors: dict[int, tuple[float, float]] = {}

    def one_run(name: str, number: int) -> None:
        if number not in floors:
            floors[number] = imported(NOW, "floor")
            asked.add("spark_memory", FLOOR, floors[number][1])
        for variant in ("files", "frame"):
            cpu, peak_mb = imported(name, variant)
            asked.add(f"spark_{variant}", name, cpu / floors[number][0], peak_mb)
            if variant == "files":
                asked.add("spark_cpu", name, cpu, peak_mb)
            else:
                asked.add("spark_memory", name, peak_mb)

    asked.each(asked.ours, one_run)
    shutil.rmtree(folder)
