"""The hidden folder of a store: temp files of writes, until they get their names, and locks."""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

from sleeper.ports.objects import TEMPORARY, Output
from sleeper.storage.local.failures import write_failure

# ---------------------------------------------------------------- modes
#
# Sets modes of new files, so that every user who may read the instance's folder may read them.
#
# If a user of a shared folder cannot read a log entry, the table is unreadable for that user. So
# files get the read bits for group and others that the instance's folder has, and new folders get
# all such bits, whatever the umask is. Bits that the umask allows are kept.

# Paths are strings here, as in folder.py.
# ruff: noqa: PTH101, PTH116


_SHARED = stat.S_IRWXG | stat.S_IRWXO
_READ = stat.S_IRGRP | stat.S_IROTH
_WRITE = stat.S_IWGRP | stat.S_IWOTH


def share_file(descriptor: int, root: str) -> None:
    """Let every user who may read the folder `root` read an open file of ours.

    Raises:
        OSError: the mode of the file or folder cannot be read or changed.
    """
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    wanted = mode | (_mode_of(root) & _READ)
    if wanted != mode:
        os.fchmod(descriptor, wanted)


def share_for_writing(descriptor: int, folder: str) -> None:
    """Let all who may write to `folder` write to an open file of ours in it.

    Raises:
        OSError: the file or the folder cannot be looked at, or the mode cannot be changed.
    """
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    wanted = mode | (_mode_of(folder) & (_READ | _WRITE))
    if wanted != mode:
        os.fchmod(descriptor, wanted)


def share_folder(folder: str, root: str) -> None:
    """Let every user who may use the folder `root` use the new `folder` inside it.

    Raises:
        OSError: a folder's mode cannot be read or changed.
    """
    mode = _mode_of(folder)
    wanted = mode | (_mode_of(root) & _SHARED)
    if wanted != mode:
        os.chmod(folder, wanted)


def _mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# Paths are strings here: half of these calls have no Path method, and making a Path costs as
# much as the system call.
# ruff: noqa: PTH102, PTH108, PTH118, PTH208


logger = logging.getLogger(__name__)

_FOLDER = f"{TEMPORARY}writes"
# pyarrow writes headers and bodies of pages separately; buffering makes one call per megabyte.
_BUFFER_SIZE_BYTES = 1 << 20
_NUMBERS = itertools.count()
_LOCK_NAME = re.compile("turn-[0-9a-f]{8}")
_OUR_NAME = re.compile(re.escape(TEMPORARY) + r"[0-9]+-[0-9]+")


def open_unfinished(root: str) -> tuple[int, str]:
    """Make an empty temp file in the hidden folder of `root`; return its descriptor and path.

    The hidden folder is made, and `root` must be there.

    Process id and a number make names unique; O_EXCL does if machines share a folder.

    Raises:
        OSError: it cannot be made.
    """
    folder = os.path.join(root, _FOLDER)
    while True:
        path = os.path.join(folder, f"{TEMPORARY}{os.getpid()}-{next(_NUMBERS)}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            continue
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(folder)  # never `root`: whoever opened an instance may have lost it
            share_folder(folder, root)
            continue
        try:
            share_file(descriptor, root)
        except BaseException:
            os.close(descriptor)
            discard(path)
            raise
        return descriptor, path


def write_unfinished(root: str, body: bytes) -> str:
    """Write `body` durably to a new temp file and return its path.

    Raises:
        OSError: it cannot be written; the temp file is deleted.
    """
    descriptor, path = open_unfinished(root)
    try:
        try:
            write_all(descriptor, body)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        discard(path)
        raise
    return path


def write_all(descriptor: int, body: bytes) -> None:
    """Write all of `body`; the system may need several calls for a large one."""
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def discard(path: str) -> None:
    """Delete a temp file. If that fails, a later `sweep_unfinished` deletes it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("unfinished file %s was not deleted: %s", path, error)


def write_time(root: str) -> datetime:
    """Return the modification time (UTC) of a temp file that is written now.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, path = open_unfinished(root)
    try:
        write_all(descriptor, b".")
        return datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)
    finally:
        os.close(descriptor)
        discard(path)


def sweep_unfinished(root: str, older_than_s: float, now: datetime) -> int:
    """Delete temp files that were not written to for `older_than_s` seconds; return how many.

    Only regular files with names that `open_unfinished` makes are deleted, and only if the folder
    is not a symbolic link, which could lead to foreign files. Failures are logged.
    """
    folder = os.path.join(root, _FOLDER)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return 0
    except OSError as error:
        logger.warning("%s is not swept: %s", folder, error)
        return 0
    try:
        names = [name for name in os.listdir(descriptor) if _OUR_NAME.fullmatch(name)]
        return sum(_sweep_one(descriptor, name, now.timestamp() - older_than_s) for name in names)
    finally:
        os.close(descriptor)


