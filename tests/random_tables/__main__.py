"""Run the random tables of some seeds: `python -m tests.random_tables SEED ...`."""

from __future__ import annotations

import sys

from tests.random_tables.test_random_tables import run

for seed in map(int, sys.argv[1:]):
    run(seed)
    print(f"seed {seed}: as the model has it")  # noqa: T201
