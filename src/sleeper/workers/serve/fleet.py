"""Worker processes that are started when there are jobs, and end when there are none.

`workers_to_start` says how many a queue wants, `WaitingCompactions` for how many compactions
workers are wanted; `WorkerFleet` starts them, watches them, and ends them.

Each is a process of its own, so that one that dies takes nothing with it. A worker ends by itself
when its queue was empty for a while, so that a service without jobs costs nothing.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import IO, Protocol

from sleeper.errors import InstanceLost, StorageFailed
from sleeper.model.formats.compaction_job import CompactionJob
from sleeper.ports.clock import Clock

_log = logging.getLogger(__name__)

_FAILURES_BEFORE_REST = 3
_REST_MAX_S = 60.0
_START_S = 2.0
"""A worker that was started within this time has not taken a message yet."""

_AGAIN_FIRST_S = 60.0
_AGAIN_MAX_S = 900.0


def workers_to_start(ready: int, *, running: int, workers_max: int | None, idle: int = 0) -> int:
    """Return how many more workers a queue wants: one a message, within the limit (rule ING-15).

    Args:
        ready: Messages that can be received now.
        running: Workers that there are.
        workers_max: How many there may be; None without a limit.
        idle: Those of the workers that wait for a message: each takes one by itself.
    """
    wanted = max(ready - idle, 0)
    return wanted if workers_max is None else min(wanted, max(workers_max - running, 0))


@dataclass(frozen=True, slots=True)
class _LastStart:
    """The files of a table's jobs when workers were last started for them."""

    files: frozenset[str]
    pause_s: float
    until_s: float


