"""A file of a user that is written to a temp file and renamed when it is complete and durable."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import ENOSPC, EROFS
from itertools import count
from pathlib import Path
from typing import IO

from sleeper.errors import AlreadyExists, StorageFailed, StorageFull, StorageReadOnly


class UnfinishedFile:
    """A hidden temp file beside the final path, which no other process writes to.

    `appear` renames it and `discard` deletes it. A killed process leaves `.NAME.PID-N.unfinished`.

    Attributes:
        path: The final path.
        file: The open temp file.

    Raises:
        StorageFailed: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hidden, self.file = _created(path)

    def appear(self, *, replace: bool) -> None:
        """Make the file durable, and rename it to its final path.

        Args:
            replace: True to replace an existing file; otherwise the path must not exist, even
                if it was created since.

        Raises:
            AlreadyExists: the path exists.
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
        """Delete the temp file; does nothing after `appear`."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self._hidden.unlink(missing_ok=True)


def taken(path: Path) -> AlreadyExists:
    """Return the error that a file exists already."""
    return AlreadyExists(f"{path} is there already: name a file that does not exist yet")


def write_failure(path: Path, error: OSError) -> StorageFailed:
    """Return our error for a failure to write a user's file."""
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
    """Rename a file to its final path, if the path does not exist."""
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
        os.fsync(descriptor)  # makes the name durable
    finally:
        os.close(descriptor)
