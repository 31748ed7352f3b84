"""Decides which ranges of one object are read by the same request.

A request takes the time of one round trip and some CPU; bytes that nobody asked for take bandwidth.
So two ranges share a request only if they are nearer to each other than they are large, or very
near: of what is read, at most about half was not asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Run = tuple[int, int]
"""The start and the end of what one request reads."""

NEAR_BYTES = 16 << 10
"""Ranges of any size share a request if there are at most so many bytes between them."""

FAR_BYTES = 512 << 10
"""Ranges never share a request if there are more bytes between them."""

RUNS_AT_ONCE = 40
"""Number of requests of one read that are sent at once; others wait for one of them."""

WAITING_NEAR_BYTES = 128 << 10
"""Takes the place of `NEAR_BYTES` if requests would have to wait for each other."""


def join_ranges(ranges: Iterable[tuple[int, int]]) -> list[Run]:
    """Return what to request so that each (offset, length) is in one run: ascending, disjoint."""
    pieces: list[list[int]] = []
    for offset, length in sorted(ranges):
        if pieces and offset <= pieces[-1][1]:
            pieces[-1][1] = max(pieces[-1][1], offset + length)
        else:
            pieces.append([offset, offset + length])
    runs = _bridged(pieces, NEAR_BYTES)
    return runs if len(runs) <= RUNS_AT_ONCE else _bridged(pieces, WAITING_NEAR_BYTES)


def _bridged(pieces: Sequence[Sequence[int]], near: int) -> list[Run]:
    runs: list[Run] = []
    before = 0  # the size of the piece that ends the last run
    for start, end in pieces:
        size = end - start
        if runs and start - runs[-1][1] <= max(near, min(before, size, FAR_BYTES)):
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
        before = size
    return runs


def cut_runs(
    runs: Sequence[Run], bodies: Sequence[bytes | memoryview], ranges: Iterable[tuple[int, int]]
) -> list[bytes]:
    """Return the bytes of each (offset, length); fewer if the body of its run is too short.

    Args:
        runs: What was requested for the ranges, by `join_ranges`.
        bodies: What was read of each run.
        ranges: The ranges. Empty ones may be anywhere.
    """
    starts = [start for start, _ in runs]
    cut = []
    for offset, length in ranges:
        if length:
            run = bisect_right(starts, offset) - 1
            at = offset - starts[run]
            cut.append(bytes(bodies[run][at : at + length]))
        else:
            cut.append(b"")
    return cut
