"""The table of what Sleeper is measured by: now, an earlier commit, and the best of the peers.

    python -m bench.anchors                                  all, small: ten minutes
    python -m bench.anchors --before ../before               the same beside another checkout
    python -m bench.anchors --large                          more rows: hours
    python -m bench.anchors --rows-only hit miss compaction  some rows, or all of some sections
    python -m bench.anchors --from figures.json              print what earlier runs found

`--before` names a clone of this repository at another commit, with its own .venv; this checkout's
benchmarks measure both, one after the other in turn. `--upstream` names the program that drives
upstream's compaction engine, which bench/upstream builds. CPU is that of all threads and children,
memory the peak of a process of its own; figures are medians of the runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.anchors.figures import BEFORE, NOW, read
from bench.anchors.processes import ROOT, Checkout, ProcessFailed
from bench.anchors.report import table
from bench.anchors.rows import ROWS
from bench.anchors.run import Run
from bench.anchors.sections import bucket, compaction, spark, start, state, tables, writing

SECTIONS: dict[str, Callable[[Run], None]] = {
    "start": start.measure,
    "appends": writing.appends,
    "tables": tables.measure,
    "ingest": writing.ingest,
    "compaction": compaction.measure,
    "bucket": bucket.measure,
    "bucket_appends": bucket.appends,
    "leaves": state.leaves,
    "references": state.references,
    "writers": writing.writers,
    "spark": spark.measure,
}
# Small, and large.
SIZES = {
    "rows": (1_000_000, 5_000_000),
    "files": (20, 20),
    "ingest_small": (1_000_000, 5_000_000),
    "ingest_large": (2_000_000, 10_000_000),
    "compaction": (100_000, 500_000),
    "leaves": (10_000, 100_000),
    "references": (100_000, 1_000_000),
    "spark": (1_000_000, 10_000_000),
}
PEERS = ("lance", "duckdb", "deltalake", "datafusion", "polars", "pyiceberg", "sqlite")


def main() -> int:
    """Measure what is asked for, and print the table; 1 where something failed."""
    asked = _arguments()
    if asked.figures:
        _print_again(asked.figures)
        return 0
    chosen = [
        row for row in ROWS if not asked.rows_only or {row.key, row.section} & asked.rows_only
    ]
    folder = Path(tempfile.mkdtemp(prefix="sleeper-anchors-", dir=asked.folder))
    run = _run(asked, folder)
    _say_what_is_left_out(run, asked)
    try:
        for name in (name for name in SECTIONS if name in {row.section for row in chosen}):
            try:
                SECTIONS[name](run)
            except ProcessFailed as error:
                run.failures.append(f"{name}: {error}")
                print(f"FAILED {name}: {error}", file=sys.stderr)
            keys = [row.key for row in chosen if row.section == name]
            print("\n".join(["", *table(run, keys)]), flush=True)
            if asked.out:
                run.write(Path(asked.out), _title(run))
    finally:
        shutil.rmtree(folder)
    print(f"\n{_title(run)}\n")
    print("\n".join(table(run, [row.key for row in chosen])))
    if run.peer_runs < run.runs:
        print(f"Peers were measured {run.peer_runs} times.")
    for failure in run.failures:
        print(f"failed: {failure.splitlines()[0]}")
    return bool(run.failures)


def _title(run: Run) -> str:
    commits = ", ".join(f"{each.name} {each.commit}" for each in run.checkouts)
    sizes = ", ".join(f"{name} {size:,}" for name, size in run.sizes.items())
    load = f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"
    return f"{datetime.now(UTC).date()}: {commits}; {sizes}; medians of {run.runs}; {load}"


def _run(asked: argparse.Namespace, folder: Path) -> Run:
    sizes = {name: getattr(asked, name) or SIZES[name][asked.large] for name in SIZES}
    checkouts = [Checkout(NOW, ROOT)]
    if asked.before:
        checkouts.insert(0, Checkout(BEFORE, Path(asked.before).resolve()))
    peers_python = ROOT / ".venv-peers" / "bin" / "python"
    python = str(peers_python) if peers_python.exists() else sys.executable
    return Run(
        folder=folder,
        checkouts=checkouts,
        peers_python=python,
        peers=_installed(python, asked.peers),
        upstream=Path(asked.upstream).resolve() if asked.upstream else None,
        rows=sizes["rows"],
        files=sizes["files"],
        runs=asked.runs,
        peer_runs=asked.runs if asked.peer_runs is None else asked.peer_runs,
        sizes=sizes,
    )


def _installed(python: str, names: list[str]) -> list[str]:
    code = "import sys; from bench.peers.systems import is_installed\n"
    code += "print(*filter(is_installed, sys.argv[1:]))"
    done = subprocess.run([python, "-c", code, *names], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split()


def _say_what_is_left_out(run: Run, asked: argparse.Namespace) -> None:
    for name in asked.peers:
        if name not in run.peers:
            print(f"LEFT OUT: {name} is not installed; `make bench` does that")
    if run.upstream is None:
        print("LEFT OUT: upstream's engine; --upstream names a driver (bench/upstream)")
    if not asked.before:
        print("LEFT OUT: the column `before`; --before names another checkout")


def _print_again(paths: list[str]) -> None:
    """Print a table for each size that the files have."""
    for found in read(map(Path, paths)):
        print("\n".join([*found.titles, "", *table(found, [row.key for row in ROWS])]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.anchors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--before", help="another checkout, with its own .venv")
    parser.add_argument("--upstream", help="a program that drives upstream's compaction")
    parser.add_argument("--rows-only", nargs="+", type=str, help="rows or sections")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-runs", type=int, help="of the peers, where fewer")
    parser.add_argument("--large", action="store_true", help="more rows: hours")
    parser.add_argument("--folder", help="for all data, instead of the folder of temp files")
    parser.add_argument("--out", help="a file for all figures, as JSON")
    parser.add_argument("--from", dest="figures", nargs="+", help="such files: print their tables")
    for name, (small, large) in SIZES.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int, help=f"{small:,}, or {large:,} if --large"
        )
    asked = parser.parse_args()
    asked.rows_only = set(asked.rows_only or ())
    unknown = asked.rows_only - {row.key for row in ROWS} - set(SECTIONS)
    if unknown:
        parser.error(f"no row or section {', '.join(sorted(unknown))}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
