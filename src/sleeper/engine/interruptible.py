"""Lets Ctrl-C reach the main thread while another thread is inside native code.

Python runs handlers of signals in the main thread only, between two of its own steps. A step of
DataFusion may last for hours: a join that multiplies rows is one step, and nothing can stop it
from outside. So another thread makes the steps, and the main thread waits for it, which a handler
can end by an exception.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_LOOK_S: Final = 0.2
"""How long the main thread waits without looking for signals that it was not woken by."""

_AT_EXIT_S: Final = 1.0
"""How long the end of a program waits for steps that nobody waits for any more."""

_AWAKE_S: Final = 0.01
"""How long a look for signals takes at most."""

_STEPS_BETWEEN_LOOKS: Final = 120
"""In so many times `_AWAKE_S`, a thread that waits for DataFusion has looked once."""


def interruptible(items: Iterator[T]) -> Iterator[T]:
    """Yield items; what a handler of a signal raises is raised at once.

    In the main thread, another thread takes each item when it is asked for. If the wait for one is
    interrupted, that thread goes on to the end of its step, closes `items`, and ends. In all
    other cases `items` is closed when this is. Other threads, which get no signals, take items
    themselves.

    Args:
        items: The iterator. None is its end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield from items
        return
    taker = _Taker(items)
    taker.start()
    is_idle = True
    try:
        while True:
            is_idle = False
            item = taker.take()
            is_idle = True
            if item is None:
                return
            yield item
    finally:
        taker.leave()
        if is_idle or taker.has_failed:
            taker.join()
        else:
            _left.append(taker)


def awaited(run: Callable[[], T]) -> T:
    """Return what a function returns, which must not be None; as `interruptible`."""

    def once() -> Iterator[T]:
        yield run()

    return next(interruptible(once()))


def steps_left() -> bool:
    """Return whether a thread is still in a step that nobody waits for.

    If it comes back from native code while Python ends, the process is aborted: who wants to end
    now must use `os._exit`.
    """
    _left[:] = [taker for taker in _left if taker.is_alive()]
    return bool(_left)


class _Taker(threading.Thread, Generic[T]):
    """Takes one item when one is asked for, until it is left; in the context of whoever made it."""

    def __init__(self, items: Iterator[T]) -> None:
        super().__init__(name="sleeper-rows", daemon=True)
        self._items = items
        self._context = copy_context()
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self._taken: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
        self.has_failed = False

    def take(self) -> T | None:
        """Return the next item, or None at the end; raise what taking it raised."""
        self._wanted.put(True)
        item, error = self._next_outcome()
        if error is None:
            return item
        self.has_failed = True
        try:
            raise error
        finally:
            del error  # its traceback has this frame

    def _next_outcome(self) -> tuple[T | None, BaseException | None]:
        while True:
            try:
                return self._taken.get(timeout=_LOOK_S)
            except Empty:
                continue  # here a handler runs, if the system gave the signal to another thread

    def leave(self) -> None:
        """Let the thread end after its step."""
        self._wanted.put(False)

    def run(self) -> None:
        """Take items; called by `start`."""
        self._context.run(self._take_all)

    def _take_all(self) -> None:
        try:
            while self._wanted.get():
                found: tuple[T | None, BaseException | None]
                try:
                    found = next(self._items, None), None
                except BaseException as error:  # noqa: BLE001 - it is raised by `take`
                    found = None, error
                self._taken.put(found)
                del found
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()


_left: Final[list[_Taker[Any]]] = []


@atexit.register
def _wait_a_little() -> None:
    """Let steps end that are about to, before Python ends."""
    for taker in _left:
        taker.join(_AT_EXIT_S / len(_left))
    for taker in _left:
        _wait_for_a_look(taker)


def _wait_for_a_look(thread: threading.Thread) -> None:
    """Return right after a thread has looked for signals, so that it does not while Python ends.

    Where DataFusion's threads are not all at work, a thread that waits for them wakes once a
    second and asks Python whether a signal came. A process in whose last moments it asks is ended
    by SIGSEGV. A thread that waits uses no processor between two looks.
    """
    if not (thread.is_alive() and hasattr(time, "pthread_getcpuclockid")):
        return
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    used, has_woken = time.clock_gettime(clock), False
    for _ in range(_STEPS_BETWEEN_LOOKS):
        thread.join(_AWAKE_S)
        if not thread.is_alive():
            return
        before, used = used, time.clock_gettime(clock)
        if has_woken and used == before:
            return
        has_woken = used > before