class WaitingCompactions:
    """Counts the jobs that workers are to be started for. Safe for threads.

    A table whose files are still the same after workers had time for them is left alone for a
    while, each time for longer, up to 15 minutes: its jobs fail, or others have them.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last_starts: dict[str, _LastStart] = {}
        self._ready: dict[str, int] = {}

    def note_planned(self, table_id: str, jobs: Sequence[CompactionJob]) -> None:
        """Take note of all jobs that are planned for a table now."""
        files = frozenset(name for job in jobs for name in job.inputs)
        now_s = self._clock.ticks_s()
        with self._lock:
            last = self._last_starts.pop(table_id, None)
            if not files:
                self._ready.pop(table_id, None)
                return
            pause_s = _AGAIN_FIRST_S
            if last is not None and files <= last.files:
                if now_s < last.until_s:
                    self._last_starts[table_id] = last
                    return
                pause_s = min(2 * last.pause_s, _AGAIN_MAX_S)
            self._last_starts[table_id] = _LastStart(files, pause_s, now_s + pause_s)
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


class WorkerProcess(Protocol):
    """A process that runs jobs, such as `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        ...

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""
        ...


@dataclass(slots=True)
class _Kind:
    """The workers of one kind."""

    running: list[WorkerProcess] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    failures: int = 0
    rest_until: float = 0.0

    def starting(self, now: float) -> int:
        """Return how many workers were started so lately that they count as waiting."""
        self.starts = [start for start in self.starts if now - start < _START_S]
        return min(len(self.starts), len(self.running))


class WorkerFleet:
    """The worker processes of one `sleeper serve`.

    Args:
        start: Starts a worker of a kind.
        ready: Returns how many messages are ready for a kind of worker.
        workers_max: How many workers of each kind may run at once.
        clock: The time.
    """

    def __init__(
        self,
        *,
        start: Callable[[str], WorkerProcess],
        ready: Callable[[str], int],
        workers_max: Mapping[str, int],
        clock: Clock,
    ) -> None:
        self._start = start
        self._ready = ready
        self._workers_max = dict(workers_max)
        self._clock = clock
        self._kinds = {kind: _Kind() for kind in workers_max}

    def look(self) -> bool:
        """Take note of workers that ended, and start those that are wanted. Never raises.

        Returns:
            Whether any message waits or any worker runs.
        """
        is_busy = False
        for name, kind in self._kinds.items():
            self._reap(name, kind)
            if self._clock.ticks_s() < kind.rest_until:
                continue
            try:
                ready = self._ready(name)
            except InstanceLost as failure:
                _log.error("no %s worker is started for %.0f s: %s", name, _REST_MAX_S, failure)
                kind.rest_until = self._clock.ticks_s() + _REST_MAX_S
                continue
            except StorageFailed as failure:
                _log.error("the %s queue cannot be looked at now: %s", name, failure)
                continue
            is_busy = is_busy or ready > 0
            wanted = workers_to_start(
                ready,
                running=len(kind.running),
                workers_max=self._workers_max[name],
                idle=kind.starting(self._clock.ticks_s()),
            )
            self._start_workers(name, kind, wanted)
        return is_busy or any(kind.running for kind in self._kinds.values())

    @property
    def running(self) -> Mapping[str, int]:
        """How many workers of each kind run, as far as was seen."""
        return {name: len(kind.running) for name, kind in self._kinds.items()}

    @property
    def resting(self) -> list[str]:
        """The kinds of workers that keep failing, so that none is started now."""
        now = self._clock.ticks_s()
        return [name for name, kind in self._kinds.items() if now < kind.rest_until]

    def stop(self, patience_s: float) -> None:
        """End all workers: ask them to, and kill those that have not ended in time.

        Their unfinished jobs go back to their queues, or are delivered again.

        Args:
            patience_s: How long to wait for them; 0 kills them at once.
        """
        workers = [worker for kind in self._kinds.values() for worker in kind.running]
        for worker in workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        deadline = self._clock.ticks_s() + patience_s
        for worker in workers:
            try:
                worker.wait(max(0.0, deadline - self._clock.ticks_s()))
            except Exception:  # noqa: BLE001 - subprocess.TimeoutExpired, or a test's own
                _log.warning(
                    "killing worker %d, which has not ended within %.0f s. Its message comes again "
                    "when its visibility ends.",
                    worker.pid,
                    patience_s,
                )
                worker.kill()
                worker.wait()
        for kind in self._kinds.values():
            kind.running.clear()

    def _start_workers(self, name: str, kind: _Kind, wanted: int) -> None:
        for _ in range(wanted):
            try:
                worker = self._start(name)
            except OSError as failure:
                _log.error("no %s worker can be started now: %s", name, failure)
                self._rest_after_failure(name, kind)
                return
            _log.debug("started %s worker %d", name, worker.pid)
            kind.running.append(worker)
            kind.starts.append(self._clock.ticks_s())

    def _reap(self, name: str, kind: _Kind) -> None:
        """Drop workers that ended. Where they keep failing, rest before others are started."""
        codes = {worker.pid: worker.poll() for worker in kind.running}
        kind.running = [worker for worker in kind.running if codes[worker.pid] is None]
        for pid, code in codes.items():
            if code is None:
                continue
            if code == 0:
                kind.failures = 0
                continue
            _log.error("%s worker %d ended with code %d", name, pid, code)
            self._rest_after_failure(name, kind)

    def _rest_after_failure(self, name: str, kind: _Kind) -> None:
        kind.failures += 1
        if kind.failures >= _FAILURES_BEFORE_REST:
            rest_s = min(_REST_MAX_S, 2.0 ** min(kind.failures - _FAILURES_BEFORE_REST, 6))
            kind.rest_until = self._clock.ticks_s() + rest_s
            _log.error("no %s worker is started for %.0f s: they keep failing", name, rest_s)


def start_logged(
    command: Sequence[str], write_line: Callable[[str], None]
) -> subprocess.Popen[str]:
    """Start a process whose log lines go where this process's go, each line whole.

    Processes that wrote to one stream themselves could break up each other's long lines.

    Args:
        command: The program and its arguments.
        write_line: Called with each line, from a thread; it lets one line out at a time.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603 - a command line of our own
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
    )
    assert process.stdout is not None
    threading.Thread(
        target=_pass_on,
        args=(process.stdout, write_line),
        name=f"log of {process.pid}",
        daemon=True,
    ).start()
    return process


def _pass_on(lines: IO[str], write_line: Callable[[str], None]) -> None:
    with lines:
        for line in lines:
            write_line(line.removesuffix("\n"))
