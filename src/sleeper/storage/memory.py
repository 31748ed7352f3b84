"""Objects in the memory of one process: a complete adapter, for tests and experiments."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import cache
from io import BytesIO
from pathlib import Path
from threading import RLock
from typing import NoReturn, TypeVar

from sleeper.errors import BadRequest, ObjectNotFound, ObjectTooShort
from sleeper.ports.objects import (
    TEMPORARY,
    ObjectInfo,
    Output,
    check_key,
    check_prefix,
    check_ranges,
    folder_prefix,
)

T = TypeVar("T")


class MemoryObjects:
    """Objects in a dictionary, safe for many threads. Views made by `under` share it.

    A query engine opens objects by path. So `url` writes the object to a private temp folder, and
    later changes are written there too. The folder is deleted with the last view, or by `close`.

    Args:
        now: The clock for modification times (aware, UTC).
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._bodies = _Bodies(now)
        self._prefix = ""

    @property
    def is_remote(self) -> bool:
        """Return False: a read takes microseconds."""
        return False

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """Do nothing yet."""
        return cache(work)

    def create(self, key: str, body: bytes) -> bool:
        """Store `body` if its key is free."""
        with self._bodies.lock:
            if self._find(key) is not None:
                return False
            self.put(key, body)
            return True

    def put(self, key: str, body: bytes) -> None:
        """Store `body`, replacing the object with its key."""
        check_key(key)
        self._bodies.store(self._prefix + key, bytes(body))

    def read(self, key: str) -> bytes | None:
        """Return the body."""
        return self._find(key)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Copy parts of a body; all are of the same version."""
        check_ranges(key, ranges)
        body = self._get(key)
        for offset, length in ranges:
            if offset + length > len(body):
                raise ObjectTooShort(
                    f"object {self._prefix + key} ends before byte {offset + length}, up to which "
                    "it should be read. It is shorter than expected: truncated, or replaced."
                )
        return [body[offset : offset + length] for offset, length in ranges]

    def size(self, key: str) -> int:
        """Return the body's length."""
        return len(self._get(key))

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """Copy the end of a body."""
        body = self._get(key)
        return body[max(0, len(body) - length) :], len(body)

    def stored_at(self, key: str) -> datetime | None:
        """Return the time that the write was stamped with."""
        check_key(key)
        _, stored = self._bodies.by_key.get(self._prefix + key, (b"", None))
        return stored

    def open_output(self, key: str) -> MemoryOutput:
        """Return a stream that stores the object when it is closed."""
        check_key(key)
        return MemoryOutput(lambda body: self.put(key, body))

    def url(self, key: str) -> str:
        """Write the object to a file, once, and return the file's path."""
        check_key(key)
        return self._bodies.path(self._prefix + key)

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Return the objects that exist at the time of the call."""
        check_prefix(prefix)
        start = self._prefix + prefix
        with self._bodies.lock:
            found = [
                ObjectInfo(key.removeprefix(self._prefix), len(body), modified)
                for key, (body, modified) in self._bodies.by_key.items()
                if key.startswith(start) and key > self._prefix + after
            ]
        return iter(sorted(found, key=lambda info: info.key))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete bodies."""
        for key in keys:
            check_key(key)
            self._bodies.remove(self._prefix + key)

    def storage_time(self) -> datetime:
        """Return the current time."""
        return self._bodies.now()

    def writer_lock(
        self, key: str, meanwhile: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """Continue at once, without a lock (see the port)."""
        return nullcontext()

    def under(self, prefix: str) -> MemoryObjects:
        """Return the objects of one folder. Both share the bodies."""
        view = object.__new__(MemoryObjects)
        view._bodies = self._bodies
        view._prefix = self._prefix + folder_prefix(prefix)
        return view

    def close(self) -> None:
        """Delete the temp folder, if `url` made one."""
        self._bodies.close()

    def __reduce__(self) -> NoReturn:
        raise BadRequest(
            "a memory:// instance exists in one process only and cannot be pickled; use a folder"
        )

    def _find(self, key: str) -> bytes | None:
        check_key(key)
        body, _ = self._bodies.by_key.get(self._prefix + key, (None, None))
        return body

    def _get(self, key: str) -> bytes:
        body = self._find(key)
        if body is None:
            raise ObjectNotFound(f"object {self._prefix + key} does not exist")
        return body


class MemoryOutput(Output):
    """A stream that passes everything written to `keep` when it is closed."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        self._keep = keep
        self._written = BytesIO()

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._written.closed

    def write(self, data: bytes | memoryview, /) -> int:
        """Collect `data` and return its length in bytes."""
        return self._written.write(data)

    def tell(self) -> int:
        """Return how many bytes were written so far."""
        return self._written.tell()

    def flush(self) -> None:
        """Do nothing: there is no buffer."""
        self._written.flush()

    def close(self) -> None:
        """Store what was written as the object."""
        if not self.closed:
            self._keep(self._written.getvalue())
            self._written.close()

    def abort(self) -> None:
        """Discard what was written."""
        self._written.close()


class _Bodies:
    """The state that all views share: bodies and modification times, by full key."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.lock = RLock()
        self.by_key: dict[str, tuple[bytes, datetime]] = {}
        self.now = now
        self._paths: dict[str, Path] = {}
        self._remove_folder: Callable[[], object] | None = None
        self._folder = Path()

    def store(self, key: str, body: bytes) -> None:
        """Store a body, and update its file if it has one."""
        with self.lock:
            self.by_key[key] = body, self.now()
            if key in self._paths:
                _write_file(self._paths[key], body)

    def remove(self, key: str) -> None:
        """Delete a body and the content of its file."""
        with self.lock:
            if self.by_key.pop(key, None) is not None and key in self._paths:
                self._paths[key].unlink()

    def path(self, key: str) -> str:
        """Return the path of a file that is kept equal to the object `key`."""
        with self.lock:
            if key not in self._paths:
                self._paths[key] = self._new_path(key)
                if key in self.by_key:
                    _write_file(self._paths[key], self.by_key[key][0])
            return str(self._paths[key])

    def close(self) -> None:
        """Delete the folder of files; `path` makes another."""
        with self.lock:
            self._paths.clear()
            if self._remove_folder is not None:
                self._remove_folder()
            self._remove_folder = None

    def _new_path(self, key: str) -> Path:
        # A folder each, because keys `a` and `a/b` can both be objects but not both be files.
        # The last name is kept, because engines look at its suffix.
        if self._remove_folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="sleeper-memory-"))
            self._remove_folder = weakref.finalize(
                self, shutil.rmtree, self._folder, ignore_errors=True
            )
        folder = self._folder / str(len(self._paths))
        folder.mkdir()
        return folder / key.rpartition("/")[2]


def _write_file(path: Path, body: bytes) -> None:
    # Replaced, not rewritten, so that a reader of the old file still reads all of it.
    new = path.with_name(f"{TEMPORARY}new")
    new.write_bytes(body)
    new.replace(path)
