"""The compaction jobs that tables want, as maintenance plans them, and workers are started for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from sleeper.model.formats.compaction_job import CompactionJob

_FIRST_S = 60.0
_LONGEST_S = 900.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a table wanted when workers were last asked for."""

    files: frozenset[str]
    pause_s: float
    until_s: float


class WaitingCompactions:
    """Counts the jobs that workers are to be started for. Safe for threads.

    A table whose files are still the same after workers had time for them is left alone for a
    while, each time for longer, up to 15 minutes: its jobs fail, or others have them.

    Args:
        ticks_s: A clock that is never set, in seconds.
    """

    def __init__(self, ticks_s: Callable[[], float]) -> None:
        self._ticks_s = ticks_s
        self._lock = Lock()
        self._seen: dict[str, _Seen] = {}
        self._ready: dict[str, int] = {}

    def tell(self, table_id: str, jobs: Sequence[CompactionJob]) -> None:
        """Take note of all jobs that a table wants now."""
        files = frozenset(name for job in jobs for name in job.inputs)
        now_s = self._ticks_s()
        with self._lock:
            seen = self._seen.pop(table_id, None)
            if not files:
                self._ready.pop(table_id, None)
                return
            pause_s = _FIRST_S
            if seen is not None and files <= seen.files:
                if now_s < seen.until_s:
                    self._seen[table_id] = seen
                    return
                pause_s = min(2 * seen.pause_s, _LONGEST_S)
            self._seen[table_id] = _Seen(files, pause_s, now_s + pause_s)
            self._ready[table_id] = len(jobs)

    def take(self, paused: Callable[[], bool] = lambda: False) -> int:
        """Return how many jobs want a worker, and forget them: a worker runs until all are done.

        Args:
            paused: Asked only where there are jobs, because it may ask the storage; where it is
                true, they are kept.
        """
        with self._lock:
            waits = bool(self._ready)
        if not waits or paused():
            return 0
        with self._lock:
            ready = sum(self._ready.values())
            self._ready.clear()
        return ready
