"""Puts bugs into copies of the package, one at a time, and says which tests caught each.

    python -m tools.mutants                  all of them
    python -m tools.mutants entry-overwritten first-file-only

The bugs are in bugs/, a module for each area. The tests that are to catch one also run on a copy
without it: were they to fail there, it would mean nothing that they fail with it. The checkout is
not touched.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..run_figures import commit_of, leave  # type: ignore[import-not-found]  # mypy: flat
from .bug import Bug, all_bugs
from .one_source import BROKEN, MODULE, SOURCE

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600
PYTEST = (
    *(sys.executable, "-m", "pytest", "--quiet", "--exitfirst", "--tb=line", "-rfE"),
    *("-p", "no:cacheprovider", "-p", "tools.mutants.one_source", "--hypothesis-profile=mutants"),
)
RUNNING: set[subprocess.Popen[str]] = set()
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run of tests ended.

    Attributes:
        code: The exit code of pytest; None where it took too long.
        failed: The test that failed first.
        output: What pytest printed.
        took_s: Seconds.
    """

    code: int | None
    failed: str
    output: str
    took_s: float

    @property
    def says(self) -> str:
        """The test that failed, or else what pytest told last."""
        if self.code is None:
            return f"no end after {LIMIT_S} s"
        return self.failed or self.output.strip().rpartition("\n")[2]


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
    """Run the tests without any bug and with each; print a line for each bug that has run.

    As many runs at once as there are processors.
    """
    selections = dict.fromkeys(bug.tests for bug in bugs)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        without = {
            tests: pool.submit(run_tests, folder / f"without-{number}", tests)
            for number, tests in enumerate(selections)
        }
        runs = {bug: pool.submit(run_tests, folder / bug.name, bug.tests, bug) for bug in bugs}
        try:
            return [judge(bug, run, without[bug.tests]) for bug, run in runs.items()]
        except BaseException:  # Ctrl-C, or a bug that does not fit the code
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*RUNNING]:
                kill(process)
            raise


def judge(bug: Bug, run: Future[Outcome], without: Future[Outcome]) -> Row:
    """Wait for a bug's run, print its line, and return its row of the table."""
    outcome, before = run.result(), without.result()
    caught_by, why_not = "", ""
    if before.code != 0:
        why_not = f"without it the tests fail too: {before.says}"
    elif outcome.code == pytest.ExitCode.TESTS_FAILED:
        caught_by = outcome.failed
    elif outcome.code == 0:
        why_not = f"passed: {' '.join(bug.tests)}"
    elif outcome.code == BROKEN:
        why_not = f"it breaks more than it is meant to: {outcome.says}"
    else:
        why_not = outcome.says
    verdict = "caught" if caught_by else f"NOT CAUGHT: {why_not}"
    print(f"{bug.name}: {bug.breaks} {verdict} ({outcome.took_s:.0f} s)", flush=True)
    return Row(bug=bug.name, caught_by=caught_by, took_s=outcome.took_s)


def print_table(rows: Sequence[Row]) -> None:
    """Print which test caught each bug, and after how many seconds."""
    wide = max(len(row.bug) for row in rows)
    print(f"\n{'bug':{wide}}  seconds  caught by")
    for row in rows:
        print(f"{row.bug:{wide}}  {row.took_s:7.0f}  {row.caught_by or 'NOT CAUGHT'}")


def run_tests(folder: Path, tests: Sequence[str], bug: Bug | None = None) -> Outcome:
    """Run tests on a copy of the package in a new folder, with a bug or without."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    module = "sleeper"
    if bug is not None:
        path = source / "sleeper" / bug.module
        path.write_text(mutated(bug, path.read_text()))
        module = ".".join(("sleeper", *Path(bug.module).with_suffix("").parts))
    environment = {
        **os.environ,
        "SLEEPER_MUTANTS": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(source),
        "TMPDIR": str(folder),
        SOURCE: str(source),
        MODULE: module,
    }
    began = time.monotonic()
    code, output = run_limited((*PYTEST, *tests), environment)
    shutil.rmtree(folder, ignore_errors=True)
    found = FAILED.search(output)
    return Outcome(
        code=code,
        failed=found[1] if found else "",
        output=output,
        took_s=time.monotonic() - began,
    )


def mutated(bug: Bug, text: str) -> str:
    """Return the text of a module with a bug in it."""
    if text.count(bug.right) != 1:
        raise ValueError(
            f"{bug.name}: its text is not once in {bug.module}; mend tools/mutants/bugs/"
        )
    return text.replace(bug.right, bug.wrong)


def run_limited(command: Sequence[str], environment: dict[str, str]) -> tuple[int | None, str]:
    """Run a command; return its exit code, None after `LIMIT_S`, and what it printed."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    RUNNING.add(process)
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        kill(process)
        process.communicate()
        return None, ""
    finally:
        RUNNING.discard(process)
    return process.returncode, output


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a run with all processes that its tests have started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
