"""How many workers a queue wants (rule ING-15)."""

from __future__ import annotations


def workers_to_start(ready: int, *, running: int, workers_max: int) -> int:
    """Return how many workers to start: one for each message that is ready, up to a limit.

    Args:
        ready: Messages that can be received now.
        running: Workers that run already; those that are idle take messages too.
        workers_max: How many may run at once.
    """
    return max(0, min(ready, workers_max - running))
