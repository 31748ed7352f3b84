"""Refuses the use of a native library in a process that was forked from one that used it.

The threads of polars, DataFusion and obstore do not survive a fork: a call in the child would wait
for them for ever.
"""

from __future__ import annotations

import os

from sleeper.errors import BadRequest


class ForkGuard:
    """Records which processes use a library. A child inherits the record with its parent's id.

    Args:
        library: The library, and what it does if a reader may not know that.
        use: What the parent did by it, after "from one that".
        instead: What to do in the children alone, after "or".
    """

    def __init__(self, library: str, *, use: str, instead: str) -> None:
        self._library, self._use, self._instead = library, use, instead
        self._processes: set[int] = set()

    def check(self) -> None:
        """Record that this process uses the library.

        Raises:
            BadRequest: this process was forked from one that used it.
        """
        process = os.getpid()
        if process in self._processes:
            return
        if self._processes:
            raise BadRequest(
                f"this process was forked from one that {self._use}, and {self._library} does not "
                "survive a fork: start processes by spawn or forkserver "
                f'(multiprocessing.get_context("spawn")), or {self._instead} in the children only'
            )
        self._processes.add(process)
