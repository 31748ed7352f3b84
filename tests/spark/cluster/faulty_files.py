"""Storage that fails on request in whichever process asks it: driver or worker, alone or for good.

`FaultyFiles` stands before a real `Objects` adapter and `FaultyInputs` before input files. Both
are pickled to workers. Processes agree on what has happened by marks: files in one folder, made
only if absent, so that a fault strikes exactly as often as it is to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from sleeper.errors import StorageFailed, StorageFull
from sleeper.model.object_stores import ObjectStoreSettings
from sleeper.ports.objects import ObjectInfo, Objects
from tests.patience import PATIENCE_S, becomes_true


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and where.

    Attributes:
        call: The method of the adapter, or `read` for input.
        does: What happens; see `Faults.strike`.
        key: A part of the name of the file that it happens to.
        after: Whether the call is made first.
        times: How often it happens, over all processes.
        tasks_only: Whether only tasks on Spark are struck, and not the driver.
    """

    call: str
    does: str
    key: str = ""
    after: bool = False
    times: int = 1
    tasks_only: bool = True


@dataclass(frozen=True)
class Faults:
    """The plan, and where marks are kept.

    Attributes:
        marks: A folder that all processes reach.
        plan: What goes wrong.
        driver: The process id of the driver.
    """

    marks: Path
    plan: tuple[Fault, ...]
    driver: int

    def around(self, call: str, key: str, run: Callable[[], Any]) -> Any:
        """Make a call, or what the plan says instead."""
        self._look(call, key, after=False)
        result = run()
        self._look(call, key, after=True)
        return result

    def happened(self, number: int = 0) -> int:
        """Say how often the plan's fault of this number has struck."""
        return len([*self.marks.glob(f"fault-{number}-*")])

    def _look(self, call: str, key: str, *, after: bool) -> None:
        for number, fault in enumerate(self.plan):
            if (fault.call, fault.after) != (call, after) or fault.key not in key:
                continue
            if fault.tasks_only and not in_task():
                continue
            if fault.does == "kill executor" and executor() not in readers(self.marks):
                continue
            if self._claim(number, fault.times):
                self.strike(number, fault, key)

    def _claim(self, number: int, times: int) -> bool:
        return any(mark(self.marks / f"fault-{number}-{place}") for place in range(times))

    def strike(self, number: int, fault: Fault, key: str) -> None:
        """Let a fault happen."""
        match fault.does:
            case "raise":
                raise StorageFailed(f"{key}: no answer. Try again.")
            case "fill the disk":
                raise StorageFull(f"cannot write {key}: the disk is full. Make room.")
            case "kill process":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill executor" | "kill any executor":
                os.kill(executor(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill worker":  # of a standalone cluster; its executors end when they notice
                found = executor()
                os.kill(parent(found), signal.SIGKILL)
                os.kill(found, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill driver":
                os.kill(self.driver, signal.SIGKILL)
            case "interrupt driver":
                os.kill(self.driver, signal.SIGINT)
                time.sleep(PATIENCE_S)  # the task would go on, but for whoever cancels it
            case "meet":  # as many as the fault has times
                assert becomes_true(lambda: self.happened(number) == fault.times), (
                    f"others at {key}"
                )
            case other:
                raise AssertionError(f"no such fault: {other}")


def in_task() -> bool:
    """Say whether this process is running a task of Spark."""
    from pyspark import TaskContext  # noqa: PLC0415 - an extra, and slow to import

    return TaskContext.get() is not None


def executor() -> int:
    """The process id of the executor that this worker belongs to."""
    process = os.getppid()
    while process > 1:
        asked = ["ps", "-ww", "-o", "ppid=,args=", "-p", str(process)]
        shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        parent, _, command = shown.strip().partition(" ")
        if "CoarseGrainedExecutorBackend" in command:
            return process
        process = int(parent)
    raise AssertionError("this process is no worker of an executor that is a process of its own")


def parent(process: int) -> int:
    """The process id of a process's parent."""
    asked = ["ps", "-o", "ppid=", "-p", str(process)]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def readers(marks: Path) -> list[int]:
    """The executor of each time that a partition of `noted` rows was read."""
    return [int(path.name.split("-")[1]) for path in marks.glob("read-*")]


def noted(marks: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that passes rows on, and leaves a mark for each task."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        mine = executor()
        assert any(mark(marks / f"read-{mine}-{number}") for number in count())
        yield from batches

    return run


def mark(path: Path) -> bool:
    """Leave a mark; False if it is there already."""
    try:
        path.open("x").close()
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class FaultyFiles:
    """An `Objects` adapter in front of another one, with faults."""

    inner: Objects
    faults: Faults

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        return self.inner.beside(work)

    def create(self, key: str, body: bytes) -> bool:
        return self.faults.around("create", key, lambda: self.inner.create(key, body))

    def put(self, key: str, body: bytes) -> None:
        self.faults.around("put", key, lambda: self.inner.put(key, body))

    def read(self, key: str) -> bytes | None:
        return self.inner.read(key)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self.inner.read_ranges(key, ranges)

    def size(self, key: str) -> int:
        return self.inner.size(key)

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        return self.inner.read_end(key, length)

    def stored_at(self, key: str) -> Any:
        return self.inner.stored_at(key)

    def open_output(self, key: str) -> FaultyOutput:
        opened = self.faults.around("open", key, lambda: self.inner.open_output(key))
        return FaultyOutput(opened, self.faults, key)

    def url(self, key: str) -> str:
        return self.inner.url(key)

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        return self.inner.listing(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        names = [*keys]
        self.faults.around("delete", " ".join(names), lambda: self.inner.delete(names))

    def storage_time(self) -> Any:
        return self.inner.storage_time()

    def writer_lock(self, key: str, pause: Callable[[int], None]) -> Any:
        return self.faults.around("turn", key, lambda: self.inner.writer_lock(key, pause))

    def under(self, prefix: str) -> FaultyFiles:
        return FaultyFiles(self.inner.under(prefix), self.faults)


class FaultyOutput:
    """A new object whose writing or end may fail."""

    def __init__(self, inner: Any, faults: Faults, key: str) -> None:
        self._inner, self._faults, self._key = inner, faults, key

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    def write(self, data: Any) -> int:
        return int(self._faults.around("write", self._key, lambda: self._written(data)))

    def tell(self) -> int:
        return int(self._inner.tell())

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._faults.around("close", self._key, self._inner.close)
        finally:
            self._inner.abort()  # nothing, where the end was reached

    def abort(self) -> None:
        self._inner.abort()

    def __enter__(self) -> FaultyOutput:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _written(self, data: Any) -> int:
        done = int(self._inner.write(data))
        self._inner.flush()  # so that a process that dies now leaves half a file
        return done


@dataclass(frozen=True)
class FaultyInputs:
    """Reads `faulty://` and a path, with faults; an `InputStore`."""

    faults: Faults
    settings: ObjectStoreSettings

    def find(self, url: str) -> list[str]:
        folder = Path(url.removeprefix("faulty://"))
        return [f"faulty://{path}" for path in sorted(folder.glob("*.parquet"))]

    def sizes(self, url: str) -> dict[str, int]:
        found = self.find(url)
        return {each: Path(each.removeprefix("faulty://")).stat().st_size for each in found}

    @contextmanager
    def open(self, url: str) -> Iterator[Any]:
        with Path(url.removeprefix("faulty://")).open("rb") as file:
            yield _FaultyInput(file, self.faults, url)


class _FaultyInput:
    """An open file, any read of which may fail."""

    def __init__(self, file: Any, faults: Faults, url: str) -> None:
        self._file, self._faults, self._url = file, faults, url

    def read(self, size: int = -1) -> bytes:
        return self._faults.around("read", self._url, lambda: self._file.read(size))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
