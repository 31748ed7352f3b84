"""How many workers a queue wants."""

from __future__ import annotations

import pytest

from sleeper.workers.serve.fleet import workers_to_start


@pytest.mark.parametrize(
    ("ready", "running", "idle", "limit", "more"),
    [
        (0, 0, 0, 200, 0),
        (5, 0, 0, 200, 5),
        (5, 3, 0, 200, 5),
        (5, 198, 0, 200, 2),
        (5, 200, 0, 200, 0),
        (5, 250, 0, 200, 0),
        (5, 2, 2, 200, 3),
        (1, 2, 2, 200, 0),
        (5, 2, 2, 3, 1),
        (1000, 300, 0, None, 1000),
    ],
)
def test_one_worker_a_message_within_the_limit(ready, running, idle, limit, more):
    """Messages that can be received, less workers that wait for one (ING-15)."""
    assert workers_to_start(ready=ready, running=running, idle=idle, workers_max=limit) == more
