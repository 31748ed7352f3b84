"""The folder of a disk cache, which many processes share: blocks of files, within a bound.

    <folder>/sleeper-1/<table's folder>/<file>/<number of the block>, or `size`
    <folder>/sleeper-1/tmp/        blocks that are being written
    <folder>/sleeper-1/used        how many bytes of the disk all of it takes
    <folder>/sleeper-1/swept       its age is that of the last sweep

Names of folders and files are hashes. A block has a checksum of its bytes and of its place, which
is compared whenever it is read: a block that was damaged, or written in part, is deleted and read
from the bucket again.

- Blocks appear by a rename. A killed process leaves a file in `tmp/`, which a sweep deletes.
- Before blocks are written, their bytes are added to `used`, under a file lock that is held for
  this alone. So all processes together keep to the bound. What a killed process added and did not
  write is corrected by the next sweep.
- A sweep counts all blocks. If there is not enough room it deletes those that were read longest
  ago, down to seven eighths of the bound; and in any case those that nobody read for a week, so
  that blocks of deleted files leave. A process sweeps if there is no room, and if nobody did for a
  day.
- A process opens the folder of a file before it reads the bucket, and renames blocks into what it
  opened. So a purge that moves the folder away and deletes it leaves nothing that was read before.

A failure is logged, and nothing is written for a minute.
"""

# Paths are strings here: most of these calls have no Path method, and making a Path costs as
# much as the system call.
# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH108, PTH112, PTH116, PTH118, PTH208

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import stat
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Lock, Thread
from typing import Final

import xxhash

logger = logging.getLogger(__name__)

_HEADER: Final = struct.Struct("<4sIQQ")
"""Before the bytes of a block: a mark, their number, the size of the file, and the checksum."""

HEADER_BYTES: Final = _HEADER.size
BLOCK_FILE_BYTES: Final = 32 << 10
"""The size of a kept block with its header, at most."""

_MARK: Final = b"SlC1"
_DISK_PAGE_BYTES: Final = 4 << 10
_PAUSE_S: Final = 60
_TOUCHED_AFTER_S: Final = 60
"""A block that is read gets a new time if its time is older."""

_UNREAD_S: Final = 7 * 24 * 60 * 60
_SWEPT_AFTER_S: Final = 24 * 60 * 60
_UNFINISHED_S: Final = 60 * 60
_REMOVALS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class BlockFolder:
    """The folder of a file's blocks, and what their checksums begin with."""

    folder: str
    seed: int

    @classmethod
    def of(cls, folder: str, key: str) -> BlockFolder:
        """Return the place of a file's blocks in a table's folder."""
        name = xxhash.xxh3_128_hexdigest(key.encode())
        place = f"{folder.rpartition('/')[2]}/{name}"
        return cls(f"{folder}/{name}", xxhash.xxh3_64_intdigest(place.encode()))


@dataclass(frozen=True, slots=True)
class KeptBlock:
    """A kept block, and the size of its file."""

    data: memoryview
    size_bytes: int


def _checksum(data: bytes | memoryview, place: BlockFolder, name: str, size_bytes: int) -> int:
    seed = xxhash.xxh3_64_intdigest(f"{name} {size_bytes}".encode(), seed=place.seed)
    return xxhash.xxh3_64_intdigest(data, seed=seed)


