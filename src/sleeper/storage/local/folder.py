"""Objects as files in a folder, for any number of processes and threads on one machine.

A file is written under a hidden name, made durable, and only then given its own name: by a hard
link where it must be the first, by a rename where it replaces. So a reader sees a whole file or
none, whenever a process dies; and the folder is made durable before anybody is told.
"""

# Paths are strings here: half of these calls have no Path method, and a Path costs as much as
# the system call that it is made for.
# ruff: noqa: PTH102, PTH106, PTH108, PTH112, PTH113, PTH114, PTH116, PTH120

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from sleeper.errors import BadRequest, ObjectNotFound, StorageFailed, StorageReadOnly
from sleeper.ports.objects import ObjectInfo
from sleeper.storage.keys import check_key, check_prefix, check_ranges, folder_prefix
from sleeper.storage.local.failures import (
    link_failure,
    read_failure,
    sync_failure,
    write_failure,
)
from sleeper.storage.local.modes import share_folder
from sleeper.storage.local.unfinished import (
    FolderOutput,
    discard,
    open_unfinished,
    sweep_unfinished,
    write_time,
    write_unfinished,
)
from sleeper.storage.local.walk import walk
from sleeper.storage.local.writer_lock import writer_lock

logger = logging.getLogger(__name__)

# Others may delete the folder we are about to write to, having emptied it. Each round makes it
# again; to lose this often, somebody would have to delete on purpose.
_ATTEMPTS = 20
_LEFT_OVER_AGE_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """The files under one folder. Keys are their paths, relative to it.

    Attributes:
        root: The folder, as an absolute path. It is made by the first write.
        prefix: Where in the folder keys begin: empty, or ending in `/`. `under` sets it.
        now: The clock (aware), if this process is to delete unfinished files that are a day
            old. It does so before its first write; reading deletes nothing.

    Raises:
        BadRequest: `root` is relative, so it would move with the working directory.
    """

    root: Path
    prefix: str = ""
    now: Callable[[], datetime] | None = None
    _durable: set[str] = field(default_factory=set, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.root.is_absolute():
            raise BadRequest(f"a folder of objects needs an absolute path, not {self.root}")

    def create(self, key: str, body: bytes) -> bool:
        """Write a hidden file, then link it to its name, which fails where the name is taken."""
        path = self.url(key)
        if os.path.lexists(path):
            return self._taken(path)
        unfinished = self._write(path, body)
        try:
            self._name(os.link, unfinished, path)
        except FileExistsError:
            return self._taken(path)
        except OSError as error:
            raise link_failure(error, path) from error
        finally:
            discard(unfinished)
        _sync_name(path)
        return True

    def put(self, key: str, body: bytes) -> None:
        """Write a hidden file, then rename it over whatever has its name."""
        path = self.url(key)
        self._replace(self._write(path, body), path)

    def read(self, key: str) -> bytes | None:
        """Read a whole file."""
        path = self.url(key)
        descriptor = _open(path)
        if descriptor is None:
            return None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                raise _no_file(path)
            return _read_at(descriptor, 0, found.st_size)
        except IsADirectoryError:
            return None
        except OSError as error:
            raise read_failure(error, path) from error
        finally:
            os.close(descriptor)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read parts of a file, all through one descriptor, so all of one file."""
        check_ranges(key, ranges)
        path = self.url(key)
        # Opening and closing costs 3 microseconds: not worth keeping descriptors for.
        descriptor = _open(path)
        if descriptor is None:
            raise _not_found(path)
        try:
            bodies = [_read_at(descriptor, offset, length) for offset, length in ranges]
        except IsADirectoryError as error:
            raise _not_found(path) from error
        except OSError as error:
            raise read_failure(error, path) from error
        finally:
            os.close(descriptor)
        _check_lengths(path, ranges, bodies)
        return bodies

    def size(self, key: str) -> int:
        """Ask the file system."""
        path = self.url(key)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _not_found(path) from error
        except OSError as error:
            raise read_failure(error, path) from error
        if stat.S_ISDIR(found.st_mode):
            raise _not_found(path)
        return found.st_size

    def stored_at(self, key: str) -> datetime | None:
        """Ask the file system when the file was last written, named or copied.

        The time of the last write alone is too early: a file is written before it has its name.
        """
        path = self.url(key)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise read_failure(error, path) from error
        if stat.S_ISDIR(found.st_mode):
            return None
        return datetime.fromtimestamp(max(found.st_mtime, found.st_ctime), UTC)

    def open_output(self, key: str) -> FolderOutput:
        """Open a hidden file; closing it renames it to its name."""
        path = self.url(key)
        try:
            self._make_folder(str(self.root))
            unfinished = open_unfinished(str(self.root))
        except OSError as error:
            raise write_failure(error, path) from error
        return FolderOutput(unfinished, path, self._replace)

    def url(self, key: str) -> str:
        """Return the file's absolute path, whether there is a file or not."""
        check_key(key)
        return f"{self.root}/{self.prefix}{key}"

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Walk the folders that may hold such keys."""
        check_prefix(prefix)
        return walk(f"{self.root}/{self.prefix}", prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files, then the folders that this leaves empty."""
        touched = set()
        for key in keys:
            path = self.url(key)
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                raise write_failure(error, path) from error
            logger.debug("deleted %s", path)
            touched.add(os.path.dirname(path))
        for folder in {self._remove_empty(folder) for folder in touched}:
            with suppress(FileNotFoundError):
                _sync_folder(folder)

    def storage_time(self) -> datetime:
        """Write a hidden file and ask the file system when that was."""
        try:
            self._make_folder(str(self.root))
            return write_time(str(self.root))
        except OSError as error:
            raise write_failure(error, str(self.root)) from error

    def writer_lock(self, key: str, pause: Callable[[int], None]) -> AbstractContextManager[None]:
        """Queue up by a lock on a hidden file (the port says the rest)."""
        check_key(key)
        return writer_lock(str(self.root), self.prefix + key, pause)

    def under(self, prefix: str) -> FolderObjects:
        """Return the objects of one folder inside. Both share the hidden files."""
        return replace(self, prefix=self.prefix + folder_prefix(prefix))

    def sweep_temporaries(self, older_than_s: float, now: datetime) -> int:
        """Delete what writers that died have left behind, and return how many files that was.

        Args:
            older_than_s: Spare files written to within this time: their writer may be alive.
            now: The time now (aware).
        """
        return sweep_unfinished(str(self.root), older_than_s, now)

    def _write(self, path: str, body: bytes) -> str:
        """Write the body of `path` to a hidden file."""
        try:
            self._make_folder(str(self.root))
            return write_unfinished(str(self.root), body)
        except OSError as error:
            raise write_failure(error, path) from error

    def _replace(self, unfinished: str, path: str) -> None:
        """Give a finished file its name, in place of any file that has it."""
        try:
            self._name(os.replace, unfinished, path)
        except OSError as error:
            discard(unfinished)
            raise write_failure(error, path) from error
        except BaseException:
            discard(unfinished)
            raise
        _sync_name(path)

    def _name(self, step: Callable[[str, str], object], unfinished: str, path: str) -> None:
        """Do `step` from `unfinished` to `path`, in a folder that is made if need be."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                self._make_folder(os.path.dirname(path))
                step(unfinished, path)
            except FileNotFoundError:
                self._durable.clear()
                if not attempts_left or not os.path.lexists(unfinished):
                    raise
            else:
                return

    def _make_folder(self, folder: str) -> None:
        """Make `folder` and what is above it; make each one's own name durable.

        Also where the folder is there already: whoever made it may not have got so far yet.
        Once a process is enough.

        Raises:
            FileNotFoundError: somebody removed a folder above it meanwhile.
            StorageFailed: it cannot be made.
        """
        if folder in self._durable:
            return
        try:
            if folder == str(self.root):
                _make_folders(folder)
                if self.now is not None:
                    self.sweep_temporaries(_LEFT_OVER_AGE_S, self.now())
            else:
                parent = os.path.dirname(folder)
                self._make_folder(parent)
                if _make_one_folder(folder):
                    share_folder(folder, str(self.root))
                _sync_folder(parent)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise write_failure(error, folder) from error
        self._durable.add(folder)

    def _taken(self, path: str) -> bool:
        """Answer that `path` exists: False, once that cannot be undone by a power cut."""
        if os.path.lexists(path) and not os.path.isfile(path):
            raise StorageReadOnly(f"nothing was created: {_no_file(path)}")
        with suppress(FileNotFoundError):
            _sync_name(path)
        return False

    def _remove_empty(self, folder: str) -> str:
        """Remove `folder` and those above it that are left empty; return the first one kept."""
        while folder != str(self.root):
            try:
                os.rmdir(folder)
            except OSError:
                break
            self._durable.discard(folder)
            folder = os.path.dirname(folder)
        return folder


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its writer
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.islink(path):
            raise _no_file(path) from error
        return None
    except OSError as error:
        raise read_failure(error, path) from error


def _read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Read `length` bytes, or up to the end: the system may return large reads in pieces."""
    body = os.pread(descriptor, length, offset)
    if len(body) == length or not body:
        return body
    return body + _read_at(descriptor, offset + len(body), length - len(body))


def _check_lengths(path: str, ranges: Sequence[tuple[int, int]], bodies: list[bytes]) -> None:
    for (offset, length), body in zip(ranges, bodies, strict=True):
        if len(body) < length:
            raise StorageFailed(
                f"{path} ends before byte {offset + length}, up to which it was to be read. It is "
                "shorter than its reader believes: truncated, or replaced."
            )


def _not_found(path: str) -> ObjectNotFound:
    return ObjectNotFound(f"there is no file {path}")


def _no_file(path: str) -> StorageFailed:
    what = "is no regular file"
    if os.path.isdir(path):
        what = "is a folder"
    elif os.path.islink(path):
        what = "is a symbolic link to nothing"
    return StorageFailed(
        f"{path} {what}. Put back the file that belongs there, or, if Sleeper never wrote one of "
        "this name, remove it. Then try again."
    )


def _make_folders(folder: str) -> None:
    """Make `folder` and what is missing above it, durably."""
    if not os.path.isdir(folder):
        parent = os.path.dirname(folder)
        _make_folders(parent)
        _make_one_folder(folder)
        _sync_folder(parent)


def _make_one_folder(folder: str) -> bool:
    """Make a folder; False when it is there already."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        return False
    return True


def _sync_name(path: str) -> None:
    """Make the name of a file that is in place survive a power cut."""
    try:
        _sync_folder(os.path.dirname(path))
    except OSError as error:
        raise sync_failure(error, path) from error


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
