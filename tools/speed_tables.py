"""The figures on docs/performance.md, all of one commit: what `make bench ARGS=all` kept.

Marks on the page say what stands below them:

    <!-- figures -->                        the commit, the machine and the days
    <!-- figures lookup -->                 what bench.lookup printed, at each size
    <!-- figures small.json -->             the table of bench.anchors, from a file of its figures
    <!-- figures small.json bucket -->      of a section of it, with a line for each system
    <!-- /figures -->                       ends each of them
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
MARK = re.compile(r"(<!-- figures(?: (\S+))?(?: (\S+))? -->\n).*?(<!-- /figures -->\n)", re.DOTALL)


def performance_page(text: str) -> str:
    """The page with the kept figures below each mark."""
    path = FIGURES / "benchmarks.json"
    kept = json.loads(path.read_text()) if path.exists() else {"commit": "-", "figures": {}}
    return MARK.sub(
        lambda mark: f"{mark[1]}{_below(mark[2] or '', mark[3] or '', kept)}\n{mark[4]}", text
    )


def _below(name: str, section: str, kept: dict[str, Any]) -> str:
    if name.endswith(".json"):
        return _anchors(FIGURES / name, section, kept)
    return _benchmark(name, kept) if name else _about(kept)


def _about(kept: dict[str, Any]) -> str:
    days = sorted({each["day"] for each in kept["figures"].values()})
    if not days:
        return "\nNothing was measured yet.\n"
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    minutes = sum(each["seconds"] for each in kept["figures"].values()) / 60
    told = f"All figures are of commit {kept['commit']}: {kept['machine']}, {when}"
    return f"\n{told}, {minutes:.0f} minutes in all.\n"


def _benchmark(name: str, kept: dict[str, Any]) -> str:
    runs = {
        command: found
        for command, found in kept["figures"].items()
        if command.split()[0] == name and found["lines"]
    }
    told = [_printed(command, found) for command, found in runs.items()]
    return "".join(told) or f"\n`python -m bench.{name}`: not measured at this commit.\n"


def _printed(command: str, found: dict[str, Any]) -> str:
    took = f"{found['seconds']:,} s, at a load of {found['load']}"
    lines = "\n".join(found["lines"])
    return f"\n`python -m bench.{command}`, {took}:\n\n```text\n{lines}\n```\n"


def _anchors(path: Path, section: str, kept: dict[str, Any]) -> str:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from bench.anchors.figures import read  # noqa: PLC0415 - found by the line above
    from bench.anchors.report import table, table_of_systems  # noqa: PLC0415 - the same
    from bench.anchors.rows import ROWS  # noqa: PLC0415 - the same

    if not path.exists():
        return f"\n{path.name}: not measured at this commit.\n"
    (found,) = read([path])
    if not all(f"now {kept['commit']}" in title for title in found.titles):
        return f"\n{path.name}: not measured at this commit.\n"
    if section:
        return "\n".join(["", *table_of_systems(found, section)])
    told = [f"{title}." for title in found.titles]
    return "\n".join(["", *told, "", *table(found, [row.key for row in ROWS])])
