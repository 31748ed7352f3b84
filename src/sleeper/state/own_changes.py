"""Which tables this process has changed, so that it always reads what it wrote.

A reader that may be some seconds old looks for newer states in storage only after that time. A
change by any handle of its process makes it look at its next read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Event, Lock
from typing import Any, Final, Generic, TypeVar

from sleeper.model.tables import TableRecord
from sleeper.ports.table_index import TableIndex

_numbers: Final = count(1)
_last: Final[dict[tuple[str, str], int]] = {}


class OwnChanges:
    """Counts the changes of a table, or of a table index, by all handles of this process.

    Args:
        url: The instance.
        table_id: The table; empty for the table index.
    """

    def __init__(self, url: str, table_id: str = "") -> None:
        self._place = (url, table_id)

    def note(self) -> None:
        """Count a change that was made, or may have been made."""
        _last[self._place] = next(_numbers)

    def last(self) -> int:
        """Return the number of the last change, which no other has; 0 before the first."""
        return _last.get(self._place, 0)


class NotedTableIndex:
    """A `TableIndex` that counts the changes of another one, also those that may have been made.

    Args:
        index: The other one.
        changes: Counts them.
    """

    def __init__(self, index: TableIndex, changes: OwnChanges) -> None:
        self._index = index
        self._changes = changes
        self.by_name = index.by_name
        self.known_by_name = index.known_by_name
        self.by_id = index.by_id
        self.all = index.all
        self.faults = index.faults

    def add(self, record: TableRecord) -> None:
        """Add a table."""
        try:
            self._index.add(record)
        finally:
            self._changes.note()

    def replace(self, before: TableRecord, after: TableRecord) -> None:
        """Change a table's record."""
        try:
            self._index.replace(before, after)
        finally:
            self._changes.note()

    def remove(self, table_id: str) -> None:
        """Remove a table."""
        try:
            self._index.remove(table_id)
        finally:
            self._changes.note()


# ---------------------------------------------------------------- looks together
#
# Looks for newer commits that threads share, so that many threads do not look for each query.

T = TypeVar("T")

LOOKS_AT_ONCE: Final = 4
"""Looks of a table that are under way in a process; further queries share the next one."""

Beside = Callable[[Callable[[], T]], Callable[[], T]]


class LooksTogether(Generic[T]):
    """Looks by many threads: a few at a time, and one more for all that ask meanwhile.

    A query may use only a look that begins after the query does. So who asks while enough looks are
    under way waits for the next to begin, which is when one of them ends. No lock is held during a
    look.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way = 0
        self._next: _Next | None = None

    def begin(self, look: Callable[[], T], beside: Beside[T]) -> Callable[[], T]:
        """Return what waits for a look that begins from now on, or raises its error.

        Args:
            look: Looks. One of any callers is used, so all must be equal.
            beside: Begins work beside the caller's.
        """

        def run() -> T:
            with self._lock:
                self._under_way += 1
            try:
                return look()
            finally:
                with self._lock:
                    self._under_way -= 1
                    following, self._next = self._next, None
                if following is not None:
                    following.begin(_begun(run, beside))

        with self._lock:
            if self._under_way < LOOKS_AT_ONCE and self._next is None:
                following = None
            else:
                following = self._next = self._next or _Next()
        return beside(run) if following is None else following.result


def _begun(run: Callable[[], T], beside: Beside[T]) -> Callable[[], T]:
    try:
        return beside(run)
    except RuntimeError:  # no thread begins work while Python ends: who waits looks alone
        return run


class _Next:
    """The look that begins when one of those under way has ended."""

    def __init__(self) -> None:
        self._begun = Event()
        self._wait: Callable[[], Any] | None = None

    def begin(self, wait: Callable[[], Any]) -> None:
        self._wait = wait
        self._begun.set()

    def result(self) -> Any:
        self._begun.wait()
        assert self._wait is not None
        return self._wait()
