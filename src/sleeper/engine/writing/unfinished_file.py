"""A file of a user's own that appears under its name when it is whole and durable."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import ENOSPC, EROFS
from itertools import count
from pathlib import Path
from typing import IO

from sleeper.errors import AlreadyExists, StorageFailed, StorageFull, StorageReadOnly


class UnfinishedFile:
    """A file being written under a hidden name beside its own, which no other process writes to.

    `appear` and `discard` end it. A process that is killed leaves `.NAME.PID-N.unfinished`.

    Attributes:
        path: Where it appears.
        file: What is written to.

    Raises:
        StorageFailed: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hidden, self.file = _created(path)

    def appear(self, *, replace: bool) -> None:
        """Make what was written durable, and the file appear under its name.

        Args:
            replace: Replace a file of this name; otherwise it must not be there, even if it
                came since.

        Raises:
            AlreadyExists: something has this name.
            StorageFailed: the file cannot be written.
        """
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            if replace:
                self._hidden.replace(self.path)
            else:
                _link(self._hidden, self.path)
            _sync_folder(self.path.parent)
        except FileExistsError:
            raise taken(self.path) from None
        except OSError as error:
            raise write_failure(self.path, error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Delete what was written; nothing, once the file has appeared."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self._hidden.unlink(missing_ok=True)


def taken(path: Path) -> AlreadyExists:
    """Return the error that a file is there already."""
    return AlreadyExists(f"{path} is there already: name a file that does not exist yet")


def write_failure(path: Path, error: OSError) -> StorageFailed:
    """Return what is raised for a failure of the operating system to write a user's file."""
    kinds = {ENOSPC: StorageFull, EROFS: StorageReadOnly}
    kind = kinds.get(error.errno or 0, StorageFailed)
    return kind(f"cannot write {path}: {error.strerror or error}")


def _created(path: Path) -> tuple[Path, IO[bytes]]:
    for number in count():
        hidden = path.with_name(f".{path.name}.{os.getpid()}-{number}.unfinished")
        try:
            return hidden, hidden.open("xb")
        except FileExistsError:  # of another thread, or of a killed process
            continue
        except OSError as error:
            raise write_failure(path, error) from error
    raise AssertionError("numbers do not end")


def _link(hidden: Path, path: Path) -> None:
    """Give a file its name, if nothing has it."""
    try:
        path.hardlink_to(hidden)
    except FileExistsError:
        raise
    except OSError:  # the file system has no hard links
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        hidden.replace(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # so that the name survives a power cut
    finally:
        os.close(descriptor)
