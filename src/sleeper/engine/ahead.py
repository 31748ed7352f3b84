"""Does a step of a work on other threads while the next step goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")
Result = TypeVar("Result")

_ITEMS_PER_THREAD = 4


def taken_ahead(items: Iterator[T], count: int, *, thread: str) -> Generator[T, None, None]:
    """Yield items, in order, that another thread takes from their iterator a few steps ahead.

    The first is taken when one is asked for. Closing the generator waits for the item that is being
    taken; then no thread uses `items` any more. What `items` raises is raised here.

    Args:
        items: The iterator. None is its end.
        count: How many items are in memory, besides the one that was yielded.
        thread: The thread's name.
    """
    source = _Source(items)
    with ThreadPoolExecutor(1, thread_name_prefix=thread) as pool:
        coming: deque[Future[T | None]] = deque()
        try:
            coming.extend(pool.submit(source.take) for _ in range(count))
            while (item := coming.popleft().result()) is not None:
                coming.append(pool.submit(source.take))
                yield item
        finally:
            for future in coming:
                future.cancel()
            source.leave()


def run_ahead(
    run: Callable[[T], Result], items: Iterable[T], threads: int, *, thread: str
) -> Generator[Result, None, None]:
    """Yield the result of each item, in order; several threads are a few items ahead.

    Args:
        run: Called in the threads.
        items: Taken in this thread.
        threads: How many there are; four items are in memory for each.
        thread: The name of the threads.
    """
    remaining = iter(items)
    with ThreadPoolExecutor(threads, thread_name_prefix=thread) as pool:
        coming: deque[Future[Result]] = deque()
        try:
            first = islice(remaining, _ITEMS_PER_THREAD * threads)
            coming += (pool.submit(run, item) for item in first)
            while coming:
                yield coming.popleft().result()
                coming += (pool.submit(run, item) for item in islice(remaining, 1))
        finally:
            for future in coming:
                future.cancel()


class _Source(Generic[T]):
    """An iterator that a thread uses until it is left.

    A pool does not wait for a thread that it was starting when a signal interrupted it.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._is_left = False
        self._lock = Lock()

    def take(self) -> T | None:
        """Return the next item, or None at the end."""
        with self._lock:
            return None if self._is_left else next(self._items, None)

    def leave(self) -> None:
        """Wait for the item that is being taken; none is taken after it."""
        with self._lock:
            self._is_left = True
