"""Storage that fails on request: a process that dies, a reply that gets lost, another's turn.

`FaultyObjects` stands before a real adapter and counts its calls. At the chosen ones it dies,
before the call or after it: from then on every call fails, as it does for a process that is
gone, so that no clean-up runs that a real death would prevent. Or it lets somebody else run
first, so that two operations interleave at exactly that call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sleeper.errors import StorageFailed
from sleeper.ports.objects import ObjectInfo, Objects


class Killed(BaseException):
    """The process is dead. Not an Exception: nothing in the product may handle it."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong at which call, counted from 0.

    Attributes:
        call: The number of the call.
        kind: `before` and `after` kill the process there; `lost` does the call and loses its
            reply, once; `refused` does not do it and says so, once.
    """

    call: int
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.call}"


@dataclass(frozen=True)
class Call:
    """One call as the process saw it.

    Attributes:
        name: What was called, then the key or prefix.
        fault: The kind of fault that hit it; empty for none.
        answer: What came back; None too where nothing did.
    """

    name: str
    fault: str
    answer: Any = None


@dataclass
class Faults:
    """The plan and what has happened so far, shared by all views of one store.

    Attributes:
        meanwhile: What others do before the call of that number.
    """

    plan: tuple[Fault, ...] = ()
    calls: int = 0
    dead: bool = False
    names: list[str] = field(default_factory=list)
    seen: list[Call] = field(default_factory=list)
    meanwhile: dict[int, Callable[[], object]] = field(default_factory=dict)

    def run(self, name: str, call: Callable[[], Any]) -> Any:
        """Count a call and do it, or what the plan says instead."""
        if self.dead:
            raise Killed
        number, self.calls = self.calls, self.calls + 1
        self.names.append(name)
        if number in self.meanwhile:
            self.meanwhile.pop(number)()
        kinds = [fault.kind for fault in self.plan if fault.call == number]
        if "before" in kinds:
            self._die(name, "before")
        if "refused" in kinds:
            self.seen.append(Call(name, "refused"))
            raise StorageFailed(f"{name}: no answer")
        result = call()
        if "after" in kinds:
            self._die(name, "after")
        if "lost" in kinds:
            self.seen.append(Call(name, "lost"))
            raise StorageFailed(f"{name}: the reply got lost")
        self.seen.append(Call(name, "", result))
        return result

    def _die(self, name: str, kind: str) -> None:
        self.dead = True
        self.seen.append(Call(name, kind))
        raise Killed


class FaultyObjects:
    """An `Objects` adapter in front of another one, with faults."""

    def __init__(self, inner: Objects, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property
    def is_remote(self) -> bool:
        return False  # requests in an order that does not depend on threads

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        return cache(work)

    def create(self, key: str, body: bytes) -> bool:
        return self._faults.run(f"create {key}", lambda: self._inner.create(key, body))

    def put(self, key: str, body: bytes) -> None:
        self._faults.run(f"put {key}", lambda: self._inner.put(key, body))

    def read(self, key: str) -> bytes | None:
        return self._faults.run(f"read {key}", lambda: self._inner.read(key))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._faults.run(f"ranges {key}", lambda: self._inner.read_ranges(key, ranges))

    def size(self, key: str) -> int:
        return self._faults.run(f"size {key}", lambda: self._inner.size(key))

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        return self._faults.run(f"end {key}", lambda: self._inner.read_end(key, length))

    def stored_at(self, key: str) -> Any:
        return self._faults.run(f"stored at {key}", lambda: self._inner.stored_at(key))

    def open_output(self, key: str) -> Any:
        opened = self._faults.run(f"open {key}", lambda: self._inner.open_output(key))
        return FaultyOutput(opened, self._faults, key)

    def url(self, key: str) -> str:
        return self._inner.url(key)

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        found = self._faults.run(f"list {prefix}", lambda: [*self._inner.listing(prefix, after)])
        return iter(found)

    def delete(self, keys: Iterable[str]) -> None:
        names = [*keys]
        self._faults.run(f"delete {len(names)}", lambda: self._inner.delete(names))

    def storage_time(self) -> Any:
        return self._faults.run("time", self._inner.storage_time)

    def writer_lock(self, key: str, pause: Any) -> Any:
        return self._inner.writer_lock(key, pause)

    def under(self, prefix: str) -> FaultyObjects:
        return FaultyObjects(self._inner.under(prefix), self._faults)


class FaultyOutput:
    """A new object whose end may fail."""

    def __init__(self, inner: Any, faults: Faults, key: str) -> None:
        self._inner = inner
        self._faults = faults
        self._key = key

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    def write(self, data: Any) -> int:
        if self._faults.dead:
            raise Killed
        return int(self._inner.write(data))

    def tell(self) -> int:
        return int(self._inner.tell())

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        if not self.closed:
            self._faults.run(f"close {self._key}", self._inner.close)

    def abort(self) -> None:
        self._inner.abort()

    def __enter__(self) -> FaultyOutput:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif not self._faults.dead:  # a dead process does not clean up after itself
            self.abort()
