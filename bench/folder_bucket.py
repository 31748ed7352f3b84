"""The bucket `b` of the files in a folder: the counting server of tests/requests, before a disk.

It runs in a thread of a process that does nothing else, so it takes little of the measured
process's time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager
from mmap import ACCESS_READ, mmap
from pathlib import Path

from tests.requests.counting_s3 import Body, CountingS3, Stored, counting_s3

BUCKET = "b"


class FileBodies(MutableMapping[str, Body]):
    """The files below a folder, by their paths from there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __getitem__(self, key: str) -> Body:
        try:
            with (self._root / key).open("rb") as file:
                # A file without bytes cannot be mapped.
                return mmap(file.fileno(), 0, access=ACCESS_READ) if _size(file.fileno()) else b""
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise KeyError(key) from None

    def __setitem__(self, key: str, body: Body) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def __delitem__(self, key: str) -> None:
        try:
            (self._root / key).unlink()
        except FileNotFoundError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        for path in self._root.rglob("*"):
            if path.is_file():
                yield path.relative_to(self._root).as_posix()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class FileTimes(dict[str, float]):
    """When the files below a folder were written last."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def __getitem__(self, key: str) -> float:
        return (self._root / key).stat().st_mtime


def _size(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def folder_bucket(root: Path, delay_s: float = 0.0) -> AbstractContextManager[CountingS3]:
    """Serve a folder on 127.0.0.1 while the block runs."""
    return counting_s3(delay_s, {BUCKET: Stored(FileBodies(root), FileTimes(root))})
