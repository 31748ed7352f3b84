"""A pause of Python's collector of cycles while very many values are made.

No value of ours is part of a cycle. The collector goes through all young objects each time that
some hundred more were made, and through all objects from time to time: with a partition tree of
100,000 leaves that is half of the time to read it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_MANY = 20_000


def _call_them_old() -> None:
    """Spare the collector three looks at very many new objects: they will live for long.

    Nothing that the program has frozen is thawed, and what is garbage already is found when the
    collector next looks at all objects.
    """
    if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
        gc.freeze()  # moves all objects aside, without a look at them
        gc.unfreeze()  # and these to the oldest generation


class _Pauses:
    """How many threads make many objects now, and whether the collector was on before."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.was_enabled = False

    def begin(self) -> None:
        with self.lock:
            if not self.count:
                self.was_enabled = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.was_enabled:
                _call_them_old()
                gc.enable()

    def forget(self) -> None:
        """In a process that was forked while another thread made objects: it is not in it."""
        self.lock = Lock()
        if self.count and self.was_enabled:
            gc.enable()
        self.count = 0


_pauses = _Pauses()


@contextmanager
def making_many_objects() -> Iterator[None]:
    """Pause the collector of this process for values that are no cycles; for seconds at most.

    Around a block, or as a decorator.

    Cycles that other threads leave meanwhile are collected afterwards.
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()


os.register_at_fork(after_in_child=_pauses.forget)
