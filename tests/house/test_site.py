"""The documentation as a site: built strictly, without anything fetched; the page of Python."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import python_page  # noqa: E402 - tools are no package
import release  # noqa: E402
import site_pages  # noqa: E402


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
        ("../../tests/house/test_site.py", False),
        ("../../README.md", False),
    ],
)
def test_links_out_of_the_docs_become_code(target, inside):
    """Given a link of a page in docs/reference, then it stays if it leads into docs."""
    assert site_pages._is_inside(PurePosixPath("reference"), target) is inside


@pytest.mark.parametrize("owner", python_page.CLASSES, ids=lambda owner: owner.__name__)
def test_every_public_member_is_on_the_page_of_python(owner):
    """`make docs` writes docs/reference/python.md anew."""
    page = (ROOT / "docs/reference/python.md").read_text()
    names = [f"{owner.__name__}.{name}" for name in python_page.public_names(owner)]

    assert [name for name in names if f"\n### {name}\n" not in page] == []


def test_every_public_name_is_on_the_page_of_python():
    """Given `sleeper.__all__`, then each name is a heading, an error or the room of Spark."""
    page = python_page.python_page()

    assert [
        name
        for name in python_page.sleeper.__all__
        if not re.search(rf"(?m)^##+ {name}\b|^\| `{name}` \|", page)
        and name not in {"spark", "SleeperError"}
    ] == []


@pytest.fixture
def repository(tmp_path):
    """A repository with three fragments."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "README.md").write_text("pip install sleeper_store-0.1.0-py3.whl\n")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{release.UNRELEASED}")
    (tmp_path / "docs").mkdir()
    (tmp_path / "changelog.d").mkdir()
    for name, text in (
        ("README.md", "how to write them"),
        ("a.added.md", "A [thing](../README.md).\n"),
        ("b.added.md", "A greater thing,\nin two lines.\n"),
        ("c.fixed.md", "A fault:\n\n- one\n"),
        ("order.txt", "# the greatest first\nb.added.md\n"),
    ):
        (tmp_path / "changelog.d" / name).write_text(text)
    return tmp_path


def test_a_release_gathers_fragments_and_sets_the_version(repository):
    """Given fragments, then they are in the changelog by kind and importance, and are gone."""
    assert release.release(repository, "0.2.0", date(2026, 11, 22)) == 3

    assert (repository / "CHANGELOG.md").read_text() == (
        f"# Changelog\n\n{release.UNRELEASED}\n"
        "## 0.2.0 (2026-11-22)\n\n"
        "### Added\n\n- A greater thing, in two lines.\n- A [thing](README.md).\n\n"
        "### Fixed\n\n- A fault:\n\n  - one\n"
    )
    assert 'version = "0.2.0"' in (repository / "pyproject.toml").read_text()
    assert "sleeper_store-0.2.0-" in (repository / "README.md").read_text()
    assert [path.name for path in (repository / "changelog.d").iterdir()] == ["README.md"]


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "2", "v0.2.0"])
def test_a_release_needs_a_later_version(repository, version):
    """Given a version that is no later one, then nothing is changed."""
    before = (repository / "CHANGELOG.md").read_text()

    with pytest.raises(ValueError, match=r"three numbers above 0\.1\.0"):
        release.release(repository, version, date(2026, 11, 22))

    assert (repository / "CHANGELOG.md").read_text() == before


def test_the_fragments_that_are_there_can_be_released():
    """Given changelog.d of this repository, then each name has a kind, and the order is of them."""
    fragments = release.found_fragments(ROOT / "changelog.d")

    assert release.section(fragments, "9.9.9", date(2026, 11, 22)).startswith("## 9.9.9")
