"""How much a test tries: as much as `make test` has time for, or far more under `make soak`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from math import ceil
from typing import TypeVar

T = TypeVar("T")

SOAK = os.environ.get("SLEEPER_SOAK") == "1"
SHARE = float(os.environ.get("SLEEPER_SOAK_SHARE") or 1)
"""What part of a soak's examples is tried, from 0 (as many as `make test` tries) to 1 (all)."""
MUTANTS = "SLEEPER_MUTANTS" in os.environ
FIRST_SEED = int(
    os.environ.get("SLEEPER_SOAK_SEED", random.SystemRandom().randrange(10**9) if SOAK else 0)
)
"""The first seed of what is drawn at random; each process of a soak has another, unless told."""


def tries(usual: int, *, soak: int, mutants: int | None = None) -> int:
    """Return how many examples a test marked `soak` is to try; of a bug it may see more."""
    if MUTANTS and mutants is not None:
        return mutants
    return max(usual, round(soak * SHARE)) if SOAK else usual


def some(cases: Iterable[T], *, one_in: int = 1, at_most: int | None = None) -> list[T]:
    """Return one in so many cases for a test marked `soak`, and its share of them under `make soak`.

    The first is always among them. Where cases repeat a pattern, `one_in` has no factor in common
    with its length, so that each part of the pattern is met. With `at_most`, fewer of very many
    cases: one in an odd number, since patterns here are deaths before and after, and the like.
    """
    every = [*cases]
    if at_most is not None and len(every) > at_most * one_in:
        one_in = ceil(len(every) / at_most) | 1
    if SOAK:
        one_in = min(one_in, ceil(1 / SHARE) | 1) if SHARE else one_in
    return every[::one_in]
