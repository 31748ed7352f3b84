"""Which file systems reach over a network: SQLite's shared memory does not work there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mounts")
"""Where Linux lists what is mounted."""

_NETWORKS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "ceph", "lustre", "gpfs", "beegfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs"),
}


def network_file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the kind of network file system that `path` is on; None for local and unknown ones."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    target = os.path.realpath(path)
    kind, length = "", -1
    for line in lines:  # SERVER FOLDER nfs4 rw,... 0 0
        words = line.split()
        if len(words) < 3:
            continue
        folder = _unescaped(words[1])
        is_above = target == folder or target.startswith(folder.rstrip("/") + "/")
        if is_above and len(folder) >= length:  # the last of two at one place is what is seen
            kind, length = words[2], len(folder)
    return kind if kind in _NETWORKS else None


def _unescaped(text: str) -> str:
    for escaped, plain in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(escaped, plain)
    return text
