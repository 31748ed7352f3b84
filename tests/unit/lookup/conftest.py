"""A folder of files that counts what is read of it, for the tests of the look-up reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from sleeper.storage.objectstore.objects import at_once

T = TypeVar("T")


class CountedFolder:
    """Files in a folder. `reads` has the ranges of each call.

    If it is remote, independent calls are made at once, as for a bucket.
    """

    def __init__(self, path: Path, *, is_remote: bool = False) -> None:
        self.path = path
        self.is_remote = is_remote
        self.reads: list[list[tuple[int, int]]] = []

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.reads.append(list(ranges))
        with (self.path / key).open("rb") as file:
            return [self._read(file, offset, length) for offset, length in ranges]

    @staticmethod
    def _read(file, offset, length):
        file.seek(offset)
        return file.read(length)

    def size(self, key: str) -> int:
        return (self.path / key).stat().st_size

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        size = self.size(key)
        length = min(length, size)
        return self.read_ranges(key, [(size - length, length)])[0], size

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        return at_once(work)

    def bytes_read(self) -> int:
        return sum(length for ranges in self.reads for _, length in ranges)


@pytest.fixture
def folder(tmp_path):
    return CountedFolder(tmp_path)


@pytest.fixture
def remote(tmp_path):
    """The same folder, where each call takes a round trip."""
    return CountedFolder(tmp_path, is_remote=True)
