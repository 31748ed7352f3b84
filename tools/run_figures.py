"""The page of test runs, docs/reference/test-runs.md, and the figures that it is made from.

    python tools/run_figures.py     keeps what the last whole runs on this machine left behind

`make test` leaves its results in build/test-runs if it runs everything and all of it passes, and so
does `make mutants` if it runs everything. `make soak` leaves those of each file that it ran,
however they ended. This keeps them in docs/figures/test-runs.json, each run in place of the earlier
one of its name, each file of a soak in place of its earlier soak, and `make docs` writes the page
from there. So the page tells of the runs whose commits it names, and no later commit makes it
stale.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEFT = ROOT / "build" / "test-runs"
KEPT = ROOT / "docs" / "figures" / "test-runs.json"
MUTANTS = "mutants"
SOAK = "soak"
RUNS = {
    "most": "all but these",
    "deploy": "deployment",
    "spark": "Spark",
    "spark-cluster": "Spark, killed",
    "spark-connect": "Spark Connect",
    "spark40": "Spark 4.0",
}
"""Parts of `make test`, by the name of the file that each leaves."""
OUTCOMES = ("passed", "skipped", "failing as expected")
INTRODUCTION = """\
<!-- Generated: run `make docs`. -->

# Test runs

Figures of whole runs, each of the commit and the day that stand beside it. What the suites prove:
[testing](../testing.md). `make test`, `make soak` and `make mutants` leave their figures in
`build`, and `make test-runs` keeps them here.
"""
ABOUT_SOAKS = """
## `make soak`

