"""The tables of docs/performance.md, from figures that `bench.anchors --out` kept."""

from __future__ import annotations

import re
import sys

from shown_runs import ROOT

_TABLE = re.compile(r"(<!-- figures (\S+) ?(\S*) -->\n).*?(<!-- /figures -->\n)", re.DOTALL)


def performance_page(text: str) -> str:
    """The page with a fresh table below each mark.

    A mark names a file of figures, for the table of anchors, and maybe a section, for a table of
    all systems in it.
    """
    return _TABLE.sub(lambda mark: f"{mark[1]}{_table(mark[2], mark[3])}\n{mark[4]}", text)


def _table(name: str, section: str) -> str:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from bench.anchors.figures import read  # noqa: PLC0415 - found by the line above
    from bench.anchors.report import table, table_of_systems  # noqa: PLC0415 - the same
    from bench.anchors.rows import ROWS  # noqa: PLC0415 - the same

    (found,) = read([ROOT / "docs" / name])
    if section:
        return "\n".join(["", *table_of_systems(found, section)])
    told = [f"{title}." for title in found.titles]
    return "\n".join(["", *told, "", *table(found, [row.key for row in ROWS])])
