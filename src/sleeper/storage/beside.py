"""Work that is begun before its result is needed: in a thread, or when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import Final, TypeVar

T = TypeVar("T")

_THREADS_MAX: Final = 64
"""As many requests of reads beside others may be under way in a process."""


def when_asked(work: Callable[[], T]) -> Callable[[], T]:
    """Return what does `work` at its first call, and returns the result or raises the error."""
    future: Future[T] = Future()
    doing = Lock()

    def result() -> T:
        with doing:
            if not future.done():
                _do(work, future)
        return future.result()

    return result


def at_once(work: Callable[[], T]) -> Callable[[], T]:
    """Begin `work` in a thread; return what waits for its result or raises its error.

    Work that no thread has begun is done by whoever asks. So work that waits for other work
    never waits for a free thread.
    """
    future = _threads().submit(work)
    by_asker = when_asked(work)

    def result() -> T:
        return by_asker() if future.cancel() else future.result()

    return result


def _do(work: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - raised where the result is asked for
        future.set_exception(error)


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process; each is made when it is needed first."""
    return ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="sleeper-request")
