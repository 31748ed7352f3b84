"""Requests several parts of one object at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sleeper.storage.objectstore.beside import at_once
from sleeper.storage.objectstore.client import Client, obstore
from sleeper.storage.objectstore.joined_ranges import Run

_RUNS_A_CALL = 10
"""Number of requests that one call of obstore sends at once."""

_CALLS_AT_ONCE = 4
"""Number of such calls for one read; with the number above, `RUNS_AT_ONCE`."""


def get_runs(client: Client, name: str, runs: Sequence[Run]) -> list[memoryview]:
    """Return the bytes of each run, which are fewer if the object ends before; a request for each.

    Raises:
        Exception: any error of obstore.
    """
    calls = min(_CALLS_AT_ONCE, -(-len(runs) // _RUNS_A_CALL))
    if calls == 1:
        return _get(client, name, runs)
    parts = [runs[len(runs) * n // calls : len(runs) * (n + 1) // calls] for n in range(calls)]
    others = [at_once(partial(_get, client, name, part)) for part in parts[1:]]
    found = _get(client, name, parts[0])
    for other in others:
        found += other()
    return found


def _get(client: Client, name: str, runs: Sequence[Run]) -> list[memoryview]:
    starts, ends = zip(*runs, strict=True)

    def request(store: Any) -> Any:
        return obstore().get_ranges(store, name, starts=starts, ends=ends, coalesce=0)

    return [memoryview(body) for body in client.call(request)]
