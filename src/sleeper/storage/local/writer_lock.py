"""An advisory lock: writers of one folder take turns, so that none of them loses every race.

The kernel releases a lock when its process dies, and waiting for one is bounded. The log does not
depend on it: an entry is created only if absent. The lock only avoids lost races.

The lock is asked for again and again, not waited for in the kernel. The kernel would hand it to the
one that has waited longest: on a machine with more to do than it has cores, that one has no core
just then, and nobody commits meanwhile.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from sleeper.storage.keys import TEMPORARY
from sleeper.storage.local.unfinished import share_file, share_folder

logger = logging.getLogger(__name__)

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
    path = folder / f"turn-{crc32(key.encode()):08x}"
    try:
        if not folder.exists():
            folder.mkdir(exist_ok=True)  # `root` is not made: an instance may have been moved
            share_folder(str(folder), root)
        descriptor = _open_file(path)
    except OSError as error:
        logger.debug("writers do not take turns, %s cannot be opened: %s", path, error)
        return None
    with suppress(OSError):  # another user owns it and has shared it
        share_file(descriptor, root)
    return descriptor


def _open_file(path: Path) -> int:
    """Open the file for writing, which network file systems need to lock it, else for reading."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:  # another user has made it
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
