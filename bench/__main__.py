"""`make bench`: the benchmarks, small enough for a small machine; each runs alone at any size.

python -m bench                     the table of docs/performance.md: bench.anchors
python -m bench lookup commits      some
python -m bench all                 all of them
python -m bench.lookup --rows N     one, at another size
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = {
    "anchors": [],
    "ingest": ["--rows", "10000000", "--leaves", "64"],
    "first_reads": [],
    "readers": ["--rows", "200000"],
    "lookup": ["--rows", "10000000", "--leaves", "64"],
    "compaction": ["--files", "11", "--rows", "500000"],
    "a_day": ["--ingests", "150", "--leaves", "16"],
    "a_day_of_jobs": ["--files", "100", "--minutes", "2", "--leaves", "16"],
    "state": ["--references", "100000"],
    "open_table": ["--references", "100000"],
    "commits": [],
    "state_stores": ["--seconds", "3", "--runs", "1"],
    "requests": ["--rows", "200000"],
    "publish": ["--references", "100000"],
    "changes": [],
    "changed_rows": [],
    "left_out_rows": [],
    "ycsb": [],
    "hot_keys": [],
    "queue": [],
    "batcher": ["--files", "100000"],
    "jobs": ["--jobs", "200"],
    "committer": ["--seconds", "5"],
    "sql": [],
    "walks": [],
    "web_page": [],
    "spark_import": ["--rows", "10000000", "--leaves", "64"],
    "spark_compaction": ["--leaves", "200"],
    "spark_read": [],
    "file_size": [],
    "rest": ["--rows", "2000000"],
    "peers": [],
}
# Those that need more packages have an environment of their own, which make sets up.
ENVIRONMENTS = {"peers": ".venv-peers", "hot_keys": ".venv-peers"}
ROOT = Path(__file__).resolve().parent.parent


def main(names: list[str]) -> int:
    """Run the benchmarks of these names; return the number that failed."""
    if names == ["all"]:
        names = list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are all, {', '.join(BENCHMARKS)}")
        return 2
    failed = 0
    for name in names or ["anchors"]:
        print(f"\n== {name} {' '.join(BENCHMARKS[name])}", flush=True)
        command = [_python(name), "-m", f"bench.{name}", *BENCHMARKS[name]]
        failed += bool(subprocess.run(command, cwd=ROOT).returncode)
    return failed


def _python(name: str) -> str:
    own = ROOT / ENVIRONMENTS.get(name, "") / "bin" / "python"
    return str(own) if name in ENVIRONMENTS and own.exists() else sys.executable


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
