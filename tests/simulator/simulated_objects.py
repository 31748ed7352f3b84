"""Objects in memory as one process of a simulated world sees them: every call is a step.

Calls take turns with those of other processes and fail as the world decides. What a real store
does in several requests is several steps: a listing comes page by page, and many objects are
deleted one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import cache
from typing import Any

from sleeper.errors import StorageFailed, StorageFull
from sleeper.ports.objects import ObjectInfo, Output
from sleeper.storage.memory import MemoryObjects
from tests.simulator.world import READS, WRITES, Life

PAGE = 4

Observer = Callable[[str, bytes, Any], object]


class Url(str):
    """What the stand-in engine opens an object by: it knows the process that asks."""

    __slots__ = ("key", "objects")

    def __new__(cls, objects: SimulatedObjects, key: str) -> Url:
        url = super().__new__(cls, f"/simulated/{key}")
        url.objects, url.key = objects, key
        return url


class SimulatedObjects:
    """An `Objects` adapter before a `MemoryObjects`, for one process.

    Args:
        inner: What is stored.
        life: The process.
        created: Told of each object that came into being by `create`, and what the process was
            busy with when it made the call.
        prefix: The folder that keys are relative to; for the trace alone.
    """

    def __init__(
        self, inner: MemoryObjects, life: Life, created: Observer, prefix: str = ""
    ) -> None:
        self._inner = inner
        self._life = life
        self._created = created
        self._prefix = prefix

    @property
    def is_remote(self) -> bool:
        return self._life.world.is_remote

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        return cache(work)

    def create(self, key: str, body: bytes) -> bool:
        doing = self._life.busy_with  # the call may be done when the process does other things

        def effect() -> bool:
            done = self._inner.create(key, body)
            if done:
                self._created(self._prefix + key, body, doing)
            return done

        return self._write(f"create {self._prefix}{key}", effect)

    def put(self, key: str, body: bytes) -> None:
        self._write(f"put {self._prefix}{key}", lambda: self._inner.put(key, body))

    def read(self, key: str) -> bytes | None:
        return self._read(f"read {self._prefix}{key}", lambda: self._inner.read(key))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        what = f"ranges {self._prefix}{key}"
        return self._read(what, lambda: self._inner.read_ranges(key, ranges))

    def size(self, key: str) -> int:
        return self._read(f"size {self._prefix}{key}", lambda: self._inner.size(key))

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        return self._read(f"end {self._prefix}{key}", lambda: self._inner.read_end(key, length))

    def stored_at(self, key: str) -> datetime | None:
        return self._read(f"stored at {self._prefix}{key}", lambda: self._inner.stored_at(key))

    def open_output(self, key: str) -> SimulatedOutput:
        if self._life.dead:
            self._life.die()
        if self._life.busy_with is not None:
            self._life.busy_with.opened(key)
        return SimulatedOutput(self._inner.open_output(key), self, key)

    def url(self, key: str) -> str:
        return Url(self, key)

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        what, last = f"list {self._prefix}{prefix}", after
        while True:
            page = self._read(what, lambda: [*self._inner.listing(prefix, last)])[:PAGE]  # noqa: B023
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1].key

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._write(f"delete {self._prefix}{key}", lambda: self._inner.delete([key]))  # noqa: B023

    def storage_time(self) -> datetime:
        return self._write(f"time {self._prefix}", self._inner.storage_time)

    def writer_lock(self, key: str, pause: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def under(self, prefix: str) -> SimulatedObjects:
        below = f"{self._prefix}{prefix.rstrip('/')}/"
        return SimulatedObjects(self._inner.under(prefix), self._life, self._created, below)

    def _read(self, what: str, call: Callable[[], Any]) -> Any:
        world = self._life.world
        world.step(self._life, what)
        fault = world.fault(self._life, what, READS)
        if fault == "failed":
            raise StorageFailed(f"{what}: no answer")
        if fault:
            self._life.die()
        return call()

    def _write(self, what: str, call: Callable[[], Any]) -> Any:
        world = self._life.world
        world.step(self._life, what)
        fault = world.fault(self._life, what, WRITES)
        if fault == "death before":
            self._life.die()
        if fault == "refused":
            raise StorageFull(f"{what}: there is no room")
        if fault == "failed":
            raise StorageFailed(f"{what}: no answer")
        if fault == "late":
            world.send(call)
            raise StorageFailed(f"{what}: no answer yet")
        result = call()
        if fault == "lost":
            raise StorageFailed(f"{what}: the reply got lost")
        if fault == "death after":
            self._life.die()
        return result


class SimulatedOutput(Output):
    """A new object, which appears when it is closed."""

    def __init__(self, inner: Output, objects: SimulatedObjects, key: str) -> None:
        self._inner = inner
        self._objects = objects
        self._key = key
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, data: Any) -> int:
        return self._inner.write(data)

    def tell(self) -> int:
        return self._inner.tell()

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            what = f"close {self._objects._prefix}{self._key}"
            self._objects._write(what, self._inner.close)

    def abort(self) -> None:
        self._closed = True
