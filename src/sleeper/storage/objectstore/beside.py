"""Work beside the caller's: requests that are sent at once, each in a thread of this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Final, TypeVar

T = TypeVar("T")

_THREADS_MAX: Final = 64
"""As many requests beside others may be under way in a process."""


def at_once(work: Callable[[], T]) -> Callable[[], T]:
    """Begin `work` in a thread; return what waits for its result or raises its error.

    Work that no thread has begun is done by whoever asks. So work that waits for other work
    never waits for a free thread.
    """
    future = _threads().submit(work)
    by_asker = cache(work)

    def result() -> T:
        return by_asker() if future.cancel() else future.result()

    return result


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process; each is made when it is needed first."""
    return ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="sleeper-request")
