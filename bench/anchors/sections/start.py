"""What a command costs before it does anything: `sleeper --help`."""

from __future__ import annotations

from bench.anchors.processes import run
from bench.anchors.run import Run

TIMES = 3


def measure(asked: Run) -> None:
    """Start it some times a run."""

    def one_run(name: str, _: int) -> None:
        for _ in range(TIMES):
            used = run([asked.checkout(name).command_line, "--help"])
            asked.add("help", name, used.cpu_s, used.peak_mb)

    asked.each(asked.ours, one_run)
