"""The page of figures tells of one commit, and of every benchmark."""

from __future__ import annotations

import json

import pytest

from bench import kept_figures
from bench.__main__ import BENCHMARKS
from bench.kept_figures import figures_of, keep
from tools import speed_tables
from tools.speed_tables import MARK, ROOT, performance_page

PAGE = "<!-- figures -->\nx\n<!-- /figures -->\n<!-- figures lookup -->\nold\n<!-- /figures -->\n"
TABLE = "<!-- figures small.json -->\nold\n<!-- /figures -->\n"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder of figures that is empty."""
    monkeypatch.setattr(kept_figures, "KEPT", tmp_path / "benchmarks.json")
    monkeypatch.setattr(speed_tables, "FIGURES", tmp_path)
    return tmp_path


def test_each_benchmark_stands_on_the_page():
    """What `make bench ARGS=all` runs is what the page has a place for, and nothing else."""
    marks = {mark[2] for mark in MARK.finditer((ROOT / "docs/performance.md").read_text())}

    assert marks - {None, "small.json", "large.json"} == set(BENCHMARKS) - {"anchors"}


def test_what_a_benchmark_printed_stands_below_its_mark(kept):
    """Given figures of two sizes, then both stand there, with their command, time and load."""
    keep("0123abcd", "lookup --rows 10", 61.7, 0.25, "\nhit 1 ms \n")
    keep("0123abcd", "lookup --rows 20", 3.2, 1.0, "hit 2 ms\n")

    page = performance_page(PAGE)

    assert "`python -m bench.lookup --rows 10`, 62 s, at a load of 0.2:" in page
    assert "```text\nhit 1 ms\n```" in page
    assert "```text\nhit 2 ms\n```" in page
    assert "All figures are of commit 0123abcd: " in page
    assert "old" not in page
    assert performance_page(page) == page


def test_figures_of_another_commit_leave(kept):
    """Given figures of a commit, when one of the next is kept, then none of the first is left."""
    keep("0123abcd", "lookup", 1, 0, "slow")
    keep("0123abcd", "sql", 1, 0, "slow")

    keep("89abcdef", "sql", 1, 0, "fast")

    assert list(figures_of("89abcdef")) == ["sql"]
    assert figures_of("0123abcd") == {}
    assert "`python -m bench.lookup`: not measured at this commit." in performance_page(PAGE)


def test_a_table_of_another_commit_is_not_shown(kept):
    """Given a table of anchors, then it stands on the page of its own commit alone."""
    figures = {"hit": {"now": [0.5]}}
    found = {"title": "2026-11-28: now 0123abcd", "sizes": {}, "figures": figures, "memory": {}}
    (kept / "small.json").write_text(json.dumps(found))
    keep("0123abcd", "anchors", 1, 0, "")
    assert "key look-up, warm" in performance_page(TABLE)

    keep("89abcdef", "anchors", 1, 0, "")

    assert "small.json: not measured at this commit." in performance_page(TABLE)
