"""Sets modes of new files, so that every user who may read the instance's folder may read them.

If a user of a shared folder cannot read a log entry, the table is unreadable for that user. So
files get the read bits for group and others that the instance's folder has, and new folders get
all such bits, whatever the umask is. Bits that the umask allows are kept.
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
    """Let every user who may read the folder `root` read an open file of ours.

    Raises:
        OSError: the mode of the file or folder cannot be read or changed.
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
    """Let every user who may use the folder `root` use the new `folder` inside it.

    Raises:
        OSError: a folder's mode cannot be read or changed.
    """
    mode = _mode_of(folder)
    wanted = mode | (_mode_of(root) & _SHARED)
    if wanted != mode:
        os.chmod(folder, wanted)


def _mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)
