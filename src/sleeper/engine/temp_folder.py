"""The folder for temp files of this process: the one that TMPDIR names, even if it is full.

Python's own `tempfile.gettempdir` tries to write, and takes another folder in silence: sorts of
many gigabytes would fill a disk that somebody wanted to spare.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sleeper.errors import StorageFailed, StorageFull, StorageReadOnly


def temp_folder(given: Path | None = None) -> Path:
    """Return the folder for temp files.

    Args:
        given: What the caller's settings say; None for TMPDIR, or the system's folder without it.
    """
    if given is not None:
        return given
    named = os.environ.get("TMPDIR")  # noqa: TID251 - `tempfile` reads it, and may not keep to it
    return Path(named) if named else Path(tempfile.gettempdir())


@contextmanager
def temp_file_failures(folder: Path, use: str) -> Iterator[None]:
    """Raise failures to write temp files as ours.

    Args:
        folder: Where they are.
        use: Why space is needed there, as the rest of a sentence that begins with "it is full: ".

    Raises:
        StorageFull, StorageReadOnly, StorageFailed: naming the folder.
    """
    where = f"the folder for temporary files, {str(folder)!r},"
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"{where} is full: {use}. Free some space, or set another folder by TMPDIR"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StorageReadOnly(
                f"{where} is not writable; set another folder by TMPDIR"
            ) from error
        raise StorageFailed(
            f"{where} cannot be used: {error.strerror or error}. Correct TMPDIR, which names it"
        ) from error
