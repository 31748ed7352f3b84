"""Writing: large ingests beside their floor, small appends, and many writers at once."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from bench.anchors.figures import NOW
from bench.anchors.processes import inside, run
from bench.anchors.run import Run

APPENDING_PEERS = ("deltalake", "lance")
WRITERS, APPENDS = 8, 20
MAKE_INPUTS = """
import sys
from pathlib import Path
from bench.ingest import make_inputs
make_inputs(Path(sys.argv[1]), int(sys.argv[2]))
"""


def ingest(asked: Run) -> None:
    """bench.ingest at two sizes."""
    for row in ("ingest_small", "ingest_large"):
        inputs = asked.folder / "ingest-in"
        run([asked.python(NOW), "-c", MAKE_INPUTS, str(inputs), str(asked.sizes[row])])
        asked.each(asked.ours, partial(_ingested, asked, row, inputs))
        shutil.rmtree(inputs)


def _ingested(asked: Run, row: str, inputs: Path, name: str, _: int) -> None:
    """Run the floor, of now, then ours at once: its CPU changes with the load of the machine."""
    used = {}
    for variant, checkout in (("floor", asked.checkout(NOW)), ("ours", asked.checkout(name))):
        output = asked.folder / "ingest-out"
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        command = [checkout.python, "-m", "bench.ingest", f"--rows={asked.sizes[row]}"]
        command += ["--leaves=64", "--run", variant]
        command += ["--inputs", str(inputs), "--output", str(output)]
        used[variant] = run(command, root=checkout.root)
        shutil.rmtree(output)
    ours = used["ours"]
    asked.add(row, name, ours.cpu_s / used["floor"].cpu_s, ours.peak_mb)
    asked.add(f"{row}_cpu", name, ours.cpu_s, ours.peak_mb)


def appends(asked: Run) -> None:
    """Small appends through a handle that stays open."""

    def one_run(name: str, _: int) -> None:
        for row, row_count, leaves in (("append_8", 1_000, 8), ("append_64", 2_000, 64)):
            if leaves > 8 and name not in asked.ours:
                continue
            folder = asked.folder / "appends"
            system = "sleeper" if name in asked.ours else name
            used = inside(asked.python(name), "appends", system, folder, row_count, leaves)
            shutil.rmtree(folder)
            asked.add(row, name, used.said["cpu_ms"], used.peak_mb)
            if name in asked.ours:
                asked.add(f"{row}_syncs", name, used.said["syncs"])

    peers = [name for name in asked.peers if name in APPENDING_PEERS]
    asked.each([*asked.ours, *peers], one_run)


def writers(asked: Run) -> None:
    """Eight processes append to one table at once."""

    def one_run(name: str, _: int) -> None:
        folder = asked.folder / "writers"
        system = "sleeper" if name in asked.ours else name
        try:
            used = inside(asked.python(name), "writers", system, folder, WRITERS, APPENDS)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        asked.add("writers", name, used.said["acknowledged"])
        asked.add("writers_rate", name, used.said["each_second"])
        asked.add("writers_cpu", name, used.said["cpu_ms"])

    peers = [name for name in asked.peers if name in APPENDING_PEERS]
    asked.each([*asked.ours, *peers], one_run)
