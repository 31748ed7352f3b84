"""Objects as files in a folder, for any number of processes and threads on one machine.

A file is written as a hidden temp file and made durable. Only then it gets its own name: by a hard
link if the name must be free, by a rename if it may replace a file. So files become visible
atomically, even if the process dies. The folder is made durable before a call returns.
"""

# Paths are strings here: half of these calls have no Path method, and making a Path costs as
# much as the system call.
# ruff: noqa: PTH102, PTH106, PTH108, PTH112, PTH113, PTH114, PTH116, PTH118, PTH120

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypeVar

from sleeper.errors import BadRequest, ObjectNotFound, StorageFailed, StorageReadOnly
from sleeper.model import paths
from sleeper.model.formats.properties_file import check_instance_id
from sleeper.ports.objects import (
    ObjectInfo,
    check_key,
    check_prefix,
    check_ranges,
    folder_prefix,
    forbidden_in,
    is_key,
)
from sleeper.storage.local.failures import (
    check_lengths,
    link_failure,
    read_failure,
    sync_failure,
    write_failure,
)
from sleeper.storage.local.unfinished import (
    FolderOutput,
    discard,
    open_unfinished,
    share_folder,
    sweep_unfinished,
    write_time,
    write_unfinished,
    writer_lock,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Another process may delete the empty folder that we are about to write to. Each attempt makes
# it again. Nobody loses this race so often by accident.
_ATTEMPTS = 20
_LEFT_OVER_AGE_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """The files under one folder. Keys are their paths, relative to it.

    Attributes:
        root: The folder, as an absolute path. The first write makes it, unless it is `opened`.
        prefix: Prefix of keys inside the folder: empty, or ends in `/`. `under` sets it.
        now: The clock (aware). If given, the process deletes temp files older than a day
            before its first write.
        opened: The instance that was opened in the folder; None for another folder. The folder of
            an instance is never made anew: a write to it raises `InstanceLost` if it is gone.

    Raises:
        BadRequest: `root` is a relative path, which would depend on the working directory.
    """

    root: Path
    prefix: str = ""
    now: Callable[[], datetime] | None = None
    opened: OpenedFolder | None = field(default=None, compare=False)
    _durable: set[str] = field(default_factory=set, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.root.is_absolute():
            raise BadRequest(f"a folder of objects needs an absolute path, not {self.root}")

    @property
    def is_remote(self) -> bool:
        """Return False: a read takes microseconds."""
        return False

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """Do nothing yet."""
        return cache(work)

    def create(self, key: str, body: bytes) -> bool:
        """Write a temp file, then link it to its name, which fails if the name is taken."""
        path = self.url(key)
        if os.path.lexists(path):
            return self._taken(path)
        unfinished = self._write(path, body)
        try:
            self._name(os.link, unfinished, path)
        except FileExistsError:
            return self._taken(path)
        except OSError as error:
            self._check_opened()
            raise link_failure(error, path) from error
        finally:
            discard(unfinished)
        _sync_name(path)
        return True

    def put(self, key: str, body: bytes) -> None:
        """Write a temp file, then rename it, which replaces an existing file."""
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
        """Read parts of a file through one descriptor, so all are of the same version."""
        check_ranges(key, ranges)
        path = self.url(key)
        # Opening and closing costs 3 microseconds, so descriptors are not cached.
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
        check_lengths(path, ranges, bodies)
        return bodies

    def size(self, key: str) -> int:
        """Return the file's length from the file system."""
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

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """Ask for the file's length, and read."""
        size_bytes = self.size(key)
        length = min(length, size_bytes)
        return self.read_ranges(key, [(size_bytes - length, length)])[0], size_bytes

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
        """Open a temp file; closing it renames it to its name."""
        path = self.url(key)
        try:
            self._make_folder(str(self.root))
            unfinished = open_unfinished(str(self.root))
        except OSError as error:
            self._check_opened()
            raise write_failure(error, path) from error
        return FolderOutput(unfinished, path, self._replace)

    def url(self, key: str) -> str:
        """Return the file's absolute path; the file need not exist."""
        if forbidden_in(key):  # asked here at each call, so without another one
            check_key(key)
        return f"{self.root}/{self.prefix}{key}"

    def listing(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """List the folders that may contain such keys."""
        check_prefix(prefix)
        return walk(f"{self.root}/{self.prefix}", prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, then folders that become empty."""
        touched = set()
        for key in keys:
            path = self.url(key)
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                if _is_absent(path):  # a read-only file system refuses before it looks
                    continue
                raise write_failure(error, path) from error
            logger.debug("deleted %s", path)
            touched.add(os.path.dirname(path))
        for folder in {self._remove_empty(folder) for folder in touched}:
            with suppress(FileNotFoundError):
                _sync_folder(folder)

    def storage_time(self) -> datetime:
        """Write a temp file and return its modification time."""
        try:
            self._make_folder(str(self.root))
            return write_time(str(self.root))
        except OSError as error:
            self._check_opened()
            raise write_failure(error, str(self.root)) from error

    def writer_lock(
        self, key: str, meanwhile: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """Lock a hidden file (see the port), if the instance that was opened is there."""
        check_key(key)
        self._check_opened()
        return writer_lock(str(self.root), self.prefix + key, meanwhile)

    def under(self, prefix: str) -> FolderObjects:
        """Return the objects of a folder inside this one. Both share the folder of temp files."""
        return replace(self, prefix=self.prefix + folder_prefix(prefix))

    def sweep_temporaries(self, older_than_s: float, now: datetime) -> int:
        """Delete temp files of writers that died; return how many.

        Args:
            older_than_s: Keep files written to within this time: their writer may be alive.
            now: The current time (aware).
        """
        return sweep_unfinished(str(self.root), older_than_s, now)

    def _write(self, path: str, body: bytes) -> str:
        """Write the body of `path` to a temp file."""
        try:
            self._make_folder(str(self.root))
            return write_unfinished(str(self.root), body)
        except OSError as error:
            self._check_opened()
            raise write_failure(error, path) from error

    def _replace(self, unfinished: str, path: str) -> None:
        """Rename a finished temp file to its name, which replaces an existing file."""
        try:
            self._name(os.replace, unfinished, path)
        except OSError as error:
            discard(unfinished)
            self._check_opened()
            raise write_failure(error, path) from error
        except BaseException:
            discard(unfinished)
            raise
        _sync_name(path)

    def _name(self, step: Callable[[str, str], object], unfinished: str, path: str) -> None:
        """Call `step` with `unfinished` and `path`; make the folder if it is missing."""
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
        """Make `folder` and its parents, and make each one's name durable.

        Names of existing folders are made durable too, because the process that made them may not
        have done so yet. This is done once in a process.

        Raises:
            FileNotFoundError: another process removed a parent folder at the same time.
            StorageFailed: it cannot be made.
            InstanceLost: it is the folder of an instance that is no longer there.
        """
        if folder == str(self.root):
            self._check_opened()
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

    def _check_opened(self) -> None:
        """Check that the instance that was opened is there."""
        if self.opened is not None:
            self.opened.check()

    def _taken(self, path: str) -> bool:
        """Return False, because `path` exists, after making its name durable."""
        if os.path.lexists(path) and not os.path.isfile(path):
            raise StorageReadOnly(f"nothing was created: {_no_file(path)}")
        with suppress(FileNotFoundError):
            _sync_name(path)
        return False

    def _remove_empty(self, folder: str) -> str:
        """Remove `folder` and parents that become empty; return the first one that is kept."""
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


def _not_found(path: str) -> ObjectNotFound:
    return ObjectNotFound(f"file {path} does not exist")


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
    """Make `folder` and its missing parents, durably."""
    if not os.path.isdir(folder):
        parent = os.path.dirname(folder)
        _make_folders(parent)
        _make_one_folder(folder)
        _sync_folder(parent)


def _make_one_folder(folder: str) -> bool:
    """Make a folder; return False if it exists."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        return False
    return True


def _sync_name(path: str) -> None:
    """Make the name of a file durable."""
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


# ---------------------------------------------------------------- opened folder
#
# The folder of an instance that was opened: whether it is still there, before each write to it.


_Signature = tuple[int, int, int, int]


@dataclass(slots=True)
class OpenedFolder:
    """Notices that the folder of an instance was moved, deleted or replaced.

    A `stat` of `instance.properties` is compared: it changes if the folder, a link to it or the
    mounted file system is another one, or if a property was set. Then the file is read, and its id
    decides. The folder itself would not do: one that is made anew often has the same inode.

    Attributes:
        root: The folder.
        instance_id: The `sleeper.id` of the instance.
    """

    root: Path
    instance_id: str
    _seen: _Signature | None = field(default=None, repr=False)

    def check(self) -> None:
        """Check that the instance is there.

        Raises:
            InstanceGone: it is not.
            InstanceReplaced: another one is there.
            StorageFailed: its properties cannot be read.
        """
        path = f"{self.root}/{paths.INSTANCE_PROPERTIES}"
        found = signature_of(path)
        if found is not None and found == self._seen:
            return
        check_instance_id(_read(path), str(self.root), self.instance_id)
        self._seen = found


def signature_of(path: str) -> _Signature | None:
    """Return what changes when another file has the name; None if that cannot be seen."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _is_absent(path: str) -> bool:
    """Whether nothing has the name; False if that cannot be seen."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise read_failure(error, path) from error


# ---------------------------------------------------------------- walk
#
# Lists a folder's files in the order of their keys, as an object store does.


def walk(root: str, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
    """Yield the files under `root` whose key starts with `prefix` and comes after `after`.

    Folders that cannot contain such a key are not opened; all names of an open folder are in
    memory. Symbolic links are not followed, so that deleting what is listed never deletes files
    outside. Names that are not valid keys are not ours and are left out.

    Raises:
        StorageFailed: a folder cannot be read.
    """
    start = prefix[: prefix.rfind("/") + 1]
    return _walk_folder(os.path.join(root, start), start, prefix, after)


def _walk_folder(folder: str, start: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
    for name, entry in _entries(folder):
        key = start + name
        if name.endswith("/"):
            if key.startswith(prefix) and (key > after or after.startswith(key)):
                yield from _walk_folder(entry.path, key, prefix, after)
        elif key.startswith(prefix) and key > after:
            yield from _describe(key, entry)


def _entries(folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    # Folders sort with a slash at the end, as in their keys: `a.b` < `a/b` < `a0`.
    try:
        with os.scandir(folder) as entries:
            named = [(entry.name + "/" * _is_folder(entry), entry) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise read_failure(error, folder) from error
    return sorted((pair for pair in named if is_key(pair[1].name)), key=lambda pair: pair[0])


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _describe(key: str, entry: os.DirEntry[str]) -> Iterator[ObjectInfo]:
    try:
        if entry.is_file(follow_symlinks=False):
            found = entry.stat(follow_symlinks=False)
            yield ObjectInfo(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))
    except FileNotFoundError:
        return  # deleted since the folder was read
    except OSError as error:
        raise read_failure(error, entry.path) from error
