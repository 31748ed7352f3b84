"""How long tests wait for what must happen: a process that ends, an answer, another thread.

A wait ends when it happens, so its limit only says when a test gives up: far later than any machine
takes, whatever else it does meanwhile. How long things take is shown by benchmarks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 600
PAUSE_S = (0.02, 0.5)
PAUSES = 3
"""A look that takes longer is followed by a longer pause, of so many times as long: else tests that
look at all jobs of an instance, in servers too, take the processor from what they wait for."""


def becomes_true(happened: Callable[[], object], within_s: float = PATIENCE_S) -> bool:
    """Tell whether something happens, soon after it does."""
    least_s, most_s = PAUSE_S
    begun = time.monotonic()
    end = begun + within_s
    while not happened():
        looked = time.monotonic()
        if looked > end:
            return False
        time.sleep(min(max(least_s, PAUSES * (looked - begun)), most_s))
        begun = time.monotonic()
    return True
