"""Puts bugs into copies of the package, one at a time, and says which tests caught each.

    python -m tools.mutants                  all of them
    python -m tools.mutants entry-overwritten first-file-only

The bugs are in bugs/, a module for each area. With a bug, its tests run until the first fails. At
the end all tests that failed so run on copies without a bug: a test that fails there too has caught
nothing. The checkout is not touched.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from ..run_figures import commit_of, leave  # type: ignore[import-not-found]  # mypy: flat
from . import one_run
from .bug import Bug, all_bugs
from .one_source import BROKEN, FAILED, MODULE, SOURCE

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600
"""Of a run with a bug. One without is of many tests, and may take longer."""
LIMIT_WITHOUT_S = 3_600
AT_ONCE = 25
"""How many of the tests that caught bugs run in one process without a bug."""
RUNNING: set[BaseProcess] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run of tests ended.

    Attributes:
        code: The exit code of pytest; None where it took too long.
        failed: The tests that failed, in the order in which they ran.
        output: What pytest printed.
        took_s: Seconds.
    """

    code: int | None
    failed: tuple[str, ...]
    output: str
    took_s: float

    @property
    def says(self) -> str:
        """What pytest told last."""
        if self.code is None:
            return f"no end after {self.took_s:.0f} s"
        return self.output.strip().rpartition("\n")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the table says about a bug.

    Attributes:
        bug: Its name.
        caught_by: The test that failed; empty if none did.
        took_s: Seconds that the tests ran with the bug.
    """

    bug: str
    caught_by: str
    took_s: float


def main(names: Sequence[str]) -> int:
    """Run all bugs, or those that are named. Return the exit code."""
    unknown = {*names} - {bug.name for bug in all_bugs()}
    if unknown:
        print(f"no such bugs: {', '.join(sorted(unknown))}. See tools/mutants/bugs/")
        return 2
    bugs = [bug for bug in all_bugs() if bug.name in names or not names]
    commit, began = commit_of(ROOT), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sleeper-mutants-") as folder:
        rows = run_all(bugs, Path(folder))
    print_table(rows)
    caught = sum(bool(row.caught_by) for row in rows)
    took_s = round(time.monotonic() - began)
    print(f"caught {caught} of {len(bugs)} in {took_s} s")
    if not names:
        leave("mutants", commit, {"bugs": len(bugs), "caught": caught, "seconds": took_s})
    return int(caught < len(bugs))


def run_all(bugs: Sequence[Bug], folder: Path) -> list[Row]:
    """Run the tests of each bug with it, then without any those that failed; return the rows.

    As many runs at once as there are processors. A line is printed for each bug that has run.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            runs = {bug: pool.submit(run_with, bug, folder / bug.name) for bug in bugs}
            rows = [judge(bug, run.result()) for bug, run in runs.items()]
            caught_by = sorted({row.caught_by for row in rows if row.caught_by})
            parts = [caught_by[at : at + AT_ONCE] for at in range(0, len(caught_by), AT_ONCE)]
            without = [
                pool.submit(run_tests, folder / f"without-{number}", part)
                for number, part in enumerate(parts)
            ]
            return only_caught_by_the_bug(rows, [run.result() for run in without])
        except BaseException:  # Ctrl-C, or a bug that does not fit the code
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*RUNNING]:
                one_run.kill(process)
            raise


def judge(bug: Bug, outcome: Outcome) -> Row:
    """Print a bug's line, and return its row of the table."""
    caught_by, why_not = "", ""
    if outcome.code == pytest.ExitCode.TESTS_FAILED and outcome.failed:
        caught_by = outcome.failed[0]
    elif outcome.code == 0:
        why_not = f"passed: {' '.join(bug.tests)}"
    elif outcome.code == BROKEN:
        why_not = f"it breaks more than it is meant to: {outcome.says}"
    else:
        why_not = outcome.says
    verdict = "caught" if caught_by else f"NOT CAUGHT: {why_not}"
    print(f"{bug.name}: {bug.breaks} {verdict} ({outcome.took_s:.0f} s)", flush=True)
    return Row(bug=bug.name, caught_by=caught_by, took_s=outcome.took_s)


def only_caught_by_the_bug(rows: Sequence[Row], without: Sequence[Outcome]) -> list[Row]:
    """Return the rows, where a test that fails without a bug too has caught none."""
    for outcome in without:
        if outcome.code not in {0, pytest.ExitCode.TESTS_FAILED}:
            raise RuntimeError(f"tests do not run on a copy without a bug: {outcome.says}")
    fail_anyway = {test for outcome in without for test in outcome.failed}
    for row in rows:
        if row.caught_by in fail_anyway:
            print(f"{row.bug}: NOT CAUGHT: without it the test fails too: {row.caught_by}")
    return [replace(row, caught_by="") if row.caught_by in fail_anyway else row for row in rows]


def print_table(rows: Sequence[Row]) -> None:
    """Print which test caught each bug, and after how many seconds."""
    wide = max(len(row.bug) for row in rows)
    print(f"\n{'bug':{wide}}  seconds  caught by")
    for row in rows:
        print(f"{row.bug:{wide}}  {row.took_s:7.0f}  {row.caught_by or 'NOT CAUGHT'}")


def run_with(bug: Bug, folder: Path) -> Outcome:
    """Run a bug's tests on a copy of the package in a new folder with the bug, until one fails."""
    return run_tests(folder, ("--exitfirst", *bug.tests), bug)


def run_tests(folder: Path, tests: Sequence[str], bug: Bug | None = None) -> Outcome:
    """Run tests on a copy of the package in a new folder, with a bug or without."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source)  # with what Python made of it, which is good by its times
    module, failures = "sleeper", folder / "failed"
    if bug is not None:
        path = source / "sleeper" / bug.module
        path.write_text(mutated(bug, path.read_text()))
        module = ".".join(("sleeper", *Path(bug.module).with_suffix("").parts))
    environment = {
        "SLEEPER_MUTANTS": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "PYTHONPATH": str(source),
        "TMPDIR": str(folder),
        SOURCE: str(source),
        MODULE: module,
        FAILED: str(failures),
    }
    began = time.monotonic()
    max_s = LIMIT_WITHOUT_S if bug is None else LIMIT_S
    code = run_limited(tests, environment, folder / "output", max_s)
    output = (folder / "output").read_text(errors="replace")
    failed = tuple(failures.read_text().splitlines()) if failures.exists() else ()
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(code=code, failed=failed, output=output, took_s=time.monotonic() - began)


def mutated(bug: Bug, text: str) -> str:
    """Return the text of a module with a bug in it."""
    if text.count(bug.right) != 1:
        raise ValueError(
            f"{bug.name}: its text is not once in {bug.module}; mend tools/mutants/bugs/"
        )
    return text.replace(bug.right, bug.wrong)


def run_limited(
    tests: Sequence[str], environment: dict[str, str], output: Path, max_s: float
) -> int | None:
    """Run tests; return the exit code of pytest, None after so many seconds."""
    process = one_run.start(tests, ROOT, environment, output)
    RUNNING.add(process)
    process.join(max_s)
    if process.exitcode is None:
        one_run.kill(process)
        process.join()
        code = None
    else:
        code = process.exitcode
    RUNNING.discard(process)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
