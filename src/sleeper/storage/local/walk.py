"""Lists a folder's files in the order of their keys, as an object store does."""

# Paths are strings here: half of these calls have no Path method, and making a Path costs as
# much as the system call.
# ruff: noqa: PTH118

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime

from sleeper.ports.objects import ObjectInfo
from sleeper.storage.keys import is_key
from sleeper.storage.local.failures import read_failure


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
