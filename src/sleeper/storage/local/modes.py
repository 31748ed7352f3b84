"""Who may read what is written: whoever the instance's own folder lets in, whatever the umask.

A log entry that one user of a shared folder cannot read ends the table for that user. So files get
the read bits for group and others that the instance's folder has, and folders in it all such bits.
Bits that the umask gives are kept.
"""

# Paths are strings here, as in folder.py.
# ruff: noqa: PTH101, PTH116

from __future__ import annotations

import os
import stat

_SHARED = stat.S_IRWXG | stat.S_IRWXO
_READ = stat.S_IRGRP | stat.S_IROTH
_WRITE = stat.S_IWGRP | stat.S_IWOTH


def share_file(descriptor: int, root: str) -> None:
    """Let all who may read the folder `root` read an open file of ours.

    Raises:
        OSError: the file or the folder cannot be looked at, or the mode cannot be changed.
    """
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    wanted = mode | (_mode_of(root) & _READ)
    if wanted != mode:
        os.fchmod(descriptor, wanted)


def share_for_writing(descriptor: int, folder: str) -> None:
    """Let all who may write to `folder` write to an open file of ours in it.

    Raises:
        OSError: the file or the folder cannot be looked at, or the mode cannot be changed.
    """
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    wanted = mode | (_mode_of(folder) & (_READ | _WRITE))
    if wanted != mode:
        os.fchmod(descriptor, wanted)


def share_folder(folder: str, root: str) -> None:
    """Let all who may use the folder `root` use `folder`, which was just made inside it.

    Raises:
        OSError: a folder cannot be looked at, or the mode cannot be changed.
    """
    mode = _mode_of(folder)
    wanted = mode | (_mode_of(root) & _SHARED)
    if wanted != mode:
        os.chmod(folder, wanted)


def _mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)
