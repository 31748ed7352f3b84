"""Writes a folder of a user that becomes visible atomically when it is complete."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTDIR, ENOTEMPTY
from glob import escape
from pathlib import Path

from sleeper.errors import AlreadyExists, StorageFailed

_TAKEN = {EEXIST, ENOTDIR, ENOTEMPTY}
_UNFINISHED = ".unfinished"

_log = logging.getLogger(__name__)


@contextmanager
def atomic_directory(folder: Path, mark: str) -> Iterator[Path]:
    """Yield a temp folder, not made yet, that is renamed to `folder` if the block succeeds.

    It is beside `folder`, with the hidden name `.NAME.MARK.unfinished`. If the block fails, it is
    deleted, with parent folders that were made for it; a killed process leaves it. Hidden files
    in it do not become part of `folder`.

    Args:
        folder: The folder to make, or an empty one, which is replaced.
        mark: A random id, so that two writers of one folder use different temp folders.

    Raises:
        AlreadyExists: `folder` exists and is not an empty folder, or is an empty one that
            cannot be replaced.
        StorageFailed: the folder cannot be made.
    """
    folder = Path(os.path.realpath(folder))
    _check_free(folder)
    unfinished = folder.with_name(f".{folder.name}.{mark}{_UNFINISHED}")
    above = [parent for parent in folder.parents if not os.path.lexists(parent)]
    try:
        yield unfinished
        _rename(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        _remove_empty(above)
        raise


def delete_unfinished(folder: Path) -> None:
    """Delete the temp folders that killed processes left beside `folder`.

    A process that is still writing one fails.
    """
    folder = Path(os.path.realpath(folder))
    for left in folder.parent.glob(f".{escape(folder.name)}.*{_UNFINISHED}"):
        _log.info("deleting %s, which a writer that died has left", left)
        shutil.rmtree(left, ignore_errors=True)


def _check_free(folder: Path) -> None:
    try:
        if not os.path.lexists(folder):
            return
        if not folder.is_dir() or any(folder.iterdir()):
            raise _taken(folder)
        if folder.is_mount() or folder == Path(os.path.realpath(".")):
            raise AlreadyExists(
                f"{folder} is in use, as a mounted or the working folder, so it cannot be "
                "replaced: name a folder inside it that does not exist yet"
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
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Delete folders, the innermost first, as long as they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _taken(folder: Path) -> AlreadyExists:
    return AlreadyExists(f"{folder} is there already: name a folder that does not exist yet")


def _failed(folder: Path, error: OSError) -> StorageFailed:
    return StorageFailed(f"cannot write {folder}: {error.strerror or error}")
