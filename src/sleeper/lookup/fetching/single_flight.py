"""Makes a call once for all threads that need its result at the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class SingleFlight:
    """Calls that are being made now, by key. Nothing is kept when they end. Safe for threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, call: Callable[[], T]) -> T:
        """Return the result of `call`, or of a call with the same key that another thread makes.

        No lock is held during the call. What it raises is raised in every thread that waits for it.
        If it is interrupted, as by Ctrl-C, only its own thread is; another one makes the call.
        """
        while True:
            with self._lock:
                other = self._under_way.get(key)
                if other is None:
                    own = self._under_way[key] = Future[Any]()
            if other is None:
                return self._make(key, own, call)
            try:
                found: T = other.result()
            except _InterruptedError:
                continue
            return found

    def _make(self, key: Hashable, own: Future[Any], call: Callable[[], T]) -> T:
        try:
            result = call()
        except BaseException as error:
            self._end(key)
            own.set_exception(error if isinstance(error, Exception) else _InterruptedError())
            raise
        self._end(key)
        own.set_result(result)
        return result

    def _end(self, key: Hashable) -> None:
        with self._lock:
            del self._under_way[key]


class _InterruptedError(Exception):
    """The thread that made the call was interrupted."""
