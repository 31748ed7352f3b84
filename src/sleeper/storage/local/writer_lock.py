"""An advisory lock: writers of one folder take turns, so that none of them loses every race.

The kernel releases a lock when its process dies, and waiting for one is bounded. The log does not
depend on it: an entry is created only if absent. The lock only avoids lost races.

The kernel hands the lock to whoever has waited longest, but knows no time limit. So a thread waits
for it there. To look again and again instead would cost each waiting writer CPU time, which the
one that has the lock needs, and would leave it to chance who gets it.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from zlib import crc32

from sleeper.storage.keys import TEMPORARY
from sleeper.storage.local.modes import share_file, share_folder

logger = logging.getLogger(__name__)

_PATIENCE_S = 2.0
_STEP_S = 0.01


@contextmanager
def writer_lock(root: str, key: str, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of `key` in the folder `root` while the block runs.

    Args:
        root: The folder.
        key: Names the lock.
        meanwhile: Called again and again while others have the lock.
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
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except OSError as error:
        logger.debug("writers do not take turns, %s cannot be locked: %s", key, error)
        return
    else:
        return
    taken, copy = Event(), os.dup(descriptor)
    try:
        Thread(target=_wait, args=(copy, taken), name="writer lock", daemon=True).start()
    except RuntimeError as error:  # the system allows no more threads
        os.close(copy)
        logger.warning("the lock of %s is not waited for: %s", key, error)
        return
    for _ in range(round(_PATIENCE_S / _STEP_S)):
        if taken.wait(_STEP_S):
            return
        meanwhile()
    logger.info("another writer has had the lock of %s for long: going ahead without it", key)


def _wait(descriptor: int, taken: Event) -> None:
    """Wait for a lock in the kernel, and close the descriptor.

    Whoever the lock was for has the file open too. If it is not, the kernel takes the lock back.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        logger.debug("a lock cannot be waited for: %s", error)
    finally:
        os.close(descriptor)
        taken.set()


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
            folder.mkdir(parents=True, exist_ok=True)
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
