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

ROOT = Path(__file__).resolve().parents[1]
TIERS = ("quick", "full", "soak")
COLUMNS = ("claim", "faults", "invariants", "result", "tests", "skipped", "seconds")
COUNTED = re.compile(r"^(?=.*\d).{4,300}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim.

    Attributes:
        name: Its short name, for the command line.
        says: What is claimed.
        faults: The faults that are made (`FAULTS`).
        invariants: What holds with them (`INVARIANTS`).
        full: Arguments of pytest: the suites that prove it.
        quick: Those that run at the tier quick; none is not run there.
        soaks: Whether some of the suites try more under `make soak`.
        missing: What the claim needs and no suite proves; "" if there is nothing.
    """

    name: str
    says: str
    faults: str
    invariants: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    soaks: bool = True
    missing: str = ""

    def arguments(self, tier: str) -> tuple[str, ...]:
        """Return the arguments of pytest at a tier; none if nothing is run there."""
        if tier == "quick":
            return self.quick
        if tier == "soak":
            return ("-m", "soak", *self.full) if self.soaks and self.full else ()
        return self.full


FAULTS = {
    "F1": "a process is killed at a call of the storage",
    "F2": "the reply to a conditional write is lost",
    "F3": "refused, failed and slow calls, and bursts of them",
    "F4": "an upload is torn or abandoned",
    "F5": "a process goes on after its lease has ended",
    "F6": "messages come twice, late and in another order",
    "F7": "a listing is old or comes in parts",
    "F8": "clocks are wrong, and jump",
    "F9": "bits flip; files are missing, shorter or exchanged",
    "F10": "the disk is full; SQLite is busy; a process is killed in a commit",
    "F11": "an executor, a task or the driver of Spark dies; a task runs twice",
    "F12": "a store ignores conditions",
    "F13": "data of older versions",
    "F14": "little memory",
}
INVARIANTS = {
    "I1": "an acknowledged commit is never lost",
    "I2": "another one is there wholly or not at all",
    "I3": "entries have no gap, and each has one writer",
    "I4": "each job id is applied once",
    "I5": "compaction, split and merge keep the rows",
    "I6": "leaves cover all keys",
    "I7": "each referenced file exists",
    "I8": "in the end, what is stored is what is needed",
    "I9": "a reader of a version gets its rows",
    "I10": "a process sees its own commits, and versions ascend",
    "I11": "rows are in order and in their leaf; counts and sketches are true",
    "I12": "the result of merges does not depend on compactions",
    "I13": "rows are not aged off too early",
    "I15": "damage is named, and never returned as rows",
    "I16": "when faults end, all jobs are done",
    "I17": "a seed gives the same run",
    "I18": "memory is bounded",
}

CLAIMS = (
    Claim(
        name="simulation",
        says="simulated worlds of processes, by a seed",
        faults="F1-F5 F7 F8",
        invariants="I1-I11 I17",
        full=("tests/simulator",),
        quick=("tests/simulator",),
    ),
    Claim(
        name="crash-points",
        says="every call of every operation fails, dies, or is overtaken",
        faults="F1 F2",
        invariants="I1-I8",
        full=("tests/any_order/test_crash_points.py", "tests/any_order/test_every_write.py"),
        quick=("tests/any_order/test_crash_points.py", "-k", "memory or ingest"),
    ),
    Claim(
        name="model-checked",
        says="protocols checked by a model checker",
        faults="all orders",
        invariants="I1-I3 I5-I7",
        missing="there are no specifications for a model checker; see crash-points and simulation",
    ),
    Claim(
        name="kills",
        says="real processes are killed by SIGKILL: in folders, buckets, SQLite, serve",
        faults="F1 F10",
        invariants="I1-I4 I7 I8 I16",
        full=(
            "tests/any_order/test_sigkill.py",
            "tests/any_order/test_state_processes.py",
            "tests/any_order/killed_serve",
            "tests/contracts/test_folder_processes.py",
            "tests/contracts/jobs/test_sqlite_processes.py",
        ),
        quick=("tests/contracts/test_folder_processes.py", "tests/any_order/test_sigkill.py"),
    ),
    Claim(
        name="lost-writes",
        says="what is acknowledged was synced to the disk before",
        faults="F4",
        invariants="I1 I2",
        full=(
            "tests/unit/storage/test_folder_objects.py",
            "tests/unit/storage/test_unfinished_files.py",
        ),
        quick=("tests/unit/storage/test_folder_objects.py",),
        soaks=False,
        missing="no test drops unsynced data; the order of syncs is what is checked",
    ),
    Claim(
        name="any-order",
        says="operations in any order beside lists of rows, on each state store",
        faults="F2 F3",
        invariants="I3 I5 I9-I13",
        full=(
            "tests/any_order/test_instance.py",
            "tests/any_order/test_instance_stores.py",
            "tests/any_order/test_state.py",
            "tests/any_order/test_jobs.py",
            "tests/any_order/test_revision_sweeps.py",
            "tests/random_tables",
        ),
        quick=("tests/any_order/test_state.py", "tests/random_tables"),
    ),
    Claim(
        name="writers-at-once",
        says="many writers of one table, thread and process",
        faults="F2 F3",
        invariants="I3 I4 I9 I10",
        full=(
            "tests/contracts/state",
            "tests/stories/test_processes.py",
            "tests/stories/test_store_faults.py",
        ),
        quick=("tests/stories/test_processes.py",),
        missing="no checker of linearisable histories; each process compares what it was told",
    ),
    Claim(
        name="zombies-and-versions",
        says="late writers are refused; instances of older commits open",
        faults="F5 F8 F13",
        invariants="I1 I3 I7",
        full=(
            "tests/stories/test_old_instances.py",
            "tests/any_order/test_clocks.py",
            "tests/unit/operations/test_late_entries.py",
            "tests/unit/operations/test_sweep_and_ingest.py",
            "tests/unit/operations/test_collectors_at_once.py",
        ),
        quick=("tests/stories/test_old_instances.py", "tests/unit/operations"),
        missing="an older Sleeper never reads what this one writes",
    ),
    Claim(
        name="corruption",
        says="every kind of damage is found by its name, and never returned as rows",
        faults="F9",
        invariants="I11 I15",
        full=(
            "tests/stories/test_verify.py",
            "tests/stories/test_verify_stores.py",
            "tests/unit/engine/test_check_file.py",
            "tests/unit/lookup",
            "tests/stories/test_damaged_ranges.py",
            "tests/stories/test_parquet_bombs.py",
        ),
        quick=("tests/stories/test_verify.py", "tests/unit/engine/test_check_file.py"),
    ),
    Claim(
        name="stores",
        says="each adapter keeps its contract; a store that breaks conditions is refused",
        faults="F7 F12",
        invariants="I1 I3",
        full=(
            "tests/contracts/test_conditions.py",
            "tests/contracts/test_folder_storage.py",
            "tests/contracts/test_memory_storage.py",
            "tests/contracts/test_objectstore_storage.py",
            "tests/contracts/jobs",
            "tests/stories/test_broken_stores.py",
        ),
        quick=("tests/contracts/test_conditions.py", "tests/contracts/test_folder_storage.py"),
    ),
    Claim(
        name="messages",
        says="jobs that are delivered twice, late, or while a worker dies are done once",
        faults="F1 F6 F10",
        invariants="I4 I16",
        full=(
            "tests/contracts/jobs/test_any_order.py",
            "tests/any_order/test_jobs.py",
            "tests/stories/test_exactly_once.py",
        ),
        quick=("tests/stories/test_exactly_once.py",),
    ),
    Claim(
        name="spark",
        says="executors, tasks and drivers of Spark die or run twice",
        faults="F11",
        invariants="I2 I4 I5",
        full=("tests/spark/cluster",),
        soaks=False,
    ),
    Claim(
        name="age-off",
        says="rows are filtered by age only when they are old enough",
        faults="none",
        invariants="I13",
        full=("tests/stories/test_aggregation_and_age.py", "tests/unit/engine/processing"),
        quick=("tests/stories/test_aggregation_and_age.py",),
        soaks=False,
        missing="rows have no visibility labels, and there is no purge",
    ),
    Claim(
        name="memory",
        says="memory stays bounded",
        faults="F14",
        invariants="I18",
        full=("tests/unit/engine/test_sort.py", "tests/unit/engine/test_merge.py"),
        quick=("tests/unit/engine/test_sort.py",),
        soaks=False,
        missing="no run under a limit of memory: `make bench` measures it (docs/performance.md)",
    ),
)


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
