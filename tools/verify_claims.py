"""Runs the suites that prove what Sleeper claims of its reliability, and prints a table of them.

    python tools/verify_claims.py quick      some minutes: the part of each suite that is fast
    python tools/verify_claims.py full       every suite, as far as `make test` goes: half an hour
    python tools/verify_claims.py soak       what `make soak` tries: hours
    python tools/verify_claims.py full kills corruption      some claims

A claim that no suite proves is a row as well, and says so: nothing that was not run counts as
proven. The exit code is 1 if a suite failed, or ran no test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from claims import CLAIMS, FAULTS, INVARIANTS, Claim

ROOT = Path(__file__).resolve().parents[1]
TIERS = ("quick", "full", "soak")
COLUMNS = ("claim", "faults", "invariants", "result", "tests", "skipped", "seconds")
COUNTED = re.compile(r"^(?=.*\d).{4,300}$")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the suites of a claim ended.

    Attributes:
        result: In words.
        failed: Whether it counts as a failure.
        tests: How many ran.
        skipped: How many could not run on this machine.
        seconds: How long it took.
        counted: What the tests printed of how much they tried.
        failures: Names of failed tests.
    """

    result: str
    failed: bool = False
    tests: int = 0
    skipped: int = 0
    seconds: float = 0.0
    counted: tuple[str, ...] = ()
    failures: tuple[str, ...] = field(default_factory=tuple)


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for, print the table, and return the exit code."""
    tier, *names = arguments or ("quick",)
    known = {claim.name: claim for claim in CLAIMS}
    wrong = [name for name in names if name not in known]
    if tier not in TIERS or wrong:
        print(f"usage: verify_claims.py {'|'.join(TIERS)} [{' '.join(known)}]", file=sys.stderr)
        return 2
    results = []
    for claim in CLAIMS:
        if names and claim.name not in names:
            results.append((claim, Outcome("not asked for")))
            continue
        print(f"{claim.name} ...", file=sys.stderr, flush=True)
        results.append((claim, outcome_of(claim, tier)))
    print(report(tier, results))
    return int(any(outcome.failed for _, outcome in results))


def outcome_of(claim: Claim, tier: str) -> Outcome:
    """Run the suites of a claim at a tier."""
    chosen = claim.arguments(tier)
    if not claim.full:
        return Outcome("no suite")
    if not chosen:
        return Outcome(f"not run at {tier}")
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "results.xml"
        begun = time.monotonic()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider"),
                *("-o", "junit_logging=system-out", f"--junitxml={written}", *chosen),
            ],
            cwd=ROOT,
            env=environment(os.environ, tier),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - begun
        if not written.exists():
            return Outcome("FAILED to start", failed=True, counted=(done.stdout[-500:],))
        return parse(written, done.returncode, seconds)


def environment(variables: Mapping[str, str], tier: str) -> dict[str, str]:
    """Return the environment of pytest: as `make soak` has it, or as `make test` does."""
    kept = {name: text for name, text in variables.items() if name != "SLEEPER_SOAK"}
    if tier == "soak":
        kept.pop("CI", None)
        kept["SLEEPER_SOAK"] = "1"
    return kept


def parse(written: Path, code: int, seconds: float) -> Outcome:
    """Read what pytest wrote of a run."""
    cases = [*ET.parse(written).getroot().iter("testcase")]
    failures = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    printed = [
        line.strip()
        for case in cases
        for out in case.iter("system-out")
        for line in (out.text or "").splitlines()
    ]
    ran = len(cases) - skipped
    if failures:
        result = f"{len(failures)} FAILED"
    elif code or not ran:
        result = "FAILED: no test ran" if not ran else f"FAILED: pytest ended with {code}"
    else:
        result = "holds"
    return Outcome(
        result=result,
        failed=result != "holds",
        tests=ran,
        skipped=skipped,
        seconds=seconds,
        counted=tuple(line for line in printed if COUNTED.match(line))[:6],
        failures=tuple(failures),
    )


def report(tier: str, results: Sequence[tuple[Claim, Outcome]]) -> str:
    """Return the table, and below it what was tried, what failed, and what nothing proves."""
    rows = [
        (
            claim.name,
            claim.faults,
            claim.invariants,
            outcome.result,
            str(outcome.tests or ""),
            str(outcome.skipped or ""),
            f"{outcome.seconds:.0f}" if outcome.seconds else "",
        )
        for claim, outcome in results
    ]
    widths = [max(len(row[n]) for row in (COLUMNS, *rows)) for n in range(len(COLUMNS))]
    lines = [f"tier {tier}", ""]
    lines += [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        for row in (COLUMNS, tuple("-" * width for width in widths), *rows)
    ]
    lines += ["", "what is claimed"]
    lines += [f"  {claim.name}: {claim.says}" for claim, _ in results]
    tried = [(claim.name, line) for claim, outcome in results for line in outcome.counted]
    lines += ["", "tried, as tests printed it", *(f"  {name}: {line}" for name, line in tried)]
    failed = [(claim.name, test) for claim, outcome in results for test in outcome.failures]
    lines += ["", f"violations: {len(failed)}", *(f"  {name}: {test}" for name, test in failed)]
    lines += ["", "not proven"]
    lines += [f"  {claim.name}: {claim.missing}" for claim, _ in results if claim.missing]
    lines += [f"  {claim.name}: {o.result}" for claim, o in results if o.result.startswith("not")]
    lines += [
        "",
        *of_other_tools(),
        "",
        *words("faults", FAULTS),
        "",
        *words("invariants", INVARIANTS),
    ]
    return "\n".join(line.rstrip() for line in lines)


def of_other_tools() -> list[str]:
    """Return what other tools show: injected bugs, seeds that have failed."""
    seeds = (ROOT / "tests/simulator/failed_seeds.txt").read_text().splitlines()
    kept = sum(1 for line in seeds if line.strip() and not line.startswith("#"))
    bugs = sum(path.read_text().count("    Bug(") for path in bug_files())
    return [
        f"seeds of the simulator that have failed once, and run each time: {kept}",
        f"injected bugs: {bugs}; not run here, `make mutants` says which tests catch each",
        "coverage of fault by step of protocol: not measured",
    ]


def bug_files() -> list[Path]:
    """Return the modules of injected bugs."""
    return sorted((ROOT / "tools/mutants/bugs").glob("*.py"))


def words(title: str, meanings: Mapping[str, str]) -> list[str]:
    """Return lines that say what short names mean."""
    return [title, *(f"  {name.ljust(3)} {text}" for name, text in meanings.items())]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
