"""The documentation as a site: built strictly, without anything fetched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import site_pages  # noqa: E402 - tools are no package


def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path):
    """Given all pages, then no link is broken, and no page asks another server for anything."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    pages = [path.read_text() for path in (tmp_path / "site").rglob("*.html")]
    asked = re.compile(r'<(?:script|img|iframe|link)[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
    assert [found[0] for page in pages for found in [asked.search(page)] if found] == []
    assert len(pages) > 100
    assert len(list((tmp_path / "site/decisions").glob("0*.html"))) == len(
        list((ROOT / "docs/decisions").glob("0*.md"))
    )


@pytest.mark.parametrize(
    ("target", "inside"),
    [
        ("../rules/README.md", True),
        ("cli.md", True),
        ("../../tests/documentation/test_site.py", False),
        ("../../README.md", False),
    ],
)
def test_links_out_of_the_docs_become_code(target, inside):
    """Given a link of a page in docs/reference, then it stays if it leads into docs."""
    assert site_pages._is_inside(PurePosixPath("reference"), target) is inside
