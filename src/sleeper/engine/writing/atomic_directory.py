"""A folder of a user's own that appears at once, when everything in it is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTDIR, ENOTEMPTY
from pathlib import Path

from sleeper.errors import AlreadyExists, StorageFailed

_TAKEN = {EEXIST, ENOTDIR, ENOTEMPTY}


@contextmanager
def atomic_directory(folder: Path, mark: str) -> Iterator[Path]:
    """Yield a folder to write to, not made yet, that becomes `folder` when the block ends well.

    Until then it is hidden beside it, as `.NAME.MARK.unfinished`. If the block fails it is
    deleted, with folders above it that were made for it; a process that is killed leaves it.
    Hidden names in it do not become part of `folder`.

    Args:
        folder: The folder to make, or an empty one, which is replaced.
        mark: Fresh and random: two that make one folder do not meet before the end.

    Raises:
        AlreadyExists: there is something at `folder` that is not an empty folder, or an empty
            one that cannot be replaced.
        StorageFailed: the folder cannot be made.
    """
    folder = Path(os.path.realpath(folder))
    _check_free(folder)
    unfinished = folder.with_name(f".{folder.name}.{mark}.unfinished")
    above = [parent for parent in folder.parents if not os.path.lexists(parent)]
    try:
        yield unfinished
        _rename(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        _remove_empty(above)
        raise


def _check_free(folder: Path) -> None:
    try:
        if not os.path.lexists(folder):
            return
        if not folder.is_dir() or any(folder.iterdir()):
            raise _taken(folder)
        if folder.is_mount() or folder == Path(os.path.realpath(".")):
            raise AlreadyExists(
                f"{folder} is in use, as a mounted or the working folder, so it cannot be "
                "replaced by a finished one: name a folder inside it that does not exist yet"
            )
    except OSError as error:
        raise _failed(folder, error) from error


def _rename(unfinished: Path, folder: Path) -> None:
    try:
        for hidden in unfinished.glob(".*"):
            shutil.rmtree(hidden)
        _sync(unfinished)
        unfinished.rename(folder)
        _sync(folder.parent)
    except OSError as error:
        raise (_taken(folder) if error.errno in _TAKEN else _failed(folder, error)) from error


def _sync(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, the innermost first, as long as nobody has put anything there."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _taken(folder: Path) -> AlreadyExists:
    return AlreadyExists(f"{folder} is there already: name a folder that does not exist yet")


def _failed(folder: Path, error: OSError) -> StorageFailed:
    return StorageFailed(f"cannot write {folder}: {error.strerror or error}")
