"""How many files the leaves of each table have, as maintenance saw them last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from threading import Lock

from sleeper.language.value_classes import dataclass
from sleeper.tables.report import FilesReport


@dataclass(frozen=True, slots=True)
class TableFigure:
    """One table.

    Attributes:
        table: Its name.
        files: What it had when it last changed.
        age_s: Seconds since it was looked at.
    """

    table: str
    files: FilesReport
    age_s: float


class TableFigures:
    """Figures of tables, kept so that whoever asks for them asks no storage. Safe for threads.

    Args:
        ticks_s: A clock that is never set, in seconds.
    """

    def __init__(self, ticks_s: Callable[[], float]) -> None:
        self._ticks_s = ticks_s
        self._lock = Lock()
        self._seen: dict[str, tuple[FilesReport, float]] = {}

    def note(self, table: str, number: int, count: Callable[[], FilesReport]) -> None:
        """Take note that a table was looked at.

        Args:
            table: Its name.
            number: Its transaction number.
            count: Counts its files; called if the table has changed since the last time.
        """
        with self._lock:
            before = self._seen.get(table)
        files = before[0] if before is not None and before[0].transaction == number else count()
        with self._lock:
            self._seen[table] = (files, self._ticks_s())

    def keep(self, tables: Collection[str]) -> None:
        """Forget all tables but these."""
        with self._lock:
            self._seen = {name: seen for name, seen in self._seen.items() if name in tables}

    def __iter__(self) -> Iterator[TableFigure]:
        """Yield the figures of each table, by name."""
        with self._lock:
            seen = sorted(self._seen.items())
        now_s = self._ticks_s()
        return (TableFigure(name, files, now_s - at_s) for name, (files, at_s) in seen)
