"""Takes items from an iterator on another thread, so that two steps of a work use two cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def taken_ahead(items: Iterator[T], count: int, *, thread: str) -> Generator[T, None, None]:
    """Yield items, in order, that another thread takes from their iterator a few steps ahead.

    The first is taken when one is asked for. Closing the generator waits for the item that is being
    taken; then no thread uses `items` any more. What `items` raises is raised here.

    Args:
        items: The iterator. None is its end.
        count: How many items are in memory, besides the one that was yielded.
        thread: The thread's name.
    """
    with ThreadPoolExecutor(1, thread_name_prefix=thread) as pool:
        coming: deque[Future[T | None]] = deque()
        try:
            coming.extend(pool.submit(next, items, None) for _ in range(count))
            while (item := coming.popleft().result()) is not None:
                coming.append(pool.submit(next, items, None))
                yield item
        finally:
            for future in coming:
                future.cancel()
