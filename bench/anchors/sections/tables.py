"""One table, loaded from many files: look-ups, ranges, scans, size and memory, beside the peers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bench.anchors.figures import NOW
from bench.anchors.processes import inside, run
from bench.anchors.run import Run

QUESTIONS_FILE = "questions.json"
# Row of the table: where one_phase says it.
QUESTIONS = {
    "hit": "hit_ms",
    "miss": "miss_ms",
    "many": "many_ms",
    "range_small": "small_ms",
    "range_large": "large_ms",
    "sum": "sum_ms",
    "count": "count_ms",
}
COLD = """
import sleeper, sys
rows = sleeper.connect(sys.argv[1] + "/instance").table("t").query(key=sys.argv[2]).to_arrow()
assert rows.num_rows == 1, rows
"""
SCANS = 16


def write_inputs(asked: Run, folder: Path) -> list[str]:
    """Write the input files and the questions; return keys that are there."""
    inside(asked.python(NOW), "inputs", folder, asked.rows, asked.files)
    hits: list[str] = json.loads((folder / QUESTIONS_FILE).read_text())["hits"]
    return hits


def phase(asked: Run, name: str, folder: Path, which: str) -> tuple[dict[str, float], float]:
    """One phase of bench.peers in a process of its own; also its peak MB."""
    system = "sleeper" if name in asked.ours else name
    used = inside(asked.python(name), "bench.peers.one_phase", system, which, folder, name)
    return used.said, used.peak_mb


def load(asked: Run, name: str, folder: Path) -> None:
    """Load a system, and do its upkeep."""
    for which in ("load", "upkeep"):
        phase(asked, name, folder, which)


def measure(asked: Run) -> None:
    """Load, look up, do upkeep, ask everything, start anew, and scan; all in turn."""
    folder = asked.folder / "tables"
    folder.mkdir()
    hits = write_inputs(asked, folder)

    def one_run(name: str, number: int) -> None:
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        loaded, load_mb = phase(asked, name, folder, "load")
        many_files, _ = phase(asked, name, folder, "look-ups")
        kept, upkeep_mb = phase(asked, name, folder, "upkeep")
        answers, peak_mb = phase(asked, name, folder, "questions")
        asked.add("load", name, loaded["cpu_s"] + kept["cpu_s"], max(load_mb, upkeep_mb))
        asked.add("hit_files", name, many_files["hit_ms"])
        for row, said in QUESTIONS.items():
            asked.add(row, name, answers[said], peak_mb)
        if name not in asked.ours:
            used = inside(asked.python(name), "cold_peer", name, place, hits[number])
        else:
            used = run([asked.python(name), "-c", COLD, str(place), hits[number]])
            scanned = inside(asked.python(name), "scans", place / "instance", "t", SCANS)
            asked.add("scan_memory", name, scanned.said["last_mb"], scanned.peak_mb)
        asked.add("cold", name, used.cpu_s, used.peak_mb)
        shutil.rmtree(place)

    try:
        asked.each([*asked.ours, *asked.peers], one_run)
    finally:
        shutil.rmtree(folder)
