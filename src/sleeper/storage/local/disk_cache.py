"""Keeps on the local disk what was read of files in a bucket, for all processes of one user.

Files of a bucket never change, so what is kept is never old. It can only be deleted. A file is
divided into blocks, and a kept block is a file of its own (`cache_room`). A read takes the blocks
that are kept, and requests the others together. What fails costs the cache alone.
"""

# ruff: noqa: PTH118 - paths are strings: making a Path costs as much as the system call

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

import xxhash

from sleeper.errors import StorageFailed
from sleeper.ports.objects import Objects
from sleeper.storage.local.cache_room import BLOCK_FILE_BYTES, HEADER_BYTES, BlockFolder, CacheRoom

BLOCK_BYTES: Final = BLOCK_FILE_BYTES - HEADER_BYTES
"""Bytes of a file that one block has; with its header it fills eight pages of a disk."""

READ_BYTES_MAX: Final = 8 << 20
"""A read of more bytes is no look-up, and goes past the cache."""

_SIZE: Final = "size"
_VERSION: Final = "sleeper-1"

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DiskCache:
    """A cache in a folder of the local disk. May be pickled; making one reads nothing.

    Attributes:
        folder: The folder, as an absolute path. It is made at first use, for this user alone.
        bytes_max: How many bytes of the disk it may take.
        origin: What tells apart buckets with the same URL: their server.
        now: The clock (aware), for the age of blocks.
    """

    folder: str
    bytes_max: int
    origin: str
    now: Callable[[], datetime]

    def over(self, files: Objects) -> CachedFolder:
        """Return what reads the files of a folder."""
        place = files.url("any").removesuffix("any")
        name = xxhash.xxh3_128_hexdigest(f"{self.origin}\n{place}".encode())
        return CachedFolder(files, name, _room_of(self.folder, self.bytes_max, self.now))


@lru_cache(maxsize=64)
def _room_of(folder: str, bytes_max: int, now: Callable[[], datetime]) -> CacheRoom:
    return CacheRoom(os.path.join(folder, _VERSION), bytes_max, now)


class CachedFolder:
    """Reads files of one folder of a bucket (see `CachedFiles`). Safe for threads.

    Args:
        files: The folder.
        name: Its name in the cache.
        room: The cache.
    """

    def __init__(self, files: Objects, name: str, room: CacheRoom) -> None:
        self._files = files
        self._name = name
        self._room = room
        self._folder = os.path.join(room.root, name)

    def read_ranges(self, key: str, size_bytes: int, ranges: Sequence[Range]) -> list[bytes]:
        """Read blocks that are kept, and request the others together."""
        inside = all(start >= 0 and n >= 0 and start + n <= size_bytes for start, n in ranges)
        is_small = sum(length for _, length in ranges) <= READ_BYTES_MAX
        if not (inside and is_small and self._room.is_open()):
            return self._files.read_ranges(key, ranges)
        place = BlockFolder.of(self._folder, key)
        numbers = sorted({n for start, length in ranges for n in _blocks_of(start, length)})
        found = {n: data for n in numbers if (data := self._block(place, n, size_bytes))}
        missing = [n for n in numbers if n not in found]
        if missing and not self._room.may_write():
            return self._files.read_ranges(key, ranges)
        if missing:
            found |= self._fetched(key, place, missing, size_bytes)
        return [_cut(found, start, length) for start, length in ranges]

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """Read the whole blocks of the end; the first read of a file keeps its size."""
        if not self._room.is_open():
            return self._files.read_end(key, length)
        place = BlockFolder.of(self._folder, key)
        known = self._room.read(place, _SIZE)
        if known is not None:
            start = _end_start(known.size_bytes, length)
            wanted = (start, known.size_bytes - start)
            return self.read_ranges(key, known.size_bytes, [wanted])[0], known.size_bytes
        with self._room.opened(place) as opened:
            data, size_bytes = self._files.read_end(key, length)
            start = _end_start(size_bytes, length)
            data = data[len(data) - (size_bytes - start) :]
            blocks = {
                str(n): data[n * BLOCK_BYTES - start :][:BLOCK_BYTES]
                for n in _blocks_of(start, size_bytes - start)
            }
            self._room.write(opened, place, {**blocks, _SIZE: b""}, size_bytes)
        return data, size_bytes

    def drop(self, key: str) -> bool:
        """Delete the blocks of a file."""
        return self._room.is_open() and self._room.dropped(BlockFolder.of(self._folder, key).folder)

    def drop_all(self) -> int:
        """Delete the blocks of all files, and what any process has not finished to write."""
        if not os.path.lexists(self._room.root):
            return 0
        try:
            return self._room.remove(self._folder) + self._room.discard_unfinished()
        except OSError as error:
            raise StorageFailed(
                f"the disk cache {self._room.root} cannot be emptied: {error}. Delete this folder, "
                "and try again"
            ) from error

    def _block(self, place: BlockFolder, number: int, size_bytes: int) -> memoryview | None:
        kept = self._room.read(place, str(number))
        if kept is None:
            return None
        if kept.size_bytes == size_bytes and len(kept.data) == _length_of(number, size_bytes):
            return kept.data
        self._room.delete_damaged(place, str(number), "it is of a file of another size")
        return None

    def _fetched(
        self, key: str, place: BlockFolder, missing: Sequence[int], size_bytes: int
    ) -> dict[int, memoryview]:
        """Read blocks from the bucket, in whole runs, and keep them."""
        runs: list[list[int]] = []
        for number in missing:
            if runs and number == runs[-1][1]:
                runs[-1][1] = number + 1
            else:
                runs.append([number, number + 1])
        with self._room.opened(place) as opened:
            wanted = [
                (first * BLOCK_BYTES, min(end * BLOCK_BYTES, size_bytes) - first * BLOCK_BYTES)
                for first, end in runs
            ]
            bodies = self._files.read_ranges(key, wanted)
            found = {
                first + n: memoryview(body)[n * BLOCK_BYTES : (n + 1) * BLOCK_BYTES]
                for (first, end), body in zip(runs, bodies, strict=True)
                for n in range(end - first)
            }
            blocks = {str(number): data for number, data in found.items()}
            self._room.write(opened, place, blocks, size_bytes)
        return found


# ---------------------------------------------------------------- blocks


def _blocks_of(start: int, length: int) -> range:
    """Return the numbers of the blocks that have some bytes of a range."""
    return range(start // BLOCK_BYTES, -(-(start + length) // BLOCK_BYTES)) if length else range(0)


def _length_of(number: int, size_bytes: int) -> int:
    return min(BLOCK_BYTES, size_bytes - number * BLOCK_BYTES)


def _end_start(size_bytes: int, length: int) -> int:
    """Return where the last `length` bytes begin, or the first block that is whole in them."""
    start = max(0, size_bytes - length)
    return -(-start // BLOCK_BYTES) * BLOCK_BYTES if size_bytes - start > BLOCK_BYTES else start


def _cut(blocks: dict[int, memoryview], start: int, length: int) -> bytes:
    pieces = []
    for number in _blocks_of(start, length):
        begin = max(0, start - number * BLOCK_BYTES)
        pieces.append(blocks[number][begin : start + length - number * BLOCK_BYTES])
    return b"".join(pieces)
