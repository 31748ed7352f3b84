"""`make bench`: the benchmarks, small enough for a small machine; each runs alone at any size.

python -m bench                     what users feel, beside peers, small: bench.anchors
python -m bench lookup commits      some, each at the sizes below
python -m bench all                 all, and docs/performance.md is written of what they print
python -m bench all lookup commits  these once more, for that page
python -m bench.lookup --rows N     one, at another size

What `all` measures is kept under the commit that it is of (bench/kept_figures.py). If it is
stopped, the next run goes on with what is missing. `--before` and `--upstream` are for
bench.anchors: another checkout, and the program that bench/upstream builds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from bench.kept_figures import NotCommitted, figures_of, keep, measured_commit

ROOT = Path(__file__).resolve().parent.parent
FIGURES = "docs/figures"
# The arguments of each run: two sizes, where one takes minutes.
BENCHMARKS = {
    "lookup": ["--rows 1000000 --leaves 16", "--rows 10000000 --leaves 64"],
    "first_reads": [""],
    "readers": ["--rows 200000 --folder-only"],
    "sql": ["--rows 1000000", "--rows 4000000"],
    "tpch": ["--scale 1"],
    "requests": ["--rows 200000"],
    "hot_keys": [""],
    "rest": ["--rows 2000000"],
    "rest_key": [""],
    "web_page": [""],
    "ingest": ["--rows 2000000 --leaves 64", "--rows 10000000 --leaves 64 --runs 1"],
    "file_size": ["--rows 200000 --scale 1"],
    "compaction": [
        "--files 11 --rows 100000",
        "--files 11 --rows 500000",
        "--appends 500 --rows 1000 --leaves 8",
    ],
    "a_day": ["--ingests 150 --leaves 16"],
    "replaced_rows": ["--rows 1000000 --keys 100000 --systems sleeper delta iceberg"],
    "left_out_rows": ["--rows 1000000", "--rows 1000000 --key text"],
    "changed_rows": [""],
    "changes": [""],
    "purges": ["--rows 1000000 --keys 1000"],
    "ycsb": [""],
    "commits": [""],
    "state_stores": ["--seconds 3 --runs 1"],
    "state": ["--references 100000 --references 1000000"],
    "open_table": ["--references 100000"],
    "publish": ["--references 100000"],
    "batcher": ["--files 100000"],
    "jobs": ["--jobs 100"],
    "committer": ["--seconds 4 --runs 1"],
    "queue": [""],
    "a_day_of_jobs": ["--files 100 --minutes 2 --leaves 16"],
    "spark_import": [
        "--rows 2000000 --leaves 64 --runs 3 --variants floor files frame",
        "--rows 10000000 --leaves 64 --runs 1 --variants floor files frame",
    ],
    "spark_compaction": ["--leaves 200"],
    "spark_read": [""],
    "import_driver": ["--files 100000 --leaves 10000"],
    "walks": [""],
    "without_polars": ["--rows 1000000"],
    "anchors": [
        f"--out {FIGURES}/small.json --runs 3 --peer-runs 2",
        f"--out {FIGURES}/large.json --large --peer-runs 1",
    ],
}
# These need more packages: an environment of their own, which make sets up.
WITH_PEERS = ("hot_keys", "replaced_rows", "tpch")
# Told of where else to look, which is no part of the command on the page.
BESIDE_ANOTHER = {"anchors": ("before", "upstream")}


def main() -> int:
    """Run the benchmarks that are asked for; return the number that failed."""
    asked = _arguments()
    every = asked.names[:1] == ["all"]
    names = asked.names[every:]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are all, {', '.join(BENCHMARKS)}")
        return 2
    beside = {
        name: [
            f"--{option}={getattr(asked, option)}" for option in options if getattr(asked, option)
        ]
        for name, options in BESIDE_ANOTHER.items()
    }
    if not every:
        runs = _runs(names) if names else [("anchors", "")]
        return sum(_run(name, given, beside.get(name, []), commit="") for name, given in runs)
    try:
        commit = measured_commit()
    except NotCommitted as error:
        print(error)
        return 2
    there = {} if names else figures_of(commit)
    failed = 0
    for name, given in _runs(names or [*BENCHMARKS]):
        if f"{name} {given}".strip() not in there:
            failed += _run(name, given, beside.get(name, []), commit)
    made = [sys.executable, "tools/make_docs.py", "docs/performance.md"]
    return failed + bool(subprocess.run(made, cwd=ROOT).returncode)


def _runs(names: list[str]) -> list[tuple[str, str]]:
    """Each benchmark and its arguments, as often as there are sizes: the first of all, then others.

    So a run that is stopped has found something of each.
    """
    sized = [(place, name, given) for name in names for place, given in enumerate(BENCHMARKS[name])]
    return [(name, given) for place, name, given in sorted(sized, key=lambda each: each[0])]


def _run(name: str, given: str, beside: list[str], commit: str) -> bool:
    """Run one and show what it prints; keep that if there is a commit. Tell whether it failed."""
    command = f"{name} {given}".strip()
    print(f"\n== {command}", flush=True)
    load, started = os.getloadavg()[0], perf_counter()
    lines = []
    whole = [_python(name), "-m", f"bench.{name}", *given.split(), *beside]
    with subprocess.Popen(whole, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        print(f"FAILED: {command}", flush=True)
    elif commit:
        text = "" if name == "anchors" else "".join(lines)  # it keeps its figures by itself
        keep(commit, command, perf_counter() - started, load, text)
    return bool(process.returncode)


def _python(name: str) -> str:
    own = ROOT / ".venv-peers" / "bin" / "python"
    return str(own) if name in WITH_PEERS and own.exists() else sys.executable


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="benchmarks, or all")
    parser.add_argument("--before", help="another checkout, with its own .venv")
    parser.add_argument("--upstream", help="a program that drives upstream's compaction")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
