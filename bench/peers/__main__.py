"""Sleeper, a floor and other systems: the same rows and questions, side by side in one run.

    python -m bench.peers                                       all that are installed, small
    python -m bench.peers --rows 5000000 --files 20 --runs 3    as in docs/performance.md
    python -m bench.peers --systems sleeper lance duckdb        some

Each phase (load, upkeep, questions) of each system is a process of its own; systems take turns, so
other work on the machine slows all of them alike. Figures are CPU, user and system, of all
threads and children: medians of the runs. `ours, of the best` divides ours by the least of the
others that answer in Arrow, the floor left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from bench.peers.questions import write_inputs
from bench.peers.systems import SYSTEMS, is_installed

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {
    "load s": "load.cpu_s",
    "upkeep s": "upkeep.cpu_s",
    "both s": "both_s",
    "peak MB": "peak_mb",
    "hit ms": "questions.hit_ms",
    "miss ms": "questions.miss_ms",
    "10,000 keys ms": "questions.many_ms",
    "small range ms": "questions.small_ms",
    "large range ms": "questions.large_ms",
    "sum ms": "questions.sum_ms",
}
NO_ARROW = {"sqlite"}
ALONE_NO_MEASURE = {"load.cpu_s", "upkeep.cpu_s"}
PACKAGES = {"sleeper": "sleeper-store", "floor": "pyarrow", "lance": "pylance"}


def main() -> int:
    """Measure, and print the table; 1 where a system failed."""
    asked = _arguments()
    missing = [name for name in asked.systems if not is_installed(name)]
    systems = [name for name in asked.systems if name not in missing]
    folder = Path(tempfile.mkdtemp(prefix="sleeper-peers-"))
    failed: set[str] = set()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    try:
        questions = write_inputs(folder / "inputs", asked.rows, asked.files)
        (folder / "questions.json").write_text(json.dumps(questions.as_json()))
        for number in range(asked.runs):
            for name in systems[number % len(systems) :] + systems[: number % len(systems)]:
                measured = one_run(name, folder)
                if measured is None:
                    failed.add(name)
                else:
                    runs[name].append(measured)
    finally:
        shutil.rmtree(folder)
    small, large = min(1_000, asked.rows // 100), min(100_000, asked.rows // 10)
    print(
        f"{asked.rows:,} rows in {asked.files} files, {asked.runs} runs; "
        f"ranges of {small:,} and {large:,} rows; CPU"
    )
    print("\n".join(report({name: found for name, found in runs.items() if found})))
    for name in missing:
        print(f"{name} is not installed: requirements/peers.txt has it")
    return bool(failed)


def one_run(name: str, folder: Path) -> dict[str, float] | None:
    """One run of a system, from nothing; None where a phase failed, which is reported."""
    shutil.rmtree(folder / name, ignore_errors=True)
    measured: dict[str, float] = {"peak_mb": 0.0}
    for phase in ("load", "upkeep", "questions"):
        command = [sys.executable, "-m", "bench.peers.one_phase", name, phase, str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            print(f"{name} failed in {phase}:\n{done.stderr[-2000:]}", file=sys.stderr)
            return None
        found = json.loads(done.stdout.splitlines()[-1])
        measured["peak_mb"] = max(measured["peak_mb"], found.pop("peak_mb"))
        measured |= {f"{phase}.{each}": value for each, value in found.items()}
    measured["both_s"] = measured["load.cpu_s"] + measured["upkeep.cpu_s"]
    return measured


def report(runs: dict[str, list[dict[str, float]]]) -> list[str]:
    """A line for each system, and ours divided by the best of the others."""
    middle = {
        name: {key: median(run[key] for run in found) for key in COLUMNS.values()}
        for name, found in runs.items()
    }
    head = f"{'system':24}" + "".join(f"{title:>16}" for title in COLUMNS)
    lines = [head]
    for name, figures in middle.items():
        title = f"{name} {_version(name)}"
        lines.append(f"{title:24}" + "".join(_cell(figures[key]) for key in COLUMNS.values()))
    others = [middle[name] for name in middle if name not in {"sleeper", "floor", *NO_ARROW}]
    if "sleeper" in middle and others:
        ours = middle["sleeper"]
        best = {key: min(each[key] for each in others) for key in COLUMNS.values()}
        # Some systems load by copying files, and do all the work in upkeep.
        ratios = [
            f"{'':16}" if key in ALONE_NO_MEASURE else f"{ours[key] / best[key]:16.2f}"
            for key in COLUMNS.values()
        ]
        lines.append(f"{'ours, of the best':24}" + "".join(ratios))
    return lines


def _cell(value: float) -> str:
    return f"{value:16.3f}" if value < 1 else f"{value:16,.1f}"


def _version(name: str) -> str:
    try:
        return version(PACKAGES.get(name, name))
    except PackageNotFoundError:
        return ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
