"""The page of test runs tells of runs of a commit, and of nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tools import run_figures
from tools.run_figures import KEPT, NotWhole, commit_of, found_runs, leave, page_of

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_passes(number):
    assert True

@pytest.mark.skip(reason="LEFT OUT: a-server | it is not installed")
def test_without_its_server():
    assert False

@pytest.mark.xfail(reason="a server: does otherwise")
def test_a_difference():
    assert False
"""


@pytest.fixture
def run(tmp_path):
    """Run tests of a suite as `make test` does, under a commit; return the folder of results."""

    def begin(commit):
        suite = tmp_path / "tests" / "unit"
        suite.mkdir(parents=True)
        (suite / "test_some.py").write_text(TESTS)
        how = [f"--junitxml={tmp_path}/left/most.xml", "-o", f"junit_suite_name={commit}"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *how, "tests"]
        bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # starts five times sooner
        done = subprocess.run(
            command, cwd=tmp_path, env=bare, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        return tmp_path / "left"

    return begin


def test_a_run_is_told_by_suite_with_reasons_commit_and_day(run):
    """Given what pytest left, then tests are counted by outcome, and each reason is named."""
    found = found_runs(run("0123abcd"))
    figures = found["most"]
    page = page_of(found)

    assert f"| all but these | 0123abcd | {figures['day']} | {figures['seconds']} |" in page
    assert "| all but these | `tests/unit` | 3 | 1 | 1 | 0 |" in page
    assert "| all but these | 1 | `skipped: LEFT OUT: a-server / it is not installed` |" in page
    assert "| all but these | 1 | `failing as expected: a server: does otherwise` |" in page


@pytest.mark.parametrize("commit", ["0123abcd+", ""])
def test_a_run_of_files_that_are_in_no_commit_is_not_kept(run, commit):
    """Given files that were changed, or no git, then nobody could look at what ran."""
    left = run(commit)

    with pytest.raises(NotWhole, match="'most' ran on files that are in no commit"):
        found_runs(left)


def test_a_newer_run_takes_the_place_of_the_one_of_its_name(tmp_path, monkeypatch, capsys):
    """Given a kept run of tests, when one of mutants is kept, then both are told."""
    monkeypatch.setattr(run_figures, "LEFT", tmp_path / "left")
    monkeypatch.setattr(run_figures, "KEPT", tmp_path / "kept.json")
    tests = {"commit": "aa", "day": "2026-11-01", "seconds": 9, "suites": {}, "reasons": {}}
    (tmp_path / "kept.json").write_text(json.dumps({"spark": tests}))

    for commit, caught in (("bb", 6), ("cc", 7)):
        leave("mutants", commit, {"bugs": 7, "caught": caught, "seconds": 1234})
        assert run_figures.main() == 0

    page = run_figures.test_runs_page()
    assert "| Spark | aa | 2026-11-01 | 9 |" in page
    assert "| 7 | 7 | 1,234 |" in page
    assert "| 7 | 6 |" not in page
    assert "kept mutants" in capsys.readouterr().out


SOAKED = """
import pytest

class TestWorlds:
    @pytest.mark.parametrize("number", range(2))
    def test_withstand(self, number):
        print("seeds of all kinds")
        print(f"{number + 3} worlds")

def test_breaks():
    print("1 world")
    assert False

def test_says_nothing():
    assert True
"""


def test_a_soak_is_told_by_file_with_its_share_and_what_it_said(tmp_path, monkeypatch):
    """Given soaks of two files, when one is soaked again, then the newer one of each is told."""
    monkeypatch.setattr(run_figures, "LEFT", tmp_path / "left")
    monkeypatch.setattr(run_figures, "KEPT", tmp_path / "kept.json")
    suite = tmp_path / "tests" / "stories"
    suite.mkdir(parents=True)
    for name in ("test_a", "test_b"):
        (suite / f"{name}.py").write_text(SOAKED)

    for named, files in (("aa 0.5", "tests"), ("bb 1", "tests/stories/test_b.py")):
        how = ["-o", f"junit_suite_name={named}", "-o", "junit_logging=system-out"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *how]
        bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        told = f"--junitxml={tmp_path}/left/soak.xml"
        subprocess.run(
            [*command, told, files], cwd=tmp_path, env=bare, capture_output=True, check=False
        )
        assert run_figures.main() == 0

    page = run_figures.test_runs_page()
    day = json.loads((tmp_path / "kept.json").read_text())["soak"]["stories/test_a.py"]["day"]
    said = "`3 worlds`; `4 worlds`"
    assert f"| `tests/stories/test_a.py` | aa | {day} | 0.5 | 3 | 1 | 0 | {said} |" in page
    assert f"| `tests/stories/test_b.py` | bb | {day} | 1 | 3 | 1 | 0 | {said} |" in page


def test_nothing_is_kept_where_nothing_ran(tmp_path, monkeypatch, capsys):
    """Given no results, then that is said, and what was kept stays."""
    monkeypatch.setattr(run_figures, "LEFT", tmp_path)
    before = KEPT.read_text() if KEPT.exists() else None

    assert run_figures.main() == 1
    assert "run `make test` or `make mutants` without ARGS" in capsys.readouterr().err
    assert (KEPT.read_text() if KEPT.exists() else None) == before


def test_a_changed_file_is_told_beside_the_commit(tmp_path):
    """Given a checkout, then its commit is named; with a + once a file of it differs."""
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        (tmp_path / "file").write_text("one")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True)
    clean = commit_of(tmp_path)
    (tmp_path / "file").write_text("two")

    assert len(clean) >= 8
    assert commit_of(tmp_path) == f"{clean}+"
