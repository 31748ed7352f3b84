"""The tables of docs/performance.md, from figures that `bench.anchors --out` kept."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from shown_runs import ROOT

_TABLE = re.compile(r"(<!-- figures (\S+) -->\n).*?(<!-- /figures -->\n)", re.DOTALL)


def performance_page(text: str) -> str:
    """The page with a fresh table below each mark that names a file of figures."""
    return _TABLE.sub(lambda mark: f"{mark[1]}{_table(ROOT / 'docs' / mark[2])}\n{mark[3]}", text)


def _table(path: Path) -> str:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from bench.anchors.figures import read  # noqa: PLC0415 - found by the line above
    from bench.anchors.report import table  # noqa: PLC0415 - the same
    from bench.anchors.rows import ROWS  # noqa: PLC0415 - the same

    (found,) = read([path])
    lines = [f"{title}." for title in found.titles]
    return "\n".join(["", *lines, "", *table(found, [row.key for row in ROWS])])
