"""Run simulated worlds by their seeds: python -m tests.simulator SEED[:CALLS] ..."""

from __future__ import annotations

import sys

from tests.simulator.simulation import STEPS, simulate

for argument in sys.argv[1:]:
    seed, _, steps = argument.partition(":")
    outcome = simulate(int(seed), int(steps or STEPS))
    print(seed, outcome.steps, "calls", outcome.trace)  # noqa: T201 - it is a program
