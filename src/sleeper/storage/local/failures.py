"""Translates an `OSError` of the operating system into one of our errors."""

from __future__ import annotations

import errno
import stat
from collections.abc import Sequence
from pathlib import Path

from sleeper.errors import ObjectTooShort, StorageFailed, StorageFull, StorageReadOnly

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}


def read_failure(error: OSError, path: str) -> StorageFailed:
    """Translate the failure to read `path`, a file or a folder."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return StorageFailed(
            f"cannot read {path}: {_reason(error, path)}{_owner(path)}. Its owner or an "
            "administrator must let this user read all files of the instance, for a group by "
            "`chmod -R g+rX` on its folder. New files are then readable by the same users."
        )
    return StorageFailed(
        f"cannot read {path}: {_reason(error, path)}. Make it readable for this user, or repair "
        "the disk, then try again."
    )


def write_failure(error: OSError, path: str) -> StorageFailed:
    """Translate the failure to write, replace or delete `path`."""
    what = f"cannot write {path}: {_reason(error, path)}."
    if error.errno in _FULL:
        return StorageFull(f"{what} Free some space or raise the quota, then try again.")
    if error.errno in _FORBIDDEN:
        return StorageReadOnly(
            f"{what} Allow this user to write to the folder, or use an instance in another one."
        )
    return StorageFailed(f"{what} Repair the disk or correct the path, then try again.")


def link_failure(error: OSError, path: str) -> StorageFailed:
    """Translate the failure to link a finished temp file to its name, `path`."""
    if error.errno in _NO_LINKS:
        return StorageReadOnly(
            f"cannot commit {path}: {_reason(error, path)}. This file system cannot make hard "
            "links, the only way to create a file once and atomically. Put the instance on a "
            "local disk (ext4, xfs, btrfs, APFS) or in an object store."
        )
    return write_failure(error, path)


def sync_failure(error: OSError, path: str) -> StorageFailed:
    """Translate the failure to make the name `path` durable after it became visible."""
    return StorageFailed(
        f"{path} is in place, but the disk did not confirm it: {_reason(error, path)}. A power "
        "cut could undo it. Repair the disk, then run the same operation again."
    )


def _reason(error: OSError, path: str) -> str:
    reason = error.strerror or str(error)
    return reason if error.filename in (None, path) else f"{reason} ({error.filename})"


def _owner(path: str) -> str:
    """Return text with the file's owner and mode, if they can be read."""
    try:
        found = Path(path).lstat()
    except OSError:
        return ""
    return f" (it belongs to user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o})"


def check_lengths(path: str, ranges: Sequence[tuple[int, int]], bodies: list[bytes]) -> None:
    """Check that the bytes of each (offset, length) were all there.

    Raises:
        ObjectTooShort: the file ends before one of them does.
    """
    for (offset, length), body in zip(ranges, bodies, strict=True):
        if len(body) < length:
            raise ObjectTooShort(
                f"{path} ends before byte {offset + length}, up to which it should be read. It is "
                "shorter than expected: truncated, or replaced."
            )