Of each file the last soak, on a machine of two cores that may have had other work. The share is of
the examples that a [whole soak](../testing.md#soak) tries; seconds are the sum of its tests, two of
which run at once.

| file | commit | day | share | passed | failed | seconds | what it said |
|---|---|---|---|---|---|---|---|
"""


class NotWhole(Exception):
    """Results are not of a commit, and so of nothing that a page could name."""


def main() -> int:
    """Keep what runs left behind. Return the exit code."""
    try:
        found = found_runs(LEFT)
    except NotWhole as refusal:
        print(f"nothing was kept: {refusal}", file=sys.stderr)
        return 1
    if not found:
        print("nothing to keep: run `make test` or `make mutants` without ARGS", file=sys.stderr)
        return 1
    kept = kept_runs()
    if SOAK in found:
        found[SOAK] = {**kept.get(SOAK, {}), **found[SOAK]}
    KEPT.write_text(json.dumps({**kept, **found}, indent=1, sort_keys=True) + "\n")
    print(f"kept {', '.join(found)}; `make docs` writes the page")
    return 0


def leave(name: str, commit: str, figures: dict[str, Any]) -> None:
    """Leave the figures of a whole run of something that is not pytest, with its commit."""
    LEFT.mkdir(parents=True, exist_ok=True)
    told = {"commit": commit, "day": datetime.now(UTC).date().isoformat(), **figures}
    (LEFT / f"{name}.json").write_text(json.dumps(told))


def commit_of(root: Path) -> str:
    """Return the commit of a checkout, with a + if files differ from it; nothing without git."""
    head = _git(root, "rev-parse", "--short=8", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{head}{'+' * bool(changed)}"


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    if shutil.which("git") is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def kept_runs() -> dict[str, Any]:
    """Return the figures that are kept, by the name of the run."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def found_runs(folder: Path) -> dict[str, Any]:
    """Return the figures that runs left in a folder.

    Raises:
        NotWhole: a run was of files that are in no commit.
    """
    results = sorted(folder.glob("*.xml"))
    found = {path.stem: figures_of(path) for path in results if path.stem != SOAK}
    found |= {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    soaked = next((soak_figures_of(path) for path in results if path.stem == SOAK), {})
    for name, figures in [*found.items(), *((SOAK, each) for each in soaked.values())]:
        if not figures["commit"] or figures["commit"].endswith("+"):
            raise NotWhole(f"'{name}' ran on files that are in no commit; commit, and run it again")
    return {**found, SOAK: soaked} if soaked else found


def figures_of(path: Path) -> dict[str, Any]:
    """Return the figures of what pytest wrote of a run: its suites, and why tests were skipped."""
    (whole,) = ET.parse(path).getroot().iter("testsuite")
    suites: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    for case in whole.iter("testcase"):
        outcome, reason = outcome_of(case)
        suite = suites.setdefault(suite_of(case), Counter())
        suite[outcome] += 1
        suite["seconds"] += float(case.get("time") or 0)  # type: ignore[assignment]
        if reason:
            reasons[f"{outcome}: {reason}"] += 1
    return {
        "commit": whole.get("name", ""),
        "day": (whole.get("timestamp") or "")[:10],
        "seconds": round(float(whole.get("time") or 0)),
        "suites": {
            name: {key: round(value) for key, value in suite.items()}
            for name, suite in suites.items()
        },
        "reasons": dict(reasons),
    }


def soak_figures_of(path: Path) -> dict[str, Any]:
    """Return the figures of what pytest wrote of a soak, by the file of tests.

    The name of the run is its commit and its share. What a test that passed printed last is kept.
    """
    (whole,) = ET.parse(path).getroot().iter("testsuite")
    commit, _, share = (whole.get("name") or "").partition(" ")
    files: dict[str, dict[str, Any]] = {}
    for case in whole.iter("testcase"):
        if case.find("skipped") is not None:
            continue
        figures = files.setdefault(
            file_of(case),
            {
                "commit": commit,
                "day": (whole.get("timestamp") or "")[:10],
                "share": share or "1",
                "passed": 0,
                "failed": 0,
                "seconds": 0,
                "said": [],
            },
        )
        failed = case.find("failure") is not None or case.find("error") is not None
        figures["failed" if failed else "passed"] += 1
        figures["seconds"] += float(case.get("time") or 0)
        told = (case.findtext("system-out") or "").strip().splitlines()
        said = [line for line in told if line.strip() and not line.startswith("---")]  # pytest's
        if said and not failed:
            figures["said"].append(said[-1])
    for figures in files.values():
        figures["seconds"] = round(figures["seconds"])
    return files


def file_of(case: ET.Element) -> str:
    """Return the file of a test in `tests`, by the dotted name of its module and class."""
    _, _, rest = (case.get("classname") or "").partition("tests.")
    parts = [part for part in rest.split(".") if not part.startswith("Test")]
    return "/".join(parts) + ".py"


def suite_of(case: ET.Element) -> str:
    """Return the folder in `tests` that a test is in, by the dotted name of its module."""
    _, _, rest = (case.get("classname") or "").partition("tests.")
    return f"tests/{rest.split('.')[0]}"


def outcome_of(case: ET.Element) -> tuple[str, str]:
    """Return how a test ended, and the reason if it did not run or had to fail."""
    skipped = case.find("skipped")
    if skipped is None:
        return "passed", ""
    outcome = "failing as expected" if skipped.get("type") == "pytest.xfail" else "skipped"
    return outcome, " ".join((skipped.get("message") or "").split())


def test_runs_page() -> str:
    """Return the page, from the figures that are kept."""
    return page_of(kept_runs())


def page_of(kept: dict[str, Any]) -> str:
    """Return the page of some runs."""
    runs = {title: kept[name] for name, title in RUNS.items() if name in kept}
    text = INTRODUCTION
    if not kept:
        return f"{text}\nNo run is kept yet.\n"
    if runs:
        text += (
            "\n## `make test`\n\nSeconds of a run passed on a clock; those of a suite are the sum"
        )
        text += " of its tests, several of which run at once.\n\n"
        text += "| run | commit | day | seconds |\n|---|---|---|---|\n"
        for title, run in runs.items():
            text += f"| {title} | {run['commit']} | {run['day']} | {run['seconds']:,} |\n"
        text += f"\n| run | suite | {' | '.join(OUTCOMES)} | seconds |\n"
        text += f"|---|---|{'---|' * len(OUTCOMES)}---|\n"
        for title, run in runs.items():
            for suite, figures in sorted(run["suites"].items()):
                counts = " | ".join(f"{figures.get(outcome, 0):,}" for outcome in OUTCOMES)
                text += f"| {title} | `{suite}` | {counts} | {figures['seconds']:,} |\n"
    reasons = [(title, *each) for title, run in runs.items() for each in run["reasons"].items()]
    if reasons:
        text += "\n| run | tests | why they did not run, or had to fail |\n|---|---|---|\n"
        for title, reason, count in reasons:
            text += f"| {title} | {count} | {cell(reason)} |\n"
    if SOAK in kept:
        text += ABOUT_SOAKS + "".join(soak_row(*each) for each in sorted(kept[SOAK].items()))
    if MUTANTS in kept:
        figures = kept[MUTANTS]
        text += (
            "\n## `make mutants`\n\n| commit | day | bugs | caught | seconds |\n"
            f"|---|---|---|---|---|\n| {figures['commit']} | {figures['day']} "
            f"| {figures['bugs']:,} | {figures['caught']:,} | {figures['seconds']:,} |\n"
        )
    return text


def soak_row(file: str, figures: dict[str, Any]) -> str:
    """Return the row of a file of tests that was soaked."""
    cells = [figures[key] for key in ("commit", "day", "share", "passed", "failed")]
    said = "; ".join(cell(line) for line in figures["said"])
    told = " | ".join(str(each) for each in (*cells, f"{figures['seconds']:,}", said))
    return f"| `tests/{file}` | {told} |\n"


def cell(text: str) -> str:
    """Text that fits into one cell of a table; what looks like HTML or a link is shown as it is."""
    return f"`{text.replace('|', '/').replace('`', chr(39))}`"


if __name__ == "__main__":
    sys.exit(main())
