"""`make release`: fragments become a section of the changelog, and the version is set."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import release  # noqa: E402 - tools are no package


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
