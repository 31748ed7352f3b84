"""Whole instances in simulated worlds: any party stops, fails or dies at any call, by one seed.

`make test` runs the same 64 worlds each time, `make soak` as many new ones as it is given. A seed
that fails is printed: add it to failed_seeds.txt, and repeat it by

    python -m tests.simulator SEED
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.simulator.simulation import STEPS, Outcome, simulate
from tests.simulator.world import FAULTS
from tests.soak import FIRST_SEED, SOAK, tries

ROOT = Path(__file__).resolve().parents[2]
CHUNKS = 8
USUAL_RUNS = 64
RUNS = tries(USUAL_RUNS, soak=20_000)
MORE_RUNS = 120
"""So many worlds at most are run until everything was met."""
STEPS_OF_A_LONG_RUN = 1_000  # each tenth run of a soak
FAILED = [
    tuple(map(int, line.split()[:2]))
    for line in (Path(__file__).parent / "failed_seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
WANTED = (
    *("ingest: done", "ingest: StorageFailed", "CommitUnknown", "query: done"),
    *("as of: done", "compaction job: done", "leaves split", "leaves merged"),
    *("files collected", "rename: done", "set: done", "upgrade: done"),
    *("delete: done", "rows deleted", "alter: done", "added values read"),
    *("delete many: done", "delete where: done", "rows written out"),
    *("upsert: done", "rows replaced", "many replaced"),
    *("versions read", "purge: done", "rows purged", "purges finished"),
)


def run_some(seeds: range) -> tuple[list[Outcome], dict[int, str]]:
    """Run worlds; return what they came to, and what went wrong by seed."""
    outcomes, failures = [], {}
    for seed in seeds:
        steps = STEPS_OF_A_LONG_RUN if SOAK and seed % 10 == 0 else STEPS
        try:
            outcomes.append(simulate(seed, steps))
        except Exception as wrong:  # noqa: BLE001 - the others are to run as well
            failures[seed] = f"{steps} calls: {type(wrong).__name__}: {wrong}"
    return outcomes, failures


@cache
def chunk(number: int) -> tuple[list[Outcome], dict[int, str]]:
    first = FIRST_SEED + number * RUNS // CHUNKS
    return run_some(range(first, first + RUNS // CHUNKS))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(CHUNKS))
def test_whatever_stops_fails_or_dies_rows_are_there_once_and_as_they_were_committed(number):
    """
    I1 to I11, F1 to F5, DEL-4: no row of an acknowledged job is lost, none is doubled, no job is half
    visible; rows that are deleted or replaced are in no later version, and no others go; keys that are purged are in nothing that was stored
    before the purge said so; a reader
    gets the rows of one committed version in order, and its files stay for as long as they must;
    when all are dead, nothing is left over.
    """
    outcomes, failures = chunk(number)

    faults, ends = Counter(), Counter()
    for outcome in outcomes:
        faults += outcome.counts
        ends += outcome.ends
    steps = sum(outcome.steps for outcome in outcomes)
    print(f"{len(outcomes)} runs, {steps} calls, {dict(faults)}, {dict(ends)}")  # noqa: T201
    assert failures == {}


def test_parties_of_few_runs_meet_every_fault_and_do_everything():
    """What does not happen proves nothing. These are other worlds than those of the test before."""
    missed = {*FAULTS, *WANTED}

    for seed in range(USUAL_RUNS, USUAL_RUNS + MORE_RUNS):
        outcome = simulate(seed)
        met = {*+outcome.counts, *+outcome.ends}
        missed -= met
        if any(end.endswith("CommitUnknown") for end in met):
            missed.discard("CommitUnknown")
        if not missed:
            break

    assert missed == set()


@pytest.mark.parametrize(("seed", "steps"), FAILED)
def test_a_seed_that_failed_once_fails_no_more(seed, steps):
    """Faults that simulations found stay mended."""
    assert simulate(seed, steps).steps >= steps


class TestASeed:
    """What one number decides."""

    SEEDS = range(6)
    STEPS = 150

    @staticmethod
    @cache
    def once():
        """Each seed, run for the first time."""
        return [simulate(seed, TestASeed.STEPS) for seed in TestASeed.SEEDS]

    def test_repeats_a_run_call_by_call(self):
        """The same calls by the same parties, with the same faults, in the same order."""
        assert [simulate(seed, self.STEPS) for seed in self.SEEDS] == self.once()

    def test_repeats_it_in_a_process_that_orders_sets_otherwise(self):
        """No decision hangs on the order of a set, which differs from process to process."""
        traces = [outcome.trace for outcome in self.once()]

        for hash_seed in ("1", "2"):
            told = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "tests.simulator",
                    *(f"{seed}:{self.STEPS}" for seed in self.SEEDS),
                ],
                check=True,
                capture_output=True,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
            )
            assert [line.split()[-1] for line in told.stdout.splitlines()] == traces

    def test_differs_from_others(self):
        """Each seed is another run."""
        assert len({outcome.trace for outcome in self.once()}) == 6
