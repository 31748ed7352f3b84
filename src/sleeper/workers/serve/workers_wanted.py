"""How many workers a queue wants (rule ING-15)."""

from __future__ import annotations


def workers_to_start(ready: int, *, running: int, workers_max: int | None, idle: int = 0) -> int:
    """Return how many more workers a queue wants: one a message, within the limit.

    Args:
        ready: Messages that can be received now.
        running: Workers that there are.
        workers_max: How many there may be; None without a limit.
        idle: Those of the workers that wait for a message: each takes one by itself.
    """
    wanted = max(ready - idle, 0)
    return wanted if workers_max is None else min(wanted, max(workers_max - running, 0))