def remove_hidden_folder(root: str) -> None:
    """Delete temp files and locks of writers, whoever has them, and folders that are empty then.

    For an instance that is removed. Failures are logged.
    """
    folder = Path(root, _FOLDER)
    try:
        if folder.is_dir() and not folder.is_symlink():
            for path in folder.iterdir():
                if _OUR_NAME.fullmatch(path.name) or _LOCK_NAME.fullmatch(path.name):
                    discard(str(path))
            folder.rmdir()
        Path(root).rmdir()
    except OSError as error:
        logger.info("a folder of an instance that was removed stays: %s", error)


def _sweep_one(folder: int, name: str, before: float) -> bool:
    """Delete a file in an open folder, unless it was written to after the time `before`."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or found.st_mtime >= before:
            return False
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        logger.warning("unfinished file %s was not deleted: %s", name, error)
        return False
    logger.info("deleted unfinished file %s of a writer that died", name)
    return True


class FolderOutput(Output):
    """A stream into a temp file, which `close` makes durable and renames.

    Args:
        unfinished: Descriptor and path of the temp file; this object owns them.
        path: The file's name after `close`.
        put_in_place: Renames a finished temp file (first path) to its name (second), durably.
    """

    def __init__(
        self, unfinished: tuple[int, str], path: str, put_in_place: Callable[[str, str], None]
    ) -> None:
        descriptor, self._unfinished = unfinished
        self._file = os.fdopen(descriptor, "wb", buffering=_BUFFER_SIZE_BYTES)
        self._path = path
        self._put_in_place = put_in_place
        self._position = 0

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._file.closed

    def write(self, data: bytes | memoryview, /) -> int:
        """Write all of `data` and return its length in bytes."""
        try:
            written = self._file.write(data)
        except OSError as error:
            raise write_failure(error, self._path) from error
        self._position += written
        return written

    def tell(self) -> int:
        """Return how many bytes were written so far."""
        return self._position

    def flush(self) -> None:
        """Write buffered data to the system. Readers do not see it yet."""
        try:
            self._file.flush()
        except OSError as error:
            raise write_failure(error, self._path) from error

    def close(self) -> None:
        """Make the file durable and rename it. On failure the temp file is deleted."""
        if self.closed:
            return
        try:
            self.flush()
            try:
                os.fsync(self._file.fileno())
                self._file.close()
            except OSError as error:
                raise write_failure(error, self._path) from error
        except BaseException:
            self.abort()
            raise
        self._put_in_place(self._unfinished, self._path)

    def abort(self) -> None:
        """Delete the temp file."""
        if self.closed:
            return
        with suppress(OSError):  # buffered data that it fails to write is not needed
            self._file.close()
        discard(self._unfinished)


# ---------------------------------------------------------------- writer lock
#
# An advisory lock: writers of one folder take turns, so that none of them loses every race.
#
# The kernel releases a lock when its process dies, and waiting for one is bounded. The log does not
# depend on it: an entry is created only if absent. The lock only avoids lost races.
#
# The lock is asked for again and again, not waited for in the kernel. The kernel would hand it to
# the one that has waited longest: on a machine with more to do than it has cores, that one has no
# core just then, and nobody commits meanwhile.


_LOOKS = 1_000


@contextmanager
def writer_lock(root: str, key: str, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of `key` in the folder `root` while the block runs.

    Args:
        root: The folder.
        key: Names the lock.
        meanwhile: Called after each look while others have the lock; it waits a little.
    """
    descriptor = _open(root, key)
    if descriptor is None:
        yield
        return
    try:
        _take(descriptor, key, meanwhile)
        yield
    finally:
        _release(descriptor)


def _take(descriptor: int, key: str, meanwhile: Callable[[], object]) -> None:
    """Take a lock, or give up after some time, and where the file system has no locks."""
    for _ in range(_LOOKS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            meanwhile()
        except OSError as error:
            logger.debug("writers do not take turns, %s cannot be locked: %s", key, error)
            return
        else:
            return
    logger.info("another writer has had the lock of %s for long: going ahead without it", key)


def _release(descriptor: int) -> None:
    """Unlock and close the file. A process that was forked meanwhile may have it open as well."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError as error:
        logger.debug("a lock cannot be given back: %s", error)
    finally:
        os.close(descriptor)


def _open(root: str, key: str) -> int | None:
    """Open the hidden file of a lock; None if that fails, and writers do not take turns."""
    folder = Path(root) / f"{TEMPORARY}writes"
    name = f"turn-{crc32(key.encode()):08x}"
    try:
        if not folder.exists():
            folder.mkdir(exist_ok=True)  # `root` is not made: an instance may have been moved
            share_folder(str(folder), root)
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # no link elsewhere
        try:
            descriptor = _open_file(name, inside)
        finally:
            os.close(inside)
    except OSError as error:
        logger.debug("writers do not take turns, %s cannot be opened: %s", folder / name, error)
        return None
    with suppress(OSError):  # another user owns it and has shared it
        share_file(descriptor, root)
    return descriptor


def _open_file(name: str, folder: int) -> int:
    """Open a file of an open folder.

    It is opened for writing, which network file systems need to lock it, else for reading.
    """
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    except PermissionError:  # another user has made it
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
