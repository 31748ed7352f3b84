"""What SQLite's errors mean to us, and who holds a lock of its file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from sleeper.errors import (
    DataDamaged,
    SleeperError,
    StorageFailed,
    StorageFull,
    StorageReadOnly,
)

_FREE_BYTES_MIN = 1_000_000
_PRIMARY = 0xFF
"""The bits of an error code that say its kind; those above say more."""


def job_file_failure(error: sqlite3.Error, path: Path, waited_s: float) -> SleeperError:
    """Translate an error of SQLite for the file at `path`."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _locked(path, waited_s)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return StorageFull(
            f"cannot write {path}: {error}. Nothing was changed. Free some space on its disk or "
            "raise the quota, then try again."
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH) or (
        code == sqlite3.SQLITE_CANTOPEN and not os.access(path.parent, os.W_OK)
    ):
        return StorageReadOnly(
            f"cannot write {path}: {error}. Allow this user to write to the file and its folder, "
            "or set sleeper.jobs.url to sqlite:///and/another/absolute/path."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DataDamaged(
            f"{path}, which has queues, tracker and batcher, is damaged: {error}. No table is "
            "touched by this. Stop what uses the file, restore it from a backup or move it away "
            "with its -wal and -shm files, and send again what was not done."
        )
    return StorageFailed(
        f"cannot use {path}: {error}. Repair the disk or correct the path, then try again."
    )


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _FREE_BYTES_MIN
    except OSError:
        return False


def _locked(path: Path, waited_s: float) -> StorageFailed:
    holders = lock_holders(path)
    if holders:
        who = f"Process {', '.join(map(str, holders))} has a lock of it"
    else:
        who = f"`fuser -v {path}` may tell who has it open"
    return StorageFailed(
        f"{path} was locked by another process for {waited_s:.0f} seconds. {who}: end that "
        "process if it hangs, then try again."
    )


def lock_holders(path: Path, locks: Path = Path("/proc/locks")) -> list[int]:
    """Return the ids of other processes that hold write locks of the file; none where unknown."""
    inodes = {str(file.stat().st_ino) for file in _files_of(path) if file.exists()}
    try:
        lines = locks.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found = set()
    for line in lines:  # 1: POSIX  ADVISORY  WRITE 4711 08:01:123456 120 120
        words = line.split()  # that of a process that waits has an arrow, and so another word
        if len(words) > 5 and words[3] == "WRITE" and words[5].rpartition(":")[2] in inodes:
            found.add(int(words[4]))
    return sorted(found - {os.getpid()})


def _files_of(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-shm")
