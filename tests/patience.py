"""How long tests wait for what must happen: a process that ends, an answer, another thread.

A wait ends when it happens, so its limit only says when a test gives up: far later than any machine
takes, whatever else it does meanwhile. How long things take is shown by benchmarks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 600


def becomes_true(happened: Callable[[], object], within_s: float = PATIENCE_S) -> bool:
    """Tell whether something happens, as soon as it does."""
    end = time.monotonic() + within_s
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
