"""Objects of one instance in several buckets: the beginning of a key decides where it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import merge
from typing import TypeVar

from sleeper.ports.objects import ObjectInfo, Objects, Output, check_prefix, folder_prefix

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Route:
    """Where objects are whose keys begin alike.

    Attributes:
        start: How their keys begin: a key, or a folder with `/`.
        objects: Where they are.
        kept: How their names begin there, in place of `start`.
    """

    start: str
    objects: Objects
    kept: str


@dataclass(frozen=True, slots=True)
class RoutedObjects:
    """Objects that are seen as one store, and kept in several.

    Attributes:
        rest: Where an object is that no route names.
        routes: Where others are. No start is the beginning of another.
    """

    rest: Objects
    routes: tuple[Route, ...]

    @property
    def is_remote(self) -> bool:
        """Return whether the place of objects that no route names is remote."""
        return self.rest.is_remote

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """Do it as the place of objects that no route names does."""
        return self.rest.beside(work)

    def create(self, key: str, body: bytes) -> bool:
        """Create the object where its key belongs."""
        objects, name = self._found(key)
        return objects.create(name, body)

    def put(self, key: str, body: bytes) -> None:
        """Put the object where its key belongs."""
        objects, name = self._found(key)
        objects.put(name, body)

    def read(self, key: str) -> bytes | None:
        """Read the object where its key belongs."""
        objects, name = self._found(key)
        return objects.read(name)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read parts of the object where its key belongs."""
        objects, name = self._found(key)
        return objects.read_ranges(name, ranges)

    def size(self, key: str) -> int:
        """Return the length of the object where its key belongs."""
        objects, name = self._found(key)
        return objects.size(name)

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """Read the end of the object where its key belongs."""
        objects, name = self._found(key)
        return objects.read_end(name, length)

    def stored_at(self, key: str) -> datetime | None:
        """Return when the object was stored where its key belongs."""
        objects, name = self._found(key)
        return objects.stored_at(name)

    def open_output(self, key: str) -> Output:
        """Open a stream to where the key belongs."""
        objects, name = self._found(key)
        return objects.open_output(name)

    def url(self, key: str) -> str:
        """Return the object's URL where its key belongs."""
        objects, name = self._found(key)
        return objects.url(name)

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """List all places where keys with the prefix can be; one listing where there is one."""
        check_prefix(prefix)
        return self._listed(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, those of each place together."""
        names: dict[int, list[str]] = defaultdict(list)
        places: dict[int, Objects] = {}
        for key in keys:
            objects, name = self._found(key)
            places[id(objects)] = objects
            names[id(objects)].append(name)
        for place, objects in places.items():
            objects.delete(names[place])

    def storage_time(self) -> datetime:
        """Ask the place of objects that no route names: all have the same clock."""
        return self.rest.storage_time()

    def writer_lock(
        self, key: str, meanwhile: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """Lock where the key belongs."""
        objects, name = self._found(key)
        return objects.writer_lock(name, meanwhile)

    def under(self, prefix: str) -> Objects:
        """Return one folder, where it is."""
        folder = folder_prefix(prefix)
        if not folder:
            return self
        route = self._route(folder)
        if route is None:
            return self.rest.under(prefix)
        inside = route.kept + folder.removeprefix(route.start)
        return route.objects.under(inside.rstrip("/")) if inside else route.objects

    def _route(self, key: str) -> Route | None:
        return next((each for each in self.routes if key.startswith(each.start)), None)

    def _found(self, key: str) -> tuple[Objects, str]:
        route = self._route(key)
        if route is None:
            return self.rest, key
        return route.objects, route.kept + key.removeprefix(route.start)

    def _listed(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        route = self._route(prefix)
        if route is not None:
            yield from self._on_route(route, prefix, after)
            return
        places = [
            self._on_route(each, each.start, after)
            for each in self.routes
            if each.start.startswith(prefix)
        ]
        rest = (info for info in self.rest.listing(prefix, after) if self._route(info.key) is None)
        yield from merge(rest, *places, key=lambda info: info.key)

    def _on_route(self, route: Route, prefix: str, after: str) -> Iterator[ObjectInfo]:
        listed = route.objects.listing(
            route.kept + prefix.removeprefix(route.start),
            route.kept + after.removeprefix(route.start) if after.startswith(route.start) else "",
        )
        for info in listed:
            key = route.start + info.key.removeprefix(route.kept)
            if key > after:
                yield replace(info, key=key)