def _disk_bytes(size_bytes: int) -> int:
    return -(-size_bytes // _DISK_PAGE_BYTES) * _DISK_PAGE_BYTES


class CacheRoom:
    """The cache's folder, as this process uses it: reads, writes and deletes blocks in its bound.

    Args:
        root: The folder.
        bytes_max: How many bytes of the disk it may take.
        now: The clock.
    """

    def __init__(self, root: str, bytes_max: int, now: Callable[[], datetime]) -> None:
        self.root = root
        self._bytes_max = bytes_max
        self._now = now
        self._lock = Lock()
        self._is_ready = False
        self._paused_until_s = 0.0
        self._sweeping = False
        self._trouble = ""

    def is_open(self) -> bool:
        """Return whether the folder can be used; it is made and checked at first."""
        if self._is_ready:
            return True
        if not self.may_write():
            return False
        with self._lock:
            if not self._has_opened():
                return False
        if self._age_s("swept") > _SWEPT_AFTER_S:
            self._sweep_beside()
        return True

    def _has_opened(self) -> bool:
        """Make the folder, check it, and count what is in it if that is not known."""
        if self._is_ready:
            return True
        try:
            self._make()
        except OSError as error:
            self._pause("cannot be used", error)
            return False
        if not self._has_count():
            self._sweep(first=True)
        self._is_ready = True
        return True

    def _make(self) -> None:
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        about = os.stat(self.root)
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise PermissionError(
                errno.EPERM, "others may read or write it, or it is another user's", self.root
            )
        os.makedirs(os.path.join(self.root, "tmp"), exist_ok=True)

    def may_write(self) -> bool:
        """Return whether no write failed in the last minute."""
        return not self._paused_until_s or self._now().timestamp() >= self._paused_until_s

    def _pause(self, what: str, error: OSError) -> None:
        """Write nothing for a minute; the same trouble is logged once."""
        self._paused_until_s = self._now().timestamp() + _PAUSE_S
        reason = error.strerror or type(error).__name__
        level = logging.DEBUG if self._trouble == reason else logging.WARNING
        self._trouble = reason
        logger.log(
            level,
            "the disk cache %s %s, so rows are read from the bucket without it: %s",
            self.root,
            what,
            error,
        )

    # Blocks.

    def read(self, place: BlockFolder, name: str) -> KeptBlock | None:
        """Return a block, if it is kept as it was written; None if it is not."""
        path = f"{place.folder}/{name}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._pause("cannot be read", error)
            return None
        try:
            data = os.read(descriptor, BLOCK_FILE_BYTES + 1)
            now_s = self._now().timestamp()
            if now_s - os.fstat(descriptor).st_mtime > _TOUCHED_AFTER_S:
                os.utime(descriptor, (now_s, now_s))
        except OSError as error:
            self.delete_damaged(place, name, str(error))
            return None
        finally:
            os.close(descriptor)
        if len(data) >= HEADER_BYTES:
            mark, length, size_bytes, checksum = _HEADER.unpack_from(data)
            body = memoryview(data)[HEADER_BYTES:]
            expected = _checksum(body, place, name, size_bytes)
            if (mark, length, checksum) == (_MARK, len(body), expected):
                return KeptBlock(body, size_bytes)
        self.delete_damaged(place, name, "its checksum does not match")
        return None

    def delete_damaged(self, place: BlockFolder, name: str, reason: str) -> None:
        """Delete a block that cannot be used, which is logged."""
        path = os.path.join(place.folder, name)
        logger.warning(
            "a block of the disk cache is read from the bucket again: %s, %s", path, reason
        )
        self._account(-self._unlinked(path))

    @contextmanager
    def opened(self, place: BlockFolder) -> Iterator[int | None]:
        """Open the folder of a file's blocks, and make it; None if that fails."""
        opened = None
        try:
            for path in (place.folder.rpartition("/")[0], place.folder):
                with suppress(FileExistsError):
                    os.mkdir(path, 0o700)
            opened = os.open(place.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            logger.debug("%s was deleted, and is made again: %s", self.root, error)
            self._is_ready = False
        except OSError as error:
            self._pause("cannot be written", error)
        try:
            yield opened
        finally:
            if opened is not None:
                os.close(opened)

    def write(
        self,
        opened: int | None,
        place: BlockFolder,
        blocks: Mapping[str, bytes | memoryview],
        size_bytes: int,
    ) -> None:
        """Write blocks into an opened folder, if there is room for them.

        Args:
            opened: The folder; None if it could not be opened.
            place: What it was opened for.
            blocks: The blocks, by their names.
            size_bytes: The size of their file.
        """
        if opened is None or not self.may_write():
            return
        wanted = sum(_disk_bytes(HEADER_BYTES + len(data)) for data in blocks.values())
        try:
            if not self._account(wanted):
                self._sweep_beside()
                return
            for name, data in blocks.items():
                checksum = _checksum(data, place, name, size_bytes)
                header = _HEADER.pack(_MARK, len(data), size_bytes, checksum)
                self._write_one(opened, name, header + bytes(data))
        except OSError as error:
            self._pause("cannot be written", error)
            self._account(-wanted)

    def _write_one(self, opened: int, name: str, body: bytes) -> None:
        descriptor, unfinished = tempfile.mkstemp(dir=os.path.join(self.root, "tmp"))
        try:
            written = os.write(descriptor, body)
            if written != len(body):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), unfinished)
            os.rename(unfinished, name, dst_dir_fd=opened)
        except FileNotFoundError:
            logger.debug("a purge has deleted the folder of block %s meanwhile", name)
            self._unlinked(unfinished)
        except OSError:
            self._unlinked(unfinished)
            raise
        finally:
            os.close(descriptor)

    def _unlinked(self, path: str) -> int:
        """Delete a file, and return what it took; 0 if it is not there or may not be deleted."""
        try:
            size = _disk_bytes(os.lstat(path).st_size)
            os.unlink(path)
        except FileNotFoundError:
            return 0
        except OSError as error:
            logger.debug("%s cannot be deleted: %s", path, error)
            return 0
        return size

    def dropped(self, folder: str) -> bool:
        """Delete a folder of blocks; return whether there were any, and all were deleted."""
        try:
            return self.remove(folder) > 0
        except OSError as error:
            self._pause("cannot be emptied", error)
            return False

    def remove(self, folder: str) -> int:
        """Delete a folder, with what is written into it meanwhile; return what it took.

        Raises:
            OSError: it cannot be deleted.
        """
        if not os.path.lexists(folder):
            return 0
        aside = tempfile.mkdtemp(dir=os.path.join(self.root, "tmp"))
        moved = os.path.join(aside, "removed")
        try:
            os.rename(folder, moved)
        except FileNotFoundError:
            _remove_if_empty(aside)
            return 0
        freed = sum(_disk_bytes(each.stat().st_size) for each in _files_in(moved))
        for _ in range(_REMOVALS_MAX):
            shutil.rmtree(aside, ignore_errors=True)
            if not os.path.lexists(aside):
                break
        else:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), aside)
        self._account(-freed)
        return freed

    def discard_unfinished(self) -> int:
        """Delete what is being written, or was left by killed processes; return what it took.

        Raises:
            OSError: something cannot be deleted.
        """
        freed = 0
        for each in _files_in(os.path.join(self.root, "tmp")):
            with suppress(FileNotFoundError):
                os.unlink(each.path)
                freed += _disk_bytes(each.stat(follow_symlinks=False).st_size)
        return freed

    # The bound.

    def _account(self, added: int) -> bool:
        """Add to what the cache takes; False, and nothing is added, if there is no room."""
        if not added:
            return True
        try:
            with self._used() as used:
                before = _number_in(used)
                is_room = before is not None and before + added <= self._bytes_max
                if before is not None and (is_room or added < 0):
                    _write_number(used, max(0, before + added))
        except OSError as error:
            self._pause("cannot be written", error)
            return False
        return is_room

    def _has_count(self) -> bool:
        try:
            with self._used() as used:
                return _number_in(used) is not None
        except OSError as error:
            self._pause("cannot be written", error)
            return True

    @contextmanager
    def _used(self) -> Iterator[int]:
        """Open the file that says what the cache takes, and lock it."""
        path = os.path.join(self.root, "used")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _age_s(self, name: str) -> float:
        try:
            changed_s = os.stat(os.path.join(self.root, name)).st_mtime
        except FileNotFoundError:
            return float("inf")
        return self._now().timestamp() - changed_s

    def _sweep_beside(self) -> None:
        with self._lock:
            if self._sweeping:
                return
            self._sweeping = True
        try:
            Thread(target=self._sweep, name="sleeper-cache-sweep").start()
        except RuntimeError as error:  # no more threads, or the process ends
            logger.warning("the disk cache %s could not be swept: %s", self.root, error)
            self._sweeping = False

    def _sweep(self, *, first: bool = False) -> None:
        """Count all blocks, and delete the oldest: unless another process does it now.

        Args:
            first: Wait for the other process, and count after it.
        """
        try:
            with _lock_of_sweeps(os.path.join(self.root, "swept"), wait=first) as is_own:
                if is_own:
                    self._delete_oldest()
        except OSError as error:
            self._pause("cannot be swept", error)
        finally:
            self._sweeping = False

    def _delete_oldest(self) -> None:
        with self._used() as used:
            before = _number_in(used) or 0
        now_s = self._now().timestamp()
        by_time = Counter[int]()
        for each in self._kept():
            about = each.stat(follow_symlinks=False)
            by_time[about.st_mtime_ns] += _disk_bytes(about.st_size)
        left, kept_from_ns = sum(by_time.values()), int((now_s - _UNREAD_S) * 1e9)
        is_full = left > self._bytes_max * 7 // 8
        for time_ns, size in sorted(by_time.items()):
            if time_ns >= kept_from_ns and not (is_full and left > self._bytes_max * 7 // 8):
                break
            left -= size
            kept_from_ns = max(kept_from_ns, time_ns + 1)
        for each in self._kept():
            if each.stat(follow_symlinks=False).st_mtime_ns < kept_from_ns:
                self._unlinked(each.path)
        self._remove_leftovers(now_s)
        with self._used() as used:
            meanwhile = (_number_in(used) or 0) - before
            _write_number(used, max(0, left + meanwhile))
        logger.debug("the disk cache %s takes %d bytes after a sweep", self.root, left)

    def _kept(self) -> Iterator[os.DirEntry[str]]:
        """Yield all blocks; those that are deleted meanwhile may be left out."""
        for folder in os.listdir(self.root):
            path = os.path.join(self.root, folder)
            if folder != "tmp" and os.path.isdir(path):
                yield from _files_in(path)

    def _remove_leftovers(self, now_s: float) -> None:
        """Delete old temp files, and folders without blocks."""
        for each in _files_in(os.path.join(self.root, "tmp")):
            if now_s - each.stat(follow_symlinks=False).st_mtime > _UNFINISHED_S:
                self._unlinked(each.path)
        for path, _, _ in os.walk(self.root, topdown=False):
            if path not in (self.root, os.path.join(self.root, "tmp")):
                _remove_if_empty(path)


@contextmanager
def _lock_of_sweeps(path: str, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of sweeps, and give the file the time of now; False if another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            is_own = False
        else:
            is_own = True
            os.utime(descriptor)
        yield is_own
    finally:
        os.close(descriptor)


def _files_in(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files below a folder; what is deleted meanwhile is left out."""
    try:
        entries = [*os.scandir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for each in entries:
        if each.is_dir(follow_symlinks=False):
            yield from _files_in(each.path)
        else:
            with suppress(FileNotFoundError):
                each.stat(follow_symlinks=False)  # kept in the entry
                yield each


def _remove_if_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError as error:
        logger.debug("%s stays: %s", folder, error)


def _number_in(descriptor: int) -> int | None:
    """Return the number in a file; None if there is none."""
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _write_number(descriptor: int, number: int) -> None:
    os.pwrite(descriptor, b"%20d" % number, 0)
