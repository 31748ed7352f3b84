"""Which processes may sort: polars does not survive a fork, and a child would wait for ever."""

from __future__ import annotations

import os

from sleeper.errors import BadRequest

_used_in: set[int] = set()
"""Processes that sorted with polars: this one, or those that it was forked from."""


def check_process() -> None:
    """Note that this process sorts.

    Raises:
        BadRequest: it was forked from one that had sorted before.
    """
    process = os.getpid()
    if _used_in and process not in _used_in:
        raise BadRequest(
            "this process was forked from one that had already ingested rows, and polars, which "
            "sorts them, does not survive a fork: start processes by spawn or forkserver "
            '(multiprocessing.get_context("spawn")), or ingest in the children only'
        )
    _used_in.add(process)
