"""Objects of a real server whose times are those of a simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

from sleeper.ports.objects import ObjectInfo, Objects


class DatedObjects:
    """An `Objects` adapter in front of another one, which remembers when each object was stored.

    Views made by `under` share what is remembered: all processes of a test have one clock.
    """

    def __init__(
        self,
        inner: Objects,
        now: Callable[[], datetime],
        stored: dict[str, datetime] | None = None,
        prefix: str = "",
    ) -> None:
        self._inner, self._now, self._prefix = inner, now, prefix
        self._stored = {} if stored is None else stored

    @property
    def is_remote(self) -> bool:
        return False  # requests in an order that does not depend on threads

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        return cache(work)

    def create(self, key: str, body: bytes) -> bool:
        return self._inner.create(key, body) and self._date(key)

    def put(self, key: str, body: bytes) -> None:
        self._inner.put(key, body)
        self._date(key)

    def read(self, key: str) -> bytes | None:
        return self._inner.read(key)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._inner.read_ranges(key, ranges)

    def size(self, key: str) -> int:
        return self._inner.size(key)

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        return self._inner.read_end(key, length)

    def stored_at(self, key: str) -> datetime | None:
        found = self._inner.stored_at(key)
        return None if found is None else self._stored[self._prefix + key]

    def open_output(self, key: str) -> Any:
        return _DatedOutput(self._inner.open_output(key), lambda: self._date(key))

    def url(self, key: str) -> str:
        return self._inner.url(key)

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        for info in self._inner.listing(prefix, after):
            yield replace(info, modified=self._stored[self._prefix + info.key])

    def delete(self, keys: Iterable[str]) -> None:
        self._inner.delete(keys)

    def storage_time(self) -> datetime:
        return self._now()

    def writer_lock(self, key: str, pause: Any) -> Any:
        return self._inner.writer_lock(key, pause)

    def under(self, prefix: str) -> DatedObjects:
        whole = f"{self._prefix}{prefix.strip('/')}/"
        return DatedObjects(self._inner.under(prefix), self._now, self._stored, whole)

    def _date(self, key: str) -> bool:
        self._stored[self._prefix + key] = self._now()
        return True


class _DatedOutput:
    """A new object, which is stored when it is closed."""

    def __init__(self, inner: Any, date: Callable[[], object]) -> None:
        self._inner, self._when_stored = inner, date

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        was_closed = self._inner.closed
        self._inner.close()
        if not was_closed:
            self._when_stored()

    def __enter__(self) -> _DatedOutput:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._inner.abort()
